"""Full attention, MLA and hidden states: every position is kept to the end (A10, A19, A20, A23, A30, A52)."""

from __future__ import annotations

import pytest

from oracle.call import REFUSED
from oracle.groups import MLA, FullAttention, Group, HiddenState
from tests.real.script import Both

KEEPS_ALL = pytest.mark.parametrize("kind", [FullAttention, MLA, HiddenState])


@KEEPS_ALL
@pytest.mark.parametrize(("new", "row"), [(1, [1]), (3, [1]), (4, [1]), (5, [1, 2]), (8, [1, 2]), (9, [1, 2, 3])])
def test_row_has_the_columns_of_its_tokens(kind: type[Group], new: int, row: list[int]) -> None:
    """Blocks of 4: 1 to 4 tokens need ceil(n/4) = 1 column, 5 to 8 need 2, 9 need ceil(9/4) = 3."""
    both = Both(kind(block_size=4))

    assert [row] == both.ask(0, new)


@KEEPS_ALL
def test_nothing_is_ever_null(kind: type[Group]) -> None:
    """60 tokens in two calls: 30 need ceil(30/4) = 8 columns, 60 need 15, and the token at 59 still reads column 0."""
    both = Both(kind(block_size=4))
    both.ask(0, 30)

    assert [list(range(1, 16))] == both.ask(30, 30)


@KEEPS_ALL
def test_trim_removes_nothing(kind: type[Group]) -> None:
    """With 8 tokens processed live(8) is 0, so neither of the 2 columns is dead."""
    both = Both(kind(block_size=4))
    both.ask(0, 8)

    assert [[1, 2]] == both.trim(8)


@pytest.mark.parametrize(
    ("calls", "row"),
    [
        ([(0, 6, 0)], [1, 2]),
        ([(0, 6, 0), (6, 4, 3)], [1, 2, 3, 4]),
        ([(0, 6, 0), (6, 4, 3), (7, 1, 3)], [1, 2, 3, 4]),
        ([(0, 6, 0), (6, 4, 3), (7, 1, 3), (8, 4, 3)], [1, 2, 3, 4]),
        ([(0, 6, 0), (6, 4, 3), (7, 1, 3), (8, 4, 3), (12, 4, 3)], [1, 2, 3, 4, 5]),
    ],
)
def test_rejected_drafts_leave_a_longer_row(calls: list[tuple[int, int, int]], row: list[int]) -> None:
    """(t, n, k): slots 6, 6+4+3 = 13, 7+1+3 = 11, 8+4+3 = 15, 12+4+3 = 19; columns 2, 4, still 4, still 4, 5."""
    both = Both(FullAttention(block_size=4))
    for computed, new, lookahead in calls:
        both.ask(computed, new, lookahead=lookahead)

    assert [row] == both.rows()


@pytest.mark.parametrize(
    ("limit", "row"), [(10, [1, 2, 3]), (8, [1, 2]), (9, [1, 2, 3]), (12, [1, 2, 3]), (13, [1, 2, 3])]
)
def test_lookahead_stops_at_max_model_len(limit: int, row: list[int]) -> None:
    """8 new and 4 drafted tokens want 12 slots = 3 columns; M = 8 leaves min(12, 8) = 8 slots = 2 columns."""
    both = Both(FullAttention(block_size=4), max_model_len=limit)

    assert [row] == both.ask(0, 8, lookahead=4)


def test_result_is_what_extension_added() -> None:
    """4 tokens fill column 0; tokens 4 to 9 need ceil(10/4) = 3 columns, so columns 1 and 2 are new: blocks 2 and 3."""
    both = Both(FullAttention(block_size=4))
    both.ask(0, 4)
    both.ask(4, 6)

    assert [[2, 3]] == both.added


def test_result_is_empty_when_no_column_is_missing() -> None:
    """5 tokens have ceil(5/4) = 2 columns = 8 slots; three more end at slot 8 and add nothing."""
    both = Both(FullAttention(block_size=4))
    both.ask(0, 5)
    both.ask(5, 3)

    assert [[]] == both.added


def test_nothing_to_do_is_wrong_use() -> None:
    """n = 0 and e = 0: there is neither a token to compute nor one to load."""
    both = Both(FullAttention(block_size=4))

    assert "error:ValueError" == both.ask(0, 0)


def test_nothing_to_do_leaves_a_row_alone() -> None:
    """n = 0 and e = 0 raises before anything else: the 2 columns of 8 tokens stay."""
    both = Both(FullAttention(block_size=4))
    both.ask(0, 8)
    both.ask(8, 0)

    assert [[1, 2]] == both.rows()


def test_in_flight_tokens_take_no_blocks_of_their_own() -> None:
    """f is already inside c: 8 computed, 4 of them in flight, and 4 new end at 12 = 3 columns."""
    both = Both(FullAttention(block_size=4))
    both.ask(0, 8)

    assert [[1, 2, 3]] == both.ask(8, 4, in_flight=4)


def test_exact_pool() -> None:
    """N = 4 has 3 usable blocks: 12 tokens take all three."""
    both = Both(FullAttention(block_size=4), blocks=4)

    assert [[1, 2, 3]] == both.ask(0, 12)


def test_one_token_over_the_pool_is_refused() -> None:
    """N = 4 has 3 usable blocks: 13 tokens need ceil(13/4) = 4."""
    both = Both(FullAttention(block_size=4), blocks=4)

    assert REFUSED == both.ask(0, 13)
