"""The prediction beside a workload: each ask of the scheduler against the one that the oracle's scheduler makes.

The scheduler under test went first; what it did to its manager is kept as events. The oracle's scheduler plans the
same step; each of its asks must be the next event, and is answered by the oracle's allocator.
"""

from __future__ import annotations

from typing import NoReturn

from attrs import evolve, fields

from harness.cached_compare import cause_of_copy, show_hit
from harness.compare import observations
from harness.workload_outcome import Differences, Over
from harness.workload_standstill import Standstill
from harness.workload_suspects import BEYOND, PLACE, UNSHARDED, asleep_by, cut_by, reserved_by
from oracle.allocator import Allocator
from oracle.cached_allocator import CachingAllocator
from oracle.call import Call, Drained, Hit, Observation, Query, Rows
from oracle.content import Content
from oracle.scheduled import (
    ASK,
    CLEAR,
    ENDED,
    FREE,
    GIVE,
    LOADING,
    LOOK,
    MATCH,
    NAME,
    PLANNED_RULES,
    POP,
    START,
    TRIM,
    Event,
    Planned,
    Situation,
    State,
)
from oracle.scheduler import Scheduler
from oracle.scheduler_request import Request
from oracle.scheduler_setting import SchedulerSetting
from oracle.trace import ASPECTS, Difference
from oracle.workload import (
    Delivered,
    Transfers,
    Update,
)

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

#: what a situation says of the encoder's outputs
OUTPUTS = ("outputs", "unheld", "place")
#: which rule decides that something is done with the manager or the connector at all
_RULES = {POP: "S49", GIVE: "S49", TRIM: "S50", ENDED: "S50", MATCH: "S42", START: "S43", CLEAR: "P12"}


class Predicted:
    """The oracle's scheduler and allocator beside one workload."""

    def __init__(self, setting: SchedulerSetting, differences: Differences) -> None:
        self.setting, self.differences = setting, differences
        self.names = CachingAllocator(setting) if setting.enable_caching else None
        self.allocator = self.names or Allocator(setting)
        #: why the manager is known to have raised
        self.cause = ""
        blocks = self if setting.kv_connector else None
        self.scheduler = Scheduler(setting, self._ask, self._freed, self._looked, self._named, blocks=blocks)
        self.rows: dict[int, Rows] = {}
        #: requests whose last lookup was too short, and why
        self.missed: dict[int, tuple[str, ...]] = {}
        self.events: list[Event] = []
        self.cursor = 0

    def follow(self, events: list[Event]) -> None:
        """What the scheduler's last method did to its manager: the asks to come are held against it."""
        self.events, self.cursor = events, 0

    def planned(self, planned: Planned) -> None:
        """A step was planned: the prediction's must be the same, field by field."""
        expected = self.plan()
        self.exhausted()
        drained = self.allocator.new_step()
        expected.zeroed = self.scheduler.zero_list(drained.new[0])
        if isinstance(drained, Drained):
            expected.copies = drained.copies
        if expected == planned:
            return
        for attribute in fields(Planned):
            ours, theirs = getattr(expected, attribute.name), getattr(planned, attribute.name)
            if ours != theirs:
                self.other("output", PLANNED_RULES[attribute.name], attribute.name, str(ours), str(theirs))

    def plan(self) -> Planned:
        """What the oracle's scheduler plans next."""
        if self.names is not None:
            self.names.step_starts()
        return self.scheduler.schedule()

    def stands(self, moves: bool) -> tuple[str, ...]:
        """Why nobody runs, or `moves` but never finishes, as tags; nothing can be planned afterwards."""
        return Standstill(self.setting, self.scheduler, self.allocator, self.missed).causes(moves)

    def returned(
        self,
        returned: dict[int, list[int]],
        stop: int,
        proposed: dict[int, int] | None,
        transfers: Transfers,
        delivered: list[Delivered],
    ) -> None:
        """An output came back: the clients must get the same."""
        expected = self.scheduler.output(returned, stop, proposed, transfers)
        self.exhausted()
        if expected != delivered:
            self.other("delivered", "S12", "other", str(expected), str(delivered))

    def updated(self, operation: Update, arrival: int) -> None:
        """A session got input."""
        self.scheduler.update(operation, arrival)
        self.exhausted()

    def aborted(self, name: int) -> None:
        """A client went away."""
        self.scheduler.abort(name)
        self.exhausted()

    def reset(self, running: bool, connector: bool, done: bool) -> None:
        """The prefix cache was emptied, or not (`done`)."""
        empties = self.scheduler.reset_cache(running, connector, self.allocator.emptied)
        self.exhausted()
        if empties != done:
            self.other("ask", "P12", "reset", str(empties), str(done))

    def goes_on(self, contents: dict[int, Content]) -> None:
        """What sessions say from now on."""
        for name, content in contents.items():
            self.scheduler.requests[name].content = content

    def situation(self, seen: Situation, everything: bool) -> None:
        """State of the requests between steps."""
        expected = self.scheduler.situation(self.allocator.pool.free, everything)
        if expected != seen:
            name, ours, theirs = _first(expected, seen)
            moved = sorted(expected.holding) == sorted(seen.holding) and sorted(expected.waiting) == sorted(
                seen.waiting
            )
            tags = self._placed() if moved and name.endswith("list") else ()
            if name == "engine":  # nothing that is planned follows from it
                tags = asleep_by(self.scheduler) if expected.busy else ()
                self.differences.differ(self.differences.difference("state", "S11", name, ours, theirs, tags=tags))
                return
            rule = "S53" if name in OUTPUTS else "S11"
            self.other("state", rule, name, ours, theirs, tags)

    def other(
        self,
        aspect: str,
        rule: str,
        sign: str,
        expected: str,
        observed: str,
        tags: tuple[str, ...] = (),
        detail: str = "",
    ) -> NoReturn:
        """The scheduler went another way: the trace cannot go on."""
        difference = self.differences.difference(aspect, rule, sign, expected, observed, detail, tags)
        self.differences.differ(difference)
        raise Over

    def _cut(self, asked: Call | None) -> tuple[str, ...]:
        """The known trap that explains a part of another size."""
        return () if asked is None else cut_by(self.setting, self.scheduler, asked.request, asked.new)

    def _next(self, what: str, request: int, call: Call | None = None) -> Event:
        """The next thing that the scheduler did to its manager, which must be a `what`."""
        event = self.events[self.cursor] if self.cursor < len(self.events) else None
        if event is None or event.what != what:
            expected = f"request {request} {what}s" if call is None else _show(call)
            if event is None:
                tags = () if call is None else cut_by(self.setting, self.scheduler, request, 0)
                self.other("ask", "S2", "missing", expected, "nothing more", tags)
            observed = f"request {event.request} {event.what}s"
            if self._turn(what, request, call):
                if event.request != request and self._turn(event.what, event.request, event.call):
                    self.other("ask", "S8", "request other", expected, observed, self._placed())
                if event.call is not None and not event.call.waiting:  # he still runs
                    self.other("ask", "S2", "request other", expected, observed, self._cut(event.call))
            self.other("ask", _RULES.get(what, "S6"), "frees" if what == ASK else "asks", expected, observed)
        self.cursor += 1
        return event

    def _turn(self, what: str, name: int, call: Call | None) -> bool:
        """Whether it begins somebody's turn to be admitted: what a load has left goes, he is looked up, or he asks."""
        if what == ASK:
            return call is not None and call.waiting
        request = self.scheduler.requests.get(name)
        return what == LOOK or (what in (FREE, NAME) and request is not None and request.status == LOADING)

    def _ask(self, call: Call) -> Observation:
        """The prediction asks: the scheduler must have asked the same, and the manager answered as the allocator."""
        event = self._next(ASK, call.request, call)
        same = call == event.call  # attrs answers `!=` more slowly
        if not same:
            self._other_ask(call, event.call)
        owed = self.names is not None and self.names.owes_a_copy(call.request)
        seen = self.allocator.extend(call)
        same = seen == event.seen
        if not same and event.seen is not None:
            if self.differences.behind and self._beyond(call):
                self.cause = BEYOND
                raise Over
            before = self.rows.get(call.request, self.allocator.nothing)
            difference = observations(seen, event.seen, ASPECTS, self.allocator, self.differences.index, call, before)
            if difference is not None:
                if owed and self.names is not None:
                    difference = evolve(difference, tags=cause_of_copy(seen, event.seen, self.names))
                self.differences.differ(difference)
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
                why = str(self.scheduler.reason(call)) if attribute.name == "new" else ""
                tags = self._cut(asked)
                if attribute.name == "request":
                    tags += self._placed()
                if attribute.name == "reserved_blocks":
                    tags = reserved_by(self.scheduler, self.allocator, ours - theirs)
                self.other("ask", rule, f"{attribute.name} {sign}", _show(call), shown, tags, why)

    def _beyond(self, call: Call) -> bool:
        """P3: a checkpoint of the call lies behind the tokens that are known, among drafts."""
        progress = () if self.names is None else self.names.progress.get(call.request, ())
        return any(one.checkpoint is not None and one.checkpoint[0] > call.tokens for one in progress)

    def _placed(self) -> tuple[str, ...]:
        """S26: a session that goes on has a later arrival, but keeps its place in a queue that is a heap."""
        return (PLACE,) if self.scheduler.passed else ()

    def _looked(self, request: Request) -> tuple[int, int]:
        """The prediction looks a request up: the hit must be as long, and the junction the same."""
        event = self._next(LOOK, request.id)
        assert self.names is not None
        query = request.query()
        hit = self._known_miss(query, self.names.lookup(query), event)
        if (event.request, event.tokens) != (request.id, hit.tokens):
            sign = "other request" if event.request != request.id else "more" if event.tokens > hit.tokens else "less"
            ours, theirs = f"request {request.id} hits {hit.tokens}", f"request {event.request} hits {event.tokens}"
            self.other("ask", "S38", f"hit {sign}", ours, theirs, self._placed() if sign == "other request" else ())
        if event.junction != hit.junction:
            self.other("ask", "P27", "junction", f"junction {hit.junction}", f"junction {event.junction}")
        return hit.tokens, hit.junction

    def _known_miss(self, query: Query, hit: Hit, event: Event) -> Hit:
        """The hit of the release where it looks short for a known reason; it is a difference, if declared."""
        names = self.names
        assert names is not None
        self.missed.pop(query.request, None)
        if event.request != query.request or (event.tokens, event.junction) == (hit.tokens, hit.junction):
            return hit
        for suspects in names.finder.suspects:
            found = names.finder.find(query, suspects=suspects)
            as_long = found.tokens == hit.tokens  # then the junction alone must tell
            if found.tokens == event.tokens and (not as_long or found.junction == event.junction):
                found = evolve(found, junction=event.junction)  # follows from the hit
                kinds = "+".join(sorted({group.kind for group in names.setting.groups}))
                more = (found.tokens, found.junction) > (hit.tokens, hit.junction)
                self.differences.differ(
                    Difference(
                        aspect="hits",
                        step=self.differences.index,
                        group=None,
                        kind=kinds,
                        rule="P27" if as_long else "P22",
                        sign="more" if more else "less",
                        expected=show_hit(hit),
                        observed=show_hit(found),
                        tags=suspects,
                    )
                )
                names.follow_hit(query, found)
                self.missed[query.request] = suspects
                return found
        return hit

    def _named(self, request: Request, call: Call, tokens: int) -> None:
        """The prediction publishes what is computed for sure."""
        event = self._next(NAME, request.id)
        if (event.request, event.tokens) != (request.id, tokens):
            ours, theirs = (
                f"request {request.id} publishes {tokens}",
                f"request {event.request} publishes {event.tokens}",
            )
            self.other("ask", "S40", "publishes other", ours, theirs)
        assert self.names is not None
        self.names.publish(call, tokens)

    def _freed(self, name: int) -> None:
        """The prediction returns a request's blocks."""
        event = self._next(FREE, name)
        if event.request != name:
            self.other("ask", "S6", "other request", f"request {name}", f"request {event.request}")
        seen = self.allocator.release(name, False)
        self.rows.pop(name, None)
        if seen.free != event.free:
            self.other("ask", "A2", "free", f"{seen.free} free", f"{event.free} free")

    # ------------------------------------------------------------------------------------- with a connector

    def _same(self, what: str, request: int, tokens: int, expected: str) -> Event:
        """The next event must be this one."""
        event = self._next(what, request)
        if (event.request, event.tokens) != (request, tokens):
            shown = f"{what} of request {event.request}, {event.tokens}"
            self.other("ask", _RULES[what], f"{what} other", expected, shown)
        return event

    def _returned(self, event: Event, seen: Observation) -> None:
        if seen.free != event.free:
            self.other("ask", _RULES[event.what], "free", f"{seen.free} free", f"{event.free} free")

    def pop(self, request: int) -> bool:
        """S49: the blocks are taken from the request and kept back; whether there were any."""
        event = self._same(POP, request, 0, f"the blocks of request {request} are kept back")
        self._returned(event, self.allocator.release(request, True))
        self.rows.pop(request, None)
        if self.allocator.popped[-1]:
            return True
        self.allocator.popped.pop()
        return False

    def give_back(self) -> None:
        """S49: the oldest of those kept back return."""
        self._returned(self._same(GIVE, -1, 0, "blocks kept back return"), self.allocator.give_back())

    def trim(self, request: int, processed: int, prompt: int) -> None:
        """Dead columns return before the row is handed over."""
        event = self._same(TRIM, request, processed, f"request {request} drops what is dead at {processed}")
        seen = self.allocator.trim(request, processed, prompt)
        if event.seen is not None and seen.free != event.free:
            found = observations(seen, event.seen, ASPECTS, self.allocator, self.differences.index, None, None)
            if found is not None:
                self.differences.differ(found)
                raise Over
        self._returned(event, seen)

    def remaining(self, call: Call, more: int) -> int:
        """S44: what a request still needs to hold what is known and `more`."""
        return self.allocator.remaining(call, more)

    def matched(self, request: int, external: int | None) -> None:
        """S42: the connector was asked."""
        tokens = -1 if external is None else external
        self._same(MATCH, request, tokens, f"the connector matches {tokens} of request {request}")

    def cleared(self) -> None:
        """P12: the connector was told to forget what it has."""
        self._same(CLEAR, -1, 0, "the connector forgets")

    def started(self, request: int, external: int) -> None:
        """The connector was told of the blocks."""
        self._same(START, request, external, f"the connector loads {external} of request {request}")

    def ended(self, request: int, computed: int, kept: bool) -> None:
        """S50, S51: the connector was handed the blocks of what is computed."""
        event = self._same(ENDED, request, int(kept), f"request {request} has ended{', kept' if kept else ''}")
        rows = self.allocator.handed_over(request, computed)
        if event.seen is None or event.seen.rows == rows:
            return
        if self.setting.dcp_size > 1 and event.seen.rows == self.allocator.handed_over(request, computed, ranks=1):
            shown = str(rows), str(event.seen.rows)
            found = self.differences.difference("ask", "S51", "hands over other", *shown, tags=(UNSHARDED,))
            self.differences.differ(found)  # the release keeps nothing of it: the trace goes on
            return
        self.other("ask", "S51", "hands over other", str(rows), str(event.seen.rows))

    # ------------------------------------------------------------------------------------------------------

    def exhausted(self) -> None:
        """The scheduler has done nothing with its manager that the prediction has not."""
        if self.cursor < len(self.events):
            event = self.events[self.cursor]
            shown = f"request {event.request} {event.what}s" + ("" if event.call is None else f": {_show(event.call)}")
            rule = "S6" if event.what == "free" else "S8" if event.call and event.call.waiting else "S2"
            self.other("ask", rule, f"one more {event.what}", "nothing more", shown, self._cut(event.call))


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
    for name in OUTPUTS:
        ours, theirs = getattr(expected, name), getattr(seen, name)
        if ours != theirs:
            return name, str(ours), str(theirs)
    if expected.busy != seen.busy:
        ours, theirs = ("goes on" if one.busy else "sleeps" for one in (expected, seen))
        return "engine", ours, theirs
    return "free", f"{expected.free} free", f"{seen.free} free"


def _show(call: Call) -> str:
    """An ask in a line."""
    flags = [word for word in ("full_sequence_must_fit", "has_scheduled_reqs") if getattr(call, word)]
    more = f", external {call.external}" if call.external else ""
    more += f", leaves {call.reserved_blocks} free" if call.reserved_blocks else ""
    return (
        f"request {call.request} asks for {call.new} behind {call.computed} of {call.tokens}, lookahead "
        f"{call.lookahead}{more}{''.join(', ' + flag for flag in flags)}"
    )
