"""One workload beside the three oracles: laws on every step, the memory on what the worker is sent, the prediction.

The scheduler under test goes first. What it asked of its manager is then checked against the prediction's asks, one
by one, and answered by the oracle's allocator: the first ask that differs is the difference, not what follows from it.
"""

from __future__ import annotations

import contextlib
from typing import Any

from attrs import evolve

from harness.workload_asks import Predicted
from harness.workload_loads import Load, UnderWay
from harness.workload_memory import WorkloadMemory
from harness.workload_outcome import Differences, Entry, MakeScheduler, Over, WorkloadOptions, WorkloadOutcome
from harness.workload_reach import count_failure, count_output, count_step, count_transfers
from oracle.content import Content, Prefixes
from oracle.errors import SlotcheckError
from oracle.memory import Violation
from oracle.scheduler_laws import Known, SchedulerLaws
from oracle.trace import Difference
from oracle.workload import (
    STOP,
    UNPAUSED,
    Abort,
    Delivered,
    Event,
    Pause,
    Planned,
    Reset,
    SchedulerOperation,
    SchedulerSetting,
    SchedulerTrace,
    Step,
    Submit,
    check_workload,
)

#: what is sampled counts from FIRST_TOKEN, but for STOP
FIRST_TOKEN, TOKENS = 2, 100
#: how often the state of the requests is looked at, and that of the waiting ones too (operations): the asks of the next
#: step show most of it
STATES_EVERY, EVERYTHING_EVERY = 3, 9


def run_workload(
    trace: SchedulerTrace,
    make: MakeScheduler,
    options: WorkloadOptions | None = None,
    contents: dict[int, Content] | None = None,
) -> WorkloadOutcome:
    """Run a workload, then plain steps until everything has finished. contents: what its requests say, if known."""
    run = Run(trace.setting, make, options or WorkloadOptions(), trace)
    run.contents.update(contents or {})
    return finish(run, trace)


def finish(run: Run, trace: SchedulerTrace) -> WorkloadOutcome:
    """The operations of a workload, and its drain."""
    for operation in trace.operations:
        check_workload(trace.setting, operation)
        if not run.apply(operation):
            return run.outcome
    run.drain()
    return run.outcome


class Run:
    """One workload under way."""

    def __init__(
        self, setting: SchedulerSetting, make: MakeScheduler, options: WorkloadOptions, trace: SchedulerTrace
    ) -> None:
        self.setting, self.options = setting, options
        self.outcome = WorkloadOutcome(trace)
        self.target = make(setting)
        self.depth = setting.in_flight_depth
        self.differences = Differences(setting, options, self.outcome)
        self.laws = self.watch()
        caching = setting.enable_caching
        self.memory = WorkloadMemory(setting, self.differences.law) if options.memory else None
        self.prediction = Predicted(setting, self.differences)
        self.prefixes = Prefixes() if caching else None
        self.contents: dict[int, Content] = self.outcome.contents
        self.begun: dict[int, Known] = {}
        self.flights: list[Planned] = []
        self.sampling: list[dict[int, bool]] = []
        self.events: list[Event] = []
        self.index = -1
        self.arrivals = 0
        self.serial = 0
        self.over = False
        self.submitted: set[int] = set()
        self.grammars: set[int] = set()
        self.transfers = UnderWay(setting)
        self.joined: list[dict[int, Load]] = []

    def watch(self) -> SchedulerLaws:
        """The laws, which also know who is there."""
        return SchedulerLaws(self.setting, self.differences.law)

    # ------------------------------------------------------------------------------------------ operations

    def apply(self, operation: SchedulerOperation) -> bool:
        """One operation; False when the trace is over."""
        self.index += 1
        self.laws.index = self.differences.index = self.index
        if self.over:
            return False
        try:
            self._apply(operation)
        except Over:
            self.over = True
        return not self.over

    def _apply(self, operation: SchedulerOperation) -> None:
        if isinstance(operation, Step):
            self._step(operation)
        elif isinstance(operation, Submit):
            self._submit(operation)
        elif isinstance(operation, Abort):
            if operation.request in self.laws.live:
                self._abort(operation.request)
        elif isinstance(operation, Reset):
            self._reset(operation)
        elif isinstance(operation, Pause):
            self._call("pause", operation.state)
            self.prediction.scheduler.paused = self.laws.paused = operation.state

    def drain(self) -> None:
        """Whoever is there finishes: a finite workload ends."""
        if self.laws.live and self.laws.paused != UNPAUSED:
            self.apply(Pause())
        left = 64 + 4 * sum(known.prompt + known.limit for known in self.laws.live.values())
        transfers = self.transfers
        while (self.laws.live or self.flights or transfers.loading or transfers.sending) and left:
            left -= 1
            if not self.apply(transfers.rest()):
                return
        if self.laws.live:
            names = ", ".join(map(str, self.laws.live))
            self.differences.law(Violation(self.index, -1, "drain", "never ends", f"requests {names} never finish"))
        else:
            self.laws.drained(self.target.situation(False).free)

    def _submit(self, operation: Submit) -> None:
        if operation.request in self.submitted:
            return
        self.submitted.add(operation.request)
        if operation.grammar:
            self.grammars.add(operation.request)
            self.outcome.reach["structured output"] += 1
        self.arrivals += 1
        content = None
        if self.prefixes is not None:
            content = self.contents.setdefault(operation.request, self.prefixes.begin(operation.forks))
            self.prefixes.grow(content, operation.prompt)
        self._call("submit", operation, self.arrivals, content)
        self.laws.submitted(operation, self.arrivals)
        self.begun[operation.request] = self.laws.live[operation.request]
        self.prediction.scheduler.submit(operation, self.arrivals, content)

    def _abort(self, name: int) -> None:
        self._call("abort", name)
        self._follow()
        self.outcome.reach["abort in flight"] += any(name in dict(one.tokens) for one in self.flights)
        self.laws.returned(self.events)
        self.laws.left(name)
        if self.options.predict:
            self.prediction.aborted(name)
        self._forget(name)
        self._situation()

    def _reset(self, operation: Reset) -> None:
        if operation.running and self.setting.kv_connector:
            return  # the release refuses it while anybody else holds blocks
        before = [known.id for known in self.laws.running]
        done = self._call("reset", operation.running)
        self._follow()
        self.laws.returned(self.events)
        if operation.running:
            self.outcome.reach["reset while running"] += bool(before)
            for name in before:
                self.laws.preempted(name)
                if self.memory is not None:
                    self.memory.preempted(name, drop=True)
        if self.options.predict:
            self.prediction.reset(operation.running, bool(done))
        self._situation()

    # ------------------------------------------------------------------------------------------------ steps

    def _step(self, operation: Step) -> None:
        planned = self._plan()
        self.flights.append(planned)
        self.sampling.append(self.target.samples())
        self.joined.append(self.transfers.joined)
        while len(self.flights) >= (1 if operation.early or not self.laws.live else self.depth):
            self._output(operation)
        self._situation()

    def _plan(self) -> Planned:
        flying = sum(1 for one in self.flights if one.tokens)
        failed: Difference | None = None
        planned = Planned([], [], [], [], [], [], [], (), 0, False)
        try:
            planned = self.target.schedule()
        except SlotcheckError:
            raise
        except Exception as error:
            failed = self.differences.raised(error)
        self._follow()
        self.outcome.steps += 1
        if failed is None:
            self.judge(planned, flying)
            if self.laws.stuck:
                raise Over
        if failed is not None:
            self._blame(failed)
            raise Over
        if self.options.predict:
            self.prediction.planned(planned)
        return planned

    def _blame(self, failed: Difference) -> None:
        """The scheduler raised. Where its manager had answered wrongly before, that is the difference."""
        self.differences.behind = True
        if self.options.predict:
            with contextlib.suppress(Over):
                self.prediction.plan()
        self.differences.behind = False
        if not self.differences.blamed:
            self.differences.differ(failed)

    def judge(self, planned: Planned, flying: int) -> None:
        """Laws and memory on a planned step, reach, and its entry in the table."""
        self.laws.planned(planned, self.events, flying)
        if self.memory is not None:
            self.memory.planned(planned, self.events, self.index)
        count_step(self.outcome.reach, self.setting, planned, self.events, flying)
        if self.options.keep_entries:
            total = sum(tokens for _, tokens in planned.tokens)
            charged = self.laws.charged * len(planned.tokens)
            self.outcome.entries.append(
                Entry(
                    operation=self.index,
                    planned=planned,
                    events=tuple(self.events),
                    left=self.setting.budget - total,
                    rows_left=self.setting.max_num_batched_tokens - total - charged,
                    free=self.laws.free,
                )
            )

    def _output(self, operation: Step) -> None:
        """The oldest step in flight comes back."""
        planned, samples = self.flights.pop(0), self.sampling.pop(0)
        accepted, stops, drafts = dict(operation.accepted), dict(operation.stops), dict(planned.drafts)
        valid, most = dict(operation.valid), self.setting.num_speculative_tokens
        returned: dict[int, list[int]] = {}
        for name, _ in planned.tokens:
            if samples.get(name):
                allowed = valid.get(name, most) if name in self.grammars else most
                count = 1 + min(accepted.get(name, 0), drafts.get(name, 0), allowed)
                made = [FIRST_TOKEN + (self.serial + place) % TOKENS for place in range(count)]
                self.serial += count
                stop = min(stops[name], count - 1) if name in stops else -1
                if self.prefixes is not None:
                    made = self._sampled(name, count, stop)
                elif stop >= 0:
                    made[stop] = STOP
                returned[name] = made
        proposed = None
        if self.depth == 1 and self.laws.drafts and planned.tokens and not planned.skip_drafts:
            wanted = dict(operation.drafts)
            most = planned.proposals
            proposed = {name: min(wanted.get(name, most), most) for name, _ in planned.tokens}
        transfers = self.transfers.reported(operation, self.joined.pop(0))
        delivered: list[Delivered] = self._call(
            "output", {n: list(t) for n, t in returned.items()}, proposed, transfers
        )
        self._follow()
        if self.memory is not None:
            self.memory.settled({name: len(tokens) - 1 for name, tokens in returned.items()}, transfers.failed)
        self.laws.reported(transfers)
        count_failure(self.outcome.reach, transfers.failed)
        count_output(self.outcome.reach, planned, returned, delivered, self.laws.live)
        self.laws.delivered(delivered, returned, self.events)
        if self.options.keep_entries and self.outcome.entries:
            last = self.outcome.entries[-1]
            self.outcome.entries[-1] = evolve(last, delivered=(*last.delivered, *delivered))
        if self.options.predict:
            self.prediction.returned(returned, STOP, proposed, transfers, delivered)
        for name, _, reason in delivered:
            if reason:
                self._forget(name)

    def _sampled(self, name: int, count: int, stop: int) -> list[int]:
        """With caching on what is sampled follows from the content; `stop`: place of a stop token, -1: none."""
        assert self.prefixes is not None
        known, content = self.begun[name], self.contents[name]
        there = known.prompt + known.out
        if stop >= 0:
            self.prefixes.put(content, there + stop, STOP)
        # nothing of a request that has stopped is delivered, but what is in flight goes on from all it sampled
        gone = name not in self.laws.live
        most = self.depth * (1 + self.setting.num_speculative_tokens)
        self.prefixes.grow(content, there + (most if gone else count))
        return content.tokens[there : there + count]

    def _follow(self) -> None:
        self.events = self.target.events
        self.prediction.follow(self.events)
        self.transfers.follow(self.events)
        if self.setting.kv_connector:
            count_transfers(self.outcome.reach, self.events)

    def _forget(self, name: int) -> None:
        self.prediction.rows.pop(name, None)
        if self.memory is not None:
            self.memory.finished(name)

    def _situation(self) -> None:
        """State of every request that runs, now and then of all; with the laws of certainty."""
        everything = self.index % EVERYTHING_EVERY == 0 or self.options.keep_entries
        if self.index % STATES_EVERY and not everything:
            return
        seen = self.target.situation(everything)
        self.laws.settled(seen, sum([1 for one in self.flights if one.tokens]))
        if self.options.predict:
            self.prediction.situation(seen, everything)

    def _call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401  # what the method gives
        try:
            return getattr(self.target, method)(*arguments)
        except SlotcheckError:
            raise
        except Exception as error:
            self.differences.differ(self.differences.raised(error))
            raise Over from None
