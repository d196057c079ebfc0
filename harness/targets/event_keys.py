"""What the entries of a stored event must say of each name (P46): what a consumer needs to make the name again.

Written from the content alone. A name that ends at `boundary` covers the tokens of one block before it and, with hash
lookahead, some behind it. Its key holds the adapter's name, the items that lie in these tokens with their places in
the block, the salt if the block is the first, and a digest of the embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oracle.content import Content, item_length

Keys = tuple[Any, ...] | None
#: of a digest only that it is one is told
DIGEST = "digest"


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


def odd_keys(event: Any, holders: Mapping[int, tuple[Content, int]], ahead: int) -> str:
    """The first entry of an event that does not belong to its name; "" when all do."""
    shown: Sequence[Keys] = event.extra_keys or [None] * len(event.block_hashes)
    for name, keys in zip(event.block_hashes, shown, strict=True):
        if name not in holders:
            continue
        content, boundary = holders[name]
        told = None if keys is None else tuple(DIGEST if isinstance(key, bytes) else key for key in keys)
        expected = keys_of(content, boundary - event.block_size, boundary + ahead)
        if told != expected:
            return f"extra keys {told} of the name at {boundary}, which has {expected}"
    return ""
