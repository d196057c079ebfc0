"""Why nobody runs: without which term of the rules somebody would.

Where the scheduler stands still the prediction does too, or it would have differed before. So it is asked what it would
do if one thing were otherwise. Two kinds of answer: somebody is passed over, because no number of tokens fits him, or
the first who asks for blocks is refused. Nothing is planned afterwards: what the last suppositions free stays free.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from attrs import evolve

from harness.workload_suspects import SESSIONS_HOLD, unsized
from oracle.allocator import Allocator
from oracle.call import GRANTED, Call, Observation
from oracle.scheduler import Scheduler
from oracle.scheduler_party import OracleScheduler
from oracle.scheduler_request import Request
from oracle.scheduler_setting import SchedulerSetting

#: why nobody runs where others hold blocks: sessions, requests whose load has ended; in releases that let them wait
LOADS_HOLD, WAITS_HOLDING = "loads hold blocks", "waits with blocks"

#: ... where a load leaves blocks free, for the drafts of nobody, for itself
RESERVE, RETRY = "reserve beside a load", "retry reserves for itself"
#: preemptions of one request after which it is thought to be preempted for ever
AGAIN_AND_AGAIN = 4


class _Asked(Exception):  # noqa: N818  # the end of a supposition, no error
    """Somebody asks for blocks."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call


@contextmanager
def _set(party: object, **values: object) -> Iterator[None]:
    """The party with other values."""
    before = {name: getattr(party, name) for name in values}
    for name, value in values.items():
        setattr(party, name, value)
    yield
    for name, value in before.items():
        setattr(party, name, value)


#: conflicts of terms by which somebody is given no tokens: without any one of them he would be
TRAPS = (
    ("place for no token", ("S56",)),
    ("padding beyond the room", ("S21",)),
    ("prompt beside draft slots", ("S1", "S9")),
    ("block beside draft slots", ("S1", "S41")),
    ("prompt beside draft slots", ("S1", "S9 and S41")),
    ("item beyond a part", ("S52",)),
    ("block border in the lookahead", ("S22", "S41")),
    ("largest part below the lookahead", ("S22",)),
    ("block beyond a chunk", ("S41",)),
)


def _without(term: str, scheduler: Scheduler, setting: SchedulerSetting) -> AbstractContextManager[None]:
    """The scheduler without a term of its rules."""
    match term:
        case "S1":  # draft slots take no room
            return _set(scheduler, charged=0)
        case "S9":  # a prompt may be split
            return _set(scheduler, chunked=True)
        case "S9 and S41":  # ... and that anywhere
            return _set(scheduler, chunked=True, chunks=evolve(scheduler.chunks, size=0))
        case "S21":  # one token stays one
            return _set(scheduler, pads_alone=False)
        case "S22":  # a part may leave any number of known tokens
            return _set(scheduler, ahead=0)
        case "S41":  # chunks end anywhere
            return _set(scheduler, chunks=evolve(scheduler.chunks, size=0))
        case "S52":  # parts may end inside an item
            return _set(scheduler.encoders, whole=False)
        case _:  # no position is kept where nothing is sampled
            return _set(scheduler, sampled=setting.sampled)


class Standstill:
    """What would move a prediction that stands."""

    def __init__(
        self, setting: SchedulerSetting, scheduler: Scheduler, allocator: Allocator, missed: dict[int, tuple[str, ...]]
    ) -> None:
        self.setting, self.scheduler, self.allocator = setting, scheduler, allocator
        self.names = OracleScheduler(setting, (scheduler, allocator)).names
        #: requests whose last lookup was too short, and why
        self.missed = missed
        scheduler.ask, scheduler.look = self._ask, self._look

    def causes(self, moves: bool) -> tuple[str, ...]:
        """The tags of what keeps everybody from running; none where nothing known does.

        moves: somebody runs and is preempted, again and again, but nobody finishes.
        """
        call = self._asks()
        for tag, terms in TRAPS:
            if all(self._other_asks(call, term) for term in terms):
                return (tag,)
        if call is None:
            return ()
        if self._granted(call):
            return self._holding(call) if moves else ()
        return self._reserved() or self._held(call) or self._unsized(call)

    def _holding(self, call: Call) -> tuple[str, ...]:
        """Who is preempted once and again runs beside others that wait with blocks."""
        scheduler = self.scheduler
        waiting = [one for one in self._holders(call) if one not in scheduler.running]
        if scheduler.requests[call.request].preemptions < AGAIN_AND_AGAIN:
            return ()
        return tuple(dict.fromkeys(self._hold(one.session) for one in waiting))

    def _hold(self, session: bool) -> str:
        loads = LOADS_HOLD if self.scheduler.choices.holders_first else WAITS_HOLDING
        return SESSIONS_HOLD if session else loads

    def _unsized(self, call: Call) -> tuple[str, ...]:
        """A pool of the start-up size lacks blocks for one request alone."""
        session, short = self.scheduler.requests[call.request].session, self.allocator.short
        if session and self.allocator.extend(call, gate=False).outcome == GRANTED:
            return (SESSIONS_HOLD,)  # the gate counts before what is dead of its row comes free
        return unsized(self.setting, short, session, bool(call.local))

    def _reserved(self) -> tuple[str, ...]:
        """S44: a load leaves blocks free, for the drafts of a step, or for loads that have failed as a whole."""
        drafts = self._without_drafts()
        for tag, values in ((RETRY, self._begun()), (RESERVE, drafts), (RETRY, {**drafts, **self._begun()})):
            if self._runs(**values):
                return (tag,)
        return ()

    def _begun(self) -> dict[str, dict[Request, None]]:
        """Values by which a load leaves nothing for those that have failed as a whole."""
        return {"prefilling": {one: None for one in self.scheduler.prefilling if one.comp}}

    def _without_drafts(self) -> dict[str, int]:
        """Values by which a load leaves nothing for the drafts of a step."""
        each = self.scheduler.choices.load_reserve == "each group"
        return {"spare": 0} if each else {"beyond": 0}

    def _held(self, call: Call) -> tuple[str, ...]:
        """Who waits holds the blocks that the first one lacks, and nobody takes them away."""
        tags: list[str] = []
        self._release([one for one in self._holders(call) if one in self.scheduler.running])  # as a preemption would
        if self._runs():
            return ()
        for session in (True, False):
            others = [one for one in self._holders(call) if one.session == session]
            self._release(others)
            tags += [self._hold(session)] if others else []
            if others and self._runs():
                return tuple(tags)
        for tag, values in ((RESERVE, self._without_drafts()), (RETRY, self._begun())):
            if self._runs(**values):
                return (*tags, tag)
        return ()

    def _release(self, others: list[Request]) -> None:
        for other in others:
            self.allocator.release(other.id, False)
            self.scheduler.prefilling.pop(other, None)

    def _holders(self, call: Call) -> list[Request]:
        """Who has blocks beside the one who asks."""
        requests, rows = self.scheduler.requests, self.allocator.rows
        return [requests[name] for name in rows if name != call.request and name in requests]

    # ----------------------------------------------------------------------------------------- suppositions

    def _ask(self, call: Call) -> Observation:
        raise _Asked(call)

    def _look(self, request: Request) -> tuple[int, int]:
        """What the release would find: as short for the same reason as before."""
        assert self.names is not None
        query = request.query()
        hit = self.names.lookup(query)
        if request.id in self.missed:
            hit = self.names.finder.find(query, suspects=self.missed[request.id])
            self.names.follow_hit(query, hit)
        return hit.tokens, hit.junction

    def _asks(self) -> Call | None:
        """The first ask of the next step, of which nothing is left."""
        scheduler = self.scheduler
        if self.names is not None:
            self.names.step_starts()
        queues = scheduler.running, scheduler.waiting, scheduler.holding
        kept = [queue[:] for queue in queues]
        try:
            scheduler.schedule()
        except _Asked as asked:
            return asked.call
        finally:
            for queue, before in zip(queues, kept, strict=True):
                queue[:] = before
        return None

    def _other_asks(self, call: Call | None, term: str) -> bool:
        """Whether another one, or anybody at all, asks without a term."""
        with _without(term, self.scheduler, self.setting):
            asked = self._asks()
        return asked is not None and (call is None or asked.request != call.request)

    def _runs(self, **values: object) -> bool:
        """Whether the first ask is granted with other values of the scheduler."""
        with _set(self.scheduler, **values):
            asked = self._asks()
        return asked is not None and self._granted(asked)

    def _granted(self, call: Call) -> bool:
        return self.allocator.extend(call).outcome == GRANTED
