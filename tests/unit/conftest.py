"""Fixtures of the unit tests."""

from __future__ import annotations

from functools import partial

import pytest

from harness.worker import run_shard

#: some 1,000 steps a shard
FEW = 8


@pytest.fixture
def small_shards(monkeypatch):
    """Shards of `FEW` examples: an engine is not tested by the length of its shards."""
    monkeypatch.setattr("harness.engine.run_shard", partial(run_shard, examples=FEW))
    monkeypatch.setattr("harness.engine.TURNS", ("scheduler",) * 4 + ("hostile",))  # stand-ins have caching off
    return FEW
