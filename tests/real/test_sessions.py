"""Requests that come back: preempted ones from token 0, sessions with their row (A7, A53, A54)."""

from __future__ import annotations

import pytest

from oracle.call import REFUSED
from oracle.groups import CircularBuffer, FullAttention, SlidingWindow
from tests.real.script import Both

Answer = list[list[int]] | str


def full() -> FullAttention:
    """Full attention in blocks of 4."""
    return FullAttention(block_size=4)


# --------------------------------------------------------------------------------------------- preemption


def test_readmission_must_fit_as_a_whole() -> None:
    """N 6: 8 tokens had [1 2]; with T 17 it needs ceil(17/4) = 5, but another holds [2]: 4 free."""
    both = Both(full(), blocks=6)
    both.ask(0, 8)
    both.release()
    both.ask(0, 4, request=1)

    assert REFUSED == both.ask(0, 4, prompt=8, tokens=17, preempted=True, gate=True)


def test_readmission_is_a_first_call() -> None:
    """The other has left: 5 <= 5, and the front of the queue is 2 again."""
    both = Both(full(), blocks=6)
    both.ask(0, 8)
    both.release()
    both.ask(0, 4, request=1)
    both.release(request=1)

    assert [[2]] == both.ask(0, 4, prompt=8, tokens=17, preempted=True, gate=True)


def test_stale_steps_do_not_count_on_readmission() -> None:
    """c 0 with f 4 still in flight: p = max(0, 0 - 4) = 0, and 8 tokens take ceil(8/4) = 2 blocks, 2 and 1 in front."""
    both = Both(full())
    both.ask(0, 8)
    both.release()

    assert [[2, 1]] == both.ask(0, 8, in_flight=4, preempted=True)


# ------------------------------------------------------------------------------------------------ session


@pytest.mark.parametrize(("blocks", "answer"), [(6, [[1, 2, 3, 4, 5]]), (5, REFUSED)])
def test_a_session_is_counted_from_its_row(blocks: int, answer: Answer) -> None:
    """[1 2] at 8, T 20: 5 - 2 = 3 more, of 3 free in N 6, of 2 in N 5."""
    both = Both(full(), blocks=blocks)
    both.ask(0, 8, prompt=8)

    assert answer == both.ask(8, 12, prompt=20, waiting=True, gate=True)


def test_a_session_goes_on_after_its_window_has_moved() -> None:
    """SW W 8: [0 0 3 4 2 1] at 24. There live is 17, dead 4: blocks 4, 3 go to the front; 32 tokens need 8 columns."""
    both = Both(SlidingWindow(block_size=4, window=8))
    both.ask(0, 16, prompt=20)
    both.ask(16, 8, prompt=20)

    assert [[0, 0, 0, 0, 2, 1, 4, 3]] == both.ask(24, 8, prompt=40, waiting=True, gate=True)


def test_a_session_keeps_its_ring() -> None:
    """FA T 12: 3 - 1 = 2 more; the ring 0 more: 2 of the 2 free in N 5."""
    both = Both(full(), CircularBuffer(block_size=8), blocks=5)
    both.ask(0, 4, prompt=4)

    assert [[1, 3, 4], [2]] == both.ask(4, 8, prompt=12, waiting=True, gate=True)


@pytest.mark.parametrize(("tokens", "answer"), [(20, [[0, 0, 3, 4, 2]]), (21, REFUSED)])
def test_a_session_is_counted_without_what_its_window_holds(tokens: int, answer: Answer) -> None:
    """SW W 8, F unset, N 6: [1 2 3 4] at 16, dead 2. T 20: 5 columns - 2 dead - 2 held = 1 of 1 free; T 21: 2."""
    both = Both(SlidingWindow(block_size=4, window=8), blocks=6)
    both.ask(0, 16, prompt=16)

    assert answer == both.ask(16, 4, prompt=tokens, waiting=True, gate=True)
