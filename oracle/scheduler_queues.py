"""The queues of the oracle's scheduler, and what changes them between two steps (scheduling spec).

Requests arrive, are aborted (S14) or preempted by a reset (S7); the output of the oldest step comes back (S12, S19,
S31, S33).
"""

from __future__ import annotations

from collections.abc import Callable

from oracle.call import Call, Observation
from oracle.content import Content
from oracle.scheduled import COMPILING, ERROR, LENGTH, LOADING, PREEMPTED, RUNNING, STOPPED, Situation
from oracle.scheduler_encoders import EncoderOutputs
from oracle.scheduler_request import InFlight, Request
from oracle.scheduler_setting import PRIORITY, SchedulerSetting
from oracle.workload import PAUSED_ALL, PAUSED_NEW, UNPAUSED, Delivered, Submit

Ask = Callable[[Call], Observation]
Free = Callable[[int], None]
Look = Callable[[Request], tuple[int, int]]
Publish = Callable[[Request, Call, int], None]


class Queues:
    """Who runs and who waits. `ask` answers an `allocate_slots`, `free` is told who returns blocks.

    With caching on: `look` finds a hit and a junction (tokens), `name` publishes what is computed for sure.
    """

    def __init__(self, setting: SchedulerSetting, ask: Ask, free: Free, look: Look, name: Publish) -> None:
        facts = setting.facts
        self.ask, self.free, self.look, self.name = ask, free, look, name
        self.caching = setting.enable_caching
        self.limit = setting.max_model_len
        self.drafts, self.lookahead = facts.drafts, facts.lookahead
        self.by_priority = setting.policy == PRIORITY
        self.must_fit = setting.scheduler_reserve_full_isl
        self.overlap, self.choices = setting.in_flight_depth > 1, setting.choices
        self.sampled = max(setting.sampled, int(self.choices.pooled_keeps_place))
        self.requests: dict[int, Request] = {}
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        #: those that wait with blocks: loads under way or ended, not yet admitted; in old releases whoever is set aside
        self.holding: list[Request] = []
        self.deferred: set[Request] = set()
        self.flights: list[InFlight] = []
        self.preempted: list[int] = []
        self.finished: list[int] = []
        self.paused = UNPAUSED
        self.sessions = False
        self.encoders = EncoderOutputs(setting)
        #: a release that drops as many outputs as there are placeholders drops no pooler's
        self.drops = self.choices.resets_drafts or not setting.pooling

    def _give(self, request: Request) -> None:
        """Its blocks come back."""
        self.free(request.id)

    def _preempt(self, request: Request, drop: bool = False) -> None:
        """S7, S33: blocks back, nothing computed, in front of the queue; what is in flight has become stale."""
        self._give(request)
        self.encoders.let_go(request)
        request.drop = drop or (request.drop and request.stale > 0)
        if not self.choices.tells_stale:
            request.left = 0 if drop else request.ph
        request.status, request.comp, request.spec, request.ph = PREEMPTED, 0, 0, 0
        request.stale = request.fl
        request.preemptions += 1
        self.preempted.append(request.id)
        self._enqueue(request, front=True)

    def _enqueue(self, request: Request, front: bool = False) -> None:
        self.waiting.insert(0 if front else len(self.waiting), request)
        self._order(self.waiting)

    def _order(self, queue: list[Request]) -> None:
        """S26."""
        if self.by_priority and len(queue) > 1:
            queue.sort(key=lambda one: (*one.urgency, str(one.id)))

    def _holds(self, request: Request) -> bool:
        """Whether a request that is set aside goes to the other queue: it has blocks; in old releases everybody."""
        return bool(request.comp) or request.status == LOADING or not self.choices.holders_first

    def _next_queue(self) -> list[Request]:
        """Who is looked at next (S8): who holds blocks first; in old releases who was set aside, in their turn."""
        if self.choices.holders_first:
            return self.holding or (self.waiting if self.paused == UNPAUSED else [])
        if self.by_priority and self.holding and self.waiting:
            return min(self.waiting, self.holding, key=lambda queue: (*queue[0].urgency, str(queue[0].id)))
        return self.holding or self.waiting

    def _call(self, request: Request, comp: int, new: int, admission: bool, local: int = 0) -> Call:
        """S5 and S10: what is asked. The full lookahead always, at admission and for a chunk that is not the last."""
        return Call(
            request.id,
            comp,
            request.fl,
            request.prompt,
            request.n,
            admission,
            request.status == PREEMPTED,
            new,
            self.lookahead,
            0,
            request.encoder if admission and comp == 0 else 0,
            admission and self.must_fit,
            0,
            bool(self.running) if admission else True,
            (),
            local,
            request.junction,
            request.content,
        )

    # ------------------------------------------------------------------------------------ what comes back

    def back(
        self, returned: dict[int, list[int]], stop: int, skipped: int | None = None, refused: tuple[int, ...] = ()
    ) -> list[Delivered]:
        """S12, S19, S31, S33: the oldest step's tokens; `stop` ends a request. skipped: whose tokens are dropped.

        S56. A pooled request ends with its first output, which has no tokens: where nothing is sampled, no position is
        kept for it (S3), and no placeholder stands for it (S30).
        """
        flight = self.flights.pop(0)
        delivered: list[Delivered] = []
        ended: list[Request] = []
        going_on: list[Request] = []
        for name, new in flight.tokens:
            request = self.requests.get(name)
            if request is None:
                continue
            request.fl -= new
            stale = request.stale > 0
            if stale:
                request.stale -= new
                if request.drop and self.drops:
                    continue
            if name == skipped:
                continue
            tokens = returned.get(name, [])
            rejected = flight.drafts[name] - (len(tokens) - 1) if tokens and flight.drafts.get(name) else 0
            if request.items:
                self.encoders.let_go(request, _sure(request, 0 if stale else rejected))
            if not tokens:
                if name in returned:  # S56
                    delivered.append((name, (), STOPPED))
                    ended.append(request)
                    self._end(request)
                continue
            names = self.caching and not stale and request.status == RUNNING and self._names(request)
            kept, reason = self._append(request, tokens, stop)
            if stale:
                request.left = max(0, request.left - rejected - len(tokens))
            else:
                self._settle(request, rejected, len(tokens), len(kept))
            if names:
                sure = request.comp - (request.fl if self.choices.named_after_drafts else request.ph)
                self.name(request, self._call(request, request.comp, 0, False), sure)
            if name in refused and request.grammar:
                reason = ERROR
            delivered.append((name, tuple(kept), reason))
            if reason and self._goes_on(request, reason):
                going_on.append(request)
            elif reason:
                ended.append(request)
                self._end(request)
        self._leave([*ended, *going_on])
        for request in going_on:
            self._park(request)
        return delivered

    def _names(self, request: Request) -> bool:
        """S40: whether an output of the request gives names."""
        return request.ph > 0 or self.drafts > 0 if self.choices.named_after_drafts else self.overlap

    def _settle(self, request: Request, rejected: int, returned: int, kept: int) -> None:
        """S12, S19, S31: rejected drafts are not computed; nor are tokens cut at a stop, which are no placeholders."""
        cut = returned - kept if self.choices.stop_takes_back else 0
        request.comp -= rejected + cut
        if request.ph > 0:
            request.ph -= rejected + kept + cut

    def propose(self, proposed: dict[int, int], valid: dict[int, int]) -> None:
        """S20: the drafts of the next step, without overlap; of a request with a grammar those that it allows."""
        for name, count in proposed.items():
            request = self.requests.get(name)
            if request is not None:
                allowed = valid.get(name, count) if request.grammar else count
                request.spec = 0 if request.chunk else min(count, allowed)

    def _append(self, request: Request, tokens: list[int], stop: int) -> tuple[list[int], str]:
        """One by one: a stop token, then the length; what follows is cut."""
        for index, token in enumerate(tokens):
            request.out += 1
            if token == stop:
                return tokens[: index + 1], STOPPED
            if request.n >= self.limit or request.out >= request.limit:
                return tokens[: index + 1], LENGTH
        return tokens, ""

    def _end(self, request: Request) -> None:
        raise NotImplementedError

    def _goes_on(self, request: Request, reason: str) -> bool:
        raise NotImplementedError

    def _park(self, request: Request) -> None:
        raise NotImplementedError

    def _leave(self, ended: list[Request]) -> None:
        if ended:
            self.running = [request for request in self.running if request not in ended]
            self.waiting = [request for request in self.waiting if request not in ended]
            self.holding = [request for request in self.holding if request not in ended]
            self.deferred.difference_update(ended)

    # ---------------------------------------------------------------------------------------- from outside

    def submit(self, operation: Submit, arrival: int, content: Content | None = None) -> None:
        """A request arrives."""
        request = Request(operation.request, operation.prompt, operation.max_tokens, operation.priority, arrival)
        request.content, request.encoder, request.grammar = content, operation.encoder, operation.grammar
        request.items, request.skip = operation.items, operation.skip
        request.counts_left = not self.choices.tells_stale
        if request.grammar:
            request.status = COMPILING
            self.deferred.add(request)
        self.requests[request.id] = request
        if request.grammar and not self.choices.holders_first:
            self.holding.append(request)
            self._order(self.holding)
        else:
            self._enqueue(request)

    def abort(self, name: int) -> None:
        """S14: it leaves at once, whatever is in flight."""
        request = self.requests[name]
        self._end(request)
        self._leave([request])

    def reset(self, running: bool) -> None:
        """Everything that runs is preempted, the last first; outputs in flight are dropped."""
        while running and self.running:
            self._preempt(self.running.pop(), drop=True)

    def situation(self, free: int, everything: bool) -> Situation:
        """The state as a real scheduler shows it."""
        states = [request.state() for request in self.running]
        if everything:
            states += [request.state() for request in (*self.waiting, *self.holding)]
        running, waiting, holding = ([r.id for r in queue] for queue in (self.running, self.waiting, self.holding))
        return Situation(running, waiting, holding, states, free, self.busy(), *self.encoders.shown())

    def busy(self) -> bool:
        """Whether the engine has a step to plan: somebody may move, or the worker is to be told who has ended."""
        able = 0 if self.paused == PAUSED_ALL else len(self.running)
        if self.paused == UNPAUSED:
            able += len(self.waiting)
        if self.paused == UNPAUSED or (self.paused == PAUSED_NEW and self.choices.pause_spares_holders):
            able += len(self.holding)
        return able > self.resting() or bool(self.finished)

    def resting(self) -> int:
        """How many of those that may move wait for the client."""
        raise NotImplementedError


def _sure(request: Request, rejected: int) -> int:
    """Tokens that are computed whatever comes back: no drafts that were rejected, nothing in flight."""
    return request.comp - (request.ph or rejected)
