"""Circular buffers and cross-attention: rows that do not follow the decoder's tokens (A18, A38, A39)."""

from __future__ import annotations

from oracle.call import REFUSED
from oracle.groups import CircularBuffer, CrossAttention, FullAttention
from tests.real.script import Both


def ring() -> CircularBuffer:
    """A ring of 8 tokens."""
    return CircularBuffer(block_size=8)


def cross() -> CrossAttention:
    """Cross-attention in blocks of 4."""
    return CrossAttention(block_size=4)


def test_ring_takes_one_block() -> None:
    """5 tokens, ring of 8: one block."""
    both = Both(ring())

    assert [[1]] == both.ask(0, 5)


def test_ring_keeps_its_block_whatever_comes() -> None:
    """50 more tokens go round and round in the same 8 slots."""
    both = Both(ring())
    both.ask(0, 5)

    assert [[1]] == both.ask(5, 50)


def test_ring_ignores_lookahead() -> None:
    """8 tokens and 5 drafts are 13 slots for attention; the ring is written modulo 8."""
    both = Both(ring())

    assert [[1]] == both.ask(0, 8, lookahead=5)


def test_ring_ignores_external_tokens() -> None:
    """20 external and 4 new tokens: one block."""
    both = Both(ring())

    assert [[1]] == both.ask(0, 4, external=20)


def test_ring_taken_by_adoption_is_not_in_the_result() -> None:
    """With e > 0 the ring takes its block in adoption, extension adds none."""
    both = Both(ring())
    both.ask(0, 4, external=20)

    assert [[]] == both.added


def test_ring_counts_one_in_the_gate() -> None:
    """FA b4 with T 12 needs 3 blocks and the ring 1; N 4 has 3."""
    both = Both(FullAttention(block_size=4), ring(), blocks=4)

    assert REFUSED == both.ask(0, 4, prompt=12, gate=True)


def test_ring_held_is_not_counted_again() -> None:
    """N 4: FA [1] and ring [2] leave one free block, just what FA's second column needs."""
    both = Both(FullAttention(block_size=4), ring(), blocks=4)
    both.ask(0, 4)

    assert [[1, 3], [2]] == both.ask(4, 4)


def test_cross_has_the_columns_of_the_encoder_tokens() -> None:
    """30 decoder tokens, x 10: ceil(10/4) = 3 columns."""
    both = Both(cross())

    assert [[1, 2, 3]] == both.ask(0, 30, encoder=10)


def test_cross_does_not_grow_with_the_decoder() -> None:
    """30 more decoder tokens, x 0: the same 3 columns."""
    both = Both(cross())
    both.ask(0, 30, encoder=10)

    assert [[1, 2, 3]] == both.ask(30, 10)


def test_cross_grows_by_the_columns_that_are_missing() -> None:
    """x 10 has 3 columns; x 16 needs 4, so max(0, 4 - 3) = 1 more."""
    both = Both(cross())
    both.ask(0, 4, encoder=10)

    assert [[1, 2, 3, 4]] == both.ask(4, 4, encoder=16)


def test_cross_without_encoder_tokens_takes_nothing() -> None:
    """x 0: ceil(0/4) = 0 columns, the call is granted with an empty row."""
    both = Both(cross())

    assert [[]] == both.ask(0, 4)


def test_cross_is_not_adopted() -> None:
    """e 4, x 7: adoption skips cross-attention, so its ceil(7/4) = 2 blocks are in the result; FA's one is not."""
    both = Both(FullAttention(block_size=4), cross())
    both.ask(0, 0, external=4, encoder=7)

    assert [[], [2, 3]] == both.added


def test_cross_counts_in_the_gate() -> None:
    """T 12 needs 3 blocks of FA, x 12 needs 3 more: 6 > 5 of N 6."""
    both = Both(FullAttention(block_size=4), cross(), blocks=6)

    assert REFUSED == both.ask(0, 4, prompt=12, encoder=12, gate=True)


def test_cross_that_fits_passes_the_gate() -> None:
    """T 12 needs 3, x 8 needs 2: 5 of N 6. Four tokens take block 1, the encoder blocks 2 and 3."""
    both = Both(FullAttention(block_size=4), cross(), blocks=6)

    assert [[1], [2, 3]] == both.ask(0, 4, prompt=12, encoder=8, gate=True)
