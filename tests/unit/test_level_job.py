"""What the runs of the warmup and of the scheduler level have in common."""

from __future__ import annotations

import pytest

from harness import level_job
from harness.engine import MAX_SHRUNK


@pytest.mark.parametrize(
    ("found", "reported", "told"),
    [(0, 0, 0), (3, 1, 1), (MAX_SHRUNK, MAX_SHRUNK, MAX_SHRUNK), (MAX_SHRUNK + 2, 1, 3)],
    ids=["none", "three that are one", "all apart", "two too many"],
)
def test_how_many_differences_are_told(found, reported, told):
    """As many as are listed, and those that were not made small."""
    assert told == level_job.told(range(found), range(reported))


@pytest.mark.parametrize(("workers", "most"), [(1, 1), (2, 1), (1, 8), (2, 4), (3, 8)])
def test_shards_come_in_order_whatever_goes_in_a_row(workers, most):
    """Each once."""
    shards = level_job.in_order(list, workers, most)

    assert [*range(100)] == [next(shards) for _ in range(100)]


def test_a_run_begins_with_one_shard_in_a_row():
    """It may have enough soon; the longer it is, the more go in one process."""
    sizes = []
    shards = level_job.in_order(lambda numbers: sizes.append(len(numbers)) or list(numbers), 2, 4)

    assert [*range(20)] == [next(shards) for _ in range(20)]
    assert [1, 1, 2, 2, 4, 4, 4, 4] == sizes
