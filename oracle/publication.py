"""Which blocks get which names, and when a name moves to a copy (P5 to P9, P33 to P37).

A name is given as soon as a call is granted, before its step runs: the batch writes before it reads, so a later request
may share what is being computed. It may promise only what is verified, never drafts, never tokens that a drafter may
prefill again.
"""

from __future__ import annotations

from attrs import define

from oracle.call import Event, Hit, Name, Query, Row
from oracle.content import Content
from oracle.groups import Group, Mamba
from oracle.lookup import DENSE, classes_of
from oracle.names import NamedPool
from oracle.retention import keeps, resume_points, resume_position
from oracle.setting import Setting


@define(eq=False)
class Progress:
    """What one request has published in one group."""

    columns: int = 0
    """published(g): columns considered for naming."""
    shared: int | None = None
    """Column of a block that bears the name of a boundary inside it and that its owner goes on writing (P34)."""
    checkpoint: tuple[int, int] | None = None
    """Position and column of the state that the last granted call also saves (A44)."""


@define(eq=False)
class Names:
    """What one request publishes: numbers of one publication (tokens)."""

    content: Content
    known: int
    prompt: int
    computed: int
    upto: int
    junction: int


class Publisher:
    """Gives names to the blocks of one setting's rows."""

    def __init__(self, setting: Setting, pool: NamedPool) -> None:
        self.setting = setting
        self.pool = pool
        self.hash_size, self.unit = setting.hash_size, setting.hit_unit
        #: how far apart the ends of names may lie (tokens), with more than one group
        self.step, self.alone = 1 if setting.fine_hits else setting.hit_unit, len(setting.groups) == 1
        self.ahead = setting.num_hash_lookahead_tokens
        #: w: tokens that a multi-module drafter may prefill again
        self.again = max(0, setting.num_prefill_lookahead_tokens - 1)
        self.sizes = [group.tokens_per_column(setting.dcp_size) for group in setting.groups]
        self.drops = [False for _ in setting.groups]
        for one in classes_of(setting, pool):
            for index in one.groups:
                self.drops[index] = one.drops
        marked = any(group.eagle for group in setting.groups) or setting.use_eagle
        self.junctions = bool(
            setting.enable_mamba_shared_prefix_checkpoint and marked and setting.fine_hits and not self.again
        )
        #: reports of hits since the step began
        self.reported: list[Event] = []
        #: nodes told since the step began whose lookahead holds a token that a session has discarded since
        self.outdated: set[int] = set()
        #: names that a Mamba group gave or moved since the step began: their states do not exist yet (P39)
        self.fresh: set[Name] = set()

    def limit(self, group: int, upto: int) -> int:
        """P6: l, how far names may go (tokens)."""
        last = max(0, upto - self.again)
        if self.alone:
            return last
        aligned = upto // self.step * self.step
        if self.drops[group] and aligned > 0:
            return min(last, last // self.step * self.step + self.sizes[group])
        return aligned

    def boundaries(self, names: Names) -> int:
        """P3: the last boundary that is known (tokens)."""
        return max(0, names.known - self.ahead) // self.hash_size * self.hash_size

    def node(self, names: Names, boundary: int) -> int:
        """The node of K(boundary)."""
        return names.content.named[boundary + self.ahead]

    def publish(self, names: Names, rows: list[list[int]], progress: list[Progress]) -> None:
        """P7: group by group, whole columns first, then the boundary inside a block."""
        known = self.boundaries(names)
        for index, group in enumerate(self.setting.groups):
            if not group.cacheable:
                continue
            done, limit = progress[index], self.limit(index, names.upto)
            before = done.columns
            whole = min(limit, known) // self.sizes[index]
            if whole > before:
                self._columns(index, group, names, rows[index], done, whole)
            if isinstance(group, Mamba):
                self._state(index, group, names, rows[index], done, limit)
                for column in range(before, done.columns):
                    name = self.pool.first_name(rows[index][column])
                    if name is not None:
                        self.fresh.add(name)
            elif isinstance(group, DENSE) and self.sizes[index] > self.hash_size:
                self._tail(index, names, rows[index], limit)

    def _columns(self, index: int, group: Group, names: Names, row: list[int], done: Progress, whole: int) -> None:
        """P7, P9: the columns that became whole."""
        size, drops = self.sizes[index], self.drops[index]
        points = resume_points(self.setting, names.prompt, names.junction, drops, size)
        first, told = done.columns, []
        for column in range(first, whole):
            block = row[column]
            if block and keeps(self.setting, group, drops, column, points):
                node = self.node(names, (column + 1) * size)
                self.pool.name(block, (index, node), (column + 1) * size)
                told.append(node)
        done.columns = whole
        if self.pool.telling:
            parent = self.node(names, first * size) if first else 0
            self._tell(index, names, tuple(told), parent, size, first * size, whole * size)

    def _tail(self, index: int, names: Names, row: list[int], limit: int) -> None:
        """P33: the last boundary of the prompt, inside a block of full attention."""
        whole = self.drops[index] or self.setting.choices.tail != "resume"
        last = names.prompt if whole else names.prompt - 1
        boundary = min(last // self.hash_size * self.hash_size, self.boundaries(names))
        column = boundary // self.sizes[index]
        if boundary > 0 and boundary % self.sizes[index] and boundary <= limit and column < len(row) and row[column]:
            self._inner(index, names, row[column], boundary)

    def _inner(self, index: int, names: Names, block: int, boundary: int) -> None:
        """A name of its own for a boundary inside a block (P46: told by itself)."""
        node = self.node(names, boundary)
        if self.pool.name(block, (index, node), boundary) and self.pool.telling:
            size = self.hash_size
            parent = self.node(names, boundary - size) if boundary > size else 0
            self._tell(index, names, (node,), parent, size, boundary - size, boundary)

    def _tell(self, index: int, names: Names, nodes: Row, parent: int, size: int, first: int, last: int) -> None:
        """P46: one event, with the tokens first .. last-1."""
        tokens = tuple(names.content.tokens[first:last])
        self.pool.events.append(("stored", index, nodes, parent, size, tokens))
        self._made_before(names.content, nodes)

    def _made_before(self, content: Content, nodes: Row) -> None:
        """Note the nodes that are no prefixes of the content any more."""
        if content.named is not content.path:
            self.outdated.update(set(nodes).difference(content.path))

    def report(self, query: Query, hit: Hit) -> int:
        """P46: `kv_cache_report_mode` full tells the names of a hit's columns as if they were new; events made."""
        if not (hit.tokens and self.pool.telling):
            return 0
        named, before = query.content.named, len(self.reported)
        for index, row in enumerate(hit.rows):
            size = self.sizes[index]
            last = min(len(row) * size, query.tokens - self.ahead)
            nodes = tuple(named[size + self.ahead : last + self.ahead + 1 : size])
            if nodes:
                tokens = tuple(query.content.tokens[: min(len(row) * size, query.tokens)])
                self.reported.append(("stored", index, nodes, 0, size, tokens))
                self.pool.events.append(self.reported[-1])
                self._made_before(query.content, nodes)
        return len(self.reported) - before

    def _state(self, index: int, group: Mamba, names: Names, row: list[int], done: Progress, limit: int) -> None:
        """P34, P35: the state at the prompt's last boundary, at a junction, or at the chunk's inner boundary."""
        if done.checkpoint is not None:
            self._checkpoint(index, group, names, row, done.checkpoint)
            return
        if limit <= 0 or limit % self.hash_size:
            return
        junction = self.junctions and limit == names.junction and names.computed < limit <= names.prompt
        size, tail = self.sizes[index], self._state_tail(index, names.prompt)
        if self.setting.choices.tail != "resume" and limit % size == 0:
            return
        if limit != tail and not junction:
            return
        column = -(-limit // size) - 1
        if column >= len(row) or not row[column]:
            return
        if self.pool.reach(row[column]) == limit and not self.setting.choices.names_again:
            return
        self._inner(index, names, row[column], limit)
        self.fresh.add((index, self.node(names, limit)))
        if limit % size:
            done.shared = done.columns = column

    def _state_tail(self, index: int, prompt: int) -> int:
        """The boundary at the prompt's end whose state gets a name (P34)."""
        use_eagle, how = self.setting.use_eagle, self.setting.choices.tail
        if how == "resume":
            return resume_position(prompt, self.hash_size, self.ahead, use_eagle)
        dropped = {"end": False, "end, own drop": self.drops[index], "end, any drop": use_eagle}[how]
        return max(0, (prompt // self.hash_size - dropped) * self.hash_size)

    def _checkpoint(self, index: int, group: Mamba, names: Names, row: list[int], checkpoint: tuple[int, int]) -> None:
        """P35: a state that can be resumed from takes the block's names' place; a passing one takes them away."""
        position, column = checkpoint
        block = row[column]
        if not block:
            return
        setting = self.setting
        wanted = position in (
            resume_position(names.prompt, self.unit, self.ahead, setting.use_eagle),
            names.junction,
        )
        size = self.sizes[index]
        if not wanted and position % size == 0:
            wanted = keeps(setting, group, self.drops[index], position // size - 1, [])
        if not wanted or position > self.boundaries(names):  # P3: drafts reach beyond what is known
            self.pool.forget(block)
        elif self.pool.reach(block) != position:
            self.pool.forget(block)
            self._inner(index, names, block, position)
            self.fresh.add((index, self.node(names, position)))
