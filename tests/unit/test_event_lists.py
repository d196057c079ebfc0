"""An event's lists with an entry a name have as many entries as it names blocks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.targets.cached import CachingManager


@pytest.mark.parametrize(
    ("ahead", "keys", "tokens", "odd"),
    [
        (0, None, None, ()),
        (0, [None, ("a",)], None, ()),
        (1, None, [[7], [8]], ()),
        (0, [("a",)], None, ("extra_keys", "1 entries", "2 entries")),
        (1, None, None, ("lookahead_token_ids", "0 entries", "2 entries")),
        (1, None, [[7]], ("lookahead_token_ids", "1 entries", "2 entries")),
    ],
)
def test_lists_of_another_length_are_told(ahead, keys, tokens, odd):
    event = SimpleNamespace(block_hashes=["x", "y"], extra_keys=keys, lookahead_token_ids=tokens)

    assert odd == CachingManager._odd_lists(SimpleNamespace(ahead=ahead, holders={}), event)
