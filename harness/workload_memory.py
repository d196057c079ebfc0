"""The memory model beside a scheduler: what the kernels do with the rows that the worker has, and nothing else.

The worker appends the block ids that a step brings to the row it has, and never corrects it; a step in flight runs
with the row of its own step. Outputs come back in order, so a step runs when its output does.
"""

from __future__ import annotations

from collections.abc import Callable

from oracle.cached_memory import CachingMemory
from oracle.call import GRANTED, Call, Rows
from oracle.groups import RSWA
from oracle.ledger import Batch, Request, Settled, Step
from oracle.memory import COMPUTED, Contents, Memory
from oracle.scheduled import FREE, Event, Planned
from oracle.scheduler_laws import follows
from oracle.scheduler_setting import SchedulerSetting
from oracle.violation import Violation

#: the column held an answer of a session, and was behind the window before that became prompt
PASSED = "answer behind the window"


class WorkloadMemory:
    """The physical cache of one workload."""

    def __init__(self, setting: SchedulerSetting, report: Callable[..., None]) -> None:
        self.report, self.told = report, False
        self.drops, self.size = setting.drops_preempted, setting.scheduler_block_size
        self.groups, self.ranks = setting.groups, setting.dcp_size
        self.caching = CachingMemory(setting, self._told) if setting.enable_caching else None
        self.memory = self.caching or Memory(setting, self._told)
        self.rows: dict[int, Rows] = {}
        self.requests: dict[int, Request] = {}
        self.flights: list[Batch] = []
        #: sessions that go on with the next step that they are in, with the blocks that they have
        self.resting: dict[int, frozenset[str]] = {}
        #: what is told of these steps: by request and the operation that planned them
        self.causes: dict[tuple[int, int], frozenset[str]] = {}
        #: of sessions, since their rows began: where their answers begin and end (tokens)
        self.answers: dict[int, list[tuple[int, int]]] = {}
        #: loads beside the steps: where they begin and end (tokens), and the row that they fill
        self.loads: dict[int, tuple[int, int, Rows]] = {}

    def _told(self, violation: Violation, contents: Contents) -> None:
        if self.caching is None or not self.told:  # with caching on others may hit what this request did not write
            name = contents.identity.id
            tags = contents.tags | self.causes.get((name, violation.index), COMPUTED)
            if self.answers and violation.what == "null block" and self._passed(name, violation):
                tags |= {PASSED}
            self.report(violation, tuple(sorted(tags)))
        self.told = True

    def _passed(self, name: int, violation: Violation) -> bool:
        """R-SWA: nobody read the column when the answer in it ended, and whoever goes on reads all of its prompt."""
        kind = self.groups[violation.group]
        if not isinstance(kind, RSWA):
            return False
        end = (violation.column + 1) * kind.tokens_per_column(self.ranks)
        return any(begin < end <= kept - kind.window + 1 for begin, kept in self.answers.get(name, ()))

    def planned(self, planned: Planned, events: list[Event], index: int) -> None:
        """A step is sent to the worker: rows begin, or grow."""
        asked: dict[int, tuple[Call, Rows]] = {}
        for event in events:
            if event.seen is not None and event.call is not None and event.seen.outcome == GRANTED:
                asked[event.request] = (event.call, event.seen.rows)
                if not event.call.new:
                    self._load(event.call, event.seen.rows)
            elif event.what == FREE and event.request in asked:
                self._taken_back(*asked.pop(event.request), index)
        for name in planned.preempted:
            if self.drops:
                self._parted(name)
        rows = self.rows
        begun = set(planned.resumed)
        for name, _, _, blocks in planned.new:
            rows[name] = blocks
            begun.add(name)
        for name, _, _, more in planned.cached:
            if more is not None:
                held = rows.get(name)
                rows[name] = more if held is None or name in begun else tuple(map(_joined, held, more))
        drafts = dict(planned.drafts)
        batch = Batch([])
        for name, tokens in planned.tokens:
            if name not in asked or name not in rows:
                continue  # the laws tell
            call, theirs = asked[name]
            row = rows[name]
            if not follows(row, theirs):
                self.report(Violation(index, -1, "worker row", "other", f"worker has {row}, manager {theirs}"), ())
            request = self.requests.get(name)
            if request is None:
                request = self.requests[name] = Request(name, call.prompt, call.tokens, content=call.content)
            loaded = self.loads.pop(name, None) is not None
            goes_on = loaded or (call.computed > 0 and not call.local and not call.external)
            request.calls = 1 if name in begun and not goes_on else request.calls + 1
            request.tokens, request.prompt, request.content = call.tokens, call.prompt, call.content
            step = Step(request, tokens, drafts.get(name, 0), False, index, False, call.external, False, row)
            if name in begun and call.in_flight:
                call.in_flight, kept = 0, call.in_flight
                self.memory.scheduled(call, request, step, row)
                call.in_flight = kept
            else:
                self.memory.scheduled(call, request, step, row)
            if request.calls == 1:
                self.answers.pop(name, None)
            causes = self.resting.pop(name, None)
            if causes and goes_on:
                self.causes[name, index] = causes | self.memory.rewound(self.memory.known[request], row, call.computed)
            batch.steps.append(step)
        self.flights.append(batch)
        if self.caching is not None:
            self.caching.launched(batch, planned.copies)

    def _taken_back(self, call: Call, rows: Rows, index: int) -> None:
        """S28: a victim that was scheduled earlier in the pass; what was named for it is not computed."""
        if self.caching is not None:
            request = Request(call.request, call.prompt, call.tokens)
            self.caching.dropped(Step(request, call.new, 0, False, index, rows=rows))

    def _load(self, call: Call, rows: Rows) -> None:
        """Nothing orders a load behind a step in flight: its bytes may be there at once."""
        name = call.request
        request = self.requests.get(name)
        if request is None:
            request = self.requests[name] = Request(name, call.prompt, call.tokens, content=call.content)
        request.calls, request.tokens = 1, call.tokens
        self.loads[name] = call.computed, call.computed + call.external, rows
        self.memory.scheduled(call, request, None, rows)

    def settled(self, accepted: dict[int, int], failed: tuple[int, int] | None) -> None:
        """The oldest step's output: accepted drafts of each that sampled; a load that failed from a column on."""
        batch = self.flights.pop(0)
        counts = []
        kept = []
        for step in batch.steps:
            name = step.request.id
            if failed is not None and name == failed[0]:
                self.memory.brought(step.request, step.external, step.rows)
                self.memory.spoil(failed[1] * self.size, step.external, step.rows)
                step.stale = True
            if step.stale:
                continue
            known = step.request is self.requests.get(name) or not self.drops
            step.samples = known and name in accepted
            kept.append(step)
            counts.append(accepted.get(name, 0) if known else 0)
        batch.steps = kept
        if failed is not None and failed[0] in self.loads:
            first, end, rows = self.loads[failed[0]]
            self.memory.spoil(max(first, failed[1] * self.size), end, rows)
            if failed[1] == 0:
                del self.loads[failed[0]]
        self.memory.settled(Settled(batch, counts))

    def _parted(self, name: int) -> None:
        """What is in flight runs on for nobody: it writes and reads, but the request begins anew without it."""
        request = self.requests.get(name)
        if request is None or request not in self.memory.known:
            return
        nobody = self.memory.parted(request)
        for batch in self.flights:
            for step in batch.steps:
                if step.request is request:
                    step.request = nobody

    def answered(self, name: int, kept: int) -> None:
        """A session goes on without the token that was sampled last; what is in flight runs on for nobody."""
        flown = any(step.request.id == name for batch in self.flights for step in batch.steps)
        if flown:
            self._parted(name)
        request = self.requests.get(name)
        if request is not None and request in self.memory.known:
            self.resting[name] = self.memory.answered(request, kept, flown)
            self.answers.setdefault(name, []).append((request.prompt, kept))

    def preempted(self, name: int, drop: bool) -> None:
        """Blocks are gone. drop: what is in flight is not delivered, and the request may run again at once."""
        if drop:
            self._parted(name)

    def finished(self, name: int) -> None:
        """The request has ended; steps of it may still be in flight."""
        self.rows.pop(name, None)


def _joined(row: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return row + more if more else row
