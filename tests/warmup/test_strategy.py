"""The codec of warmup traces: every byte string is a valid trace. The oracle alone, no vLLM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.errors import SettingError
from oracle.groups import FullAttention
from oracle.warmup import Kernels, Mixed, WarmupTrace, predict
from strategies.warmups import LENGTH, decode, draw, warmup_traces
from tests.warmup.cases import setting, trace


@given(st.binary(max_size=2 * LENGTH))
def test_every_byte_string_is_a_trace_that_can_be_predicted(data: bytes) -> None:
    of = decode(data)

    for operation in of.operations:
        predict(of.setting, operation)


@given(warmup_traces())
def test_strategy_gives_warmup_traces(of: WarmupTrace) -> None:
    assert "warmup" == of.level
    assert 1 <= len(of.operations) <= 4


def test_zeros_are_the_simplest_trace() -> None:
    of = decode(b"")

    assert (FullAttention(block_size=16),) == of.setting.groups
    assert (Kernels(),) == of.operations
    assert 0 == of.setting.num_speculative_tokens


def test_a_shard_is_the_same_for_the_same_seed() -> None:
    first: list[bytes] = []
    second: list[bytes] = []
    draw(1, 2, 10, first.append)
    draw(1, 2, 10, second.append)

    assert first == second


def test_mixed_step_larger_than_a_step_is_refused() -> None:
    of = setting(FullAttention(block_size=4), max_num_batched_tokens=8)

    with pytest.raises(SettingError, match="num_tokens must be at most max_num_batched_tokens 8, got 9"):
        trace(of, Mixed(num_tokens=9))
