"""Commands on the installed vLLM's manager."""

from __future__ import annotations

import json

import pytest

from harness import findings
from tests.commands.conftest import EXAMPLE, REPORTS, left, plain

EVERY = findings.load()
DECLARED = [finding for finding in EVERY if finding.covers("0.33.0")]
NAMES = [finding.name for finding in DECLARED]


def test_replay_of_what_agrees(vllm, snapshot):
    """The example is answered by the real manager as by the oracle."""
    result = vllm("replay", EXAMPLE)

    assert snapshot == result.out
    assert (0, "") == (result.status, result.err)


@pytest.mark.parametrize("finding", DECLARED, ids=NAMES)
def test_replay_of_a_declared_finding(vllm, finding):
    """It shows, and is no new difference."""
    result = vllm("replay", finding.file)

    assert (0, True) == (result.status, f"declared as {finding.name}\n" in result.out)


def test_replay_of_a_declared_finding_in_full(vllm, snapshot):
    """The table, what was expected and seen, and which finding it is."""
    assert snapshot == vllm("replay", REPORTS / "align-count-below-zero" / "trace.json").out


def test_findings_check(vllm):
    """Each still reproduces on the releases that it is declared for, and on no other."""
    result = vllm("findings", "check")

    said = [f"ok   {f.name}: {'reproduces' if f in DECLARED else 'does not reproduce'}" for f in EVERY]
    assert (0, said) == (result.status, result.out.splitlines())


def test_findings_check_of_a_finding_that_has_gone(vllm, tmp_path, monkeypatch, snapshot):
    """Exit status 1: the declaration is wrong."""
    for name in NAMES[:2]:
        (tmp_path / "reports" / name).mkdir(parents=True)
        for file in ("finding.json", "trace.json"):
            text = (REPORTS / NAMES[0] / file).read_text()
            (tmp_path / "reports" / name / file).write_text(text if name == NAMES[0] else EXAMPLE.read_text())
        if name != NAMES[0]:
            (tmp_path / "reports" / name / "finding.json").write_text((REPORTS / name / "finding.json").read_text())
    monkeypatch.setattr("harness.findings.folder", lambda: tmp_path / "reports")
    result = vllm("findings", "check")

    assert snapshot == result.out
    assert (1, "") == (result.status, result.err)


def test_findings_check_in_another_release(vllm, monkeypatch, snapshot):
    """A finding that still shows where it is not declared is wrong too."""
    monkeypatch.setattr("harness.cli.installed_release", lambda: "0.40.0")
    result = vllm("findings", "check", NAMES[0])

    assert snapshot == result.out
    assert 1 == result.status


def test_findings_refresh(vllm, tmp_path, monkeypatch):
    """The report and the script are written again from the trace: the argument stays."""
    folder = tmp_path / "reports" / NAMES[0]
    folder.mkdir(parents=True)
    for file in ("finding.json", "trace.json"):
        (folder / file).write_text((REPORTS / NAMES[0] / file).read_text())
    monkeypatch.setattr("harness.findings.folder", lambda: tmp_path / "reports")
    result = vllm("findings", "refresh")

    assert f"wrote HERE/reports/{NAMES[0]}\n" == plain(result.out, tmp_path)
    assert ["finding.json", "report.md", "repro.py", "trace.json"] == left(folder)


def test_shrink_of_a_declared_finding(vllm, tmp_path):
    """The smaller trace shows the same finding."""
    result = vllm("shrink", REPORTS / "align-count-below-zero" / "trace.json")
    (tmp_path / "small.json").write_text(result.out)

    assert "declared as align-count-below-zero" in vllm("replay", "small.json").out
    assert (1, True) == (result.status, ", a minimum: manager/outcome/mamba_align/A15/" in result.err)


def test_canary(vllm):
    """The planted defect is caught in the real manager."""
    result = vllm("canary")

    assert (0, True) == (result.status, result.out.startswith("the canary was caught after "))


def test_run(vllm, tmp_path):
    """A short run of the main job: it meets too little, and nothing new."""
    result = vllm("run", "--steps", 2000, "--json")
    data = json.loads(result.out)

    assert ("inconclusive", [], "0.33.0") == (data["verdict"], data["differences"], data["release"])
    assert (3, ["slotcheck-out/run.json"]) == (result.status, left(tmp_path))


def test_a_fork_of_the_manager_as_target(vllm):
    """A class with a KVCacheManager's methods, by its import path."""
    fork = "vllm.v1.core.kv_cache_manager:KVCacheManager"

    assert vllm("replay", EXAMPLE).out == vllm("replay", EXAMPLE, "--target", fork).out


def test_a_fork_with_a_defect(vllm, tmp_path, snapshot):
    """A subclass in a file of one's own, that loses its lookahead."""
    (tmp_path / "fork_with_defect.py").write_text(FORK)
    result = vllm("replay", EXAMPLE, "--target", "fork_with_defect:Manager")

    assert snapshot == result.out
    assert 1 == result.status


FORK = """
from vllm.v1.core.kv_cache_manager import KVCacheManager


class Manager(KVCacheManager):
    def allocate_slots(self, request, num_new_tokens, *arguments, **named):
        named["num_lookahead_tokens"] = 0
        return super().allocate_slots(request, num_new_tokens, *arguments, **named)
"""


def test_a_fork_beside_upstream(vllm):
    """The example of docs/forks.md: both defects, and upstream has neither."""
    result = vllm("run", "--target", "tests.real.fork:Manager", "--steps", 3000, "--json")
    seen = {
        found["fingerprint"].partition("/")[2]: found["upstream"] for found in json.loads(result.out)["differences"]
    }

    assert 1 == result.status
    assert {"free/pool/A2/more", "nulls/full_attention/A14/more/first"} <= seen.keys()
    assert {False} == set(seen.values())


def test_two_levels_in_one_run(vllm, tmp_path):
    """A second is too short for what must be reached: each level says so, and the worst verdict is the run's."""
    result = vllm("run", "--level", "warmup,scheduler", "--budget", "1s", "--kernels", "none", "--json")

    data = json.loads(result.out)
    assert (3, "inconclusive") == (result.status, data["verdict"])
    assert [("warmup", True), ("scheduler", True)] == [(one["level"], bool(one["missed"])) for one in data["levels"]]
    assert data["levels"][0]["warmups"] >= 13
    assert data["levels"][1]["steps"] >= 333


def test_two_levels_in_words(vllm, tmp_path):
    """The last line is the run's; a page each."""
    result = vllm(
        "run", "--level", "manager,warmup", "--budget", "1s", "--kernels", "none", "--html", tmp_path / "p.html"
    )

    manager = "agreed" if "\nagreed\n" in result.out else "inconclusive"  # as fast as the machine is
    assert f"inconclusive (manager {manager}, warmup inconclusive)" == result.out.splitlines()[-1]
    assert ["p-manager.html", "p-warmup.html"] == [name for name in left(tmp_path) if name.endswith(".html")]
