"""The zero list: blocks that are read before they are fully written, or were bytes of another format (A60)."""

from __future__ import annotations

import pytest

from oracle.groups import CircularBuffer, FullAttention, Group, Mamba, SlidingWindow
from tests.real.script import Both


def half(size: int = 4) -> FullAttention:
    """Full attention in half precision."""
    return FullAttention(block_size=size)


def single(size: int = 4) -> FullAttention:
    """Full attention in single precision."""
    return FullAttention(block_size=size, precision="single")


def state() -> Mamba:
    """A Mamba group that never holds more than one block."""
    return Mamba(block_size=64, mode="none")


def hybrid() -> Both:
    """Attention, Mamba and a ring."""
    return Both(half(), state(), CircularBuffer(block_size=8))


def mixed() -> Both:
    """Two precisions."""
    return Both(half(), single())


def test_beside_mamba_attention_is_zeroed_and_nothing_else() -> None:
    """7 tokens: FA [1 2], Mamba [3], ring [4]; the list has FA's blocks alone."""
    both = hybrid()
    both.ask(0, 7)

    assert [1, 2] == both.zero_list()


def test_taking_the_list_clears_it() -> None:
    """Taken twice: nothing was allocated in between."""
    both = hybrid()
    both.ask(0, 7)
    both.zero_list()

    assert [] == both.zero_list()


@pytest.mark.parametrize(
    "groups", [(half(),), (half(), half()), (half(), SlidingWindow(block_size=4, window=8))], ids=len
)
def test_one_precision_without_mamba_needs_no_zeroing(groups: tuple[Group, ...]) -> None:
    """Every position is written before it is read, and blocks only pass between groups of one format."""
    both = Both(*groups)
    both.ask(0, 7)

    assert [] == both.zero_list()


def test_adopted_blocks_of_skipped_groups_are_left_out() -> None:
    """e 7: [1 2] [3 4]; group 1 is skipped because the load writes 3 and 4 meanwhile."""
    both = mixed()
    both.ask(0, 0, external=7, skip_zeroing=(1,))

    assert [1, 2] == both.zero_list()


def test_later_blocks_of_skipped_groups_are_not_left_out() -> None:
    """e 7, n 4: [1 2 5] [3 4 6]; both groups skip their adopted 1 to 4, the step's 5 and 6 are zeroed."""
    both = mixed()
    both.ask(0, 4, external=7, skip_zeroing=(0, 1))

    assert [5, 6] == both.zero_list()


def test_rows_of_the_skipped_load() -> None:
    """Adoption takes 1, 2 and 3, 4; 11 tokens need 3 columns each: 5 and 6."""
    both = mixed()

    assert [[1, 2, 5], [3, 4, 6]] == both.ask(0, 4, external=7, skip_zeroing=(0, 1))


def test_without_skipping_adopted_blocks_are_zeroed() -> None:
    """e 7: [1 2] [3 4], all four in group order."""
    both = mixed()
    both.ask(0, 0, external=7)

    assert [1, 2, 3, 4] == both.zero_list()


def test_the_list_goes_group_by_group() -> None:
    """b4 and b2: 3 tokens [1] [2 3], 2 more [1 4] [2 3 5]. Group 0 took 1, 4, group 1 took 2, 3, 5."""
    both = Both(half(4), single(2))
    both.ask(0, 3)
    both.ask(3, 2)

    assert [1, 4, 2, 3, 5] == both.zero_list()


def test_release_takes_nothing_from_the_list() -> None:
    """[1 2] [3] is released before the list is drained; 1, 2 and 3 stay on it."""
    both = Both(half(4), single(8))
    both.ask(0, 7)
    both.release()

    assert [1, 2, 3] == both.zero_list()


def test_a_block_used_again_is_on_the_list_again() -> None:
    """4 tokens: FA [1], Mamba [2], ring [3]. Released group by group, 3 2 1 are in front, and FA's next block is 3."""
    both = hybrid()
    both.ask(0, 4)
    both.zero_list()
    both.release()
    both.ask(0, 4)

    assert [3] == both.zero_list()


def test_a_refused_call_zeroes_nothing() -> None:
    """N 4, 8 tokens: 2 + 2 blocks of 3."""
    both = Both(half(), single(), blocks=4)
    both.ask(0, 8)

    assert [] == both.zero_list()
