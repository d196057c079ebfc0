"""The fast way through a workload: the scheduler alone first, then the three oracles on what it did.

Nothing that is checked changes what the scheduler is told: a workload is driven by its operations, by what was
scheduled and by what was delivered. So its answers can be noted once and judged afterwards, with the same result as in
lockstep. Two code bases in turns at each step cost twice as much, because neither stays in the processor's caches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.workload_outcome import MakeScheduler, WorkloadOptions, WorkloadOutcome
from harness.workloads import Run, finish, run_workload
from oracle.content import Content
from oracle.scheduler_laws import SchedulerLaws
from oracle.workload import (
    Delivered,
    Event,
    Planned,
    SchedulerSetting,
    SchedulerTarget,
    SchedulerTrace,
    Situation,
)

#: what a call gave, what it raised, and what the manager was asked meanwhile
Note = tuple[Any, Exception | None, list[Event]]
#: steps in a row in which nobody is scheduled, after which the first pass looks no further
IDLE = 4
#: ... and where loads may be under way
IDLE_CONNECTED = 40


class Roll(SchedulerLaws):
    """Who is there and how far: what driving a workload needs of the laws, and no law."""

    def planned(self, planned: Planned, events: list[Event], flying: int) -> None:
        self.idle = 0 if planned.tokens or flying else self.idle + 1
        self.stuck = self.idle > (IDLE_CONNECTED if self.setting.kv_connector else IDLE)

    def returned(self, events: list[Event]) -> None:
        pass

    def delivered(self, delivered: list[Delivered], returned: dict[int, list[int]], events: list[Event]) -> None:
        for name, tokens, reason in delivered:
            known = self.live.get(name)
            if known is not None:
                known.out += len(tokens)
            if reason:
                self.left(name)

    def left(self, name: int) -> None:
        self.live.pop(name, None)

    def settled(self, situation: Situation, flying: int) -> None:
        pass


class Noting:
    """A scheduler whose answers are noted."""

    def __init__(self, target: SchedulerTarget, notes: list[Note]) -> None:
        self.target, self.notes = target, notes
        self.events: list[Event] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        ask = getattr(self.target, name)

        def note(*arguments: Any) -> Any:  # noqa: ANN401  # what the method gives
            try:
                answer = ask(*arguments)
            except Exception as error:
                self.notes.append((None, error, self.target.events))
                raise
            self.events = self.target.events
            self.notes.append((answer, None, self.events))
            return answer

        setattr(self, name, note)
        return note


class Ran(Exception):  # noqa: N818  # no error: the judged run goes on where the driven one had ended
    """There are no notes any more."""


class Noted:
    """The scheduler of the second pass: it gives the answers that were noted."""

    def __init__(self, notes: list[Note]) -> None:
        self.notes = iter(notes)
        self.events: list[Event] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        setattr(self, name, self._answer)
        return self._answer

    def _answer(self, *arguments: Any) -> Any:  # noqa: ANN401  # what the method gave
        note = next(self.notes, None)
        if note is None:
            raise Ran
        answer, error, self.events = note
        if error is not None:
            raise error
        return answer


class Drive(Run):
    """A workload under way beside no oracle."""

    def watch(self) -> SchedulerLaws:
        return Roll(self.setting, self.differences.law)

    def judge(self, planned: Planned, flying: int) -> None:
        self.laws.planned(planned, self.events, flying)


def noted(trace: SchedulerTrace, make: MakeScheduler, notes: list[Note]) -> dict[int, Content]:
    """The first pass: drive the workload and note what the scheduler does; what its requests say."""

    def noting(setting: SchedulerSetting) -> SchedulerTarget:
        return Noting(make(setting), notes)

    run = Drive(trace.setting, noting, WorkloadOptions(predict=False, memory=False), trace)
    return finish(run, trace).contents


def run_in_passes(trace: SchedulerTrace, make: MakeScheduler, options: WorkloadOptions) -> WorkloadOutcome:
    """What `run_workload` says of a workload, in two passes."""
    notes: list[Note] = []
    contents = noted(trace, make, notes)
    try:
        return run_workload(trace, lambda setting: Noted(notes), options, contents)
    except Ran:
        return run_workload(trace, make, options)
