"""The oracle as a party of the scheduler level: its scheduler and its allocator in place of the release's.

For `explain`, and to put the laws and the memory model beside the rules themselves.
"""

from __future__ import annotations

from oracle.allocator import Allocator
from oracle.breakdown import Breakdown
from oracle.cached_allocator import CachingAllocator
from oracle.call import DONE, GRANTED, Call, Drained, Observation, Rows
from oracle.content import Content
from oracle.scheduled import (
    ASK,
    CLEAR,
    ENDED,
    FREE,
    GIVE,
    LOOK,
    MATCH,
    NAME,
    POP,
    START,
    TRIM,
    Event,
    Planned,
    Situation,
)
from oracle.scheduler import Scheduler
from oracle.scheduler_request import Request
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import (
    NOTHING_MOVED,
    STOP,
    Delivered,
    Submit,
    Transfers,
    Update,
)


class OracleScheduler:
    """What the rules do, step by step. `reasons`: of each planned step, why each ask was answered so.

    before: it goes on from where a prediction is, which answers to nobody else from then on.
    """

    def __init__(self, setting: SchedulerSetting, before: tuple[Scheduler, Allocator] | None = None) -> None:
        blocks = self if setting.kv_connector else None
        if before is None:
            self.allocator = CachingAllocator(setting) if setting.enable_caching else Allocator(setting)
            self.scheduler = Scheduler(setting, self._ask, self._free, self._look, self._name, blocks=blocks)
        else:
            self.scheduler, self.allocator = before
            self.scheduler.ask, self.scheduler.free = self._ask, self._free
            self.scheduler.look, self.scheduler.name, self.scheduler.blocks = self._look, self._name, blocks
        self.names = self.allocator if isinstance(self.allocator, CachingAllocator) else None
        self.events: list[Event] = []
        self.held: dict[int, Rows] = {}
        self.sampling: dict[int, bool] = {}
        self.reasons: list[list[tuple[int, str, list[Breakdown]]]] = []

    def _ask(self, call: Call) -> Observation:
        before = self.held.get(call.request, self.allocator.nothing)
        seen = self.allocator.extend(call)
        refused = seen.outcome != GRANTED
        why = f"refused by the {self.allocator.refused_by}, {self.allocator.short} blocks short" if refused else ""
        count = self.allocator.gate_reasons if refused and call.full_sequence_must_fit else self.allocator.reasons
        self.reasons[-1].append((call.request, why, [self.scheduler.reason(call), *count(call, before)]))
        self.held[call.request] = seen.rows
        self.events.append(Event(ASK, call.request, call, seen, seen.free))
        return seen

    def _free(self, name: int) -> None:
        self.held.pop(name, None)
        self.events.append(Event(FREE, name, None, None, self.allocator.release(name, False).free))

    def _look(self, request: Request) -> tuple[int, int]:
        assert self.names is not None
        hit = self.names.lookup(request.query())
        self.events.append(Event(LOOK, request.id, None, None, 0, hit.tokens, hit.junction))
        return hit.tokens, hit.junction

    def _name(self, request: Request, call: Call, tokens: int) -> None:
        assert self.names is not None
        self.names.publish(call, tokens)
        self.events.append(Event(NAME, request.id, None, None, 0, tokens))

    def pop(self, request: int) -> bool:
        self.held.pop(request, None)
        seen = self.allocator.release(request, True)
        self.events.append(Event(POP, request, None, None, seen.free))
        if not self.allocator.popped[-1]:
            self.allocator.popped.pop()
            return False
        return True

    def give_back(self) -> None:
        self.events.append(Event(GIVE, -1, None, None, self.allocator.give_back().free))

    def trim(self, request: int, processed: int, prompt: int) -> None:
        seen = self.allocator.trim(request, processed, prompt)
        self.events.append(Event(TRIM, request, None, seen, seen.free, processed))

    def remaining(self, call: Call, more: int) -> int:
        return self.allocator.remaining(call, more)

    def matched(self, request: int, external: int | None) -> None:
        self.events.append(Event(MATCH, request, None, None, 0, -1 if external is None else external))

    def started(self, request: int, external: int) -> None:
        self.events.append(Event(START, request, None, None, 0, external))

    def ended(self, request: int, computed: int, kept: bool) -> None:
        rows = self.allocator.handed_over(request, computed)
        self.events.append(Event(ENDED, request, None, Observation(DONE, (), rows, 0), 0, int(kept)))

    def cleared(self) -> None:
        self.events.append(Event(CLEAR, -1, None, None, 0))

    def submit(self, operation: Submit, arrival: int, content: Content | None) -> None:
        self.scheduler.submit(operation, arrival, content)

    def update(self, operation: Update, arrival: int, tokens: list[int] | None) -> None:
        self.events = []
        self.scheduler.update(operation, arrival)

    def goes_on(self, request: int, content: Content) -> None:
        self.scheduler.requests[request].content = content

    def schedule(self) -> Planned:
        self.events = []
        self.reasons.append([])
        if self.names is not None:
            self.names.step_starts()
        planned = self.scheduler.schedule()
        drained = self.allocator.new_step()
        planned.zeroed = self.scheduler.zero_list(drained.new[0])
        if isinstance(drained, Drained):
            planned.copies = drained.copies
        self.sampling = {name: not self.scheduler.requests[name].chunk for name, _ in planned.tokens}
        return planned

    def samples(self) -> dict[int, bool]:
        return self.sampling

    def output(
        self, returned: dict[int, list[int]], proposed: dict[int, int] | None, transfers: Transfers = NOTHING_MOVED
    ) -> list[Delivered]:
        self.events = []
        return self.scheduler.output(returned, STOP, proposed, transfers)

    def abort(self, request: int) -> bool:
        self.events = []
        self.scheduler.abort(request)
        return True

    def reset(self, running: bool, connector: bool) -> bool:
        self.events = []
        return self.scheduler.reset_cache(running, connector, self.allocator.emptied)

    def pause(self, state: str) -> None:
        self.scheduler.paused = state

    def situation(self, everything: bool) -> Situation:
        return self.scheduler.situation(self.allocator.pool.free, everything)

    def rows(self, request: int) -> Rows:
        return self.held.get(request, self.allocator.nothing)
