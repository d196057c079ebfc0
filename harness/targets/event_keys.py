"""What an event must say beside its names (P46): what a consumer needs to make each name again, and whose it is.

Written from the content, the group and the request alone. A name that ends at `boundary` covers the tokens of one block
before it and, with hash lookahead, some behind it. Its key holds the adapter's name, the items that lie in these tokens
with their places in the block, the salt if the block is the first, and a digest of the embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oracle.content import Content, item_length
from oracle.groups import Group, SlidingWindow

Keys = tuple[Any, ...] | None
#: a field of an event, or an entry of one, as Python names it, what it says, what it must say; () where all is well
Odd = tuple[str, object, object] | tuple[()]
#: of a digest only that it is one is told
DIGEST = "digest"
#: fields of an event that are held beside the prediction one by one: what was stored, where it hangs, its tokens
NAMED = frozenset(
    ("block_hashes", "parent_block_hash", "token_ids", "block_size", "extra_keys", "lookahead_token_ids", "group_idx")
)
#: kinds that consumers of events know by another name: which blocks of a prefix a group keeps is all they ask
TOLD_AS = {"hidden_state": "mla_attention", "rswa": "full_attention"}
#: the field with the tokens behind each block, and how an event with a wrong label is shown
LOOKAHEAD, LABELS = "lookahead_token_ids", "labels"
#: what every event of a manager's own blocks says; where else they may lie is left open
ANY = {"medium": "GPU", "locality": None, "ownership": None}


def keys_of(content: Content, start: int, end: int) -> Keys:
    """The keys of positions start .. end - 1, as events show them; None when there are none."""
    adapter = [f"adapter {(content.adapter + 1) // 2}"] if content.adapter else []
    items = [
        (f"item {identifier}", offset - start)
        for identifier, offset in content.items
        if offset < end and offset + item_length(identifier) > start
    ]
    salt = [f"salt {content.salt}"] if content.salt and start == 0 else []
    digest = [DIGEST] if content.embeds else []
    return (*adapter, *items, *salt, *digest) or None


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


def group_labels(group: Group) -> dict[str, object]:
    """What a stored event says of its group: the kind and the window, so that a consumer knows what can be gone."""
    window = group.window if isinstance(group, SlidingWindow) else None
    told = TOLD_AS.get(group.kind, group.kind)
    return {**ANY, "kv_cache_spec_kind": told, "kv_cache_spec_sliding_window": window}


def request_labels(content: Content, session: str) -> dict[str, object]:
    """What a stored event says of the request that made it: its adapter by number and name, its session."""
    adapter = content.adapter
    return {
        "lora_id": adapter or None,
        "lora_name": f"adapter {(adapter + 1) // 2}" if adapter else None,
        "session_id": session,
    }


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
