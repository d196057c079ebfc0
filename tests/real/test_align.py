"""Mamba in align mode, without checkpoints: rows that jump, scratch that moves (A42, A43, A45 to A47)."""

from __future__ import annotations

import pytest

from oracle.call import REFUSED
from oracle.groups import Mamba
from tests.real.script import Both


def align(scratch: int = 0) -> Mamba:
    """Align mode in blocks of 4 with `scratch` (s) speculative blocks."""
    return Mamba(block_size=4, mode="align", speculative_blocks=scratch)


@pytest.mark.parametrize(
    ("calls", "row"),
    [
        ([(0, 12)], [0, 0, 1]),
        ([(0, 12), (12, 4)], [0, 0, 1, 2]),
        ([(0, 12), (12, 4), (16, 4)], [0, 0, 0, 2, 1]),
    ],
)
def test_goes_from_state_to_state(calls: list[tuple[int, int]], row: list[int]) -> None:
    """q = 3, 4, 5: the state goes to column q-1. At t 16 dead is 15 // 4 = 3, so block 1 is freed and is column 4."""
    both = Both(align())
    for computed, new in calls:
        both.ask(computed, new)

    assert [row] == both.rows()


def test_first_call_has_its_scratch_behind_the_state() -> None:
    """s 2, 5 tokens: q = 2, column 0 null, the state in column 1, scratch 2 and 3."""
    both = Both(align(2))

    assert [[0, 1, 2, 3]] == both.ask(0, 5)


def test_next_column_is_the_first_scratch_column() -> None:
    """m 9, q 3: scratch columns 2 and 3 aren't below q-1 = 2, none moves; one fresh block makes q + s = 5 columns."""
    both = Both(align(2))
    both.ask(0, 5)

    assert [[0, 1, 2, 3, 4]] == both.ask(5, 4)


def test_scratch_before_the_new_state_moves_to_the_end() -> None:
    """t 9: dead 8 // 4 = 2 frees block 1. m 17, q 5: scratch is columns 3, 4; 3 < q-1 = 4, so block 3 moves behind
    column 4, and the freed block 1 makes q + s = 7 columns."""
    both = Both(align(2))
    both.ask(0, 5)
    both.ask(5, 4)

    assert [[0, 0, 2, 0, 4, 3, 1]] == both.ask(9, 8)


def test_result_names_moved_blocks() -> None:
    """The row had 5 columns; appended were the moved block 3 and the fresh block 1."""
    both = Both(align(2))
    both.ask(0, 5)
    both.ask(5, 4)
    both.ask(9, 8)

    assert [[3, 1]] == both.added


def test_jump_moves_all_scratch() -> None:
    """s 1: [1 2] at 4. m 20, q 5: nulls up to column 3, block 2 (column 1) moves to column 4, block 3 is fresh."""
    both = Both(align(1))
    both.ask(0, 4)

    assert [[1, 0, 0, 0, 2, 3]] == both.ask(4, 16)


def test_result_names_nulls() -> None:
    """From the old length 2 on: two nulls, the moved block 2, the fresh block 3."""
    both = Both(align(1))
    both.ask(0, 4)
    both.ask(4, 16)

    assert [[0, 0, 2, 3]] == both.added


def test_takes_one_block_however_far_it_jumps() -> None:
    """60 tokens: q 15, 14 nulls and the state; N 2 has just one block."""
    both = Both(align(), blocks=2)

    assert [[0] * 14 + [1]] == both.ask(0, 60)


def test_stays_in_its_column_without_a_block() -> None:
    """s 2, 5 tokens fill to q 2; 6 tokens still have q 2, and 2 + 2 columns are there."""
    both = Both(align(2))
    both.ask(0, 5)

    assert [[0, 1, 2, 3]] == both.ask(5, 1)


def test_ignores_lookahead() -> None:
    """4 tokens and k 3: q = ceil(4/4) = 1, where 7 slots would be 2 columns."""
    both = Both(align())

    assert [[1]] == both.ask(0, 4, lookahead=3)


def test_is_not_capped_at_max_model_len() -> None:
    """M 8, 12 tokens: q = ceil(12/4) = 3, where attention would stop at 2 columns."""
    both = Both(align(), max_model_len=8)

    assert [[0, 0, 1]] == both.ask(0, 12)


def test_rollback_keeps_the_row() -> None:
    """9 tokens: q 3. Back at 5, m 6: q 2 is below the 3 columns of the row, and dead 4 // 4 = 1 is null already."""
    both = Both(align())
    both.ask(0, 9)

    assert [[0, 0, 1]] == both.ask(5, 1)


def test_tokens_in_flight_keep_the_state_to_roll_back_to() -> None:
    """t 8, f 4: p 4, dead 3 // 4 = 0, so block 1 with the state after 4 tokens stays; 9 tokens: q 3, block 3."""
    both = Both(align())
    both.ask(0, 4)
    both.ask(4, 4)

    assert [[1, 2, 3]] == both.ask(8, 1, in_flight=4)


def test_removal_also_frees_behind_nulls() -> None:
    """[1 0 2] at 12: dead 11 // 4 = 2, the held column 0 lies before a null."""
    both = Both(align())
    both.ask(0, 4)
    both.ask(4, 8)

    assert [[0, 0, 2]] == both.trim(12)


def test_removal_frees_the_highest_column_first() -> None:
    """[1 2 0 3] at 16: dead 15 // 4 = 3, blocks 2 then 1 come to the front."""
    both = Both(align())
    both.ask(0, 4)
    both.ask(4, 4)
    both.ask(8, 8, in_flight=4)
    both.trim(16)

    assert [2, 1, 4] == both.queue(3)


def test_after_release_has_no_scratch_to_move() -> None:
    """s 1: [1 2] released, 2 then 1 in front; 12 tokens are a first call: 2 nulls, state and scratch both fresh."""
    both = Both(align(1))
    both.ask(0, 4)
    both.release()

    assert [[0, 0, 2, 1]] == both.ask(0, 12)


# ------------------------------------------------------------------------------------------------ adoption


def test_loads_one_state() -> None:
    """s 1, e 10: dead 9 // 4 = 2 nulls, block 1 for the loaded state; q = 3 and q + s = 4, so block 2 is scratch."""
    both = Both(align(1))

    assert [[0, 0, 1, 2]] == both.ask(0, 0, external=10)


def test_loaded_state_is_not_in_the_result() -> None:
    """Extension added the scratch block alone."""
    both = Both(align(1))
    both.ask(0, 0, external=10)

    assert [[2]] == both.added


def test_goes_on_from_a_loaded_state() -> None:
    """m 14, q 4: scratch column 3 isn't below q-1 = 3; one fresh block makes 5 columns."""
    both = Both(align(1))
    both.ask(0, 0, external=10)

    assert [[0, 0, 1, 2, 3]] == both.ask(10, 4)


def test_sync_load_takes_the_loaded_and_the_running_state() -> None:
    """s 1, e 8, n 4: dead 7 // 4 = 1 null, block 1 loaded; q = 3: state 2 and scratch 3 make 4 columns."""
    both = Both(align(1))

    assert [[0, 1, 2, 3]] == both.ask(0, 4, external=8)


def test_sync_load_inside_a_column_runs_on_the_loaded_block() -> None:
    """s 0, e 9, n 2: dead 2 nulls, block 1 in column 2; 11 tokens have q 3, so nothing is missing, even at N 2."""
    both = Both(align(), blocks=2)

    assert [[0, 0, 1]] == both.ask(0, 2, external=9)


# ---------------------------------------------------------------------------------------------------- gate


@pytest.mark.parametrize("tokens", [12, 60, 200])
@pytest.mark.parametrize(("free", "answer"), [(3, [[1, 2, 3]]), (2, REFUSED)])
def test_gate_is_one_state_and_its_scratch(tokens: int, free: int, answer: list[list[int]] | str) -> None:
    """s 2: 1 + 2 = 3 blocks on a first call, whatever T is; 4 tokens take just these."""
    both = Both(align(2), blocks=free + 1)

    assert answer == both.ask(0, 4, prompt=tokens, gate=True)


@pytest.mark.parametrize(("blocks", "answer"), [(5, [[1, 2, 3, 4]]), (4, REFUSED)])
def test_gate_counts_no_scratch_again(blocks: int, answer: list[list[int]] | str) -> None:
    """s 2, [1 2 3] at 4, T 60: at most 1 more block. N 5 has one, N 4 none. 8 tokens: q 2, 2 + 2 columns."""
    both = Both(align(2), blocks=blocks)
    both.ask(0, 4)

    assert answer == both.ask(4, 4, gate=True)


def test_gate_counts_no_more_than_max_model_len() -> None:
    """M 16: [0 0 1 2] at 15. Of T 40 count min(40, 16) tokens: q 4, 4 - 4 = 0 blocks of the 0 free in N 3. At 15 dead
    is 14 // 4 = 3, and 16 tokens need no more."""
    both = Both(align(), blocks=3, max_model_len=16)
    both.ask(0, 12)
    both.ask(12, 3, in_flight=4)

    assert [[0, 0, 0, 2]] == both.ask(15, 1, prompt=40, gate=True)
