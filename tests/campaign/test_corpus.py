"""A corpus as a file, in a store, and as a pytest file; none of it needs vLLM."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from harness import passes, tracefile
from harness.campaign import corpus, plain, plain_scheduler
from harness.campaign.corpus import Corpus, Entry
from harness.outcome import Options
from oracle.budget import Case, RuleTrace
from oracle.groups import FullAttention
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import SchedulerTrace, Submit
from strategies import traces
from tests.commands.conftest import slot  # noqa: F401  # a fixture

ROOT = Path(__file__).parents[2]
EXAMPLE = tracefile.read(ROOT / "tests" / "unit" / "data" / "trace.json")


def cached():
    """A trace with caching on."""
    drawn: list[bytes] = []
    traces.draw(0, 0, 1, drawn.append)
    return passes.predict(drawn[0], "caching", Options()).outcome.trace


ENTRIES = (
    Entry(trace=EXAMPLE, why=("reach manager: granted",)),
    Entry(trace=cached(), why=("reach manager: hit", "mutant a.py:1:1 x: a -> b")),
    Entry(trace=RuleTrace(case=Case(method="none")), why=("reach rules: K 0",)),
)
WHOLE = Corpus(release="0.33.0", entries=ENTRIES)


@pytest.fixture
def file(tmp_path):
    """A corpus file."""
    path = tmp_path / "corpus.json"
    path.write_text(WHOLE.text())
    return path


def test_a_file_comes_back(file):
    """With traces of every level."""
    assert WHOLE == corpus.read(file)


def test_a_store_gives_it_back(store):
    """By level and name."""
    corpus.keep(store, WHOLE)
    kept = corpus.kept(store)

    assert ("0.33.0", set(ENTRIES)) == (kept.release, set(kept.entries))
    assert "rules" == kept.entries[-1].trace.level


def test_export_from_a_store(slot, store, address, tmp_path):  # noqa: F811
    """One JSON file, and a script beside it."""
    corpus.keep(store, WHOLE)
    result = slot("corpus", "export", "--store", address, "-o", tmp_path / "a.json", "--script", tmp_path / "test_a.py")

    assert (0, "", "") == (result.status, result.out, result.err)
    assert set(ENTRIES) == set(corpus.read(tmp_path / "a.json").entries)
    ast.parse((tmp_path / "test_a.py").read_text())


def test_export_prints(slot, file):  # noqa: F811
    """Where no file is given."""
    assert WHOLE.text() == slot("corpus", "export", "--from", file).out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no corpus file"),
        ("{}", "is no corpus"),
        ("[", "is no corpus"),
        ('{"format": 9, "entries": []}', "has format 9; this version reads format 1"),
        ('{"format": 1, "release": null, "entries": [{"why": [], "trace": {}}]}', "entry 0 of"),
    ],
)
def test_a_file_that_is_none(slot, tmp_path, text, said):  # noqa: F811
    """Exit status 2 and a sentence."""
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)
    result = slot("corpus", "check", path)

    assert (2, 1) == (result.status, result.err.count("\n"))
    assert said in result.err


def test_an_empty_store_has_none(slot, address):  # noqa: F811
    """It says how to make one."""
    result = slot("corpus", "export", "--store", address)

    assert (2, f"slotcheck: no corpus in {address}; slotcheck corpus build makes one\n") == (result.status, result.err)


def test_build_without_a_score(slot, tmp_path):  # noqa: F811
    """Nothing is imported."""
    result = slot("corpus", "build", "--score", tmp_path / "none.md")

    assert (2, True) == (result.status, "no page of a score" in result.err)


def test_the_script_has_the_manager_level():
    """Calls and answers of each trace; other levels are left out."""
    text = plain.script(WHOLE, "test_corpus.py")
    lines = [line for line in text.splitlines() if line.startswith('{"name"')]
    first = json.loads(lines[0])

    assert [entry.name for entry in ENTRIES[:2]] == [json.loads(line)["name"] for line in lines]
    assert {"extend", "release"} >= {call[0] for call in first["calls"]} - {"give_back", "new_step", "trim"}
    assert "harness" not in text.replace("slotcheck", "")


def test_the_script_says_what_a_prompt_is():
    """With caching on: tokens before the lookup, the hit as the specification has it."""
    calls = plain.record(ENTRIES[1], ENTRIES[1].trace)["calls"]
    names = [call[0] for call in calls]
    hit = next(call for call in calls if call[0] == "lookup")

    assert names.index("content") < names.index("lookup") < names.index("extend")
    assert 3 == len(hit[2])


def test_a_workload_is_calls_and_answers():
    """What is told is resolved; of an answer what is not empty."""
    limits = {"num_blocks": 4, "max_model_len": 8, "max_num_batched_tokens": 8, "max_num_seqs": 1}
    setting = SchedulerSetting(groups=(FullAttention(block_size=4),), **limits)
    trace = SchedulerTrace(setting=setting, operations=(Submit(request=0, prompt=5, max_tokens=2),))
    written = plain_scheduler.record(Entry(trace=trace, why=()), trace, {})

    assert [
        ["submit", {"request": 0, "tokens": 5, "max_tokens": 2}, {"waiting": [0], "free": 3}],
        ["schedule", {}, {"tokens": [[0, 5]], "new": [[0, 0, 5, [[1, 2]]]], "running": [0], "free": 1}],
        ["output", {"sampled": {0: [2]}}, {"delivered": [[0, [2], ""]], "running": [0], "free": 1}],
        ["schedule", {}, {"tokens": [[0, 1]], "cached": [[0, 5, 1, None]], "running": [0], "free": 1}],
        ["output", {"sampled": {0: [3]}}, {"delivered": [[0, [3], "length"]], "free": 3}],
    ] == written["calls"]
