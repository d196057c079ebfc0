"""The corpus that is kept: it agrees with the installed release and reaches its crossings; so does its plain file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from harness.campaign import corpus, plain
from harness.campaign.replayed import levels

FOLDER = Path(__file__).parents[2] / "corpus"
KEPT = corpus.read(FOLDER / "corpus.json")
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


def test_the_plain_file_is_what_the_corpus_says():
    """Written anew it is the same text."""
    path = FOLDER / "test_corpus_vllm.py"

    assert plain.script(KEPT, path.name) == path.read_text()


def test_the_plain_file_agrees(installed):
    """With vLLM alone: none of this package's modules is asked."""
    spec = importlib.util.spec_from_file_location("plain_corpus", FOLDER / "test_corpus_vllm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert all(not name.startswith("harness") for name in vars(module))
    for trace in module.TRACES:
        module.test_trace(trace)


def test_the_plain_file_sees_a_defect(installed, monkeypatch):
    """A manager that takes one block more is found."""
    monkeypatch.setenv("KV_CACHE_MANAGER", "tests.real.test_corpus:Wasteful")
    spec = importlib.util.spec_from_file_location("plain_corpus", FOLDER / "test_corpus_vllm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    wrong = 0
    for trace in module.TRACES:
        try:
            module.test_trace(trace)
        except AssertionError as error:
            wrong += "the trace is there for" in str(error)

    assert wrong


def __getattr__(name: str):
    """A planted manager: vLLM is imported when it is asked for."""
    if name != "Wasteful":
        raise AttributeError(name)
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    class Wasteful(KVCacheManager):
        def allocate_slots(self, request, num_new_tokens, *args, **kwargs):
            return super().allocate_slots(request, num_new_tokens + (num_new_tokens > 1), *args, **kwargs)

    return Wasteful
