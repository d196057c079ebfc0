"""The oracle's allocator: `allocate_slots` and its neighbours, as the rules say (allocation spec, sections 2 and 3).

A Target like any other. Order of work of one call (A11): gate, removal, count and test, adoption, extension. Removal
comes before the test, because what nobody reads any more can serve this very call.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from oracle.breakdown import Breakdown
from oracle.call import DONE, GRANTED, REFUSED, Call, Observation, Row, Rows
from oracle.groups import MLA, CircularBuffer, FullAttention, HiddenState, Mamba, Sink
from oracle.pool import Pool
from oracle.releases import Choices
from oracle.reservation import Positional, Work, rules_of, work_of
from oracle.rounding import ceil_div
from oracle.setting import Setting
from oracle.trace import Audit

ALREADY_RUNNING = "error:AssertionError"
NOTHING_TO_DO = "error:ValueError"


@mypyc_attr(allow_interpreted_subclasses=True)
class Allocator:
    """Predicts what a manager with caching off does: rows, counts, order."""

    def __init__(self, setting: Setting, choices: Choices | None = None) -> None:
        self.setting = setting
        self.max_model_len = setting.max_model_len
        self.watermark_blocks = setting.watermark_blocks
        self.rules: list[Positional] = rules_of(setting)
        #: groups whose columns die while a request runs
        self.removing = [index for index, rule in enumerate(self.rules) if rule.removes]
        self.choices = choices or setting.choices
        self.pool = Pool(setting.num_blocks, self.choices.freed_to_front)
        for group in setting.groups:
            if isinstance(group, Sink):
                self.pool.take(group.sink_len // group.block_size)
        self.rows: dict[int, list[list[int]]] = {}
        self.adopted: set[int] = set()
        #: rings and cross-attention alone neither adopt nor mind
        self.adopts = any(rule.adopts for rule in self.rules)
        self.popped: list[list[int]] = []
        self.nothing: Rows = tuple(() for _ in self.rules)
        self.zeroed = self._zeroed_groups()
        self.to_zero: list[list[int]] = [[] for _ in self.rules]
        #: why the last refusal was one, "gate" (A12) or "test" (A16), and how many blocks were missing; of a call that
        #: was granted, below zero, how many its count leaves
        self.refused_by = ""
        self.short = 0

    def _zeroed_groups(self) -> list[bool]:
        """A60: groups whose fresh blocks the worker must zero, because they are read before they are fully written."""
        groups = self.setting.groups
        precisions = {g.precision for g in groups if g.attention}
        mixed = len(precisions) > 1 and self.choices.zeroed_for_formats
        if not mixed and not any(isinstance(g, Mamba) for g in groups):
            return [False for _ in groups]
        if self.choices.zeroed_exactly:
            return [type(g) in (FullAttention, MLA, HiddenState) for g in groups]
        return [g.attention and not isinstance(g, CircularBuffer) for g in groups]

    # ------------------------------------------------------------------------------------------- calls

    def follow(self, call: Call, outcome: str) -> Observation:
        """The answer if the target's decision were right: past the gate, and granted if it granted.

        For a declared finding, so that the trace can go on from the target's state; refused when blocks are lacking.
        """
        return self.extend(call, gate=False, test=outcome != GRANTED)

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        """One `allocate_slots` (A10 to A23). `gate`, `test`: whether that decision is taken."""
        if call.new == 0 and call.external == 0:
            return self._seen(NOTHING_TO_DO, self.nothing, self.rows.get(call.request))
        rows = self.rows.get(call.request)
        first = rows is None
        if rows is None:
            rows = [[] for _ in self.rules]
        pool = self.pool
        rules = self.rules
        work = work_of(call, first, self.max_model_len)
        kept_free = self.watermark_blocks if call.waiting and call.has_scheduled_reqs else 0  # A17
        if call.full_sequence_must_fit and gate:
            wanted = kept_free + sum([rule.gate(work, row) for rule, row in zip(rules, rows)])  # noqa: B905  # hot path
            if wanted > pool.free:
                self.refused_by, self.short = "gate", wanted - pool.free
                return self._seen(REFUSED, self.nothing, None if first else rows)
        if not first:
            for index in self.removing:
                rules[index].remove(work, rows[index], pool)
        counts = [rule.count(work, row) for rule, row in zip(rules, rows)]  # noqa: B905  # hot path
        takes = sum(counts)
        free = pool.free
        short = self.short = takes + kept_free + call.reserved_blocks - free
        if takes > free or (short > 0 and test):
            self.refused_by = "test"
            return self._seen(REFUSED, self.nothing, None if first else rows)
        if call.external:
            if first:
                self._adopt(call, work, rows)
            elif call.request not in self.adopted and self.adopts:
                return self._seen(ALREADY_RUNNING, self.nothing, rows)
        new: list[Row] = []
        for index, count in enumerate(counts):
            rule = rules[index]
            if not (count or rule.moves):
                new.append(())
                continue
            row = rows[index]
            length = len(row)
            taken = rule.extend(work, row, pool)
            if taken and self.zeroed[index]:
                self.to_zero[index] += taken
            new.append(tuple(row[length:]))
        if free - pool.free != takes:
            raise AssertionError(f"the oracle counted {takes} blocks and took {free - pool.free} (A21)")
        self.rows[call.request] = rows
        return Observation(GRANTED, tuple(new), tuple(map(tuple, rows)), free - takes)

    def _adopt(self, call: Call, work: Work, rows: list[list[int]]) -> None:
        """A18: nulls first and in all groups, so that no group takes a block that another still needs."""
        for rule, row in zip(self.rules, rows, strict=True):
            row += rule.begin(work)
        for index, rule in enumerate(self.rules):
            taken = rule.adopt(work, rows[index], self.pool)
            if taken and self.zeroed[index] and (self.choices.load_zeroing or index not in call.skip_zeroing):
                self.to_zero[index] += taken
        if self.adopts:
            self.adopted.add(call.request)

    def emptied(self) -> bool:
        """P12: whether nobody holds a block; without caching there is nothing to forget."""
        return self.pool.free == self.setting.num_blocks - 1

    def release(self, request: int, deferred: bool) -> Observation:
        """A7, or A8 when deferred: everything is forgotten at once, highest columns come to the front."""
        rows = self.rows.pop(request, None)
        self.adopted.discard(request)
        popped: list[int] = []
        if rows is not None:
            if deferred:
                for row in rows:
                    lead = 0
                    while lead < len(row) and row[lead] == 0 and not self.choices.popped_whole:
                        lead += 1
                    popped += row[lead:]
            else:
                for row in rows:
                    self.pool.give(reversed(row))
        if deferred:
            self.popped.append(popped)
        return self._seen(DONE, (tuple(popped),), None)

    def give_back(self) -> Observation:
        """The oldest popped list, reversed: the same order as a direct release now."""
        if self.popped:
            self.pool.give(reversed(self.popped.pop(0)))
        return self._seen(DONE, self.nothing, None)

    def trim(self, request: int, processed: int, prompt: int) -> Observation:
        """A14 alone."""
        rows = self.rows.get(request)
        if rows is not None:
            call = Call(request, processed, 0, prompt, prompt, False, False, 0, 0, 0, 0, False, 0, False, ())
            work = work_of(call, False, max(processed, self.setting.max_model_len))
            for index in self.removing:
                self.rules[index].remove(work, rows[index], self.pool)
        return self._seen(DONE, self.nothing, rows)

    def remaining(self, call: Call, more: int) -> int:
        """S44 (blocks): what a request still needs to hold what is known and `more` beyond, in all groups."""
        rows = self.rows.get(call.request)
        work = work_of(call, rows is None, self.max_model_len)
        rows = rows or [[] for _ in self.rules]
        return sum(rule.remaining(work, more, row) for rule, row in zip(self.rules, rows, strict=True))

    def handed_over(self, request: int, computed: int, ranks: int = 0) -> Rows:
        """S51: the columns of `computed` tokens; states whole. ranks: of DCP, if not the setting's."""
        rows, ranks = self.rows.get(request) or [[] for _ in self.rules], ranks or self.setting.dcp_size
        ends = [ceil_div(computed, group.tokens_per_column(ranks)) for group in self.setting.groups]
        return tuple(
            tuple(row[:end] if rule.group.attention else row)
            for rule, row, end in zip(self.rules, rows, ends, strict=True)
        )

    def new_step(self) -> Observation:
        """The zero list is returned and cleared: group by group, in order of taking (A60)."""
        drained = tuple(block for taken in self.to_zero for block in taken)
        if drained:
            self.to_zero = [[] for _ in self.rules]
        return self._seen(DONE, (drained,), None)

    # -------------------------------------------------------------------------------------- observation

    def _seen(self, outcome: str, new: Rows, rows: list[list[int]] | None) -> Observation:
        shown = self.nothing if rows is None else tuple(map(tuple, rows))
        return Observation(outcome, new, shown, self.pool.free)

    def audit(self) -> Audit:
        """Every live row and the free queue."""
        rows = {request: tuple(map(tuple, rows)) for request, rows in self.rows.items() if any(rows)}
        return Audit(rows, self.pool.order())

    # ------------------------------------------------------------------------------------------ reasons

    def reasons(self, call: Call, held: Rows) -> list[Breakdown]:
        """Per group, why the row has the columns that it has; `held` is the row before the call."""
        return [rule.columns(call, len(row)) for rule, row in zip(self.rules, held, strict=True)]

    def gate_reasons(self, call: Call, held: Rows) -> list[Breakdown]:
        """Per group, what the gate counts."""
        counted = self.counted_rows(call, held)
        work = work_of(call, not any(counted), self.setting.max_model_len)
        return [rule.gate_terms(work, list(row)) for rule, row in zip(self.rules, counted, strict=True)]

    def counted_rows(self, call: Call, held: Rows) -> Rows:
        """The rows that a decision about the call reckons with: those before the call."""
        return held
