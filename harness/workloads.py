"""One workload beside the three oracles: laws on every step, the memory on what the worker is sent, the prediction.

The scheduler under test goes first (`workload_drive`). What it asked of its manager is then checked against the
prediction's asks, one by one, and answered by the oracle's allocator: the first ask that differs is the difference, not
what follows from it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import chain

from attrs import evolve

from harness.workload_asks import Predicted
from harness.workload_drive import (
    ABORT,
    END,
    OUTPUT,
    PAUSE,
    RESET,
    SCHEDULE,
    SITUATION,
    SUBMIT,
    UPDATE,
    Drive,
    Note,
)
from harness.workload_memory import WorkloadMemory
from harness.workload_outcome import Differences, Entry, MakeScheduler, Over, WorkloadOptions, WorkloadOutcome
from harness.workload_reach import Crossings
from oracle.scheduled import ENDED, LOOK, Event, Planned
from oracle.scheduler_block_laws import Known
from oracle.scheduler_laws import NEVER, SchedulerLaws
from oracle.trace import Difference
from oracle.violation import Violation
from oracle.workload import STOP, SchedulerTrace, of_release
from oracle.workload_checks import check_workload

#: steps in a row in which nobody is scheduled who could be, after which the first pass looks no further for now
IDLE = 8


def run_workload(trace: SchedulerTrace, make: MakeScheduler, options: WorkloadOptions | None = None) -> WorkloadOutcome:
    """Run a workload, then plain steps until everything has finished; each note is judged at once.

    SettingError where an operation is none.
    """
    options = options or WorkloadOptions()
    trace = of_release(trace, options.release)
    for operation in trace.operations:
        check_workload(trace.setting, operation)
    drive = Drive(trace.setting, make, everything=options.keep_entries)
    return judged(trace, drive, drive.run(trace), options)


def run_in_passes(trace: SchedulerTrace, make: MakeScheduler, options: WorkloadOptions) -> WorkloadOutcome:
    """The same in two passes: the scheduler alone first, then the three oracles on what it did."""
    return Driven(trace, make, options).judged()


class Driven:
    """A workload that the scheduler has run alone.

    Two code bases in turns at each step cost twice as much, because neither stays in the processor's caches. Where
    nobody seems to move any more the scheduler goes on beside the judge, who may have enough soon.
    """

    def __init__(self, trace: SchedulerTrace, make: MakeScheduler, options: WorkloadOptions) -> None:
        self.trace, self.options = of_release(trace, options.release), options
        self.drive = Drive(self.trace.setting, make, everything=options.keep_entries)
        self.rest = self.drive.run(self.trace)
        self.first: list[Note] = []
        idle = 0
        for note in self.rest:
            self.first.append(note)
            if note.method == SCHEDULE and note.error is None:
                idle = 0 if note.answer.tokens or not self.drive.stands else idle + 1
                if idle == IDLE:
                    break

    def judged(self) -> WorkloadOutcome:
        """What the three oracles say; once."""
        return judged(self.trace, self.drive, chain(self.first, self.rest), self.options)


def judged(trace: SchedulerTrace, drive: Drive, notes: Iterable[Note], options: WorkloadOptions) -> WorkloadOutcome:
    """What the three oracles say of a workload's notes."""
    judge = Judge(trace, options)
    judge.outcome.contents, judge.outcome.turns = drive.contents, drive.turns
    with contextlib.suppress(Over):
        for note in notes:
            judge.take(note)
    return judge.outcome


class Judge:
    """The three oracles on one workload. Over is raised where it cannot go on."""

    def __init__(self, trace: SchedulerTrace, options: WorkloadOptions) -> None:
        setting = trace.setting
        self.setting, self.options = setting, options
        self.outcome = WorkloadOutcome(trace)
        self.reach = self.outcome.reach
        self.crossings = Crossings(setting, self.reach)
        self.differences = Differences(setting, options, self.outcome)
        self.laws = SchedulerLaws(setting, self.differences.law)
        self.memory = WorkloadMemory(setting, self.differences.law) if options.memory else None
        self.prediction = Predicted(setting, self.differences)
        if options.predict:
            self.differences.standstill = self.prediction.stands
        #: the first token of each later piece of a session's input, as a node, and whose it is
        self.pieces: dict[int, int] = {}
        self.flights: list[Planned] = []
        #: how many of them hold requests
        self.flying = 0
        self.judges = {
            SUBMIT: self._submitted,
            UPDATE: self._updated,
            ABORT: self._aborted,
            RESET: self._reset,
            PAUSE: self._paused,
            SCHEDULE: self._scheduled,
            OUTPUT: self._returned,
            SITUATION: self._situation,
            END: self._ended,
        }

    def take(self, note: Note) -> None:
        """Judge one note."""
        self.laws.index = self.differences.index = note.index
        if note.error is not None and note.method != SCHEDULE:
            self.differences.differ(self.differences.raised(note.error))
            raise Over
        self.prediction.follow(note.events)
        if self.setting.kv_connector:
            self.crossings.transfers(note.events)
        self.judges[note.method](note)

    # ------------------------------------------------------------------------------------ between two steps

    def _submitted(self, note: Note) -> None:
        operation, arrival, content = note.arguments
        self.reach["structured output"] += operation.grammar > 0
        self.reach["reads no cache"] += operation.skip
        self.laws.submitted(operation, arrival)
        self.prediction.scheduler.submit(operation, arrival, content)

    def _updated(self, note: Note) -> None:
        """A session gets input; where it waited and this is the end, it is gone."""
        operation, arrival, tokens = note.arguments
        known = self.laws.live[operation.request]
        self.outcome.updates[note.index] = operation
        if tokens is not None:
            self.outcome.said[note.index] = tokens
        self.reach["session updated"] += operation.prompt > 0
        if operation.items:
            self.reach["item in a later piece"] += 1
        self.laws.returned(note.events)
        if self.laws.updated(operation, arrival):
            self.laws.left(known.id)
            self._forget(known.id)
        if self.options.predict:
            self.prediction.updated(operation, arrival)
            self._go_on(note)

    def _paused(self, note: Note) -> None:
        [state] = note.arguments
        self.prediction.scheduler.paused = self.laws.paused = state

    def _aborted(self, note: Note) -> None:
        [name] = note.arguments
        self.reach["abort in flight"] += any(name in dict(one.tokens) for one in self.flights)
        self.laws.returned(note.events)
        self.laws.left(name)
        if self.options.predict:
            self.prediction.aborted(name)
        self._forget(name)

    def _reset(self, note: Note) -> None:
        running, connector = note.arguments
        before = [known.id for known in self.laws.running]
        others = self.laws.holders()
        self.laws.returned(note.events)
        self.laws.emptied(bool(note.answer), running and not others)
        self.reach["reset beside a connector"] += self.setting.kv_connector
        self.reach["reset in vain"] += not note.answer
        self.reach["reset with blocks kept back"] += bool(self.laws.parked)
        if running:
            self.reach["reset while running"] += bool(before)
            for name in before:
                self.laws.preempted(name)
                if self.memory is not None:
                    self.memory.preempted(name, drop=True)
        if self.options.predict:
            self.prediction.reset(running, connector, bool(note.answer))

    def _situation(self, note: Note) -> None:
        """State of the requests, with the laws of certainty."""
        self.laws.settled(note.answer, self.flying)
        self.reach["session without blocks x pause"] += bool(note.answer.running) and self.laws.rests_apart()
        if self.options.predict:
            self.prediction.situation(note.answer, *note.arguments)

    def _ended(self, note: Note) -> None:
        """A finite workload ends."""
        if note.arguments:
            names = ", ".join(map(str, note.arguments))
            text = f"requests {names} never finish"
            self.differences.law(Violation(note.index, -1, "drain", NEVER, text))
        else:
            self.laws.drained(note.answer)

    def _forget(self, name: int) -> None:
        self.prediction.rows.pop(name, None)
        if self.memory is not None:
            self.memory.finished(name)

    # ------------------------------------------------------------------------------------------------ steps

    def _scheduled(self, note: Note) -> None:
        flying = self.flying
        self.outcome.steps += 1
        if note.error is not None:
            self._blame(self.differences.raised(note.error))
            raise Over
        planned: Planned = note.answer
        self.laws.planned(planned, note.events, flying)
        if self.memory is not None:
            self.memory.planned(planned, note.events, note.index)
        self.crossings.step(planned, note.events, flying, bool(self.laws.kept))
        if self.laws.encoders is not None:
            self.crossings.items(planned, note.events, self.laws.live)
        if self.options.keep_entries:
            self._keep(note, planned)
        if self.laws.stuck:
            raise Over
        if self.options.predict:
            self.prediction.planned(planned)
            if self.pieces:
                self._hits_of_pieces(note.events)
        self.flights.append(planned)
        self.flying += bool(planned.tokens)

    def _blame(self, failed: Difference) -> None:
        """The scheduler raised. Where its manager had answered wrongly before, that is the difference."""
        self.differences.behind = True
        if self.options.predict:
            with contextlib.suppress(Over):
                self.prediction.plan()
        self.differences.behind = False
        if not self.differences.blamed:
            cause = self.prediction.cause
            self.differences.differ(evolve(failed, tags=(*failed.tags, cause)) if cause else failed)

    def _keep(self, note: Note, planned: Planned) -> None:
        total = sum(tokens for _, tokens in planned.tokens)
        self.outcome.entries.append(
            Entry(
                operation=note.index,
                planned=planned,
                events=tuple(note.events),
                left=self.setting.budget - total,
                rows_left=self.setting.max_num_batched_tokens - total - self.laws.charged * len(planned.tokens),
                free=self.laws.free,
            )
        )

    def _returned(self, note: Note) -> None:
        """The output of the oldest step in flight."""
        planned = self.flights.pop(0)
        self.flying -= bool(planned.tokens)
        returned, proposed, transfers = note.arguments
        delivered = note.answer
        if self.memory is not None:
            accepted = {name: len(tokens) - 1 for name, tokens in returned.items() if tokens}
            self.memory.settled(accepted, transfers.failed)
        self.laws.reported(transfers)
        if transfers.failed is not None:
            self.outcome.failed[note.index] = transfers.failed
        if transfers.loaded or transfers.failed:
            self.crossings.loaded(transfers, any(self.prediction.allocator.zeroed))
        self.crossings.output(planned, returned, delivered, self.laws.live)
        self.laws.delivered(delivered, returned, note.events)
        if self.options.keep_entries and self.outcome.entries:
            last = self.outcome.entries[-1]
            ended = [event.seen.rows for event in note.events if event.what == ENDED and event.seen is not None]
            self.outcome.entries[-1] = evolve(
                last, delivered=(*last.delivered, *delivered), handed=ended[-1] if ended else last.handed
            )
        if self.options.predict:
            self.prediction.returned(returned, STOP, proposed, transfers, delivered)
            self._go_on(note)
        for name, _, reason in delivered:
            if reason and name not in self.laws.live:
                self._forget(name)
            elif reason:
                self._answered(self.laws.live[name])

    def _go_on(self, note: Note) -> None:
        """With caching on: what sessions say from now on."""
        if not note.contents:
            return
        self.prediction.goes_on(note.contents)
        self.reach["session x caching"] += len(note.contents)
        self.pieces.update({content.path[content.kept + 1]: name for name, content in note.contents.items()})

    def _hits_of_pieces(self, events: list[Event]) -> None:
        """Hits that reach into a later piece of another session's input."""
        for event in events:
            if event.what == LOOK and event.tokens:
                content = self.prediction.scheduler.requests[event.request].content
                path = [] if content is None else content.path[1 : event.tokens + 1]
                owners = {self.pieces[node] for node in path if node in self.pieces}
                self.reach["session's piece hit"] += bool(owners - {event.request})
                self.reach["session's own piece hit"] += event.request in owners

    def _answered(self, known: Known) -> None:
        """A session has been answered and goes on, or waits."""
        flying = any(known.id in dict(one.tokens) for one in self.flights)
        self.reach["session goes on in flight"] += flying
        self.reach["session waits"] += known.waits
        self.reach["session beside a connector"] += self.setting.kv_connector
        self.reach["session goes on"] += not known.waits
        if known.items:
            self.reach["session with items"] += 1
        if self.memory is not None:
            self.memory.answered(known.id, known.kept)
