"""What an event must say beside its names (P46): what a consumer needs to make each name again, and whose it is.

Written from the content, the group and the request alone. A name that ends at `boundary` covers the tokens of one block
before it and, with hash lookahead, some behind it. Its key holds the adapter's name, the items that lie in these tokens
with their places in the block, the salt if the block is the first, and a digest of the embeddings.
"""

from __future__ import annotations

from typing import Any

from oracle.content import Content, item_length
from oracle.groups import Group, SlidingWindow

Keys = tuple[Any, ...] | None
#: of a digest only that it is one is told
DIGEST = "digest"
#: kinds that consumers of events know by another name: which blocks of a prefix a group keeps is all they ask
TOLD_AS = {"hidden_state": "mla_attention", "rswa": "full_attention"}
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
