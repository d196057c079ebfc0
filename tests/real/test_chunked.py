"""Chunked local attention: a token reads from the start of its own chunk (A34, A35)."""

from __future__ import annotations

import pytest

from oracle.groups import ChunkedLocal
from tests.real.script import Both


def chunked(size: int = 8) -> ChunkedLocal:
    """Chunks of `size` tokens in blocks of 4."""
    return ChunkedLocal(block_size=4, chunk=size)


def test_last_token_of_a_chunk_still_reads_its_start() -> None:
    """C 8: token 7 reads 0 .. 7, live(7) = 7 // 8 * 8 = 0; 8 tokens are 2 columns."""
    both = Both(chunked())
    both.ask(0, 7)

    assert [[1, 2]] == both.ask(7, 1)


def test_a_new_chunk_needs_nothing_before_it() -> None:
    """Token 8 opens a chunk: live(8) = 8, dead 2; block 2 comes to the front first-of-batch and becomes column 2."""
    both = Both(chunked())
    both.ask(0, 7)
    both.ask(7, 1)

    assert [[0, 0, 2]] == both.ask(8, 1)


def test_a_new_chunk_frees_the_old_one() -> None:
    """Of the dead blocks 2 and 1 one is used again; block 1 stays in front of 3."""
    both = Both(chunked())
    both.ask(0, 7)
    both.ask(7, 1)
    both.ask(8, 1)

    assert [1, 3] == both.queue(2)


@pytest.mark.parametrize(
    ("processed", "row"),
    [
        (7, [1, 2, 3, 4, 5]),
        (8, [0, 0, 3, 4, 5]),
        (15, [0, 0, 3, 4, 5]),
        (16, [0, 0, 0, 0, 5]),
        (20, [0, 0, 0, 0, 5]),
    ],
)
def test_the_live_part_jumps_at_chunk_borders(processed: int, row: list[int]) -> None:
    """C 8: live is 0 up to position 7, 8 up to 15 (2 columns of 4 dead), 16 from there (4 columns dead)."""
    both = Both(chunked())
    both.ask(0, 20)

    assert [row] == both.trim(processed)


def test_tokens_in_flight_keep_the_old_chunk() -> None:
    """t 8 with f 1: p = 7, live 0, so the first chunk stays and column 2 is block 3."""
    both = Both(chunked())
    both.ask(0, 8)

    assert [[1, 2, 3]] == both.ask(8, 1, in_flight=1)


def test_external_tokens_up_to_a_border_leave_nothing_to_load() -> None:
    """e 16: live(16) = 16, 4 nulls and no loaded block; 4 new tokens take column 4, block 1."""
    both = Both(chunked())

    assert [[0, 0, 0, 0, 1]] == both.ask(0, 4, external=16)


def test_async_load_up_to_a_border_takes_no_block() -> None:
    """e 16, n 0: 16 // 4 = 4 nulls, and that is the whole row."""
    both = Both(chunked())

    assert [[0, 0, 0, 0]] == both.ask(0, 0, external=16)


def test_external_tokens_inside_a_chunk_are_loaded_from_its_start() -> None:
    """e 12: live(12) = 8, 2 nulls; ceil(12/4) = 3 columns, so column 2 holds the 4 live tokens."""
    both = Both(chunked())

    assert [[0, 0, 1]] == both.ask(0, 0, external=12)


@pytest.mark.parametrize(("in_flight", "limit", "cap"), [(4, 64, 3), (5, 64, 4), (None, 10, 3), (None, 64, 16)])
def test_cap(in_flight: int | None, limit: int, cap: int) -> None:
    """ceil((8+F)/4), no + 1: F 4 -> 12/4 = 3; F 5 -> ceil(13/4) = 4. F unset is M: min(18, 10): 3, min(72, 64): 16."""
    both = Both(chunked(), max_model_len=limit, max_in_flight_tokens=in_flight)

    assert [cap] == both.caps()


def test_chunks_within_the_budget_reach_the_cap_and_no_more() -> None:
    """C 8, F 4, cap 3. From 3 tokens in chunks of 4: t 7 has live 0 and ends at 11, so 3 columns are held."""
    both = Both(chunked(), max_in_flight_tokens=4)
    rows = [both.ask(0, 3)] + [both.ask(computed, 4) for computed in range(3, 57, 4)]

    assert 3 == max(sum(block != 0 for block in row) for (row,) in rows)
