"""Identity of content: when two blocks hold the same (caching spec, P1 to P4).

What K/V at a position depends on is everything before it: tokens, cache salt, adapter, multimodal items. So a prefix is
a node of a tree: its parent, its last token, and the item that begins there. Two prefixes are the same exactly if their
nodes are; the salt and the adapter stand in the root, because a mismatch there is one everywhere (P2).

A trace names contents, not tokens. Every sequence goes on by one rule from what it has so far, prompt and output
alike, so that a request that repeats another's prompt also repeats its output. A sequence leaves the common one at its
*forks*; a position named twice leaves it for a second one. Three token values are enough: it is the prefix that counts.
"""

from __future__ import annotations

from attrs import define, field

from oracle.errors import SettingError

TOKENS = 3
#: every item has the same placeholder tokens, whatever it is (P4)
PLACEHOLDER = 7

Item = tuple[int, int]


def item_length(identifier: int) -> int:
    """Tokens of an item; it follows from the identifier (P4)."""
    return 1 + identifier % 5


def check_items(items: tuple[Item, ...]) -> None:
    """Items must not overlap and come in order; SettingError names the one that does not."""
    end = 0
    for identifier, offset in items:
        if identifier < 0 or offset < end:
            raise SettingError(f"items must come in order without overlap, got identifier {identifier} at {offset}")
        end = offset + item_length(identifier)


@define(eq=False)
class Content:
    """One request's tokens and the node of each of its prefixes: `path[n]` is that of its first n tokens."""

    forks: tuple[int, ...]
    salt: int
    adapter: int
    items: tuple[Item, ...]
    path: list[int]
    tokens: list[int] = field(factory=list)


class Prefixes:
    """The tree of one trace: numbers the prefixes in the order in which they appear, from 1."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, int, int], int] = {}

    def _node(self, parent: int, token: int, item: int) -> int:
        return self.nodes.setdefault((parent, token, item), len(self.nodes) + 1)

    def begin(
        self, forks: tuple[int, ...] = (), salt: int = 0, adapter: int = 0, items: tuple[Item, ...] = ()
    ) -> Content:
        """A content without tokens."""
        return Content(forks, salt, adapter, items, [self._node(0, salt, adapter)])

    def grow(self, content: Content, length: int) -> None:
        """Make the content `length` tokens long; it never gets shorter."""
        tokens, path = content.tokens, content.path
        for position in range(len(tokens), length):
            starts = 0
            inside = False
            for identifier, offset in content.items:
                if offset <= position < offset + item_length(identifier):
                    inside = True
                    starts = identifier + 1 if offset == position else 0
            if inside:
                token = PLACEHOLDER
            else:
                before = tokens[-1] + 2 * tokens[-2] if position > 1 else 0
                token = (before + position + content.forks.count(position)) % TOKENS
            tokens.append(token)
            path.append(self._node(path[-1], token, starts))

    def put(self, content: Content, position: int, token: int) -> None:
        """Make the content say `token` at a position that it has not reached yet, whatever the rule is."""
        self.grow(content, position)
        if len(content.tokens) == position:
            content.tokens.append(token)
            content.path.append(self._node(content.path[-1], token, 0))
