"""Sliding windows: what nobody reads any more becomes null and is used again (A11, A14, A18, A20, A31, A32)."""

from __future__ import annotations

from typing import Any

import pytest

from oracle.groups import Group, SlidingWindow, SlidingWindowMLA
from tests.real.script import Both

BOTH_WINDOWS = pytest.mark.parametrize("kind", [SlidingWindow, SlidingWindowMLA])


def window(size: int = 8, **fields: Any) -> SlidingWindow:
    """A window in blocks of 4."""
    return SlidingWindow(block_size=4, window=size, **fields)


@BOTH_WINDOWS
def test_dead_blocks_serve_the_very_call_that_frees_them(kind: type[Any]) -> None:
    """W 8: at t = 16 live is 16 - 7 = 9, dead 9 // 4 = 2. Blocks 2, 1 go to the front and become columns 4 and 5."""
    both = Both(kind(block_size=4, window=8), blocks=12)
    both.ask(0, 8)
    both.ask(8, 8)

    assert [[0, 0, 3, 4, 2, 1]] == both.ask(16, 8)


def test_nothing_more_than_the_dead_blocks_was_needed() -> None:
    """N 12: blocks 1 to 4 went out, the two dead ones came back and went out again: the queue begins at 5."""
    both = Both(window(), blocks=12)
    both.ask(0, 8)
    both.ask(8, 8)
    both.ask(16, 8)

    assert [5, 6, 7, 8, 9, 10, 11] == both.queue()


@pytest.mark.parametrize(
    ("processed", "row"),
    [
        (10, [1, 2, 3, 4]),
        (11, [0, 2, 3, 4]),
        (14, [0, 2, 3, 4]),
        (15, [0, 0, 3, 4]),
        (16, [0, 0, 3, 4]),
        (18, [0, 0, 3, 4]),
    ],
)
def test_a_column_dies_when_its_last_position_leaves_the_window(processed: int, row: list[int]) -> None:
    """W 8, token p reads from p - 7: 10 -> 3, column 0 lives; 11 -> 4, it is dead; 14 -> 7, 15 -> 8: column 1 dies."""
    both = Both(window())
    both.ask(0, 16)

    assert [row] == both.trim(processed)


def test_tokens_in_flight_hold_the_window_back() -> None:
    """t 16 with f 8: p = 8, live(8) = 1, dead 0; so 20 tokens have 5 columns and no null."""
    both = Both(window())
    both.ask(0, 16)

    assert [[1, 2, 3, 4, 5]] == both.ask(16, 4, in_flight=8)


def test_the_window_moves_when_the_flight_lands() -> None:
    """t 20 with f 4: p = 16, live 9, dead 2; block 2 is freed last, so first in front, and becomes column 5."""
    both = Both(window())
    both.ask(0, 16)
    both.ask(16, 4, in_flight=8)

    assert [[0, 0, 3, 4, 5, 2]] == both.ask(20, 4, in_flight=4)


def test_trim_alone_frees_the_same() -> None:
    """remove_skipped_blocks at 16: dead 2, highest column first, so 2 then 1 in front."""
    both = Both(window())
    both.ask(0, 16)
    both.trim(16)

    assert [2, 1, 5] == both.queue(3)


def test_trim_repeated_frees_nothing_more() -> None:
    """N 12: 11 - 4 held = 7 free, 2 more by the first trim, none by the second: 9."""
    both = Both(window(), blocks=12)
    both.ask(0, 16)
    both.trim(16)
    both.trim(16)

    assert 9 == both.free


def test_trim_of_an_unknown_request_does_nothing() -> None:
    """No row, nothing to remove."""
    both = Both(window())

    assert [[]] == both.trim(16, request=7)


def test_trim_stops_at_the_end_of_the_row() -> None:
    """Dead at 40 is 33 // 4 = 8, the row has L = 2 columns: min(8, 2) = 2 become null, none is appended."""
    both = Both(window())
    both.ask(0, 8)

    assert [[0, 0]] == both.trim(40)


def test_two_groups_take_each_others_dead_blocks() -> None:
    """W 4: at 8 live is 5, dead 1: group 0 gives 1, then group 1 gives 3, so group 0 takes 3 and group 1 takes 1."""
    both = Both(window(4), window(4))
    both.ask(0, 8)

    assert [[0, 2, 3], [0, 4, 1]] == both.ask(8, 1)


def test_two_groups_leave_the_rest_of_the_queue() -> None:
    """Blocks 1 to 4 were out, two came back and two went out: 5 is in front."""
    both = Both(window(4), window(4))
    both.ask(0, 8)
    both.ask(8, 1)

    assert [5] == both.queue(1)


def test_extra_retained_tokens_are_kept_below_the_window() -> None:
    """W 8, r 3: live(16) = 16 - 7 - 3 = 6, dead 6 // 4 = 1: only column 0 goes, and block 1 becomes column 4."""
    both = Both(window(extra_retained_tokens=3))
    both.ask(0, 16)

    assert [[0, 2, 3, 4, 1]] == both.ask(16, 4)


@pytest.mark.parametrize(
    ("group", "in_flight", "limit", "cap"),
    [
        (window(), 4, 64, 4),
        (window(extra_retained_tokens=3), 4, 64, 5),
        (window(), None, 10, 4),
        (window(), None, 64, 17),
        (window(), 1, 64, 3),
        (SlidingWindowMLA(block_size=4, window=8), 4, 64, 4),
    ],
)
def test_cap(group: Group, in_flight: int | None, limit: int, cap: int) -> None:
    """ceil((7+F)/4) + 1: F 4: 3+1; r 3: ceil(14/4)+1 = 5; F 1: 2+1. F unset is M: min(17, 10): 4, min(71, 64): 17."""
    both = Both(group, max_model_len=limit, max_in_flight_tokens=in_flight)

    assert [cap] == both.caps()


def test_a_window_that_begins_inside_a_block_reaches_the_cap() -> None:
    """W 8, F 4: cap ceil(11/4) + 1 = 4. At t = 9 live is 2, dead 0, and 13 tokens need 4 columns: all 4 are held."""
    both = Both(window(), max_in_flight_tokens=4)
    both.ask(0, 1)
    both.ask(1, 4)
    both.ask(5, 4)

    assert [[1, 2, 3, 4]] == both.ask(9, 4)


def test_chunks_within_the_budget_never_hold_more_than_the_cap() -> None:
    """W 8, F 4, cap 4: from 1 token to 61 in chunks of 4, the most non-null entries seen is 4."""
    both = Both(window(), max_in_flight_tokens=4)
    rows = [both.ask(0, 1)] + [both.ask(computed, 4) for computed in range(1, 60, 4)]

    assert 4 == max(sum(block != 0 for block in row) for (row,) in rows)


@BOTH_WINDOWS
def test_external_tokens_below_the_window_are_not_loaded(kind: type[Any]) -> None:
    """e 20: live(20) = 13, dead 3 nulls; columns 3 and 4 up to ceil(20/4) = 5 are loaded, column 5 is for 4 new."""
    both = Both(kind(block_size=4, window=8))

    assert [[0, 0, 0, 1, 2, 3]] == both.ask(0, 4, external=20)


def test_result_leaves_adopted_blocks_out() -> None:
    """As above: blocks 1 and 2 hold the 20 loaded tokens, the result names column 5 alone."""
    both = Both(window())
    both.ask(0, 4, external=20)

    assert [[3]] == both.added


def test_a_window_of_one_loads_nothing() -> None:
    """W 1: live(8) = 8, so none of the 8 external tokens is read: 8 // 4 = 2 nulls, and no block for them."""
    both = Both(window(1))

    assert [[0, 0]] == both.ask(0, 0, external=8)


def test_a_window_of_one_leaves_its_column_to_extension() -> None:
    """W 1, e 6: live(6) = 6, nothing to load, 6 // 4 = 1 null; ceil(6/4) = 2 columns, the second by extension."""
    both = Both(window(1))
    both.ask(0, 0, external=6)

    assert [[1]] == both.added


def test_lookahead_does_not_move_the_window() -> None:
    """t 8, n 4, k 3: 15 slots are 4 columns; the window counts from p = 8, live 1, dead 0."""
    both = Both(window())
    both.ask(0, 8)

    assert [[1, 2, 3, 4]] == both.ask(8, 4, lookahead=3)
