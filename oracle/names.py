"""The block pool with caching on: a free queue whose blocks may be found again, references, names (P5 to P15).

A name is (group, node): the content up to a boundary, in one group's layers. A block that bears one is *cached*; its
reach is the boundary of its first name. A free block keeps its names until it is handed out, so the queue is ordered by
what is worth least: plain blocks in front, named ones by age at the end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from oracle.call import Event, Name
from oracle.pool import Pool

CLEARED: Event = ("cleared",)


class NamedPool(Pool):
    """Ids 1 .. num_blocks-1. A pool to the rules of rows, which need not know that blocks are shared."""

    def __init__(self, num_blocks: int, events: bool = False) -> None:
        super().__init__(1)
        self._order: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self.free = len(self._order)
        self.references = [0] * num_blocks
        #: names of a block with their reach (tokens), the first name first
        self.names: dict[int, dict[Name, int]] = {}
        #: resident copies of a name, in the order in which they got it (P10)
        self.copies: dict[Name, dict[int, None]] = {}
        #: blocks that somebody still reads although they may be free
        self.watched: dict[int, None] = {}
        self.reused: list[int] = []
        self.telling = events
        #: blocks that were handed out with names since somebody last looked
        self.evicted = 0
        self.events: list[Event] = []

    def order(self) -> tuple[int, ...]:
        """The queue from its front."""
        return tuple(self._order)

    def restore(self, order: Iterable[int]) -> None:
        self._order = OrderedDict.fromkeys(order)
        self.free = len(self._order)

    # ------------------------------------------------------------------------------------- references

    def take(self, blocks: int) -> list[int]:
        """The first `blocks` ids; they lose their names (P11)."""
        if blocks > len(self._order):
            raise AssertionError(f"the oracle took {blocks} blocks of {len(self._order)}: count and use differ (A21)")
        taken = []
        for _ in range(blocks):
            block, _nothing = self._order.popitem(last=False)
            if block in self.names:
                self.forget(block)
                self.evicted += 1
            self.references[block] = 1
            taken.append(block)
        self.free = len(self._order)
        if self.watched:
            self._tell_reuse(taken)
        return taken

    def _tell_reuse(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if block in self.watched:
                del self.watched[block]
                self.reused.append(block)

    def give(self, batch: Iterable[int]) -> None:
        """P13: each block loses a reference; plain ones to the very front in batch order, named ones to the end."""
        plain = []
        for block in batch:
            if not block:
                continue
            self.references[block] -= 1
            if self.references[block]:
                continue
            if block in self.names:
                self._order[block] = None
            else:
                plain.append(block)
        for block in reversed(plain):
            self._order[block] = None
            self._order.move_to_end(block, last=False)
        self.free = len(self._order)

    def touch(self, blocks: Iterable[int]) -> None:
        """P15: one more reference to each; a free one leaves the queue wherever it is."""
        for block in blocks:
            if block:
                if not self.references[block]:
                    del self._order[block]
                self.references[block] += 1
        self.free = len(self._order)

    def give_watched(self, blocks: Iterable[int]) -> None:
        """Each loses a reference; those at 0 go to the very end, named or not, because they are still being read."""
        for block in blocks:
            self.references[block] -= 1
            self.watched[block] = None
            if not self.references[block]:
                self._order[block] = None
        self.free = len(self._order)

    def unused(self, blocks: Iterable[int]) -> int:
        """How many of the blocks, nulls left out, nobody holds."""
        references = self.references
        return sum([not references[block] for block in blocks if block])

    def hold(self, block: int) -> None:
        """One more reference to a block in use: an end of a copy (P36, P37)."""
        self.references[block] += 1

    # ------------------------------------------------------------------------------------------ names

    def reach(self, block: int) -> int:
        """Reach of the first name (tokens), 0 for a plain block."""
        names = self.names.get(block)
        return next(iter(names.values())) if names else 0

    def first_name(self, block: int) -> Name | None:
        """The first name, None for a plain block."""
        names = self.names.get(block)
        return next(iter(names)) if names else None

    def name(self, block: int, name: Name, reach: int) -> bool:
        """P9: True if the block did not bear the name. A first name of smaller reach ends, with all others."""
        names = self.names.get(block)
        if names is not None:
            if name in names:
                return False
            if next(iter(names.values())) < reach:
                self.forget(block)
        self.names.setdefault(block, {})[name] = reach
        self.copies.setdefault(name, {})[block] = None
        return True

    def forget(self, block: int, told: bool = True) -> None:
        """P11: the block loses all its names."""
        for name in self.names.pop(block, ()):
            copies = self.copies[name]
            del copies[block]
            if not copies:
                del self.copies[name]
            if told and self.telling:
                self.events.append(("removed", *name))

    def move(self, source: int, target: int) -> None:
        """P37: the names of a block go to another one; nobody is told."""
        names = self.names.get(source, {})
        self.forget(source, told=False)
        for name, reach in names.items():
            self.names.setdefault(target, {})[name] = reach
            self.copies.setdefault(name, {})[target] = None

    def evict(self, blocks: Sequence[int]) -> None:
        """P11: the blocks lose their names; in use or not, they stay where they are."""
        for block in sorted(set(blocks)):
            self.forget(block)

    def reset(self) -> bool:
        """P12: no names are left, if nothing is in use."""
        if len(self._order) != len(self.references) - 1:
            return False
        self.names.clear()
        self.copies.clear()
        self._tell_reuse([*self.watched])
        if self.telling:
            self.events.append(CLEARED)
        return True

    def drain(self) -> tuple[Event, ...]:
        """The events since the last call."""
        events, self.events = tuple(self.events), []
        return events
