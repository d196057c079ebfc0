"""The keys of an event's entries: what each name needs besides its tokens (P46)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.targets.event_keys import keys_of, odd_keys
from oracle.content import Prefixes

# item 1 has 2 tokens, item 3 has 4
CONTENT = {"salt": 2, "adapter": 3, "items": ((1, 3), (3, 6))}


def content(**changes):
    return Prefixes().begin(**{**CONTENT, **changes})


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 4, ("adapter 2", ("item 1", 3), "salt 2")),  # the item reaches into the next block
        (4, 8, ("adapter 2", ("item 1", -1), ("item 3", 2))),
        (8, 12, ("adapter 2", ("item 3", -2))),
        (12, 16, ("adapter 2",)),
    ],
)
def test_keys_are_those_of_the_block(start, end, expected):
    assert expected == keys_of(content(), start, end)


def test_no_keys_are_none():
    assert keys_of(content(salt=0, adapter=0, items=()), 0, 4) is None


def event(keys, size=4):
    return SimpleNamespace(block_hashes=[10, 11], extra_keys=keys, block_size=size)


def test_an_entry_of_another_block_is_told():
    """Names at 8 and 12; the second entry says what belongs to the first."""
    shared = content()
    holders = {10: (shared, 8), 11: (shared, 12)}
    first, second = keys_of(shared, 4, 8), keys_of(shared, 8, 12)

    assert "" == odd_keys(event([first, second]), holders, 0)
    assert "of the name at 12" in odd_keys(event([first, first]), holders, 0)
    assert "of the name at 8" in odd_keys(event(None), holders, 0)


def test_lookahead_reads_into_the_next_block():
    """With one token of lookahead a name covers the item that begins behind its block."""
    shared = content(items=((1, 4),), salt=0, adapter=0)

    assert "" == odd_keys(event([(("item 1", 4),), (("item 1", 0),)]), {10: (shared, 4), 11: (shared, 8)}, 1)
