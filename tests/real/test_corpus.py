"""The corpus that is kept: it agrees with the installed release, reaches its crossings, kills its mutants; so do its
plain files.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.campaign import corpus, plain, plain_rules, plain_warmup
from harness.campaign.killing import mutants_by
from harness.campaign.replayed import levels

FOLDER = Path(__file__).parents[2] / "corpus"
KEPT = corpus.read(FOLDER / "corpus.json")
PLAIN = {
    plain: "test_corpus_vllm.py",
    plain_rules: "test_corpus_rules_vllm.py",
    plain_warmup: "test_corpus_warmup_vllm.py",
}
LEVELS = sorted({entry.trace.level for entry in KEPT.entries})


@pytest.fixture(scope="module")
def installed():
    """The levels of the release whose corpus it is."""
    from harness.targets.compat import installed_release

    if installed_release() != KEPT.release:
        pytest.skip(f"the corpus is of {KEPT.release}, installed is {installed_release() or 'none'}")
    return levels()


@pytest.mark.parametrize("entry", KEPT.entries, ids=[f"{one.trace.level} {one.name}" for one in KEPT.entries])
def test_it_agrees(installed, entry):
    """Nothing differs that no finding declares."""
    shown, _ = installed[entry.trace.level].differences(entry.trace)

    assert [] == shown


@pytest.mark.parametrize("level", LEVELS)
def test_every_crossing_is_reached(installed, level):
    """By one of its traces."""
    crossed: set[str] = set()
    for entry in KEPT.entries:
        if entry.trace.level == level:
            crossed |= installed[level].crossed(entry.trace)[0]

    assert set() == installed[level].wanted() - crossed


#: of each level one that the score found late
PLANTED = (
    "coordinator.py:118:40 minmax",
    "sched/scheduler.py:568:22 minmax",
    "warmup.py:313:7",
    "speculative.py:2189:11",
)


def test_it_kills_mutants(installed):
    """Planted again, in a process that has vLLM for itself, each shows on the traces that are there for it."""
    names = [name for name in mutants_by(KEPT.entries) if any(part in name for part in PLANTED)]
    given = [word for name in names for word in ("--mutant", name)]
    command = [sys.executable, "-c", "from harness.cli import main; main()", "corpus", "mutants"]
    path = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    ended = subprocess.run(
        [*command, str(FOLDER / "corpus.json"), *given], env=path, capture_output=True, text=True, check=False
    )

    assert len(names) >= len(PLANTED)
    assert (0, "") == (ended.returncode, ended.stdout), ended.stderr


@pytest.mark.parametrize("writer", PLAIN, ids=PLAIN.values())
def test_the_plain_file_is_what_the_corpus_says(writer):
    """Written anew it is the same text."""
    path = FOLDER / PLAIN[writer]

    assert writer.script(KEPT, path.name) == path.read_text()


def loaded(name: str):
    """A plain file as a module."""
    spec = importlib.util.spec_from_file_location("plain_corpus", FOLDER / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plain_file_agrees(installed):
    """With vLLM alone: none of this package's modules is asked."""
    module = loaded(PLAIN[plain])

    assert all(not name.startswith("harness") for name in vars(module))
    for trace in module.TRACES:
        module.test_trace(trace)


def test_the_plain_file_sees_a_defect(installed, monkeypatch):
    """A manager that takes one block more is found."""
    monkeypatch.setenv("KV_CACHE_MANAGER", "tests.real.test_corpus:Wasteful")
    module = loaded(PLAIN[plain])
    wrong = 0
    for trace in module.TRACES:
        try:
            module.test_trace(trace)
        except AssertionError as error:
            wrong += "the trace is there for" in str(error)

    assert wrong


def test_the_plain_rules_agree(installed):
    """Every configuration is built and says what the rules say."""
    module = loaded(PLAIN[plain_rules])
    for case in module.CASES:
        module.test_case(case)
    for case in module.COUNTS:
        module.test_counts(case)


def test_the_plain_warmups_agree(installed, monkeypatch):
    """Each runs the steps that it must."""
    module = loaded(PLAIN[plain_warmup])
    for trace in module.TRACES:
        module.test_trace(trace, monkeypatch)


def test_the_plain_warmups_see_a_defect(installed, monkeypatch):
    """A warmup that takes a block too many."""
    module = loaded(PLAIN[plain_warmup])
    monkeypatch.setattr(module.warmup, "cdiv", lambda tokens, size: -(-tokens // size) + 1)
    wrong = 0
    for trace in module.TRACES:
        try:
            module.test_trace(trace, monkeypatch)
        except AssertionError as error:
            wrong += "the trace is there for" in str(error)

    assert wrong


def test_the_plain_rules_see_a_defect(installed, monkeypatch):
    """A decode that is one row too long, and a configuration that is accepted though it must not be."""
    import vllm.config

    module = loaded(PLAIN[plain_rules])
    monkeypatch.setattr(vllm.config.VllmConfig, "uniform_decode_query_len", 99)
    monkeypatch.setattr(vllm.config.SchedulerConfig, "verify_max_model_len", lambda self, length: self)
    asked = next(case for case in module.CASES if "query_rows" in case["facts"])
    refused = next(case for case in module.CASES if case["refused"] == "active")

    with pytest.raises(AssertionError, match="the case is there for"):
        module.test_case(asked)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        module.test_case(refused)


def __getattr__(name: str):
    """A planted manager: vLLM is imported when it is asked for."""
    if name != "Wasteful":
        raise AttributeError(name)
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    class Wasteful(KVCacheManager):
        def allocate_slots(self, request, num_new_tokens, *args, **kwargs):
            return super().allocate_slots(request, num_new_tokens + (num_new_tokens > 1), *args, **kwargs)

    return Wasteful
