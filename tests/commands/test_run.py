"""`run`: what it prints, what it writes, its exit status."""

from __future__ import annotations

import json
import re

import pytest

from harness import job, reach
from tests.commands.conftest import left, plain, target

RULES = "outcome,columns,nulls,free,ids,order,zeroing"


@pytest.fixture
def few(monkeypatch):
    """A run that must meet two crossings only, and shrinks three differences at most."""
    monkeypatch.setattr(reach, "MINIMA", {"granted": 10, "refused by the test": 1})
    monkeypatch.setattr(job, "MAX_SHRUNK", 3)


def counted(text: str, folder) -> str:
    """Output whose counts depend on the traces that are drawn."""
    text = re.sub(r"\b\d[\d,]*(?= \(| steps| traces)", "N", plain(text, folder))
    return re.sub(r" +", " ", text)


# ------------------------------------------------------------------------------------------------ agreed


def test_agreed(pure, few, tmp_path, snapshot):
    """What was reached, the verdict; exit status 0."""
    result = pure("run", "--steps", 3000, "--target", target("Sound"), "--aspects", RULES)

    assert snapshot == counted(result.out, tmp_path)
    assert (0, "", ["slotcheck-out/run.json"]) == (result.status, result.err, left(tmp_path))


def test_two_workers_print_the_same(pure, few, tmp_path):
    """The worker count changes nothing that is seen, but the time."""
    one, two = (
        pure("run", "--steps", 9000, "--target", target("Sound"), "--aspects", RULES, "--workers", workers)
        for workers in (1, 2)
    )

    assert plain(one.out, tmp_path) == plain(two.out, tmp_path)


def test_json_is_one_object(pure, few):
    """On stdout and nothing else; what is for people goes to stderr."""
    result = pure("run", "--steps", 3000, "--target", target("Sound"), "--aspects", RULES, "--json")
    data = json.loads(result.out)

    assert {
        "verdict": "agreed",
        "reasons": [],
        "release": "0.33.0",
        "level": "manager",
        "seed": 0,
        "interrupted": False,
        "differences": [],
        "declared": {},
        "missed": [],
    } == {name: data[name] for name in data if name not in VARIES}


#: what depends on the traces that are drawn, or on the clock
VARIES = ("steps", "traces", "shards", "seconds", "steps_per_second", "canary_steps", "reach")


def test_json_has_every_number(pure, few):
    """And each is one that a run can have."""
    result = pure("run", "--steps", 3000, "--target", target("Sound"), "--aspects", RULES, "--json")
    data = json.loads(result.out)

    assert {"granted", "refused by the test"} == set(data["reach"])
    assert all(data[name] > 0 for name in VARIES if name != "reach")


def test_json_is_kept(pure, few, tmp_path):
    """run.json in the output folder says what was printed."""
    result = pure("run", "--steps", 1, "--target", target("Sound"), "--aspects", RULES, "--json")

    assert result.out == (tmp_path / "slotcheck-out" / "run.json").read_text()


def test_a_seed_is_a_run(pure, few):
    """The same numbers again, and others for another seed."""
    options = ("run", "--steps", 1, "--target", target("Sound"), "--aspects", RULES, "--json", "--seed")
    steps = [json.loads(pure(*options, seed).out)["steps"] for seed in (5, 5, 6)]

    assert (True, False) == (steps[0] == steps[1], steps[0] == steps[2])


def test_a_budget_of_time(pure, few):
    """In seconds, or with a unit."""
    result = pure("run", "--budget", "1s", "--target", target("Sound"), "--aspects", RULES, "--json")

    assert 1 <= json.loads(result.out)["seconds"] < 10


# ------------------------------------------------------------------------------------------- differences


def test_differences(pure, few, tmp_path):
    """A table, the verdict, the reports; exit status 1."""
    result = pure("run", "--steps", 1, "--target", target("NoLookahead"), "--aspects", "columns,outcome")
    reports = re.findall(r"^  (slotcheck-out/\S+)/report\.md$", result.out, flags=re.MULTILINE)

    assert (1, True) == (result.status, bool(reports))
    assert sorted(["slotcheck-out/run.json", *files_of(reports)]) == left(tmp_path)


def files_of(folders):
    return [f"{folder}/{name}" for folder in folders for name in ("page.html", "report.md", "repro.py", "trace.json")]


def test_differences_as_json(pure, few, tmp_path):
    """Fingerprint, level, aspect, step, operations, how often, where the trace lies, what else it showed as."""
    result = pure("run", "--steps", 1, "--target", target("NoLookahead"), "--aspects", "columns,outcome", "--json")
    names = {"fingerprint", "level", "aspect", "step", "operations", "minimal", "count", "trace", "also"}

    assert [True] == sorted(
        {
            names == set(found) and (tmp_path / found["trace"]).is_file()
            for found in json.loads(result.out)["differences"]
        }
    )


def test_a_reported_trace_replays(pure, few):
    """With one command."""
    options = ("--target", target("NoLookahead"), "--aspects", "columns,outcome")
    result = pure("run", "--steps", 1, *options, "--json")
    first = json.loads(result.out)["differences"][0]

    assert 1 == pure("replay", first["trace"], *options).status


@pytest.mark.parametrize(
    ("name", "sign"),
    [
        ("Crashes", "process/killed by SIGSEGV"),
        ("Exits", "process/exit 9"),
        ("Raises", "raised/error:RuntimeError"),
        ("RaisesOnRelease", "raised/error:LookupError"),
    ],
)
def test_a_fault_of_the_target_is_a_difference(pure, few, name, sign):
    """Not a fault of ours, whatever it does to its process; no traceback."""
    result = pure("run", "--steps", 1, "--target", target(name), "--aspects", "outcome,columns")

    assert (1, "") == (result.status, result.err)
    assert f"manager/outcome/pool/{sign}" in result.out


def test_a_hang_is_a_difference(pure, few, monkeypatch):
    """After as long as --hang says; its trace is as small as waiting a few times makes it."""
    monkeypatch.setattr("harness.forks.MAX_HANGS", 2)
    result = pure("run", "--steps", 1, "--target", target("Hangs"), "--aspects", "outcome", "--hang", "1s", "--json")

    assert (1, ["manager/outcome/pool/process/hang"]) == (
        result.status,
        [found["fingerprint"] for found in json.loads(result.out)["differences"]],
    )


def test_a_target_that_cannot_be_built_is_a_difference(pure, few):
    """Its message is shown as it is, though it looks like markup."""
    result = pure("run", "--steps", 10_000, "--target", target("CannotBeBuilt"), "--aspects", "outcome")

    assert 1 == result.status
    assert "not this [setting]" in " ".join(result.out.split())


# --------------------------------------------------------------------------------------------- findings


def test_declared_findings_are_counted(pure, few, monkeypatch):
    """And make no difference."""
    monkeypatch.setattr("harness.findings.Declared.explain", lambda self, found: Known if found.rule == "A13" else None)
    result = pure("run", "--steps", 1, "--target", target("NoGate"), "--aspects", "outcome", "--json")
    data = json.loads(result.out)

    assert (0, ["known"], []) == (result.status, list(data["declared"]), data["differences"])


class Known:
    """Stands for a finding."""

    name = "known"


def test_without_findings_they_are_differences(pure, few, monkeypatch):
    """--no-findings looks at the release as if nobody had."""
    monkeypatch.setattr("harness.findings.Declared.explain", lambda self, found: Known if found.rule == "A13" else None)
    result = pure("run", "--steps", 1, "--target", target("NoGate"), "--aspects", "outcome", "--no-findings", "--json")

    assert (1, {}) == (result.status, json.loads(result.out)["declared"])


def test_out_names_the_folder(pure, few, tmp_path):
    """Made on the way."""
    pure("run", "--steps", 1, "--target", target("Sound"), "--aspects", RULES, "--out", "a/b")

    assert ["a/b/run.json"] == left(tmp_path)
