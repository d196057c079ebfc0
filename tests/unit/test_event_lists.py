"""An event's lists with an entry a name have as many entries as it names blocks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.targets.cached import CachingManager


@pytest.mark.parametrize(
    ("ahead", "keys", "tokens", "odd"),
    [
        (0, None, None, ""),
        (0, [None, ("a",)], None, ""),
        (1, None, [[7], [8]], ""),
        (0, [("a",)], None, "2 names, extra keys of 1, lookahead tokens of 2"),
        (1, None, None, "2 names, extra keys of 2, lookahead tokens of 0"),
        (1, None, [[7]], "2 names, extra keys of 2, lookahead tokens of 1"),
    ],
)
def test_lists_of_another_length_are_told(ahead, keys, tokens, odd):
    event = SimpleNamespace(block_hashes=["x", "y"], extra_keys=keys, lookahead_token_ids=tokens)

    assert odd == CachingManager._odd_lists(SimpleNamespace(ahead=ahead, holders={}), event)
