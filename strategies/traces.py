"""Hypothesis strategies over the packed codec, and a way to draw from them without a test function."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

#: bytes a trace for tests: a fixed length is drawn first, because collections of free length come out short
LENGTHS = (48, 120, 240, 480)
#: bytes a trace of a run, some 140 operations: what an example costs the engine is paid once a trace
RUN_LENGTH = 512


def packed(lengths: tuple[int, ...] = LENGTHS) -> st.SearchStrategy[bytes]:
    """Packed traces; shrinks to fewer bytes and towards zeros, the simplest choice everywhere."""
    return st.sampled_from(lengths).flatmap(lambda length: st.binary(min_size=length, max_size=length))


def draw(run_seed: int, shard: int, count: int, visit: Callable[[bytes], None]) -> None:
    """Give `visit` the `count` examples of one shard: the same ones for the same seed, whoever runs it."""

    @seed(run_seed * 1_000_003 + shard)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=RUN_LENGTH, max_size=RUN_LENGTH))
    def each(data: bytes) -> None:
        visit(data)

    each()
