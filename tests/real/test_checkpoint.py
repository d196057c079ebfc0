"""Mamba align with a prefill checkpoint: a chunk that also saves an inner, reusable state (A44, A45, A47)."""

from __future__ import annotations

import pytest
from attrs import evolve

from oracle.call import REFUSED
from oracle.groups import FullAttention, Mamba
from tests.real.script import Both


def saving(scratch: int = 1, alignment: int | None = 1, blocks: int = 1) -> Mamba:
    """Align mode in blocks of 4 with checkpoint blocks."""
    return Mamba(
        block_size=4,
        mode="align",
        speculative_blocks=scratch,
        checkpoint_blocks=blocks,
        checkpoint_alignment=alignment,
    )


@pytest.mark.parametrize(
    ("group", "row"),
    [
        (saving(), [0, 1, 2, 3]),
        (saving(blocks=0), [0, 0, 1, 2]),
        (saving(alignment=None), [0, 0, 1, 2]),
        (saving(alignment=8), [0, 1, 2, 3]),
        (saving(alignment=3), [0, 0, 1, 2]),
    ],
)
def test_first_chunk(group: Mamba, row: list[int]) -> None:
    """12 tokens, A = h = 4: pos = 11 // 4 * 4 = 8 lies in column q-2 = 1, held if (8 - 0) mod a = 0 (a 1, 8; not 3)."""
    both = Both(group)

    assert [row] == both.ask(0, 12)


def test_a_chunk_of_one_column_has_no_inner_state() -> None:
    """4 tokens: pos = 3 // 4 * 4 = 0."""
    both = Both(saving())

    assert [[1, 2]] == both.ask(0, 4)


def test_the_boundary_must_lie_a_hash_block_behind_the_start() -> None:
    """[0 1 2 3] at 12, m 16: pos = 12, but t + h = 16 > 12. Dead 11 // 4 = 2 frees block 1, which is the fresh column
    of q + s = 5."""
    both = Both(saving())
    both.ask(0, 12)

    assert [[0, 0, 2, 3, 1]] == both.ask(12, 4)


def test_a_start_inside_a_hash_block_saves_nothing() -> None:
    """t 2, m 16: 2 mod 4 isn't 0. q 4: null column 2, scratch block 2 moves from column 1 to 3, block 3 is fresh."""
    both = Both(saving())
    both.ask(0, 2)

    assert [[1, 0, 0, 2, 3]] == both.ask(2, 14)


@pytest.mark.parametrize(("blocks", "row"), [(1, [1, 0, 3, 2, 4, 5]), (0, [1, 0, 0, 2, 3, 4])])
def test_scratch_at_the_checkpoint_stays(blocks: int, row: list[int]) -> None:
    """s 2, [1 2 3] at 4; m 16, q 4, pos 12 in column 2. Column 1 (block 2) moves, column 2 (block 3) stays for the
    checkpoint, 4 and 5 are fresh: 1 + kappa. Without: blocks 2 and 3 move, 4 is fresh."""
    both = Both(saving(scratch=2, blocks=blocks))
    both.ask(0, 4)

    assert [row] == both.ask(4, 12)


@pytest.mark.parametrize(
    ("prompt", "tokens", "row"),
    [(60, 60, [0, 0, 1, 2]), (12, 12, [0, 1, 2, 3]), (12, 13, [0, 1, 2, 3]), (12, 14, [0, 0, 1, 2])],
)
def test_retention_zero_saves_only_in_the_last_chunk(prompt: int, tokens: int, row: list[int]) -> None:
    """m 12 must reach max(P, T-1): 60 no, max(12, 11) = 12 yes, max(12, 12) = 12 yes, max(12, 13) = 13 no."""
    both = Both(saving(), prefix_cache_retention_interval=0)

    assert [row] == both.ask(0, 12, prompt=prompt, tokens=tokens)


@pytest.mark.parametrize(("tokens", "rows"), [(16, [[1, 2], [0, 0, 3, 4, 5]]), (8, [[1], [0, 2, 3]])])
def test_boundaries_are_those_of_the_scheduler_block(tokens: int, rows: list[list[int]]) -> None:
    """FA b8 beside it: A = lcm(8, 4) = 8. 16 tokens: pos = 15 // 8 * 8 = 8, q 4, so column 2 is held; 8 tokens: 0."""
    both = Both(FullAttention(block_size=8), saving())

    assert rows == both.ask(0, tokens)


def test_the_state_loaded_is_the_start_of_the_chunk() -> None:
    """s 1, e 4, n 12: t = 4, pos 12, 4 + 4 <= 12 < 16, q-2 = 2 > 3 // 4. Column 0 loaded, 1 null, 2 to 4 fresh."""
    both = Both(saving())

    assert [[1, 0, 2, 3, 4]] == both.ask(0, 12, external=4)


@pytest.mark.parametrize(("free", "answer"), [(3, [[1, 2]]), (2, REFUSED)])
def test_gate_counts_the_checkpoint(free: int, answer: list[list[int]] | str) -> None:
    """T 12, s 1: of 3 + 1 columns at most 1 + kappa 1 + s 1 = 3 blocks count; the 4 tokens themselves take 2."""
    both = Both(saving(), blocks=free + 1)

    assert answer == both.ask(0, 4, prompt=12, gate=True)


def test_the_column_of_the_start_state_is_never_a_checkpoint() -> None:
    """Align b8 beside FA b4: h 4, A 8. t 4, m 16: pos 8, 4 + 4 <= 8, but q-2 = 0 isn't beyond (4-1) // 8 = 0: the
    state after 4 tokens is in column 0, and one block for column 1 is all."""
    both = Both(FullAttention(block_size=4), evolve(saving(scratch=0), block_size=8))
    both.ask(0, 4)

    assert [[1, 3, 4, 5], [2, 6]] == both.ask(4, 12)
