"""Mamba in mode none, states used in place, and in mode all, a state a column (A13, A40, A41)."""

from __future__ import annotations

import pytest

from oracle.call import REFUSED
from oracle.groups import Mamba
from tests.real.script import Both


def every(scratch: int = 1) -> Mamba:
    """Mode all in blocks of 4."""
    return Mamba(block_size=4, mode="all", speculative_blocks=scratch)


def running(scratch: int = 2) -> Mamba:
    """Mode none as it is deployed: one block covers max_model_len."""
    return Mamba(block_size=64, mode="none", speculative_blocks=scratch)


# ----------------------------------------------------------------------------------------------- mode none


def test_none_holds_the_running_state_and_one_a_draft() -> None:
    """b 64, s 2: 30 tokens are 1 column, and 2 more for drafts."""
    both = Both(running())

    assert [[1, 2, 3]] == both.ask(0, 30)


def test_none_never_changes_its_row() -> None:
    """t 30, n 30, k 3: min(63, 64) slots are still 1 column, + 2."""
    both = Both(running())
    both.ask(0, 30)

    assert [[1, 2, 3]] == both.ask(30, 30, lookahead=3)


def test_none_loads_the_running_state_alone() -> None:
    """e 30: dead 29 // 64 = 0, ceil(30/64) = 1 block is adopted; the 2 draft states come by extension."""
    both = Both(running())
    both.ask(0, 0, external=30)

    assert [[2, 3]] == both.added


@pytest.mark.parametrize(("free", "answer"), [(3, [[1, 2, 3]]), (2, REFUSED)])
def test_none_gate_counts_the_draft_states(free: int, answer: list[list[int]] | str) -> None:
    """T 60: ceil(60/64) + 2 = 3 blocks."""
    both = Both(running(), blocks=free + 1)

    assert answer == both.ask(0, 4, gate=True)


# ------------------------------------------------------------------------------------------------ mode all


def test_all_keeps_a_state_a_column() -> None:
    """b 4, s 1: ceil(10/4) + 1 = 4."""
    both = Both(every())

    assert [[1, 2, 3, 4]] == both.ask(0, 10)


def test_all_removes_what_lies_before_the_last_state() -> None:
    """t 10: live 9, dead 9 // 4 = 2; 11 tokens need 3 + 1 = 4 columns, which are there."""
    both = Both(every())
    both.ask(0, 10)

    assert [[0, 0, 3, 4]] == both.ask(10, 1)


def test_all_frees_the_highest_column_first() -> None:
    """Columns 1 and 0 die: blocks 2, then 1, before 5."""
    both = Both(every())
    both.ask(0, 10)
    both.ask(10, 1)

    assert [2, 1, 5] == both.queue(3)


def test_all_grows_from_what_it_freed() -> None:
    """13 tokens need 4 + 1 = 5 columns: one more, block 2 from the front."""
    both = Both(every())
    both.ask(0, 10)
    both.ask(10, 1)

    assert [[0, 0, 3, 4, 2]] == both.ask(11, 2)


def test_all_loads_the_last_state() -> None:
    """e 10: dead 2 nulls, ceil(10/4) = 3 columns by adoption, 3 + 1 by extension: block 2 is the draft's."""
    both = Both(every())

    assert [[0, 0, 1, 2]] == both.ask(0, 0, external=10)


@pytest.mark.parametrize(("free", "answer"), [(2, [[0, 0, 1, 2]]), (1, REFUSED)])
def test_all_gate_does_not_count_dead_columns(free: int, answer: list[list[int]] | str) -> None:
    """s 1, T 12, e 10: 3 + 1 columns, dead 9 // 4 = 2: 2 blocks, which the load takes at once."""
    both = Both(every(), blocks=free + 1)

    assert answer == both.ask(0, 0, prompt=12, external=10, gate=True)
