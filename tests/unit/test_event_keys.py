"""The keys of an event's entries: what each name needs besides its tokens (P46)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.targets.event_keys import odd_keys, odd_labels, odd_of
from oracle.content import Prefixes
from oracle.event_labels import group_labels, keys_of, request_labels
from oracle.groups import FullAttention, HiddenState, SlidingWindowMLA

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

    assert () == odd_keys(event([first, second]), holders, 0)
    assert ("extra_keys[1]", first, second) == odd_keys(event([first, first]), holders, 0)
    assert ("extra_keys[0]", None, first) == odd_keys(event(None), holders, 0)


def test_lookahead_reads_into_the_next_block():
    """With one token of lookahead a name covers the item that begins behind its block."""
    shared = content(items=((1, 4),), salt=0, adapter=0)

    assert () == odd_keys(event([(("item 1", 4),), (("item 1", 0),)]), {10: (shared, 4), 11: (shared, 8)}, 1)


def test_tokens_behind_a_block_are_those_of_its_name():
    """With a lookahead of 1 the names at 4 and 8 were made with the tokens there."""
    prefixes = Prefixes()
    content = prefixes.begin()
    prefixes.grow(content, 9)
    fourth, eighth = content.tokens[4], content.tokens[8]
    told = SimpleNamespace(
        block_hashes=[10, 11], extra_keys=None, block_size=4, lookahead_token_ids=[[fourth], [eighth]]
    )

    assert () == odd_keys(told, {10: (content, 4), 11: (content, 8)}, 1)
    told.lookahead_token_ids[1] = [9]
    assert ("lookahead_token_ids[1]", (9,), (eighth,)) == odd_keys(told, {10: (content, 4), 11: (content, 8)}, 1)


@pytest.mark.parametrize(
    ("group", "kind", "window"),
    [
        (FullAttention(block_size=4), "full_attention", None),
        (HiddenState(block_size=4), "mla_attention", None),
        (SlidingWindowMLA(block_size=4, window=6), "sliding_window_mla", 6),
    ],
)
def test_a_group_is_told_by_what_it_keeps(group, kind, window):
    labels = group_labels(group)

    assert (kind, window) == (labels["kv_cache_spec_kind"], labels["kv_cache_spec_sliding_window"])


class Told:
    """An event with two of its fields."""

    __struct_fields__ = ("block_hashes", "lora_name", "later_field")

    def __init__(self, lora_name, later_field=None):
        self.block_hashes, self.lora_name, self.later_field = [], lora_name, later_field


def test_a_label_of_another_request_is_told():
    """Adapter 3 is the first of the second name."""
    labels = request_labels(content(), "session 0")

    assert () == odd_labels(Told("adapter 2"), labels)
    assert ("lora_name", None, "adapter 2") == odd_labels(Told(None), labels)
    assert ("later_field", 5, None) == odd_labels(Told("adapter 2", 5), labels)


def test_what_is_odd_is_found_in_an_event():
    """Behind a stored event where its entries are wrong, in front where its labels are."""
    odd, stored = ("medium", None, "GPU"), ("stored", 0, (3,), 0, 1, (0,))

    assert () == odd_of(stored)
    assert odd == odd_of((*stored, odd))
    assert odd == odd_of(("labels", odd, *stored))
