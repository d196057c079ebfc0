"""Who gets blocks and who is refused: gate, test, reserve, watermark (A12, A13, A15 to A17, A21, A22)."""

from __future__ import annotations

import pytest

from oracle.call import REFUSED
from oracle.groups import ChunkedLocal, FullAttention, SlidingWindow
from tests.real.script import Both

Answer = list[list[int]] | str


def full() -> FullAttention:
    """Full attention in blocks of 4."""
    return FullAttention(block_size=4)


def window() -> SlidingWindow:
    """W 8 in blocks of 4."""
    return SlidingWindow(block_size=4, window=8)


# ---------------------------------------------------------------------------------------------------- gate


@pytest.mark.parametrize(("tokens", "answer"), [(17, REFUSED), (13, REFUSED), (12, [[1]])])
def test_gate_counts_the_whole_sequence(tokens: int, answer: Answer) -> None:
    """N 4 has 3: T 17 needs ceil(17/4) = 5, T 13 needs 4, T 12 needs 3; the first 4 tokens alone take 1."""
    both = Both(full(), blocks=4)

    assert answer == both.ask(0, 4, prompt=tokens, gate=True)


def test_without_the_gate_the_first_chunk_counts() -> None:
    """N 4, T 17: 4 tokens need 1 block."""
    both = Both(full(), blocks=4)

    assert [[1]] == both.ask(0, 4, prompt=17)


def test_gate_does_not_count_lookahead() -> None:
    """N 4, T 12: the gate needs 3 of 3 although k 4 would make it 16 slots; 4 + 4 slots take 2 blocks now."""
    both = Both(full(), blocks=4)

    assert [[1, 2]] == both.ask(0, 4, prompt=12, lookahead=4, gate=True)


def test_gate_counts_no_more_than_max_model_len() -> None:
    """M 12, T 40: min(40, 12) needs 3 blocks of 3."""
    both = Both(full(), blocks=4, max_model_len=12)

    assert [[1]] == both.ask(0, 4, prompt=40, gate=True)


def test_gate_sums_the_groups() -> None:
    """T 12: 3 + 3 blocks > 5 of N 6, although 4 tokens take 1 + 1."""
    both = Both(full(), full(), blocks=6)

    assert REFUSED == both.ask(0, 4, prompt=12, gate=True)


@pytest.mark.parametrize(("free", "answer"), [(4, [[1]]), (3, REFUSED)])
def test_gate_counts_a_window_up_to_its_cap(free: int, answer: Answer) -> None:
    """SW W 8, F 4: cap ceil(11/4) + 1 = 4, where T 100 has min(100, 64) / 4 = 16 columns."""
    both = Both(window(), blocks=free + 1, max_in_flight_tokens=4)

    assert answer == both.ask(0, 4, prompt=100, gate=True)


@pytest.mark.parametrize(("free", "answer"), [(3, [[1]]), (2, REFUSED)])
def test_gate_counts_a_chunk_up_to_its_cap(free: int, answer: Answer) -> None:
    """CH C 8, F 4: cap ceil(12/4) = 3."""
    both = Both(ChunkedLocal(block_size=4, chunk=8), blocks=free + 1, max_in_flight_tokens=4)

    assert answer == both.ask(0, 4, prompt=100, gate=True)


@pytest.mark.parametrize(("free", "answer"), [(3, [[0, 0, 0, 1, 2]]), (2, REFUSED)])
def test_gate_does_not_count_dead_columns(free: int, answer: Answer) -> None:
    """SW, F unset, T 24, e 20: 6 columns, dead(20) = 13 // 4 = 3, figure 6 - 3 = 3; the load itself takes 2."""
    both = Both(window(), blocks=free + 1)

    assert answer == both.ask(0, 0, prompt=24, external=20, gate=True)


# -------------------------------------------------------------------------------------------- test, reserve


@pytest.mark.parametrize(("new", "answer"), [(6, [[1, 2], [3, 4, 5]]), (7, REFUSED)])
def test_counts_of_all_groups_are_summed(new: int, answer: Answer) -> None:
    """b4 and b2, N 6: 6 tokens need 2 + 3 = 5 of 5, 7 need 2 + 4 = 6."""
    both = Both(full(), FullAttention(block_size=2), blocks=6)

    assert answer == both.ask(0, new)


@pytest.mark.parametrize(("reserved", "answer"), [(1, [[1, 2, 3, 4]]), (2, REFUSED)])
def test_reserved_blocks_are_not_given(reserved: int, answer: Answer) -> None:
    """N 6, 16 tokens: 4 of 5 blocks; one reserved leaves 4, an exact fit, two leave 3."""
    both = Both(full(), blocks=6)

    assert answer == both.ask(0, 16, reserved=reserved)


@pytest.mark.parametrize(("reserved", "answer"), [(4, [[1]]), (5, REFUSED)])
def test_gate_ignores_reserved_blocks(reserved: int, answer: Answer) -> None:
    """N 6, T 20: the gate sees 5 <= 5 whatever is reserved; the test then 1 <= 5 - 4, but not 1 <= 5 - 5."""
    both = Both(full(), blocks=6)

    assert answer == both.ask(0, 4, prompt=20, gate=True, reserved=reserved)


def test_a_grant_lowers_the_free_count_by_its_count() -> None:
    """N 20: b4 and b2 with 7 tokens count 2 + 4 = 6, 19 - 6 = 13 are left."""
    both = Both(full(), FullAttention(block_size=2), blocks=20)
    both.ask(0, 7)

    assert 13 == both.free


# ----------------------------------------------------------------------------------------------- watermark


@pytest.mark.parametrize(
    ("blocks", "new", "how", "columns"),
    [
        (21, 76, {"waiting": True}, 0),
        (21, 72, {"waiting": True}, 18),
        (21, 76, {"waiting": True, "scheduled": False}, 19),
        (21, 76, {}, 19),
        (21, 76, {"preempted": True}, 0),
        (21, 72, {"preempted": True}, 18),
        (19, 68, {"waiting": True}, 17),
        (19, 72, {"waiting": True}, 0),
    ],
)
def test_watermark(blocks: int, new: int, how: dict[str, bool], columns: int) -> None:
    """0.1 of N 21 is 2 blocks: 76/4 + 2 = 21 > 20 free, 72/4 + 2 = 20. Only for a request that waits while others are
    scheduled. N 19: int(1.9) = 1, 68/4 + 1 = 18 <= 18 free, 72/4 + 1 = 19."""
    both = Both(full(), blocks=blocks, max_model_len=100, watermark=0.1)

    assert ([list(range(1, columns + 1))] if columns else REFUSED) == both.ask(0, new, **how)


@pytest.mark.parametrize(("tokens", "answer"), [(76, REFUSED), (72, [[1]])])
def test_watermark_counts_in_the_gate(tokens: int, answer: Answer) -> None:
    """N 21: T 76 needs 19 + 2 > 20, T 72 needs 18 + 2 = 20; the 4 tokens themselves 1 + 2."""
    both = Both(full(), blocks=21, max_model_len=100, watermark=0.1)

    assert answer == both.ask(0, 4, prompt=tokens, gate=True, waiting=True)


# ------------------------------------------------------------------------------------------------- refusal


def test_a_refusal_by_the_test_has_removed() -> None:
    """SW, N 6, [1 2 3 4] at 16: 32 tokens need 8 - 4 = 4 blocks, 1 is free and 2 come from the dead columns: 3 < 4."""
    both = Both(window(), blocks=6)
    both.ask(0, 16)

    assert (REFUSED, [[0, 0, 3, 4]], [2, 1, 5]) == (both.ask(16, 16), both.rows(), both.queue())


def test_a_refusal_by_the_gate_changes_nothing() -> None:
    """The same with T 60: 15 columns - 2 dead - 2 held = 11 > 1 free, before removal."""
    both = Both(window(), blocks=6)
    both.ask(0, 16)

    assert (REFUSED, [[1, 2, 3, 4]], [5]) == (both.ask(16, 16, gate=True), both.rows(), both.queue())


def test_a_refused_first_call_leaves_no_row() -> None:
    """N 4: 16 tokens need 4 of 3 blocks; nothing is kept of it."""
    both = Both(full(), blocks=4)
    both.ask(0, 16)

    assert ([], [1, 2, 3]) == (both.rows(), both.queue())


def test_a_refused_call_can_be_tried_again() -> None:
    """Refused twice, then granted once the other's 2 blocks are back: 2 1 3 4 in front, 16 tokens take all."""
    both = Both(full(), blocks=5)
    both.ask(0, 8, request=1)
    answers = [both.ask(0, 16), both.ask(0, 16)]
    both.release(request=1)

    assert [REFUSED, REFUSED, [[2, 1, 3, 4]]] == [*answers, both.ask(0, 16)]
