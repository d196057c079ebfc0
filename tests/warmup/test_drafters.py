"""D6 to D8: the slots of the DFlash and DSpark input kernel, for every rejection count, up to the last position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.targets.drafters import dflash_inputs, draft_model_inputs
from oracle.groups import FullAttention
from oracle.slots import PAD, position_of, queries, query_slot, slot
from oracle.warmup import Part, WarmupSetting, columns
from tests.warmup.cases import setting

METHODS = ("dflash", "dspark", "dspark_fill_in")


def steps(of: WarmupSetting, first: int) -> Iterator[tuple[Part, int, tuple[int, ...]]]:
    """A decode step with drafts from `first` computed tokens on, each rejection count, and the row that it holds."""
    drafts = of.num_speculative_tokens
    part = Part(0, first, 1 + drafts, drafts, 4)
    row = tuple(range(3, 3 + columns(of, part)[0].value))
    for rejected in range(drafts + 1):
        yield part, rejected, row


def wrong(of: WarmupSetting, part: Part, rejected: int, row: tuple[int, ...], rank: int = 0) -> list[str]:
    """Each query whose slot is not as the rule says, by what it hits."""
    group = of.groups[0]
    made = dflash_inputs(of, group, row, part, rejected, rank)
    valid = part.end - rejected
    context = [slot(of, group, row, p, rank) if p < valid else PAD for p in range(part.computed, part.end)]
    assert context == list(made.context)
    found = []
    for position, seen in zip(queries(of, valid - 1), made.slots, strict=True):
        if seen == query_slot(of, group, row, position, rank):
            continue
        hit = position_of(of, group, row, seen, rank)
        if hit is None:
            found.append(f"{position}: slot {seen} of nobody")
        elif hit < of.max_model_len:
            found.append(f"{position}: over position {hit}")
        else:
            found.append(f"{position}: past the end, at {hit}")
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_queries_have_the_slots_of_their_positions(tables: Any, method: str, ranks: int) -> None:
    """Far from max_model_len: K 3 with b4, on the first rank and the last."""
    of = setting(FullAttention(block_size=4), method=method, num_speculative_tokens=3, dcp_size=ranks)

    for first in (4, 5, 6, 7):
        for part, rejected, row in steps(of, first):
            assert [] == wrong(of, part, rejected, row)
            assert [] == wrong(of, part, rejected, row, rank=ranks - 1)


@pytest.mark.parametrize("method", METHODS)
def test_queries_past_the_end_of_an_open_row_write_nothing_valid(tables: Any, method: str) -> None:
    """M 16 with b4: the worker's row goes on to 128 tokens, so that a query past M finds no block."""
    of = setting(FullAttention(block_size=4), method=method, num_speculative_tokens=3, max_model_len=16)

    for first in (8, 9, 10, 11):
        for part, rejected, row in steps(of, first):
            assert [] == [what for what in wrong(of, part, rejected, row) if "over" in what or "nobody" in what]


def test_queries_past_the_end_of_a_full_row_overwrite_context(tables: Any) -> None:
    """A defect of 0.33.0: with M 128 and b4 the row ends at M, and the column past it is cut to the last one.

    The step ends at 127, the last one that a scheduler makes. The bonus query is at 127; those at 128 to 130 go to the
    block of 124 to 127, at their own offsets.
    """
    of = setting(FullAttention(block_size=4), method="dflash", num_speculative_tokens=3, max_model_len=128)
    part = Part(0, 123, 4, 3, 4)
    row = tuple(range(3, 3 + columns(of, part)[0].value))

    assert ["128: over position 124", "129: over position 125", "130: over position 126"] == wrong(of, part, 0, row)


@pytest.mark.parametrize("first", [4, 9, 11])
def test_draft_model_reads_one_position_more_than_the_target(tables: Any, first: int) -> None:
    """D3, K 3, M 16: the step's four positions and the one past them, never at or past M (11 + 4 is M - 1)."""
    of = setting(FullAttention(block_size=4), method="draft_model", num_speculative_tokens=3, max_model_len=16)

    for part, rejected, _ in steps(of, first):
        made = draft_model_inputs(of, part, rejected)

        assert tuple(range(first, first + 5)) == made.positions
        assert part.new - rejected == made.last
        assert part.end + 1 == made.seq_len


def test_draft_model_stays_below_max_model_len(tables: Any) -> None:
    """One token past what a scheduler makes: the position is clamped, so the last slot is written twice."""
    of = setting(FullAttention(block_size=4), method="draft_model", num_speculative_tokens=3, max_model_len=16)

    made = draft_model_inputs(of, Part(0, 12, 4, 3, 4), 0)

    assert (12, 13, 14, 15, 15) == made.positions
    assert 16 == made.seq_len
