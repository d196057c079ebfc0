"""The oracle's allocator with prefix caching on (caching spec).

The same order of work as with caching off; a first call begins with the hit that it found. What is new: blocks are
shared and counted by references, a hit that ends inside a block is copied before it is written, and each granted call
publishes names at its end.
"""

from __future__ import annotations

from collections import deque

from mypy_extensions import mypyc_attr

from oracle.align import AlignRows
from oracle.allocator import Allocator
from oracle.cached_rows import begun, cached_rules_of, counted, gated, spared, uncalled
from oracle.call import DONE, GRANTED, REFUSED, Call, Drained, Hit, Name, Observation, Query, Row, Rows
from oracle.groups import Mamba
from oracle.lookup import Finder, Probe
from oracle.names import NamedPool
from oracle.publication import Names, Progress, Publisher
from oracle.reservation import Work, work_of
from oracle.setting import Setting
from oracle.trace import NamedAudit

NOTHING_TO_DO = "error:ValueError"
ALREADY_RUNNING = "error:AssertionError"


@mypyc_attr(allow_interpreted_subclasses=True)
class CachingAllocator(Allocator):
    """Predicts what a manager with caching on does: rows, counts, order, hits, names, copies, events."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.rules = cached_rules_of(setting)
        #: the pool, as one whose blocks have names
        self.pool = self.named = NamedPool(setting.num_blocks, setting.enable_kv_cache_events)
        self.finder = Finder(setting, self.named)
        self.publisher = Publisher(setting, self.named)
        self.states = [isinstance(group, Mamba) for group in setting.groups]
        self.progress: dict[int, list[Progress]] = {}
        self.found: dict[int, Hit] = {}
        self.defers = setting.defers_copies
        #: blocks that connectors keep, oldest pin first
        self.pins: deque[Row] = deque()
        #: copies that were drained and whose step has not run, oldest first
        self.retained: deque[tuple[tuple[int, int], ...]] = deque()
        #: events in which the last lookup told its hit
        self.reports = 0
        #: whether the last call was refused because of P39
        self.too_early = False
        self.pending: list[list[tuple[int, int]]] = [[] for _ in setting.groups]
        self.no_copies = [0 for _ in setting.groups]

    # ------------------------------------------------------------------------------------------ lookup

    def lookup(self, query: Query) -> Hit:
        """P16 to P27; what a request found is kept for its first call."""
        hit = self.finder.find(query)
        self.reports = self.publisher.report(query, hit) if query.report else 0
        if query.request >= 0:
            self.found[query.request] = hit
        return hit

    def probes(self, query: Query) -> list[Probe]:
        """How the lookup goes, visit by visit."""
        probes: list[Probe] = []
        self.finder.find(query, probes)
        return probes

    def explain(self, query: Query) -> str:
        """The visits of a lookup, a line each."""
        lines = []
        for probe in self.probes(query):
            kinds = ", ".join(f"group {group} {self.setting.groups[group].kind}" for group in probe.groups)
            drop = ", drops its last unit" if probe.dropped else ""
            lines.append(f"{kinds}: at most {probe.bound}{drop}: {probe.hit}, {probe.why}")
        return "\n".join(lines)

    def follow_hit(self, query: Query, hit: Hit) -> None:
        """Go on as if `hit` had been found: a declared difference."""
        if self.reports:
            del self.named.events[-self.reports :], self.publisher.reported[-self.reports :]
        if query.report:
            self.publisher.report(query, hit)
        if query.request >= 0:
            self.found[query.request] = hit

    def cut(self, request: int, tokens: int) -> None:
        """P44."""
        hit = self.found[request]
        rows = [row[: tokens // rule.size] for row, rule in zip(hit.rows, self.rules, strict=True)]
        self.found[request] = Hit(tokens, hit.junction, tuple(rows))

    # ------------------------------------------------------------------------------------------- calls

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        """One `allocate_slots` (A10 to A23, P36 to P42)."""
        if call.new == 0 and call.external == 0 and call.local == 0:
            return self._seen(NOTHING_TO_DO, self.nothing, self.rows.get(call.request))
        rows = self.rows.get(call.request)
        first = rows is None
        if rows is None:
            rows = [[] for _ in self.rules]
        hits = self.found[call.request].rows if first and call.local else self.nothing
        work = work_of(call, first, self.max_model_len)
        kept_free = self.watermark_blocks if call.waiting and call.has_scheduled_reqs else 0
        copies = self._copies(call, hits)
        groups = [*zip(self.rules, rows, hits, copies, strict=True)]
        self.too_early = hits is not self.nothing and self._too_early(hits)
        never = self.setting.num_blocks if self.too_early else 0  # P39
        pool = self.named
        if call.full_sequence_must_fit and gate:
            wanted = kept_free + never + sum(gated(rule, work, row, hit, copy, pool) for rule, row, hit, copy in groups)
            if wanted > pool.free:
                self.refused_by, self.short = "gate", wanted - pool.free
                return self._seen(REFUSED, self.nothing, None if first else rows)
        if not first:
            for index in self.removing:
                self.rules[index].remove(work, rows[index], pool)
        counts = [counted(rule, work, row, hit, copy, pool) for rule, row, hit, copy in groups]
        takes = sum(counts)
        if self.choices.counts_cap:
            never += sum([uncalled(rule, work, row, hit, copy) for rule, row, hit, copy in groups])
        unused = sum([spared(rule, work, hit, pool) for rule, _, hit, _ in groups]) if call.local and first else 0
        free = pool.free
        short = self.short = takes + never + kept_free + call.reserved_blocks - free
        if takes > free or self.too_early or (short > 0 and test):
            self.refused_by = "test"
            return self._seen(REFUSED, self.nothing, None if first else rows)
        if call.external and not first and call.request not in self.adopted and self.adopts:
            return self._seen(ALREADY_RUNNING, self.nothing, rows)
        if first and (call.external or call.local):
            self._begin(call, work, rows, hits)
        progress = self.progress.get(call.request)
        if progress is None:
            progress = self.progress[call.request] = [Progress() for _ in self.rules]
        if first and work.loaded:
            self._published(call, rows, progress, copies)
        new = [
            self._grow(index, work, rows[index], progress[index], copies[index]) if count or rule.moves else ()
            for index, (rule, count) in enumerate(zip(self.rules, counts, strict=True))
        ]
        if free - pool.free != takes - unused:
            raise AssertionError(f"the oracle counted {takes} blocks and took {free - pool.free} (A21)")
        self.rows[call.request] = rows
        if call.new:
            self._publish(call, min(work.start + call.new, call.tokens), call.computed - call.local)
        return Observation(GRANTED, tuple(new), tuple(map(tuple, rows)), pool.free)

    def counted_rows(self, call: Call, held: Rows) -> Rows:
        """Before a first call, what its lookup found."""
        return held if any(held) or not call.local else self.found[call.request].rows

    def _too_early(self, hits: Rows) -> bool:
        """P39: the state that the hit begins with is made, or copied, by this very step."""
        for row, state in zip(hits, self.states, strict=True):
            if state and row and self.named.first_name(row[-1]) in self.publisher.fresh:
                return True
        return False

    def _copies(self, call: Call, hits: Rows) -> list[int]:
        """Per group 1 if the call first takes a block for a copy: for a reader (P36) or the owner (P37)."""
        progress = self.progress.get(call.request)
        if progress is not None and call.request in self.rows:
            return [int(one.shared is not None) for one in progress]
        if hits is self.nothing:
            return self.no_copies
        loaded = call.computed + call.external
        return [
            int(bool(row) and call.local % rule.size > 0 and rule.dead_columns(loaded) * rule.size < call.local)
            for rule, row in zip(self.rules, hits, strict=True)
        ]

    def owes_a_copy(self, request: int) -> bool:
        """Whether the next call of the request moves names of its block to a copy (P37)."""
        return any(one.shared is not None for one in self.progress.get(request, ()))

    def exported(self, request: int) -> set[int]:
        """Blocks that take the inner state of the request's last granted call (A44), and the running one behind it."""
        pairs = zip(self.progress.get(request, ()), self.rows.get(request, ()), strict=True)
        found = [row[one.checkpoint[1] : one.checkpoint[1] + 2] for one, row in pairs if one.checkpoint is not None]
        return {block for blocks in found for block in blocks} - {0}

    def _begin(self, call: Call, work: Work, rows: list[list[int]], hits: Rows) -> None:
        """P42, A18: the hits of all groups are touched before any group takes a block; then what is loaded."""
        for rule, row, hit in zip(self.rules, rows, hits, strict=True):
            if rule.adopts:
                row += begun(rule, work, hit)
                self.named.touch(row)
        if call.external:
            for index, rule in enumerate(self.rules):
                taken = rule.adopt(work, rows[index], self.named)
                if taken and self.zeroed[index] and (self.choices.load_zeroing or index not in call.skip_zeroing):
                    self.to_zero[index] += taken
        if self.adopts:
            self.adopted.add(call.request)

    def _published(self, call: Call, rows: list[list[int]], progress: list[Progress], copies: list[int]) -> None:
        """P42, P36: what a row begins with is not published again, but for the block that is copied."""
        for index, rule in enumerate(self.rules):
            if not rule.adopts or not (call.local or call.external):
                continue
            dead = rule.dead_columns(call.computed + call.external)
            hit = self.found[call.request].rows[index] if call.local else ()
            progress[index].columns = call.local // rule.size if copies[index] else max(dead, len(hit))
            if copies[index]:
                progress[index].shared = call.local // rule.size

    def _grow(self, index: int, work: Work, row: list[int], progress: Progress, copies: int) -> Row:
        """The copy's block first (P38), then the row's extension."""
        rule, pool = self.rules[index], self.named
        added: list[int] = []
        if copies:
            assert progress.shared is not None
            [block] = pool.take(1)
            source = row[progress.shared]
            self.pending[index].append((source, block))
            if work.first:  # the request goes on in the copy; the source keeps the hit's reference
                row[progress.shared] = block
                pool.hold(block)
                added.append(block)
                if not self.states[index]:
                    self.to_zero[index].append(block)
            else:  # the names go to the copy, the request stays in its block
                pool.move(source, block)
                pool.hold(source)
                name = pool.first_name(block)
                if name is not None:
                    self.publisher.fresh.add(name)
            progress.shared = None
        length = len(row)
        taken = rule.extend(work, row, pool)
        if taken and self.zeroed[index]:
            self.to_zero[index] += taken
        progress.checkpoint = rule.position if isinstance(rule, AlignRows) and rule.checkpointed else None
        return (*added, *row[length:])

    def _publish(self, call: Call, upto: int, computed: int) -> None:
        assert call.content is not None
        names = Names(call.content, call.tokens, call.prompt, computed, upto, call.junction)
        self.publisher.publish(names, self.rows[call.request], self.progress[call.request])

    def publish(self, call: Call, tokens: int) -> Observation:
        """P5: after a load has ended, or an output has come back."""
        if call.request in self.rows:
            self._publish(call, tokens, call.computed)
        return self._seen(DONE, self.nothing, self.rows.get(call.request))

    def release(self, request: int, deferred: bool) -> Observation:
        """A7, A8, P14."""
        self.progress.pop(request, None)
        return super().release(request, deferred)

    # ------------------------------------------------------------------------------------------- other

    def evict(self, blocks: Row) -> Observation:
        """P11."""
        self.named.evict([block for block in blocks if 0 < block < self.setting.num_blocks])
        return self._seen(DONE, self.nothing, None)

    def emptied(self) -> bool:
        """P12: all names are forgotten, if nobody holds a block."""
        return self.named.reset()

    def reset(self) -> Observation:
        """P12."""
        return self._seen(str(self.emptied()), self.nothing, None)

    def step_starts(self) -> None:
        """P39: what was named until now is there when the step that is put together runs."""
        self.publisher.fresh.clear()

    def pin(self, blocks: Row) -> Observation:
        """P15: a connector reads the blocks, whoever else lets them go."""
        self.named.touch(blocks)
        self.pins.append(blocks)
        return self._seen(DONE, self.nothing, None)

    def unpin(self, watched: bool) -> Observation:
        """P13; watched blocks go to the end of the queue, and their end is told."""
        if self.pins:
            (self.named.give_watched if watched else self.named.give)(self.pins.popleft())
        return self._seen(DONE, self.nothing, None)

    def new_step(self) -> Observation:
        """The step is launched: zero list, copies (their ends are given back), events; then the next one starts."""
        drained = tuple(block for taken in self.to_zero for block in taken)
        self.to_zero = [[] for _ in self.rules]
        copies = tuple(pair for pairs in self.pending for pair in pairs)
        self.pending = [[] for _ in self.rules]
        if self.defers:
            if copies:
                self.retained.append(copies)
        else:
            self.named.give([block for pair in copies for block in pair])
        self.step_starts()
        reported, self.publisher.reported = tuple(self.publisher.reported), []
        outdated, self.publisher.outdated = frozenset(self.publisher.outdated), set()
        reused, self.named.reused = tuple(self.named.reused), []
        free, events = self.named.free, self.named.drain()
        return Drained(DONE, (drained,), self.nothing, free, copies, events, reused, reported, outdated)

    def return_copies(self) -> Observation:
        """P36, S49: source and new block, pair by pair, in one batch."""
        if self.retained:
            self.named.give([block for pair in self.retained.popleft() for block in pair])
        return self._seen(DONE, self.nothing, None)

    def audit(self) -> NamedAudit:
        """Everything."""
        pool = self.named
        seen = super().audit()
        return NamedAudit(
            seen.rows,
            seen.free_order,
            tuple(pool.references),
            {block: _shown(names) for block, names in sorted(pool.names.items())},
            {name: tuple(copies) for name, copies in sorted(pool.copies.items())},
            tuple(pair for pairs in (*self.retained, *self.pending) for pair in pairs),
            tuple(self.pins),
        )


def _shown(names: dict[Name, int]) -> tuple[Name, int, tuple[Name, ...]]:
    """First name, its reach, further names."""
    first, *further = names
    return first, names[first], tuple(sorted(further)) if further else ()
