"""Loads and sendings under way in a workload, as the scheduler's calls show them, and what a step reports of them."""

from __future__ import annotations

from oracle.call import GRANTED, Call, Row
from oracle.scheduled import ASK, ENDED, START, Event
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import NOTHING_MOVED, Step, Transfers

Load = tuple[Call, Row]
"""The call that took the blocks, and the first group's row."""
PLAIN = Step()


class UnderWay:
    """What the worker's side of the connector has to do. Requests in the order of their start."""

    def __init__(self, setting: SchedulerSetting) -> None:
        self.size = setting.scheduler_block_size
        #: a load that is part of a step: not where the next one has begun already, or others may have hit what did not
        #: load; several groups have no way to tell of it
        self.by_block = setting.fails_by_block
        self.may_fail_at_once = setting.in_flight_depth == 1 and not setting.enable_caching and self.by_block
        #: request -> the call that took the blocks
        self.loading: dict[int, Load] = {}
        self.sending: dict[int, None] = {}
        self.joined: dict[int, Load] = {}
        self.asked: dict[int, Load] = {}

    def follow(self, events: list[Event]) -> None:
        """What the scheduler's last method began."""
        self.joined = {}
        for event in events:
            if event.what == ASK and event.call is not None and event.seen and event.seen.outcome == GRANTED:
                self.asked[event.request] = event.call, event.seen.rows[0]
            elif event.what == START and event.tokens:
                load = self.asked[event.request]
                (self.joined if load[0].new else self.loading)[event.request] = load
            elif event.what == ENDED and event.tokens:
                self.sending[event.request] = None

    def reported(self, step: Step, joined: dict[int, Load]) -> Transfers:
        """What is told with an output. joined: loads that are part of its step. One failure at most."""
        if not (step.loaded or step.sent or step.valid or step.refused):
            return NOTHING_MOVED
        loaded: list[int] = []
        failed = None
        for name, column in step.loaded:
            load = self.loading.pop(name, None)
            if load is not None:
                loaded.append(name)
            elif self.may_fail_at_once:
                load = joined.get(name)
            if load is not None and column and failed is None:
                failed = self._failure(name, load, column - 1)
        sent = [name for name in dict.fromkeys(step.sent) if name in self.sending]
        for name in sent:
            del self.sending[name]
        return Transfers(tuple(loaded), tuple(sent), failed, step.valid, step.refused)

    def _failure(self, name: int, load: Load, column: int) -> tuple[int, int] | None:
        """The column, or the nearest one that is loaded: not the hit, and no null."""
        call, row = load
        if not self.by_block:
            return name, 0
        columns = range(call.computed // self.size, -(-(call.computed + call.external) // self.size))
        there = [one for one in columns if row[one]]
        return (name, min(there, key=lambda one: abs(one - column))) if there else None

    def rest(self) -> Step:
        """The step that ends everything."""
        if not (self.loading or self.sending):
            return PLAIN
        return Step(loaded=tuple((name, 0) for name in self.loading), sent=tuple(self.sending))
