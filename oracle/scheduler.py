"""The oracle's own scheduler: who gets how many tokens in a step, and what it asks of the manager (scheduling spec).

For plain settings: first come first served and priority, chunked prefill on or off, drafts or none, overlapping steps
or not. One class, one step: the running requests first (S2 to S7), then admission (S8 to S10, S21, S22), then the
output (S11); `output` is what comes back (S12, S19, S31, S33). The manager's answers come through `ask`, its order of
blocks is the allocator's affair. All counts in tokens unless said.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from oracle.chunks import Chunks
from oracle.content import Content
from oracle.methods import draft_counts
from oracle.trace import GRANTED, Call, Observation, Rows
from oracle.workload import (
    LENGTH,
    PAUSED_ALL,
    PREEMPTED,
    PRIORITY,
    RUNNING,
    STOPPED,
    UNPAUSED,
    WAITING,
    Delivered,
    Planned,
    SchedulerSetting,
    Situation,
    State,
    Submit,
)

Ask = Callable[[Call], Observation]


@define(eq=False, slots=True)
class Request:
    """What the scheduler knows of one request; names as in section 1 of the spec."""

    id: int
    prompt: int
    limit: int
    """mx: most output tokens."""
    priority: int
    arrival: int
    out: int = 0
    comp: int = 0
    spec: int = 0
    ph: int = 0
    fl: int = 0
    stale: int = 0
    drop: bool = False
    """Stale outputs are dropped instead of delivered: the request was made to run again at once (a reset)."""
    chunk: bool = False
    status: str = WAITING
    preemptions: int = 0
    content: Content | None = None

    @property
    def n(self) -> int:
        """Known tokens."""
        return self.prompt + self.out

    @property
    def urgency(self) -> tuple[int, int]:
        """Smaller goes first under priority; the largest is the victim (S26, S27)."""
        return (self.priority, self.arrival)


@define(slots=True)
class InFlight:
    """A step whose output is not back."""

    tokens: list[tuple[int, int]]
    drafts: dict[int, int]
    skipped: bool


class Scheduler:
    """Predicts every step of a plain setting. `ask` answers an `allocate_slots`, `free` is told who returns blocks.

    With caching on: `look` finds a hit (tokens), `name` publishes what is computed for sure.
    """

    def __init__(
        self,
        setting: SchedulerSetting,
        ask: Ask,
        free: Callable[[int], None],
        look: Callable[[Request], int] = lambda request: 0,
        name: Callable[[Request, Call, int], None] = lambda request, call, tokens: None,
    ) -> None:
        facts = setting.facts
        self.ask, self.free, self.look, self.name = ask, free, look, name
        self.caching = setting.enable_caching
        self.limit = setting.max_model_len
        self.budget, self.rows = setting.budget, setting.max_num_batched_tokens
        self.active = facts.active or setting.max_num_seqs
        self.drafts, self.lookahead, self.charged = facts.drafts, facts.lookahead, facts.charged
        self.ahead = facts.prefill_lookahead
        ranges = setting.draft_counts
        self.table = None if ranges is None else draft_counts(ranges, self.drafts, setting.max_num_seqs)
        self.second_runner = facts.runner == "V2"
        self.can_skip = self.lookahead > 0 and self.second_runner
        self.overlap = setting.in_flight_depth > 1
        self.by_priority = setting.policy == PRIORITY
        self.chunked = setting.enable_chunked_prefill
        self.threshold = setting.long_prefill_token_threshold
        self.adaptive = setting.long_prefill_token_threshold_adaptive
        self.interval = setting.prefill_schedule_interval
        self.must_fit = setting.scheduler_reserve_full_isl
        most = min(self.budget, self.threshold) if self.threshold else self.budget
        drop, size = facts.block_drop and not facts.hash_lookahead, setting.align_size
        self.chunks = Chunks(size, most, drop, facts.hash_lookahead)
        self.requests: dict[int, Request] = {}
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.deferred: set[Request] = set()
        self.flights: list[InFlight] = []
        self.preempted: list[int] = []
        self.finished: list[int] = []
        self.paused = UNPAUSED
        self.executed, self.last_prefill, self.bound = 0, -self.interval, False

    # ------------------------------------------------------------------------------------------- one step

    def schedule(self) -> Planned:
        """One step: S1 to S11, S15, S30. What it returns is still to be given its zero list."""
        step = _Step(self)
        held = self._held()
        threshold = self._threshold()
        self._running_pass(step, held, threshold)
        if not step.victims and self.paused != PAUSED_ALL:
            self._admission_pass(step, held, threshold)
        if step.tokens:
            self.executed += 1
        if self.interval > 1 and (step.chunk_ran or step.prefill_admitted):
            self.last_prefill = self.executed
        planned = step.planned()
        self._advance(step)
        self.preempted, self.finished = [], []
        return planned

    def _threshold(self) -> int:
        """S4: most tokens of one request in a step; 0: no cap, nobody would starve."""
        number = len(self.running) + len(self.waiting)
        if not self.threshold or number < 2:
            return 0
        return max(self.threshold, self.rows // number) if self.adaptive else self.threshold

    def _held(self) -> bool:
        """S15: prefills wait while decodes run, for an interval of steps."""
        return (
            self.interval > 1
            and not self.bound
            and self.executed + 1 - self.last_prefill < self.interval
            and any(not request.chunk for request in self.running)
        )

    def _running_pass(self, step: _Step, held: bool, threshold: int) -> None:
        """S2 to S7. Under priority a victim may stand before the request that asks (S27 to S29)."""
        index = 0
        while index < len(self.running) and step.open():
            request = self.running[index]
            new = 0 if self._needless(request) or (held and request.chunk) else self._wanted(request, step, threshold)
            if new <= 0:
                index += 1
                continue
            call = self._call(request, request.comp, new, False)
            granted = self.ask(call)
            while granted.outcome != GRANTED:
                victim = self._victim()
                place = self.running.index(victim)
                del self.running[place]
                index -= place < index
                step.take_back(victim)
                self._preempt(victim)
                step.victims.append(victim)
                if victim is request:
                    break
                granted = self.ask(call)
            if granted.outcome != GRANTED:
                if self.by_priority:
                    continue  # S29: those behind are more urgent, and blocks have come free
                return
            step.add(request, request.comp, new, granted.new)
            index += 1

    def _needless(self, request: Request) -> bool:
        """S32: even if all drafts are rejected, the output in flight reaches the limit."""
        return request.ph > 0 and request.comp - request.ph + 2 >= request.prompt + request.limit

    def _wanted(self, request: Request, step: _Step, threshold: int) -> int:
        """S3: everything known, drafts and placeholders included; capped by S4, the room and the last position."""
        new = request.n + request.spec + request.ph - request.comp
        if 0 < threshold < new:
            new = threshold
        new = min(new, step.room(), self.limit - 1 - request.comp)
        new = self._chunk(request, request.comp, new)
        return self._clear_of_the_end(request, request.comp, new)

    def _chunk(self, request: Request, comp: int, new: int) -> int:
        """S41: tokens of the chunk that begins at `comp` and may take `new`; 0: none ends where a state may be kept."""
        return self.chunks.end(comp, comp + new, request.prompt, request.n) - comp

    def _clear_of_the_end(self, request: Request, comp: int, new: int) -> int:
        """S22: a chunk leaves nothing, or enough known tokens for the drafter's modules to read."""
        rest = request.n - comp - new
        return max(0, new - (self.ahead - rest)) if 0 < rest < self.ahead else new

    def _victim(self) -> Request:
        """S6, S27: who came last; the least urgent."""
        return max(self.running, key=lambda request: request.urgency) if self.by_priority else self.running[-1]

    def _preempt(self, request: Request, drop: bool = False) -> None:
        """S7, S33: blocks back, nothing computed, in front of the queue; what is in flight has become stale."""
        self.free(request.id)
        request.drop = drop or (request.drop and request.stale > 0)
        request.status, request.comp, request.spec, request.ph = PREEMPTED, 0, 0, 0
        request.stale = request.fl
        request.preemptions += 1
        self.preempted.append(request.id)
        self._enqueue(request, front=True)

    def _enqueue(self, request: Request, front: bool = False) -> None:
        self.waiting.insert(0 if front else len(self.waiting), request)
        if self.by_priority:
            self.waiting.sort(key=lambda one: (*one.urgency, str(one.id)))

    def _admission_pass(self, step: _Step, held: bool, threshold: int) -> None:
        """S8 to S10: a candidate is set aside and the scan goes on, is refused and the pass ends, or is admitted."""
        aside: list[Request] = []
        while step.open() and self.waiting and self.paused == UNPAUSED and len(self.running) < self.active:
            request = self.waiting[0]
            comp, new, padded = 0, 0, False
            if request.stale == 0 or request.drop:  # S34: a position must not be sampled twice
                comp = self.look(request) if self.caching else 0  # S37
                if held and comp < request.n - 1:
                    break
                new, padded = self._size(request, comp, step, threshold)
                if new < 0:
                    break
            if new == 0:
                self.deferred.add(request)
                aside.append(self.waiting.pop(0))
                continue
            seen = self.ask(self._call(request, comp, new, True, comp))
            if seen.outcome != GRANTED:
                break
            del self.waiting[0]
            self.deferred.discard(request)
            self.running.append(request)
            request.comp = comp
            step.admit(request, new, seen.rows, new - 1 if padded else 0)
            request.status = RUNNING
        self.waiting[:0] = aside
        if not held:
            self.bound = len(self.waiting) > len(self.deferred)

    def _size(self, request: Request, comp: int, step: _Step, threshold: int) -> tuple[int, bool]:
        """S9, S21: tokens of an admitted part, and whether it is padded with placeholder drafts; -1: the pass ends."""
        room, new, padded = step.room(), request.n - comp, False
        pads = (
            self.drafts > 0
            and self.table is None
            and new == 1
            and not step.chunk_ran
            and (bool(step.cached) or comp > 0)
        )
        if pads and comp + 1 + self.drafts + 1 <= self.limit:
            new, padded = 1 + self.drafts, True
            if new > room:
                return -1, False
        if 0 < threshold < new:
            new = threshold
        if not self.chunked and new > room:
            return -1, False
        new = min(new, room)
        if self.chunks.size:
            new = self._chunk(request, comp, new)
            if new == 0:
                return -1, False
            if padded and new != 1 + self.drafts:
                new, padded = 1, False
        return self._clear_of_the_end(request, comp, new), padded

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
            0,
            admission and self.must_fit,
            0,
            bool(self.running) if admission else True,
            (),
            local,
            0,
            request.content,
        )

    def proposals(self, scheduled: int) -> int:
        """S24: drafts of the next step, by the number of requests in this one where there is a table."""
        return self.drafts if self.table is None or not scheduled else self.table[scheduled - 1]

    def _advance(self, step: _Step) -> None:
        """S11, S30: optimistic; corrected when the output is back."""
        proposals = self.proposals(len(step.tokens))
        for request, new in step.tokens.items():
            request.comp += new
            request.fl += new
            request.chunk = request.comp < request.n + request.ph
            if self.overlap and not request.chunk:
                request.ph += 1 + step.drafts.get(request, 0)
                request.spec = proposals
        tokens = [(request.id, new) for request, new in step.tokens.items()]
        drafts = {request.id: count for request, count in step.drafts.items()}
        self.flights.append(InFlight(tokens, drafts, step.skip_drafts()))

    # ------------------------------------------------------------------------------------ what comes back

    def output(self, returned: dict[int, list[int]], stop: int, proposed: dict[int, int] | None) -> list[Delivered]:
        """S12, S19, S31, S33: the oldest step's tokens; `stop` ends a request. Then the next step's drafts (S20)."""
        flight = self.flights.pop(0)
        delivered: list[Delivered] = []
        ended: list[Request] = []
        for name, new in flight.tokens:
            request = self.requests.get(name)
            if request is None:
                continue
            request.fl -= new
            stale = request.stale > 0
            if stale:
                request.stale -= new
                if request.drop:
                    continue
            tokens = returned.get(name, [])
            if not tokens:
                continue
            rejected = flight.drafts.get(name, 0) - (len(tokens) - 1) if flight.drafts.get(name) else 0
            names = self.caching and not stale and request.status == RUNNING and (request.ph > 0 or self.drafts > 0)
            kept, reason = self._append(request, tokens, stop)
            if not stale:
                request.comp -= rejected + len(tokens) - len(kept)
                if request.ph > 0:
                    request.ph -= rejected + len(tokens)
            if names:  # S40
                self.name(request, self._call(request, request.comp, 0, False), request.comp - request.fl)
            delivered.append((name, tuple(kept), reason))
            if reason:
                ended.append(request)
                self._end(request)
        self._leave(ended)
        for name, count in (proposed or {}).items():
            request = self.requests.get(name)
            if request is not None:
                request.spec = 0 if request.chunk else count
        return delivered

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
        self.free(request.id)
        del self.requests[request.id]
        self.finished.append(request.id)

    def _leave(self, ended: list[Request]) -> None:
        if ended:
            self.running = [request for request in self.running if request not in ended]
            self.waiting = [request for request in self.waiting if request not in ended]
            self.deferred.difference_update(ended)

    # ---------------------------------------------------------------------------------------- from outside

    def submit(self, operation: Submit, arrival: int, content: Content | None = None) -> None:
        """A request arrives."""
        request = Request(operation.request, operation.prompt, operation.max_tokens, operation.priority, arrival)
        request.content = content
        self.requests[request.id] = request
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
        states = [_state(request) for request in self.running]
        if everything:
            states += map(_state, self.waiting)
        return Situation([one.id for one in self.running], [one.id for one in self.waiting], [], states, free)


def _state(request: Request) -> State:
    return State(
        request.id,
        request.status,
        request.comp,
        request.n,
        request.ph,
        request.fl,
        request.stale,
        request.spec,
        request.preemptions,
        request.chunk,
    )


class _Step:
    """A step being put together: the two budgets (S1), who is in it, what the worker will be told."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        paused = scheduler.paused == PAUSED_ALL
        self.g, self.i, self.charged = 0 if paused else scheduler.budget, scheduler.rows, scheduler.charged
        self.tokens: dict[Request, int] = {}
        self.drafts: dict[Request, int] = {}
        self.cached: dict[Request, Rows] = {}
        self.new: list[tuple[Request, Rows]] = []
        self.resumed: list[tuple[Request, Rows]] = []
        self.victims: list[Request] = []
        self.needed = not scheduler.can_skip
        self.chunk_ran = self.prefill_admitted = False

    def open(self) -> bool:
        """Whether anybody can still be considered."""
        return self.g > 0 and self.i > self.charged

    def room(self) -> int:
        """Most tokens of the next request."""
        return min(self.g, self.i - self.charged)

    def _take(self, request: Request, comp: int, new: int) -> None:
        self.tokens[request] = new
        self.g -= new
        self.i -= new + self.charged
        last = request.out + 1 + (request.ph > 0) >= request.limit
        self.needed |= comp + new >= request.n and not last  # S23

    def add(self, request: Request, comp: int, new: int, blocks: Rows) -> None:
        """A running request; of its drafts those that fit (S18)."""
        self._take(request, comp, new)
        self.cached[request] = blocks
        self.chunk_ran |= request.chunk
        drafts = min(request.spec, comp + new - request.n - request.ph)
        if drafts > 0:
            self.drafts[request] = drafts
        request.spec = 0

    def admit(self, request: Request, new: int, rows: Rows, drafts: int) -> None:
        """A newcomer, or one that comes back."""
        self._take(request, request.comp, new)
        (self.new if request.status == WAITING else self.resumed).append((request, rows))
        if drafts:
            self.drafts[request] = drafts
        self.prefill_admitted |= request.comp < request.n - 1

    def take_back(self, victim: Request) -> None:
        """S28: a victim that was scheduled already is taken out of the step."""
        new = self.tokens.pop(victim, 0)
        if new:
            self.g += new
            self.i += new + self.charged
            self.drafts.pop(victim, None)
            del self.cached[victim]

    def skip_drafts(self) -> bool:
        """S23: no scheduled request can use drafts proposed after this step."""
        return not self.needed

    def planned(self) -> Planned:
        """What the worker is told, before anything moves on. V2 takes a resumed request for a new one, V1 does not."""
        scheduler = self.scheduler
        new = [*self.new, *self.resumed] if scheduler.second_runner else self.new
        again = [] if scheduler.second_runner else self.resumed
        cached = [(r.id, r.comp, r.out + r.ph, b if any(b) else None) for r, b in self.cached.items()]
        return Planned(
            [(request.id, count) for request, count in self.tokens.items()],
            [(request.id, count) for request, count in self.drafts.items()],
            [(r.id, r.comp, r.n if scheduler.second_runner else r.prompt, rows) for r, rows in new],
            cached + [(r.id, r.comp, r.out + r.ph, rows) for r, rows in again],
            sorted(r.id for r, _ in again),
            sorted(scheduler.preempted),
            sorted(scheduler.finished),
            (),
            scheduler.proposals(len(self.tokens)),
            self.skip_drafts(),
        )
