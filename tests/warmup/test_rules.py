"""W1 to W4 by hand: the oracle alone, no vLLM."""

from __future__ import annotations

import pytest

from oracle.errors import SettingError
from oracle.groups import CircularBuffer, CrossAttention, FullAttention, Group, Mamba, SlidingWindow
from oracle.warmup import (
    Kernels,
    Mixed,
    Part,
    Scheduler,
    columns,
    kernel_requests,
    kernel_steps,
    longest_request,
    mixed_blocks,
    mixed_skip,
    predict,
    row_width,
)
from tests.warmup.cases import setting

EAGLE3 = {"method": "eagle", "num_speculative_tokens": 3}
FULL = FullAttention(block_size=4)


def lengths(group: Group, computed: int, new: int, **fields: object) -> int:
    return columns(setting(group, **fields), Part(0, computed, new, 0, 5))[0].value


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (FULL, 3),  # ceil((5 + 3 + 3) / 4)
        (SlidingWindow(block_size=4, window=8), 3),
        (CircularBuffer(block_size=4), 1),
        (CrossAttention(block_size=4), 3),  # ceil(10 / 4), whatever the decoder does
        (Mamba(block_size=200, mode="none", speculative_blocks=3), 4),  # 1 + 3
        (Mamba(block_size=4, mode="all", speculative_blocks=3), 6),  # ceil(11 / 4) + 3
        (Mamba(block_size=4, mode="align", speculative_blocks=3), 5),  # ceil(8 / 4) + 3, no lookahead
        (FullAttention(block_size=4, uniform_layers=2), 3),
    ],
)
def test_columns_of_each_kind(group: Group, expected: int) -> None:
    """K 3, EAGLE: 5 computed and 3 new tokens, lookahead 3."""
    assert expected == lengths(group, 5, 3, **EAGLE3)


def test_columns_are_capped_at_max_model_len_but_for_align() -> None:
    """M 9: ceil(min(8 + 3, 9) / 4) = 3; align ceil(8 / 4) + 3 = 5."""
    assert 3 == lengths(FULL, 5, 3, max_model_len=9, **EAGLE3)
    assert 5 == lengths(Mamba(block_size=4, speculative_blocks=3), 5, 3, max_model_len=9, **EAGLE3)


def test_sharded_columns_are_divided_by_the_ranks() -> None:
    """D 2: ceil(11 / 8) = 2."""
    assert 2 == lengths(FULL, 5, 3, dcp_size=2, **EAGLE3)


def test_scheduler_nulls_what_a_window_has_left() -> None:
    """W 2 b1, one token a call: at 2 computed the first column is dead."""
    scheduler = Scheduler(setting(SlidingWindow(block_size=1, window=2)), (Part(0, 2, 1, 0, 2),))
    scheduler.schedule(Part(0, 0, 2, 0, 2))
    _, rows = scheduler.schedule(Part(0, 2, 1, 0, 2))

    assert (True, False, False) == tuple(block == 0 for block in rows[0])


def test_steps_with_drafts_and_two_requests() -> None:
    """K 3: the prompt has 5 tokens, then W3's five decode steps."""
    steps = kernel_steps(setting(FULL, **EAGLE3), 2)

    assert [(5, 5), (4, 4), (4, 1), (1, 1), (4,), (1,), ()] == [tuple(p.new for p in step.parts) for step in steps]
    assert (0, 1) == steps[-1].finished


@pytest.mark.parametrize(
    ("requests", "drafts", "expected"),
    [
        (1, 0, ["prompt", "all with drafts", "clean up"]),
        (1, 2, ["prompt", "all with drafts", "one without", "clean up"]),
        (2, 0, ["prompt", "all with drafts", "two, one with drafts", "one with drafts", "clean up"]),
        (0, 2, []),
    ],
)
def test_steps_by_requests_and_drafts(requests: int, drafts: int, expected: list[str]) -> None:
    fields = {"method": "ngram", "num_speculative_tokens": drafts} if drafts else {}

    assert expected == [step.what for step in kernel_steps(setting(FULL, **fields), requests)]


def test_pooling_model_stops_after_the_prompt() -> None:
    assert ["prompt", "clean up"] == [step.what for step in kernel_steps(setting(FULL, pooling=True), 2)]


def test_speculation_runs_twice() -> None:
    assert 2 == len(predict(setting(FULL, **EAGLE3), Kernels()).runs)
    assert 1 == len(predict(setting(FULL), Kernels()).runs)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 2),
        ({"max_num_seqs": 8}, 8),
        ({"max_num_seqs": 8, "max_num_batched_tokens": 9}, 4),  # 9 // 2
        ({"max_num_seqs": 8, "num_blocks": 6}, 2),  # 5 tokens at the end: 2 blocks each of 5
        ({"max_num_seqs": 8, "num_blocks": 2}, 1),
        ({"max_num_seqs": 8, "num_blocks": 2, "null_block_redirect": True}, 8),
        ({"max_num_seqs": 1, "max_num_batched_tokens": 1}, 0),
    ],
)
def test_number_of_requests(fields: dict[str, int], expected: int) -> None:
    """No drafts, b4: prompt 2, three decode steps, so at most 5 tokens and 2 blocks."""
    of = setting(FULL, **fields)

    assert 2 == longest_request(of)
    assert expected == kernel_requests(of)


@pytest.mark.parametrize(
    ("tokens", "fields", "runs"),
    [
        (3, {}, True),
        (2, {}, False),
        (9, {"pooling": True}, False),
        (9, {"max_num_seqs": 1}, False),
        (9, {"num_blocks": 4}, True),  # ceil(3 / 4) + ceil(8 / 4) = 3
        (9, {"num_blocks": 3}, False),
    ],
)
def test_mixed_step_runs_or_is_skipped(tokens: int, fields: dict[str, int], runs: bool) -> None:
    of = setting(FULL, **fields)

    assert runs == (mixed_skip(of, tokens) == "")
    assert runs == predict(of, Mixed(num_tokens=tokens)).answer


def test_mixed_blocks_are_those_of_both_requests() -> None:
    """Lookahead 3: ceil((3 + 3) / 4) + ceil((8 + 3) / 4) = 2 + 3."""
    assert 5 == mixed_blocks(setting(FULL, **EAGLE3), 9)


@pytest.mark.parametrize(
    ("group", "fields", "width"),
    [
        (FullAttention(block_size=16), {}, 16),  # ceil(200 / 16) = 13, to a multiple of 8
        (FullAttention(block_size=16), {"dcp_size": 2}, 8),  # ceil(200 / 32) = 7
        (FullAttention(block_size=16, dcp_sharded=False), {"dcp_size": 2}, 16),
        (Mamba(block_size=16, speculative_blocks=3), {}, 16),  # 13 + 3, exact
        (Mamba(block_size=200, mode="none", speculative_blocks=3), {}, 4),
        (CircularBuffer(block_size=16), {}, 1),
        (CrossAttention(block_size=16), {"max_encoder_len": 1500}, 96),  # ceil(1500 / 16) = 94
    ],
)
def test_row_width(group: Group, fields: dict[str, int], width: int) -> None:
    assert width == row_width(setting(group, **fields), group)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "eagle"}, "method 'eagle' needs num_speculative_tokens of at least 1, got 0"),
        ({"pooling": True, **EAGLE3}, "a pooling model drafts nothing, got num_speculative_tokens 3"),
        ({"adaptive_verification": True}, "adaptive_verification needs num_speculative_tokens of at least 1, got 0"),
        ({"max_num_batched_tokens": 1}, "max_num_batched_tokens must be at least max_num_seqs 2, got 1"),
        ({"max_num_batched_tokens": 3, **EAGLE3}, "max_num_batched_tokens must exceed the lookahead 3, got 3"),
    ],
)
def test_impossible_settings_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        setting(FULL, **fields)
