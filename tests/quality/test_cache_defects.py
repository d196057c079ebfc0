"""Each planted defect of prefix caching is found by the traces of a run, within 50,000 steps at one seed, and small."""

from __future__ import annotations

import pytest

from harness.outcome import Options
from harness.shrink import shrink
from harness.worker import run_shard
from tests.quality.in_the_cache import CACHE_DEFECTS, target_of
from tests.quality.known import known

#: steps within which each must show
LIMIT = 50_000
#: operations of the shortest trace
SMALL = 6
TRIES = 1_500
OPTIONS = Options(declared=known)


@pytest.mark.slow
@pytest.mark.parametrize("name", CACHE_DEFECTS)
def test_a_defect_of_the_cache(name):
    """Found, and shrunk to a few operations."""
    make = target_of(CACHE_DEFECTS[name])
    steps, shard, found = 0, 0, []
    while not found and steps < LIMIT:
        result = run_shard(0, shard, make, OPTIONS, profile="caching")
        found = sorted(result.found.values(), key=lambda one: len(one.trace.operations))
        steps += result.steps
        shard += 1

    assert found, f"{name} was not found within {LIMIT} steps"
    least = min(len(shrink(one.trace, one.difference, make, OPTIONS, TRIES).trace.operations) for one in found[:4])
    assert least <= SMALL
