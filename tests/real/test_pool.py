"""The pool: who takes which block, and the order in which blocks come back (A1 to A8)."""

from __future__ import annotations

import pytest

from oracle.groups import FullAttention, SlidingWindow
from tests.real.script import Both


def two() -> Both:
    """FA b4 and FA b2 in a pool of 20."""
    return Both(FullAttention(block_size=4), FullAttention(block_size=2), blocks=20)


def test_a_fresh_pool_is_in_order_without_the_null_block() -> None:
    """N 5: id 0 is the null block, 1 to 4 are usable."""
    both = Both(FullAttention(block_size=4), blocks=5)

    assert [1, 2, 3, 4] == both.queue()


def test_groups_take_in_configuration_order() -> None:
    """7 tokens: ceil(7/4) = 2 columns for the first group, then ceil(7/2) = 4 for the second."""
    both = two()

    assert [[1, 2], [3, 4, 5, 6]] == both.ask(0, 7)


def test_release_puts_the_last_groups_tail_in_front() -> None:
    """Group 0 gives 2, 1; group 1 then puts 6, 5, 4, 3 before them; 7 and 8 were never out."""
    both = two()
    both.ask(0, 7)
    both.release()

    assert [6, 5, 4, 3, 2, 1, 7, 8] == both.queue(8)


def test_the_next_request_takes_the_blocks_used_last() -> None:
    """Released [1 2 3] leaves 3 2 1 in front: 8 tokens take 3 and 2."""
    both = Both(FullAttention(block_size=4))
    both.ask(0, 12)
    both.release()

    assert [[3, 2]] == both.ask(0, 8, request=1)


def test_release_ignores_nulls() -> None:
    """SW W 8, [0 0 3 4 2 1]: 1, 2, 4, 3 come back from the highest column down, and 5 follows."""
    both = Both(SlidingWindow(block_size=4, window=8))
    both.ask(0, 16)
    both.ask(16, 8)
    both.release()

    assert [1, 2, 4, 3, 5] == both.queue(5)


def test_release_gives_everything_back() -> None:
    """N 20: 19 usable, 6 held, 19 again."""
    both = two()
    both.ask(0, 7)
    both.release()

    assert 19 == both.free


def test_every_block_is_free_or_held_once() -> None:
    """N 32: three requests of 5, 9 and 1 tokens in blocks of 4 hold 2 + 3 + 1; with 25 free these are ids 1 to 31."""
    both = Both(FullAttention(block_size=4))
    held = [both.ask(0, new, request=request) for request, new in enumerate((5, 9, 1))]

    assert list(range(1, 32)) == sorted(both.queue() + [block for (row,) in held for block in row])


def test_release_without_a_row_does_nothing() -> None:
    """Nobody holds a block: the queue stays 1 2 3."""
    both = Both(FullAttention(block_size=4), blocks=4)
    both.release()

    assert [1, 2, 3] == both.queue()


def test_release_twice_frees_once() -> None:
    """[1 2] comes back as 2 1, and the second release finds no row."""
    both = Both(FullAttention(block_size=4), blocks=5)
    both.ask(0, 8)
    both.release()
    both.release()

    assert [2, 1, 3, 4] == both.queue()


def test_release_forgets_the_row() -> None:
    """Nothing is held after it."""
    both = Both(FullAttention(block_size=4))
    both.ask(0, 8)
    both.release()

    assert [] == both.rows()


def test_release_forgets_adoption() -> None:
    """Adopted with e 4, released, begun again without: e > 0 is then wrong use."""
    both = Both(FullAttention(block_size=4))
    both.ask(0, 4, external=4)
    both.release()
    both.ask(0, 4)

    assert "error:AssertionError" == both.ask(4, 4, external=4)


# ------------------------------------------------------------------------------------------- deferred free


def test_popped_blocks_are_in_group_then_column_order() -> None:
    """[1 2] [3 4 5 6]."""
    both = two()
    both.ask(0, 7)

    assert [1, 2, 3, 4, 5, 6] == both.pop()


def test_popped_blocks_are_not_free_yet() -> None:
    """N 20: 19 - 6 = 13, as before the pop."""
    both = two()
    both.ask(0, 7)
    both.pop()

    assert 13 == both.free


def test_given_back_reversed_is_the_order_of_a_direct_release() -> None:
    """6 5 4 3 2 1 as one batch: the same as group by group."""
    both = two()
    both.ask(0, 7)
    both.pop()
    both.give_back()

    assert [6, 5, 4, 3, 2, 1, 7, 8] == both.queue(8)


def test_popped_leading_nulls_are_left_out() -> None:
    """SW W 8, [0 0 3 4 2 1]: two leading nulls."""
    both = Both(SlidingWindow(block_size=4, window=8))
    both.ask(0, 16)
    both.ask(16, 8)

    assert [3, 4, 2, 1] == both.pop()


def test_a_popped_request_begins_anew_at_once() -> None:
    """[1 2] popped and still being written: the same request from token 0 gets 3 and 4."""
    both = Both(FullAttention(block_size=4))
    both.ask(0, 8)
    both.pop()

    assert [[3, 4]] == both.ask(0, 8)


def test_popping_without_a_row_gives_nothing() -> None:
    """No row, no blocks."""
    both = Both(FullAttention(block_size=4))

    assert [] == both.pop()


@pytest.mark.parametrize(("times", "front"), [(1, [2, 1, 5]), (2, [4, 3, 2, 1, 5])])
def test_each_popped_list_is_given_back_on_its_own(times: int, front: list[int]) -> None:
    """Requests [1 2] and [3 4], popped in this order: first 2 1 come back, then 4 3 before them."""
    both = Both(FullAttention(block_size=4))
    both.ask(0, 8)
    both.ask(0, 8, request=1)
    both.pop()
    both.pop(request=1)
    for _ in range(times):
        both.give_back()

    assert front == both.queue(len(front))
