"""Hypothesis strategies over the packed codec, and a way to draw from them without a test function."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

#: bytes a trace for tests: a fixed length is drawn first, because collections of free length come out short
LENGTHS = (48, 120, 240, 480)
#: bytes a trace of a run, some 130 operations: long enough for a full pool, short enough for many settings
RUN_LENGTH = 512
#: bytes of the key that the engine draws, and how many traces of a run are unrolled from one
KEY_LENGTH = 16
TRACES_A_KEY = 23
KEYS = st.binary(min_size=KEY_LENGTH, max_size=KEY_LENGTH)


def packed(lengths: tuple[int, ...] = LENGTHS) -> st.SearchStrategy[bytes]:
    """Packed traces; shrinks to fewer bytes and towards zeros, the simplest choice everywhere."""
    return st.sampled_from(lengths).flatmap(lambda length: st.binary(min_size=length, max_size=length))


def draw(
    run_seed: int,
    shard: int,
    count: int,
    visit: Callable[[bytes], None],
    length: int = RUN_LENGTH,
    traces_a_key: int = TRACES_A_KEY,
) -> None:
    """Give `visit` the `count` traces of one shard: the same ones for the same seed, whoever runs it.

    The engine draws keys, and traces of `length` bytes are unrolled from them: byte by byte it would need as long for a
    trace as the oracle does. A run shrinks operations, not bytes, and all strings are equally likely either way.
    """
    keys: list[bytes] = []

    # the engine reads the source of what it calls: the shorter, the quicker
    def each(key: bytes) -> None:
        keys.append(key)

    examples = settings(
        max_examples=-(-count // traces_a_key),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    seed(run_seed * 1_000_003 + shard)(examples(given(KEYS)(each)))()
    for first, key in zip(range(0, count, traces_a_key), keys, strict=False):
        source = Random(f"{run_seed} {shard} {key.hex()}")  # the engine's first key is the same in all shards
        for _ in range(first, min(count, first + traces_a_key)):
            visit(source.randbytes(length))
