"""A streaming session as known from outside: which pieces it takes, what is kept of an answer."""

from __future__ import annotations

import pytest

from oracle.client import Client
from oracle.scheduled import ERROR, LENGTH
from oracle.workload import Update


def test_last_token_of_an_answer_is_discarded() -> None:
    """5 of the prompt and 3 answered, of which 2 are kept, then a piece of 4."""
    client = Client(5, 3, out=3, session=True)

    assert not client.over(LENGTH)
    assert not client.update(Update(request=0, prompt=4, max_tokens=2))
    assert (11, 2, 0, 7, False) == (client.prompt, client.limit, client.out, client.kept, client.waits)


@pytest.mark.parametrize(("prompt", "takes"), [(4, True), (5, False), (0, True)])
def test_a_piece_must_fit_whatever_is_answered(prompt: int, takes: bool) -> None:
    """5 + 3 - 1 kept at most; 12 positions hold 4 more and a token to be sampled."""
    assert takes == Client(5, 3, session=True).takes(Update(request=0, prompt=prompt), 12)


def test_pieces_wait_for_the_answer_before_them() -> None:
    client = Client(5, 1, session=True)
    client.update(Update(request=0, prompt=2))
    client.update(Update(request=0))
    client.out = 1

    assert (False, True) == (client.over(LENGTH), client.over(LENGTH))
    assert not client.takes(Update(request=0, prompt=1), 40)


def test_an_error_ends_a_session() -> None:
    assert Client(5, 1, out=1, session=True).over(ERROR)
