"""What a request finds in the cache: the longest prefix that every group can take over (P16 to P27).

Groups of equal spec are looked up together, as a *class*. Each class answers one question: under a bound, how far can
it go back to a resident prefix? Full attention needs everything from the start, a window the tokens that the next one
reads, chunked local its own chunk, Mamba one state. The common hit is where all of them agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from attrs import evolve, frozen

from oracle.call import Hit, Query
from oracle.groups import (
    MLA,
    RSWA,
    ChunkedLocal,
    FullAttention,
    Group,
    HiddenState,
    Mamba,
    SlidingWindow,
)
from oracle.names import NamedPool
from oracle.rounding import ceil_div
from oracle.setting import Setting

DENSE = (FullAttention, MLA, HiddenState, RSWA)

#: known misses of a release: the drop of a single group may not look behind the bound; a run of a window that begins
#: at column 0 is cut to the hit unit before the drop as well as after it; only the first class is cut to the common
#: hit; a connector's lookup takes sharded blocks for blocks of one rank
NO_MARGIN, ALIGNED_FIRST, UNCUT = "no margin", "aligned before the drop", "rows beyond the hit"
UNSHARDED = "blocks of one rank"
SUSPECTS = (NO_MARGIN, ALIGNED_FIRST, UNCUT, UNSHARDED)

Columns = list[list[int]]
"""Per group of a class, the row that a hit gives it."""


@frozen
class Probe:
    """One visit of a class: its groups, the bound (tokens), whether it dropped, its hit, and why it stopped there."""

    groups: tuple[int, ...]
    bound: int
    dropped: bool
    hit: int
    why: str


class SpecClass:
    """Groups of one spec, looked up together (P21)."""

    def __init__(self, groups: list[int], setting: Setting, pool: NamedPool) -> None:
        self.groups = tuple(groups)
        self.kind: Group = setting.groups[groups[0]]
        self.pool = pool
        self.size = self.kind.tokens_per_column(setting.dcp_size)
        self.hash_size, self.unit = setting.hash_size, setting.hit_unit
        self.drops = bool(setting.drop_groups & set(groups))
        self.state = isinstance(self.kind, Mamba)
        self.dense = isinstance(self.kind, DENSE)
        #: boundaries inside a block are looked at too
        self.inner = setting.fine_hits and self.size > self.hash_size and (self.dense or self.state)

    @property
    def margin(self) -> int:
        """u: what the drop removes (tokens), and so what a lookup that drops may see beyond its candidate (P23)."""
        if self.state:
            return 0
        return self.hash_size if self.inner else self.size

    def copies(self, node: int) -> list[int] | None:
        """The oldest copy in each group, None if one has none (P10, P21)."""
        resident, found = self.pool.copies, []
        for group in self.groups:
            copies = resident.get((group, node))
            if not copies:
                return None
            found.append(next(iter(copies)))
        return found

    def find(self, nodes: list[int], bound: int, drop: bool) -> tuple[int, Columns, str]:
        """Hit (tokens), rows, and why. `nodes[i]` is the name's node at boundary (i + 1) * hash size."""
        if self.dense:
            return self._dense(nodes, bound, drop)
        if isinstance(self.kind, SlidingWindow):
            return self._window(nodes, bound, drop, self.kind)
        if isinstance(self.kind, ChunkedLocal):
            return self._chunk(nodes, bound, self.kind)
        return self._state(nodes, bound)

    def _at(self, nodes: list[int], boundary: int) -> list[int] | None:
        index, inside = divmod(boundary, self.hash_size)
        return self.copies(nodes[index - 1]) if index <= len(nodes) and not inside else None

    def _dense(self, nodes: list[int], bound: int, drop: bool) -> tuple[int, Columns, str]:
        """P17: the run from column 0, then the largest boundary inside the next column, then the drop."""
        rows: Columns = [[] for _ in self.groups]
        size, hit = self.size, 0
        while hit + size <= bound:
            found = self._at(nodes, hit + size)
            if found is None:
                break
            for row, block in zip(rows, found, strict=True):
                row.append(block)
            hit += size
        why = "bound" if hit + size > bound else f"no copy of {hit + size}"
        if self.inner:
            first = min(bound, hit + size - self.hash_size) // self.hash_size * self.hash_size
            for boundary in range(first, hit, -self.hash_size):
                found = self._at(nodes, boundary)
                if found is not None:
                    for row, block in zip(rows, found, strict=True):
                        row.append(block)
                    hit, why = boundary, f"{why}, inside a block"
                    break
        if drop and hit > 0:
            hit -= self.margin
        hit -= hit % self.unit
        for row in rows:
            del row[ceil_div(hit, size) :]
        return hit, rows, why

    def _window(self, nodes: list[int], bound: int, drop: bool, kind: SlidingWindow) -> tuple[int, Columns, str]:
        """P18: the last right end whose window is there, or whose run goes back to column 0."""
        size, dropped = self.size, int(drop)
        need = ceil_div(kind.window - 1, size) + dropped
        for end in range(bound // size, dropped, -1):
            if (end - dropped) * size % self.unit:
                continue
            first = max(0, end - need)
            run = [self._at(nodes, (column + 1) * size) for column in range(first, end)]
            if None not in run:
                rows: Columns = [[0] * first for _ in self.groups]
                for found in run[: len(run) - dropped]:
                    for row, block in zip(rows, found or [], strict=True):
                        row.append(block)
                for row in rows:  # a window of one token needs no block
                    row += [0] * (end - dropped - len(row))
                return (end - dropped) * size, rows, f"window of columns {first}..{end - 1}"
        return 0, [[] for _ in self.groups], "no whole window"

    def aligned_first(self, nodes: list[int], bound: int, kind: SlidingWindow) -> tuple[int, Columns]:
        """ALIGNED_FIRST: a run from column 0 is cut to the hit unit, loses a block, and is cut again."""
        size, unit = self.size, self.unit
        need = ceil_div(kind.window - 1, size) + 1
        ends = [end for end in range(bound // size, 0, -1) if (end - 1) * size % unit == 0]
        for end in ends:
            first = max(0, end - need)
            run = [self._at(nodes, (column + 1) * size) for column in range(first, end)]
            if None in run:
                continue
            if end < need:
                end -= end * size % unit // size
                end = max(0, end - 1)
                end -= end * size % unit // size
                run = run[:end]
            else:
                run, end = run[:-1], end - 1
            rows: Columns = [[0] * first for _ in self.groups]
            for found in run:
                for row, block in zip(rows, found or [], strict=True):
                    row.append(block)
            return end * size, rows
        return 0, [[] for _ in self.groups]

    def _chunk(self, nodes: list[int], bound: int, kind: ChunkedLocal) -> tuple[int, Columns, str]:
        """P19: what lies before the bound's own chunk counts as there."""
        size = self.size
        column = bound // kind.chunk * kind.chunk // size
        rows: Columns = [[0] * column for _ in self.groups]
        while (column + 1) * size <= bound:
            found = self._at(nodes, (column + 1) * size)
            if found is None:
                break
            for row, block in zip(rows, found, strict=True):
                row.append(block)
            column += 1
        return column * size, rows, f"chunk from {bound // kind.chunk * kind.chunk}"

    def _state(self, nodes: list[int], bound: int) -> tuple[int, Columns, str]:
        """P20: the last state."""
        step = self.hash_size if self.inner else self.size
        for boundary in range(bound // step * step, 0, -step):
            found = None if boundary % self.unit else self._at(nodes, boundary)
            if found is not None:
                empty = (boundary - 1) // self.size
                return boundary, [[0] * empty + [block] for block in found], f"state of {boundary}"
        return 0, [[] for _ in self.groups], "no state"


def alike(groups: Sequence[Group]) -> list[list[int]]:
    """Groups of equal spec (P21), in configuration order; the EAGLE mark makes no class of its own."""
    specs: dict[Group, list[int]] = {}
    for index, group in enumerate(groups):
        if group.cacheable:
            specs.setdefault(evolve(group, eagle=False, uniform_layers=0), []).append(index)
    return [*specs.values()]


def classes_of(setting: Setting, pool: NamedPool) -> list[SpecClass]:
    """P21: full attention first."""
    found = [SpecClass(groups, setting, pool) for groups in alike(setting.groups)]
    return sorted(found, key=lambda one: not one.dense)


def of_one_rank(one: SpecClass) -> SpecClass:
    """UNSHARDED: the class with the blocks that one rank has."""
    found = copy(one)
    found.size = one.kind.block_size
    return found


class Finder:
    """Lookups of one setting in one pool."""

    def __init__(self, setting: Setting, pool: NamedPool) -> None:
        self.classes = classes_of(setting, pool)
        self.count = len(setting.groups)
        self.within = setting.choices.drop_within_bound
        self.hash_size, self.ahead = setting.hash_size, setting.num_hash_lookahead_tokens
        self.nothing = Hit(0, 0, tuple(() for _ in setting.groups))
        self.one_round = len(self.classes) == 2 and self.classes[0].dense

        drops = any(one.drops for one in self.classes)
        #: known misses that this setting can show, alone and together
        self.suspects: tuple[tuple[str, ...], ...] = ((NO_MARGIN,),) if drops else ()
        if self.count > 1:
            first = ((ALIGNED_FIRST,),) if drops else ()
            uncut = () if setting.choices.cuts_every_row else ((UNCUT,), *((*one, UNCUT) for one in first))
            sharded = ((UNSHARDED,), (UNCUT, UNSHARDED)) if setting.dcp_size > 1 else ()
            self.suspects = (*first, *uncut, *sharded)
        #: some Mamba group beside full attention: a connector may bring a state alone (P26)
        self.may_diverge = self.count > 1 and self.classes[0].dense and any(one.state for one in self.classes)

    def nodes(self, query: Query) -> list[int]:
        """P3: the node of each boundary that is known."""
        size = self.hash_size
        return query.content.named[size + self.ahead : query.tokens + 1 : size]

    def find(self, query: Query, probes: list[Probe] | None = None, suspects: tuple[str, ...] = ()) -> Hit:
        """P22, P23: lower the candidate class by class until a round lowers nothing.

        `suspects`: those of SUSPECTS that a release may have, to tell whether they explain what was observed.
        """
        if query.skip:
            return self.nothing
        nodes = self.nodes(query)
        known = len(nodes) * self.hash_size
        if self.within:
            known = min(known, query.bound)
        if query.apart and self.may_diverge:
            apart = self._apart(nodes, known, query.bound, probes, suspects)
            if apart is not None:
                return apart
        candidate, longest = query.bound, 0
        rows: list[list[int]] = [[] for _ in range(self.count)]
        hits: dict[int, int] = {}
        due = {index for index, one in enumerate(self.classes) if one.drops}
        while True:
            current = candidate
            for index, one in enumerate(self.classes):
                if one.dense and index in hits:
                    current = min(current, hits[index])
                    continue
                drop = index in due
                bound = (
                    min(current + one.margin, known) if drop and one.margin and NO_MARGIN not in suspects else current
                )
                if ALIGNED_FIRST in suspects and isinstance(one.kind, SlidingWindow) and drop:
                    hit, found = one.aligned_first(nodes, bound, one.kind)
                    why = ALIGNED_FIRST
                else:
                    hit, found, why = one.find(nodes, bound, drop and not one.state)
                if probes is not None:
                    probes.append(Probe(one.groups, bound, drop, hit, why))
                if drop:
                    due.remove(index)
                elif hit < current:
                    due = {other for other, which in enumerate(self.classes) if which.drops}
                current = hits[index] = hit
                for group, row in zip(one.groups, found, strict=True):
                    rows[group] = row
                longest = max(longest, hit)
            if current >= candidate or len(self.classes) == 1:
                candidate = current
                break
            candidate = current
            if self.one_round:
                break
        for one in self.classes[:1] if UNCUT in suspects else self.classes:
            if one.dense:
                for group in one.groups:
                    del rows[group][ceil_div(candidate, one.size) :]
        junction = longest if longest > candidate and self.count > 1 else 0
        return Hit(candidate, junction, tuple(map(tuple, rows)))

    def _apart(
        self, nodes: list[int], known: int, bound: int, probes: list[Probe] | None, suspects: tuple[str, ...]
    ) -> Hit | None:
        """P26: what full attention has by itself; None if another class has more, so that they must agree."""
        rows: list[list[int]] = [[] for _ in range(self.count)]
        hits = []
        for one in map(of_one_rank, self.classes) if UNSHARDED in suspects else self.classes:
            limit = min(bound + one.margin, known) if one.drops and one.margin else bound
            if ALIGNED_FIRST in suspects and isinstance(one.kind, SlidingWindow) and one.drops:
                (hit, found), why = one.aligned_first(nodes, limit, one.kind), ALIGNED_FIRST
            else:
                hit, found, why = one.find(nodes, limit, one.drops and not one.state)
            if probes is not None:
                probes.append(Probe(one.groups, limit, one.drops, hit, f"{why}, by itself"))
            hits.append(hit)
            for group, row in zip(one.groups, found, strict=True):
                rows[group] = row
        if max(hits) > hits[0]:
            return None
        return Hit(hits[0], 0, tuple(map(tuple, rows)), min(hits) < hits[0])
