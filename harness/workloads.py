"""One workload beside the three oracles: laws on every step, the memory on what the worker is sent, the prediction.

The scheduler under test goes first. What it asked of its manager is then checked against the prediction's asks, one
by one, and answered by the oracle's allocator: the first ask that differs is the difference, not what follows from it.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from attrs import define, evolve, field, fields, frozen

from harness.compare import observations
from harness.workload_memory import WorkloadMemory
from harness.workload_suspects import alone_by, stuck_by
from oracle.allocator import Allocator
from oracle.cached_allocator import CachingAllocator
from oracle.content import Content, Prefixes
from oracle.errors import SlotcheckError
from oracle.memory import Violation
from oracle.scheduler import Request, Scheduler
from oracle.scheduler_laws import ALONE, SchedulerLaws
from oracle.trace import ASPECTS, GRANTED, Call, Difference, Observation, Query, Rows
from oracle.workload import (
    ASK,
    FREE,
    LOOK,
    NAME,
    PLANNED_RULES,
    SCHEDULER_ASPECTS,
    UNPAUSED,
    Abort,
    Delivered,
    Event,
    Pause,
    Planned,
    Reset,
    SchedulerDifference,
    SchedulerOperation,
    SchedulerSetting,
    SchedulerTarget,
    SchedulerTrace,
    Situation,
    State,
    Step,
    Submit,
    check_workload,
)

#: a token that stops a request; what is sampled otherwise counts from FIRST_TOKEN
STOP, FIRST_TOKEN, TOKENS = 120, 2, 100
#: how often the state of the requests is looked at, and that of the waiting ones too (operations): the asks of the next
#: step show most of it
STATES_EVERY, EVERYTHING_EVERY = 3, 9
#: which rule decides a part of an ask
ASK_RULES = {
    "request": "S2",
    "new": "S3",
    "lookahead": "S5",
    "external": "S46",
    "encoder": "S10",
    "full_sequence_must_fit": "S10",
    "reserved_blocks": "S44",
    "has_scheduled_reqs": "S10",
    "computed": "S11",
    "in_flight": "S11",
    "tokens": "S12",
}

MakeScheduler = Callable[[SchedulerSetting], SchedulerTarget]


@define
class WorkloadOptions:
    """What is checked. predict, memory: whether these two oracles run; the laws always do."""

    aspects: frozenset[str] = frozenset(SCHEDULER_ASPECTS)
    declared: Callable[[Difference], bool] = lambda difference: False
    keep_entries: bool = False
    predict: bool = True
    memory: bool = True


@frozen(kw_only=True)
class Entry:
    """One planned step, for the table of `explain`."""

    operation: int
    planned: Planned
    events: tuple[Event, ...]
    left: int
    """Tokens of the step's budget that are left."""
    rows_left: int
    free: int
    delivered: tuple[Delivered, ...] = ()


@define
class WorkloadOutcome:
    """What came of a workload. differences: those that are not declared, the first of each fingerprint."""

    trace: SchedulerTrace
    differences: list[Difference] = field(factory=list)
    declared: list[Difference] = field(factory=list)
    entries: list[Entry] = field(factory=list)
    reach: Counter[str] = field(factory=Counter)
    shown: dict[str, int] = field(factory=dict)
    """Steps planned when each difference was seen."""
    steps: int = 0


class Over(Exception):  # noqa: N818  # the end of a trace, no error
    """The trace cannot go on: the scheduler raised, or went another way than the prediction."""


def run_workload(trace: SchedulerTrace, make: MakeScheduler, options: WorkloadOptions | None = None) -> WorkloadOutcome:
    """Run a workload, then plain steps until everything has finished."""
    run = Run(trace.setting, make, options or WorkloadOptions(), trace)
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
        self.laws = SchedulerLaws(setting, self._law)
        caching = setting.enable_caching
        self.memory = WorkloadMemory(setting, self._law) if options.memory and not caching else None
        self.names = CachingAllocator(setting) if caching else None
        self.allocator = self.names or Allocator(setting)
        self.prediction = Scheduler(setting, self._ask, self._freed, self._looked, self._named)
        self.prefixes = Prefixes() if caching else None
        self.contents: dict[int, Content] = {}
        self.rows: dict[int, Rows] = {}
        self.flights: list[Planned] = []
        self.sampling: list[dict[int, bool]] = []
        self.events: list[Event] = []
        self.cursor = 0
        self.index = -1
        self.arrivals = 0
        self.serial = 0
        self.over = False
        self.behind = self.blamed = False
        self.seen: set[str] = set()
        self.submitted: set[int] = set()

    # ------------------------------------------------------------------------------------------ operations

    def apply(self, operation: SchedulerOperation) -> bool:
        """One operation; False when the trace is over."""
        self.index += 1
        self.laws.index = self.index
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
            self.prediction.paused = self.laws.paused = operation.state

    def drain(self) -> None:
        """Whoever is there finishes: a finite workload ends."""
        if self.laws.live and self.laws.paused != UNPAUSED:
            self.apply(Pause())
        left = 64 + 4 * sum(known.prompt + known.limit for known in self.laws.live.values())
        step = Step()
        while (self.laws.live or self.flights) and left:
            left -= 1
            if not self.apply(step):
                return
        if self.laws.live:
            names = ", ".join(map(str, self.laws.live))
            self._law(Violation(self.index, -1, "drain", "never ends", f"requests {names} never finish"))

    def _submit(self, operation: Submit) -> None:
        if operation.request in self.submitted:
            return
        self.submitted.add(operation.request)
        self.arrivals += 1
        content = None
        if self.prefixes is not None:
            content = self.contents[operation.request] = self.prefixes.begin(operation.forks)
            self.prefixes.grow(content, operation.prompt)
        self._call("submit", operation, self.arrivals, content)
        self.laws.submitted(operation, self.arrivals)
        self.prediction.submit(operation, self.arrivals, content)

    def _abort(self, name: int) -> None:
        self._call("abort", name)
        self.events, self.cursor = self.target.events, 0
        self.outcome.reach["abort in flight"] += any(name in dict(one.tokens) for one in self.flights)
        self.laws.returned(self.events)
        self.laws.left(name)
        if self.options.predict:
            self.prediction.abort(name)
            self._exhausted()
        self._forget(name)
        self._situation()

    def _reset(self, operation: Reset) -> None:
        before = [known.id for known in self.laws.running]
        done = self._call("reset", operation.running)
        self.events, self.cursor = self.target.events, 0
        self.laws.returned(self.events)
        if operation.running:
            self.outcome.reach["reset while running"] += bool(before)
            for name in before:
                self.laws.preempted(name)
                if self.memory is not None:
                    self.memory.preempted(name, drop=True)
        if self.options.predict:
            self.prediction.reset(operation.running)
            self._exhausted()
            if self.names is not None and self.names.reset().outcome != str(done):
                self._differ(self._difference("ask", "P12", "reset", f"not {done}", str(done)))
                raise Over
        self._situation()

    # ------------------------------------------------------------------------------------------------ steps

    def _step(self, operation: Step) -> None:
        planned = self._plan()
        self.flights.append(planned)
        self.sampling.append(self.target.samples())
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
            failed = self._raised(error)
        self.events, self.cursor = self.target.events, 0
        self.outcome.steps += 1
        if failed is None:
            self._judge(planned, flying)
        if failed is not None:
            self._blame(failed)
            raise Over
        if self.options.predict:
            self._predict(planned)
        return planned

    def _blame(self, failed: Difference) -> None:
        """The scheduler raised. Where its manager had answered wrongly before, that is the difference."""
        self.behind = True
        if self.options.predict:
            with contextlib.suppress(Over):
                self.prediction.schedule()
        self.behind = False
        if not self.blamed:
            self._differ(failed)

    def _judge(self, planned: Planned, flying: int) -> None:
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
        if self.laws.stuck:
            raise Over

    def _predict(self, planned: Planned) -> None:
        expected = self.prediction.schedule()
        self._exhausted()
        expected.zeroed = self.allocator.new_step().new[0]
        if expected != planned:
            self._unequal(expected, planned)

    def _unequal(self, expected: Planned, planned: Planned) -> None:
        for attribute in fields(Planned):
            ours, theirs = getattr(expected, attribute.name), getattr(planned, attribute.name)
            if ours != theirs:
                self._differ(
                    self._difference("output", PLANNED_RULES[attribute.name], attribute.name, str(ours), str(theirs))
                )
                raise Over

    def _output(self, operation: Step) -> None:
        """The oldest step in flight comes back."""
        planned, samples = self.flights.pop(0), self.sampling.pop(0)
        accepted, stops, drafts = dict(operation.accepted), dict(operation.stops), dict(planned.drafts)
        returned: dict[int, list[int]] = {}
        for name, _ in planned.tokens:
            if samples.get(name):
                count = 1 + min(accepted.get(name, 0), drafts.get(name, 0))
                made = [FIRST_TOKEN + (self.serial + place) % TOKENS for place in range(count)]
                self.serial += count
                if self.prefixes is not None and name in self.laws.live:
                    known = self.laws.live[name]
                    content, there = self.contents[name], known.prompt + known.out
                    self.prefixes.grow(content, there + count)
                    made = content.tokens[there : there + count]
                elif name in stops:
                    made[min(stops[name], count - 1)] = STOP
                returned[name] = made
        proposed = None
        if self.depth == 1 and self.laws.drafts and planned.tokens and not planned.skip_drafts:
            wanted = dict(operation.drafts)
            most = planned.proposals
            proposed = {name: min(wanted.get(name, most), most) for name, _ in planned.tokens}
        delivered: list[Delivered] = self._call("output", {n: list(t) for n, t in returned.items()}, proposed)
        self.events, self.cursor = self.target.events, 0
        if self.memory is not None:
            self.memory.settled({name: len(tokens) - 1 for name, tokens in returned.items()})
        count_output(self.outcome.reach, planned, returned, delivered, self.laws.live)
        self.laws.delivered(delivered, returned, self.events)
        if self.options.keep_entries and self.outcome.entries:
            last = self.outcome.entries[-1]
            self.outcome.entries[-1] = evolve(last, delivered=(*last.delivered, *delivered))
        if self.options.predict:
            expected = self.prediction.output(returned, STOP, proposed)
            self._exhausted()
            if expected != delivered:
                self._differ(self._difference("delivered", "S12", "other", str(expected), str(delivered)))
                raise Over
        for name, _, reason in delivered:
            if reason:
                self._forget(name)

    def _forget(self, name: int) -> None:
        self.rows.pop(name, None)
        if self.memory is not None:
            self.memory.finished(name)

    # -------------------------------------------------------------------------------------- the prediction

    def _next(self, what: str, expected: str) -> Event:
        if self.cursor >= len(self.events):
            self._differ(self._difference("ask", "S2", "missing", expected, "nothing more"))
            raise Over
        event = self.events[self.cursor]
        self.cursor += 1
        if event.what != what:
            sign = "frees" if what == ASK else "asks"
            rule = "S6"
            self._differ(self._difference("ask", rule, sign, expected, f"request {event.request} {event.what}s"))
            raise Over
        return event

    def _ask(self, call: Call) -> Observation:
        """The prediction asks: the scheduler must have asked the same, and the manager answered as the allocator."""
        event = self._next(ASK, _show(call))
        if event.call != call:
            self._other_ask(call, event.call)
        seen = self.allocator.extend(call)
        if seen != event.seen and event.seen is not None:
            before = self.rows.get(call.request, self.allocator.nothing)
            difference = observations(seen, event.seen, ASPECTS, self.allocator, self.index, call, before)
            if difference is not None:
                self._differ(difference)
                raise Over
        self.rows[call.request] = seen.rows
        return seen

    def _other_ask(self, call: Call, asked: Call | None) -> None:
        for attribute in fields(Call):
            ours, theirs = getattr(call, attribute.name), getattr(asked, attribute.name)
            if ours != theirs:
                rule = ASK_RULES.get(attribute.name, "S10")
                if call.waiting:
                    rule = {"S3": "S9", "S5": "S10", "S2": "S8"}.get(rule, rule)
                sign = "other"
                if isinstance(ours, int) and attribute.name != "request":
                    sign = "more" if theirs > ours else "less"
                shown = "nothing" if asked is None else _show(asked)
                self._differ(self._difference("ask", rule, f"{attribute.name} {sign}", _show(call), shown))
                raise Over

    def _looked(self, request: Request) -> int:
        """The prediction looks a request up: the hit must be as long."""
        event = self._next(LOOK, f"request {request.id} is looked up")
        assert self.names is not None
        assert request.content is not None
        hit = self.names.lookup(Query(request.id, request.content, request.n, request.n - 1))
        if (event.request, event.tokens) != (request.id, hit.tokens):
            sign = "other request" if event.request != request.id else "more" if event.tokens > hit.tokens else "less"
            ours, theirs = f"request {request.id} hits {hit.tokens}", f"request {event.request} hits {event.tokens}"
            self._differ(self._difference("ask", "S38", f"hit {sign}", ours, theirs))
            raise Over
        self.outcome.reach["hit"] += hit.tokens > 0
        return hit.tokens

    def _named(self, request: Request, call: Call, tokens: int) -> None:
        """The prediction publishes what is computed for sure."""
        event = self._next(NAME, f"request {request.id} publishes {tokens} tokens")
        if (event.request, event.tokens) != (request.id, tokens):
            ours, theirs = (
                f"request {request.id} publishes {tokens}",
                f"request {event.request} publishes {event.tokens}",
            )
            self._differ(self._difference("ask", "S40", "publishes other", ours, theirs))
            raise Over
        assert self.names is not None
        self.names.publish(call, tokens)

    def _freed(self, name: int) -> None:
        """The prediction returns a request's blocks."""
        event = self._next("free", f"request {name} gives its blocks back")
        if event.request != name:
            self._differ(self._difference("ask", "S6", "other request", f"request {name}", f"request {event.request}"))
            raise Over
        seen = self.allocator.release(name, False)
        self.rows.pop(name, None)
        if seen.free != event.free:
            self._differ(self._difference("ask", "A2", "free", f"{seen.free} free", f"{event.free} free"))
            raise Over

    def _exhausted(self) -> None:
        """The scheduler has done nothing with its manager that the prediction has not."""
        if self.cursor < len(self.events):
            event = self.events[self.cursor]
            shown = f"request {event.request} {event.what}s" + ("" if event.call is None else f": {_show(event.call)}")
            rule = "S6" if event.what == "free" else "S8" if event.call and event.call.waiting else "S2"
            self._differ(self._difference("ask", rule, f"one more {event.what}", "nothing more", shown))
            raise Over

    def _situation(self) -> None:
        """State of every request that runs, now and then of all; with the laws of certainty."""
        everything = self.index % EVERYTHING_EVERY == 0 or self.options.keep_entries
        if self.index % STATES_EVERY and not everything:
            return
        seen = self.target.situation(everything)
        self.laws.settled(seen, sum([1 for one in self.flights if one.tokens]))
        if not self.options.predict:
            return
        expected = self.prediction.situation(self.allocator.pool.free, everything)
        if expected != seen:
            name, ours, theirs = _first(expected, seen)
            self._differ(self._difference("state", "S11", name, ours, theirs))
            raise Over

    # -------------------------------------------------------------------------------------------- differences

    def _call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401  # what the method gives
        try:
            return getattr(self.target, method)(*arguments)
        except SlotcheckError:
            raise
        except Exception as error:
            self._differ(self._raised(error))
            raise Over from None

    def _raised(self, error: Exception) -> Difference:
        frames = traceback.extract_tb(error.__traceback__)
        frame = frames[-1]
        places = [f"{_inside(one.filename)}:{one.lineno} in {one.name}: {one.line}" for one in frames[-3:]]
        return self._difference(
            "error",
            "raised",
            f"error:{type(error).__name__}",
            "no error",
            f"{type(error).__name__}: {error}".splitlines()[0],
            detail="\n".join(places),
            tags=(frame.name, frame.line or ""),
        )

    def _difference(
        self, aspect: str, rule: str, sign: str, expected: str, observed: str, detail: str = "",
        tags: tuple[str, ...] = (),
    ) -> SchedulerDifference:  # fmt: skip
        return SchedulerDifference(
            aspect=aspect,
            step=self.index,
            group=None,
            kind="scheduler",
            rule=rule,
            sign=sign,
            expected=expected,
            observed=observed,
            detail=detail,
            tags=tags,
        )

    def _law(self, violation: Violation) -> None:
        cause = ""
        if violation.law in ("progress", "drain"):
            cause = (alone_by if violation.what == ALONE else stuck_by)(self.setting)
        tags = (cause,) if cause else ()
        kind = "scheduler" if violation.group < 0 else self.setting.groups[violation.group].kind
        self._differ(
            evolve(
                self._difference("law", violation.law, violation.what, "the law holds", violation.text, tags=tags),
                kind=kind,
                group=None if violation.group < 0 else violation.group,
            )
        )

    def _differ(self, difference: Difference) -> None:
        if difference.level == "scheduler" and (self.behind or difference.aspect not in self.options.aspects):
            return
        self.blamed = True
        if difference.fingerprint in self.seen:
            return
        self.seen.add(difference.fingerprint)
        found = self.outcome.declared if self.options.declared(difference) else self.outcome.differences
        found.append(difference)
        self.outcome.shown.setdefault(difference.fingerprint, self.outcome.steps)


def _inside(path: str) -> str:
    """A source file by its place inside its package."""
    _, found, rest = path.rpartition("/site-packages/")
    return rest if found else path.rpartition("/")[2]


def _first(expected: Situation, seen: Situation) -> tuple[str, str, str]:
    """The first part of a situation that differs, with both sides."""
    for name in ("running", "waiting", "holding"):
        ours, theirs = getattr(expected, name), getattr(seen, name)
        if ours != theirs:
            return f"{name} list", str(ours), str(theirs)
    for mine, other in zip(expected.states, seen.states, strict=True):
        if mine != other:
            names = [one.name for one in fields(State)]
            return next(n for n in names if getattr(mine, n) != getattr(other, n)), str(mine), str(other)
    return "free", f"{expected.free} free", f"{seen.free} free"


def _show(call: Call) -> str:
    """An ask in a line."""
    flags = [word for word in ("full_sequence_must_fit", "has_scheduled_reqs") if getattr(call, word)]
    more = f", external {call.external}" if call.external else ""
    return (
        f"request {call.request} asks for {call.new} behind {call.computed} of {call.tokens}, lookahead "
        f"{call.lookahead}{more}{''.join(', ' + flag for flag in flags)}"
    )


def count_step(
    reach: Counter[str], setting: SchedulerSetting, planned: Planned, events: list[Event], flying: int
) -> None:
    """Count the crossings of one planned step."""
    asks = [event for event in events if event.what == ASK]
    frees = sum([event.what == FREE for event in events])
    speculates = setting.num_speculative_tokens > 0
    if frees:
        reach["preemption"] += frees
        reach["speculation x preemption"] += frees * speculates
        reach["speculation x preemption x caching"] += frees * speculates * setting.enable_caching
        reach["overlap x preemption"] += frees * (setting.in_flight_depth > 1)
        if len(setting.groups) > 1:
            reach["speculation x hybrid x preemption"] += frees * speculates
        reach["preempted in flight"] += frees * (flying > 0)
        if setting.policy == "priority":
            reach["priority x preemption"] += frees
            names = {event.request for event in asks if event.seen and event.seen.outcome == GRANTED}
            reach["refund"] += sum(1 for event in events if event.what == FREE and event.request in names)
    for event in asks:
        if event.seen and event.seen.outcome != GRANTED:
            reach["refused at admission" if event.call and event.call.waiting else "refused while running"] += 1
        elif event.call and event.call.preempted:
            reach["resumed"] += 1
            reach["resumed with output"] += event.call.tokens > event.call.prompt
    if not planned.tokens:
        reach["empty step"] += 1
        return
    total = sum(tokens for _, tokens in planned.tokens)
    reach["full step"] += total == setting.budget
    reach["draft table"] += setting.draft_counts is not None
    reach["drafts verified"] += len(planned.drafts)
    newcomers = {name for name, *_ in planned.new}
    reach["padded newcomer"] += any(name in newcomers for name, _ in planned.drafts)
    reach["mixed batch"] += bool(planned.new and len(planned.tokens) > len(planned.new))
    reach["drafts skipped"] += planned.skip_drafts


def count_output(
    reach: Counter[str],
    planned: Planned,
    returned: dict[int, list[int]],
    delivered: list[Delivered],
    live: dict[int, Any],
) -> None:
    """Count the crossings of one output."""
    drafts = dict(planned.drafts)
    for name, tokens in returned.items():
        if name in drafts:
            accepted = len(tokens) - 1
            reach["draft rejected"] += accepted < drafts[name]
            reach["draft accepted"] += accepted > 0
            reach["all drafts accepted"] += accepted == drafts[name]
    for name, kept, reason in delivered:
        if reason:
            reach[f"finished by {reason}"] += 1
            reach["ended inside drafts"] += len(kept) < len(returned.get(name, ()))
    reach["chunk"] += len(planned.tokens) - len(returned)
