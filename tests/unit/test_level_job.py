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
