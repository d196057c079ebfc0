"""The drafter's own K/V under the model of the physical cache.

A drafter runs ahead of the target: what it writes for position p it has computed from the tokens up to p + S. Its
layers lie in the same blocks as the target's, so a hit takes them over too, and what is found there must have been
written for the tokens that the reader goes on with: that is why hits lose their last unit (the EAGLE drop), or names
cover tokens behind their boundary (the hash lookahead). A wrong cell costs accepted drafts, no output.

It knows no rule, as the rest of the model: cells, who wrote them, and what a step reads.
"""

from __future__ import annotations

from collections.abc import Callable

from oracle.call import Row, Rows
from oracle.ledger import Step
from oracle.memory import Contents, Reader
from oracle.setting import Setting

#: written from tokens that nobody knows yet, or by a connector from tokens that only the other side knows
UNKNOWN = 0

#: what is wrong when its cells are
DRAFTER = "drafter content"

Pages = list[dict[int, list[int]]]


class DraftLayers:
    """The drafter's cells of each block, beside the target's pages."""

    def __init__(
        self,
        setting: Setting,
        positional: list[tuple[int, Reader]],
        sizes: list[int],
        pages: Pages,
    ) -> None:
        drafts = setting.num_speculative_tokens > 0
        ahead = setting.num_hash_lookahead_tokens
        #: S: tokens behind a position that its cell depends on; 0: nothing to know beside the target's cells
        self.shift = 0 if not drafts else ahead or (setting.use_eagle and max(1, setting.num_prefill_lookahead_tokens))
        marked = [pair for pair in positional if setting.groups[pair[0]].eagle]
        self.layers = (marked or positional) if self.shift else []
        self.setting, self.sizes, self.pages = setting, sizes, pages
        size, fine = setting.hash_size, setting.fine_hits
        #: groups whose hits lose less than a cell looks ahead
        self.short = {
            group for group, _ in self.layers if setting.use_eagle and self.shift > (size if fine else sizes[group])
        }
        #: cells (block, position) that were computed from a token that a session discarded
        self.stale: set[tuple[int, int]] = set()
        #: of each block the target's page that its cells go with: another page means that the block was given away
        self.cells: dict[int, tuple[list[int], list[int]]] = {}

    def discards(self, contents: Contents, kept: int, rows: Rows) -> None:
        """A session goes on with another token behind its first `kept`: what was computed from the old one stays."""
        contents.discarded = frozenset(range(max(0, kept - self.shift), kept))
        for group, _ in self.layers:
            row, size = rows[group], self.sizes[group]
            self.stale.update((row[p // size], p) for p in contents.discarded if p // size < len(row))

    def _cells(self, group: int, block: int) -> list[int] | None:
        page = self.pages[group].get(block)
        found = self.cells.get(block)
        return found[1] if page is not None and found is not None and found[0] is page else None

    def write(self, group: int, row: Row, first: int, values: list[int]) -> None:
        """Fill the cells from position `first` on, where the row has blocks."""
        size, last = self.sizes[group], first + len(values)
        for column in range(first // size, min(len(row), -(-last // size))):
            block, start = row[column], column * size
            page = self.pages[group].get(block)
            if page is None:
                continue
            cells = self._cells(group, block)
            if cells is None:
                cells = [-1] * size
                self.cells[block] = page, cells
            begin, end = max(first, start), min(last, start + size)
            cells[begin - start : end - start] = values[begin - first : end - first]
            if self.stale:
                self.stale.difference_update([(block, position) for position in range(begin, end)])

    def copied(self, source: int, target: int, group: int) -> None:
        """A block was copied as a whole."""
        cells = self._cells(group, source)
        stale = [position for block, position in self.stale if block == source and cells is not None]
        self.stale = {one for one in self.stale if one[0] != target}.union([(target, one) for one in stale])
        if cells is None:
            self.cells.pop(target, None)
        else:
            self.cells[target] = self.pages[group][target], cells[:]

    def _values(self, contents: Contents, first: int, last: int) -> list[int]:
        """What the drafter makes of positions first .. last-1: a node each, `UNKNOWN` where tokens are lacking."""
        known = contents.truth[first + self.shift : last + self.shift]
        return known + [UNKNOWN] * (last - first - len(known))

    def loaded(self, contents: Contents, first: int, count: int, rows: Rows) -> None:
        """The connector brings the drafter's layers with the target's."""
        for group, _ in self.layers:
            self.write(group, rows[group], first, self._values(contents, first, first + count))

    def _again(self, contents: Contents, start: int) -> int:
        """Where a step that begins at `start` begins to write: what lacked tokens before is written again."""
        return max(min(contents.own, start), start - (self.shift - 1))

    def written(self, contents: Contents, step: Step, end: int) -> None:
        """A step was computed up to `end`, rejected drafts left out."""
        first = self._again(contents, contents.done)
        for group, _ in self.layers:
            self.write(group, step.rows[group], first, self._values(contents, first, end))

    def read(self, contents: Contents, step: Step, wrong: Callable[[Contents, Step, int, int], None]) -> None:
        """What the step's drafter reads of what was there before; `wrong`: contents, step, group, position.

        Given here, not kept: it belongs to the memory that these layers belong to, and a cycle would have to be
        collected.
        """
        again = self._again(contents, contents.done)
        for group, reads in self.layers:
            kind, size, row = self.setting.groups[group], self.sizes[group], step.rows[group]
            for first, last in reads(kind, again, contents.done + step.new, step.request.prompt):
                last = min(last, again)
                for column in range(first // size, -(-last // size)):
                    start = column * size
                    begin, end = max(first, start), min(last, start + size)
                    cells = self._cells(group, row[column]) if column < len(row) else None
                    found = [-1] * (end - begin) if cells is None else cells[begin - start : end - start]
                    expected = self._values(contents, begin, end)
                    position = None if found == expected else _odd(found, expected, begin, contents.discarded)
                    if position is not None:
                        wrong(contents, step, group, position)
                        return


def _odd(found: list[int], expected: list[int], first: int, discarded: frozenset[int]) -> int | None:
    """The first position, of those from `first` on, whose cell is known to be another one than expected."""
    for position, (cell, value) in enumerate(zip(found, expected, strict=True), start=first):
        if cell != value and UNKNOWN not in (cell, value) and position not in discarded:
            return position
    return None
