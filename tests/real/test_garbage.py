"""What a shard leaves is freed without a collection: predictions, replays and memories lie in no cycle."""

from __future__ import annotations

import gc

import pytest

from harness.findings import Declared, load
from harness.outcome import Options
from harness.targets.compat import installed_release
from harness.targets.loader import manager_of
from harness.worker import run_shard

#: parties of a trace; what else may be found belongs to the release's manager, which is one cycle
OURS = {"CachedReplay", "CachingMemory", "DraftLayers", "Memory", "Observation", "Played", "Prediction", "Replay"}


@pytest.fixture
def garbage():
    """Where the collector puts what it finds, for as long as a test runs."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()


@pytest.mark.parametrize("profile", ["scheduler", "caching"])
def test_no_cycle_is_left(vllm, garbage, profile):
    """Also where the release raises, and the trace goes on in lockstep."""
    options = Options(declared=Declared(load(), installed_release()))
    result = run_shard(0, 1, manager_of, options, profile)
    gc.collect()

    assert result.declared
    assert set() == OURS & {type(one).__name__ for one in garbage}
