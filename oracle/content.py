"""Identity of content: when two blocks hold the same (caching spec, P1 to P4).

What K/V at a position depends on is everything before it: tokens or prompt embeddings, cache salt, adapter, multimodal
items. So a prefix is a node of a tree: its parent, its last token or embedding, and the item that begins there. Two
prefixes are the same exactly if their nodes are; the salt and the adapter stand in the root, because a mismatch there
is one everywhere (P2).

A trace names contents, not tokens. Every sequence goes on by one rule from what it has so far, prompt and output
alike, so that a request that repeats another's prompt also repeats its output. A sequence leaves the common one at its
*forks*; a position named twice leaves it for a second one. Three token values are enough: it is the prefix that counts.
A prompt of embeddings has the same placeholder at each position, and goes on by the same rule in its values.
"""

from __future__ import annotations

from attrs import define, evolve, field
from mypy_extensions import mypyc_attr

from oracle.errors import SettingError

TOKENS = 3
#: every item has the same placeholder tokens, whatever it is (P4)
PLACEHOLDER = 7
#: the token at a position that is given by an embedding
EMBEDDED = 0

#: apart from items and embeddings: a name that contains a discarded token
_CHAINED = -(1 << 40)

Item = tuple[int, int]
#: tokens of the longest item there is
LONGEST_ITEM = 5
#: most items of a request, all pieces of a session together: outputs that come free at once do so in the order of a set
#: of their places, which is that of the places up to here
MOST_PLACES = 8


def item_length(identifier: int) -> int:
    """Tokens of an item; it follows from the identifier (P4)."""
    return 1 + identifier % LONGEST_ITEM


def behind(tokens: int, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The items of a piece of input, where it stands behind so many tokens."""
    return tuple([(identifier, tokens + offset) for identifier, offset in items])


def check_items(items: tuple[Item, ...], embeds: int = 0) -> None:
    """Items must not overlap and come in order, a prompt of embeddings has none; SettingError names what is wrong."""
    end = 0
    if items and embeds:
        raise SettingError(f"a prompt of embeddings has no items, got {list(items)}; leave one of the two out")
    for identifier, offset in items:
        if identifier < 0 or offset < end:
            raise SettingError(f"items must come in order without overlap, got identifier {identifier} at {offset}")
        end = offset + item_length(identifier)


def _placed(items: tuple[Item, ...]) -> dict[int, int]:
    return {
        offset + inside: 0 if inside else identifier + 1
        for identifier, offset in items
        for inside in range(item_length(identifier))
    }


@define(eq=False)
class Content:
    """One request's tokens and the node of each of its prefixes: `path[n]` is that of its first n tokens.

    It only grows: a session that discards a token goes on with another content.
    """

    forks: tuple[int, ...]
    salt: int
    adapter: int
    items: tuple[Item, ...]
    path: list[int]
    named: list[int]
    """What the names are made of: `path`, but where a token that is discarded was already part of a name."""
    placed: dict[int, int]
    """At each position inside an item: what begins there, the identifier + 1, or 0."""
    embeds: int = 0
    """Whose embeddings the first `embedded` positions are; 0: none."""
    embedded: int = 0
    tokens: list[int] = field(factory=list)
    values: list[int] = field(factory=list)
    """The embedding at each of these positions."""
    kept: int = 0
    """Tokens that are the same as in the content before, of a session that discarded one."""
    along: Content | None = None
    """What it goes along: the longest of the same content; None for one that has left the rule."""
    renewal: Content | None = None
    """The same with names of its own tokens alone, once it was asked for."""

    def renewed(self) -> Content:
        """The same content with names of its own tokens alone: nothing is left of what was discarded."""
        if self.named is self.path:
            return self
        if self.renewal is None:
            self.renewal = evolve(self, named=self.path, kept=0, along=None)
        return self.renewal


def _place(content: Content, items: tuple[Item, ...]) -> None:
    """More items, behind all that the content says."""
    if items:
        content.items = (*content.items, *items)
        content.placed = {**content.placed, **_placed(items)}


@mypyc_attr(allow_interpreted_subclasses=True)
class Prefixes:
    """The tree of one trace: numbers the prefixes in the order in which they appear, from 1."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, int, int], int] = {}
        #: the longest of each content: how it is named says all of it, so it is made out once
        self.longest: dict[tuple[object, ...], Content] = {}

    def _node(self, parent: int, token: int, item: int) -> int:
        return self.nodes.setdefault((parent, token, item), len(self.nodes) + 1)

    def begin(
        self,
        forks: tuple[int, ...] = (),
        salt: int = 0,
        adapter: int = 0,
        items: tuple[Item, ...] = (),
        embeds: int = 0,
        prompt: int = 0,
    ) -> Content:
        """A content without tokens. With `embeds` its first `prompt` positions will be given by embeddings."""
        embedded = prompt if embeds else 0
        name = (forks, salt, adapter, items, embeds, embedded)
        along = self.longest.get(name)
        if along is None:
            root = [self._node(0, salt, adapter)]
            along = Content(forks, salt, adapter, items, root, root, _placed(items), embeds, embedded)
            self.longest[name] = along
        path = along.path[:1]
        content = Content(forks, salt, adapter, items, path, path, along.placed, embeds, embedded)
        content.along = along
        return content

    def grow(self, content: Content, length: int) -> None:
        """Make the content `length` tokens long; it never gets shorter."""
        along, known = content.along, len(content.tokens)
        if along is None:
            self._go_on(content, length)
        elif known < length:
            if len(along.tokens) < length:
                self._go_on(along, length)
            content.tokens += along.tokens[known:length]
            content.path += along.path[known + 1 : length + 1]
            content.values += along.values[known:length]

    def _go_on(self, content: Content, length: int) -> None:
        """The rule, token by token."""
        tokens, path, nodes, forks, placed = content.tokens, content.path, self.nodes, content.forks, content.placed
        embedded, node, renamed = content.embedded, path[-1], content.named is not path
        for position in range(len(tokens), length):
            item = placed.get(position)
            if position < embedded:
                values = content.values
                before = values[-1] + 2 * values[-2] if position > 1 else 0
                values.append((before + position + forks.count(position)) % TOKENS)
                token, item = EMBEDDED, -1 - values[-1] - TOKENS * content.embeds
            elif item is None:
                before = tokens[-1] + 2 * tokens[-2] if position > 1 else 0
                token, item = (before + position + forks.count(position)) % TOKENS, 0
            else:
                token = PLACEHOLDER
            tokens.append(token)
            node = nodes.setdefault((node, token, item), len(nodes) + 1)
            path.append(node)
            if renamed:
                self._name(content, token)

    def _name(self, content: Content, token: int) -> None:
        """What the names are made of after one more token, where that is not what was said."""
        named, path = content.named, content.path
        if len(named) < len(path):
            same = named[-1] == path[-2]  # the new token is the one that was discarded
            named.append(path[-1] if same else self._node(named[-1], token, _CHAINED - path[-1]))

    def put(self, content: Content, position: int, token: int) -> None:
        """Make the content say `token` at a position that it has not reached yet, whatever the rule is."""
        self.grow(content, position)
        if len(content.tokens) == position:
            content.along = None
            self._say(content, token)

    def _say(self, content: Content, token: int) -> None:
        """One more token that follows from nothing, but for an item that is there."""
        item = content.placed.get(len(content.tokens), 0)
        content.tokens.append(token)
        content.path.append(self._node(content.path[-1], token, item))
        if content.named is not content.path:
            self._name(content, token)

    def discarded(self, content: Content, keep: int, boundary: bool) -> Content:
        """The content of a session that goes on with another token than the one at `keep`, its last.

        `boundary`: that token was the last of a name's lookahead. The name stays what it was, as does the K/V that the
        drafter wrote for it, and every later one contains it.
        """
        other = evolve(
            content,
            forks=(*content.forks, keep),
            tokens=content.tokens[:keep],
            path=content.path[: keep + 1],
            values=content.values[:],
            kept=keep,
            named=[],
            along=None,
            renewal=None,
        )
        other.named = other.path
        if boundary:
            other.named = content.named[: keep + 2]
        elif content.named is not content.path:
            other.named = content.named[: keep + 1]
        return other

    def piece(self, content: Content, keep: int, length: int, items: tuple[Item, ...] = ()) -> list[int]:
        """The tokens of a session's next piece and its items by the rule, where `keep` tokens stand before it."""
        ahead = evolve(content, tokens=content.tokens[:], path=content.path[:], named=[], along=None, renewal=None)
        ahead.named = ahead.path
        self._go_on(ahead, keep)
        ahead = self.discarded(ahead, keep, boundary=False)
        _place(ahead, behind(keep, items))
        self._go_on(ahead, keep + length)
        return ahead.tokens[keep:]

    def continued(
        self, content: Content, keep: int, piece: list[int], boundary: bool, items: tuple[Item, ...] = ()
    ) -> Content:
        """The content of a session that goes on with a piece of input and its items behind its first `keep` tokens."""
        other = self.discarded(content, keep, boundary)
        _place(other, behind(keep, items))
        for token in piece:
            self._say(other, token)
        return other
