"""Holds the fields of a release's events beside what they must say (`oracle/event_labels.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oracle.content import Content
from oracle.event_labels import DIGEST, Keys, keys_of

#: a field of an event, or an entry of one, as Python names it, what it says, what it must say; () where all is well
Odd = tuple[str, object, object] | tuple[()]
#: fields of an event that are held beside the prediction one by one: what was stored, where it hangs, its tokens
NAMED = frozenset(
    ("block_hashes", "parent_block_hash", "token_ids", "block_size", "extra_keys", "lookahead_token_ids", "group_idx")
)
#: the field with the tokens behind each block, and how an event with a wrong label is shown
LOOKAHEAD, LABELS = "lookahead_token_ids", "labels"


def odd_keys(event: Any, holders: Mapping[int, tuple[Content, int]], ahead: int) -> Odd:
    """The first entry of an event that does not belong to its name: extra keys, tokens behind the block."""
    names = event.block_hashes
    shown: Sequence[Keys] = event.extra_keys or [None] * len(names)
    follow = getattr(event, LOOKAHEAD, None) or [None] * len(names)
    for index, (name, keys, tokens) in enumerate(zip(names, shown, follow, strict=True)):
        if name not in holders:
            continue
        content, boundary = holders[name]
        told = None if keys is None else tuple(DIGEST if isinstance(key, bytes) else key for key in keys)
        expected = keys_of(content, boundary - event.block_size, boundary + ahead)
        if told != expected:
            return f"extra_keys[{index}]", told, expected
        made = content.tokens[boundary : boundary + ahead]
        if tokens is not None and list(tokens) != made:
            return f"{LOOKAHEAD}[{index}]", tuple(tokens), tuple(made)
    return ()


def odd_labels(event: Any, labels: Mapping[str, object]) -> Odd:
    """The first field besides NAMED that does not say what `labels` do; a field that no rule knows says None."""
    for name in event.__struct_fields__:
        told, expected = getattr(event, name), labels.get(name)
        if name not in NAMED and told != expected:
            return name, told if isinstance(told, str | int | None) else repr(told), expected
    return ()


def odd_of(event: Sequence[Any]) -> Odd:
    """What was found odd in an event as a target shows it."""
    odd: Odd = event[1] if event[0] == LABELS else event[6] if event[0] == "stored" and len(event) > 6 else ()
    return odd
