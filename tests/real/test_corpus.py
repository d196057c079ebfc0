"""The corpus that is kept: it agrees with the installed release, reaches its crossings, kills its mutants; so do its
plain files.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from harness import score
from harness.campaign import corpus
from harness.campaign.killing import mutants, mutants_by
from harness.campaign.replayed import levels
from harness.forks import in_a_fork
from harness.targets import mutated
from tests.commands.conftest import slot  # noqa: F401  # a fixture

FOLDER = Path(__file__).parents[2] / "corpus"
KEPT = corpus.read(FOLDER / "corpus.json")
PLAIN = {
    "manager": "test_corpus_vllm.py",
    "rules": "test_corpus_rules_vllm.py",
    "scheduler": "test_corpus_scheduler_vllm.py",
    "warmup": "test_corpus_warmup_vllm.py",
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


def test_a_fork_is_checked(installed, slot):  # noqa: F811
    """By the oracle, on the entries of its level alone."""
    words = ("--level", "scheduler", "--target", "tests.real.fork:Hasty")
    result = slot("corpus", "check", FOLDER / "corpus.json", *words)
    said = result.out.splitlines()

    assert (1, "") == (result.status, result.err)
    assert all("(scheduler): " in line for line in said[:-1])
    assert f"{len([one for one in KEPT.entries if one.trace.level == 'scheduler']) - len(said[:-1])} of" in said[-1]


@pytest.mark.parametrize("level", PLAIN)
def test_the_plain_file_is_what_the_corpus_says(slot, tmp_path, level):  # noqa: F811
    """Written anew it is the same text."""
    path = tmp_path / PLAIN[level]
    slot("corpus", "export", "--from", FOLDER / "corpus.json", "--of", level, "--script", path)

    assert path.read_text() == (FOLDER / PLAIN[level]).read_text()


def loaded(name: str):
    """A plain file as a module, which vLLM imports the connector from."""
    spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), FOLDER / name)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plain_file_agrees(installed):
    """With vLLM alone: none of this package's modules is asked."""
    module = loaded(PLAIN["manager"])

    assert all(not name.startswith("harness") for name in vars(module))
    for trace in module.TRACES:
        module.test_trace(trace)


def test_the_plain_file_sees_a_defect(installed, monkeypatch):
    """A manager that takes one block more is found."""
    monkeypatch.setenv("KV_CACHE_MANAGER", "tests.real.test_corpus:Wasteful")
    module = loaded(PLAIN["manager"])
    wrong = 0
    for trace in module.TRACES:
        try:
            module.test_trace(trace)
        except AssertionError as error:
            wrong += "the trace is there for" in str(error)

    assert wrong


def test_the_plain_rules_agree(installed):
    """Every configuration is built and says what the rules say."""
    module = loaded(PLAIN["rules"])
    for case in module.CASES:
        module.test_case(case)
    for case in module.COUNTS:
        module.test_counts(case)


def test_the_plain_warmups_agree(installed, monkeypatch):
    """Each runs the steps that it must."""
    module = loaded(PLAIN["warmup"])
    for trace in module.TRACES:
        module.test_trace(trace, monkeypatch)


def test_the_plain_warmups_see_a_defect(installed, monkeypatch):
    """A warmup that takes a block too many."""
    module = loaded(PLAIN["warmup"])
    monkeypatch.setattr(module.warmup, "cdiv", lambda tokens, size: -(-tokens // size) + 1)
    wrong = 0
    for trace in module.TRACES:
        try:
            module.test_trace(trace, monkeypatch)
        except AssertionError as error:
            wrong += "the trace is there for" in str(error)

    assert wrong


def test_the_plain_workloads_agree(installed):
    """Every step of every workload, field by field."""
    module = loaded(PLAIN["scheduler"])

    assert all(not name.startswith("harness") for name in vars(module))
    for workload in module.WORKLOADS:
        module.test_workload(workload)


def test_the_plain_workloads_see_mutants(installed):
    """Planted in forks, each on the workloads that are there for it."""
    module = loaded(PLAIN["scheduler"])
    told = mutants_by([entry for entry in KEPT.entries if entry.trace.level == "scheduler"])
    functions = mutated.Functions(tuple(score.FILES))

    def shown(name, entries):
        functions.plant(mutants()[name])
        wanted = [entry.name for entry in entries]
        return fails(module, [one for one in module.WORKLOADS if one["name"] in wanted])

    lived = [name for name, entries in told.items() if not in_a_fork(partial(shown, name, entries), 60)[0]]

    assert len(told) >= 14
    assert [] == lived


def fails(module, workloads):
    """What is said of the first workload that differs."""
    for workload in workloads:
        try:
            module.test_workload(workload)
        except (AssertionError, pytest.fail.Exception) as error:
            return str(error)
        except Exception as error:  # it could not be built
            return repr(error)
    return ""


def test_the_plain_workloads_run_a_fork(installed, monkeypatch):
    """Its preempted requests go to the end of the queue: said by call and field."""
    monkeypatch.setenv("SCHEDULER", "tests.real.fork:Hasty")
    module = loaded(PLAIN["scheduler"])
    said = fails(module, module.WORKLOADS)

    assert module.scheduler_class(overlaps=True).__mro__[1:3] == (
        module.AsyncScheduler,
        module.scheduler_class(overlaps=False),
    )
    assert "  waiting: expected" in said
    assert "the workload is there for: " in said


def test_the_plain_rules_see_a_defect(installed, monkeypatch):
    """A decode that is one row too long, and a configuration that is accepted though it must not be."""
    import vllm.config

    module = loaded(PLAIN["rules"])
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
