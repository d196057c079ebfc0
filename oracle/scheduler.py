"""The oracle's own scheduler: who gets how many tokens in a step, and what it asks of the manager (scheduling spec).

For plain settings: first come first served and priority, chunked prefill on or off, drafts or none, overlapping steps
or not. One step: the running requests first (S2 to S7), then admission (S8 to S10, S21, S22), then everything moves on
(S11, S30). What happens between two steps is in `scheduler_queues`. The manager's answers come through `ask`, its order
of blocks is the allocator's affair. All counts in tokens unless said.
"""

from __future__ import annotations

from attrs import evolve

from oracle.breakdown import Breakdown, formula
from oracle.call import GRANTED, Call
from oracle.chunks import Chunks, chunks_of
from oracle.methods import draft_counts, method, takes_counts
from oracle.scheduled import RUNNING, Planned
from oracle.scheduler_queues import Ask, Free, Look, Publish
from oracle.scheduler_request import InFlight, Request
from oracle.scheduler_setting import SchedulerSetting
from oracle.scheduler_step import NextStep
from oracle.scheduler_transfers import Blocks, Loads
from oracle.workload import PAUSED_NEW, UNPAUSED


class Scheduler(Loads):
    """Predicts every step of a setting. The arguments are those of `Queues` and `Loads`."""

    def __init__(
        self, setting: SchedulerSetting, ask: Ask, free: Free, look: Look, name: Publish, blocks: Blocks | None = None
    ) -> None:
        super().__init__(setting, ask, free, look, name, blocks)
        facts, choices = setting.facts, setting.choices
        self.budget, self.rows = setting.budget, setting.max_num_batched_tokens
        self.active = facts.active or setting.max_num_seqs
        self.charged, self.ahead = setting.charged, facts.prefill_lookahead
        takes = not choices.counts_checked or takes_counts(method(setting.method, setting.parallel_drafting))
        ranges = setting.draft_counts if takes else None
        self.table = None if ranges is None else draft_counts(ranges, self.drafts, setting.max_num_seqs)
        self.second_runner = facts.runner == "V2" and (choices.pools_on_v2 or not setting.pooling)
        self.can_skip = self.lookahead > 0 and self.second_runner and choices.skips_drafts
        self.encoder_budget = setting.encoder_budget
        self.chunked = setting.enable_chunked_prefill
        self.threshold = setting.long_prefill_token_threshold
        self.adaptive = setting.long_prefill_token_threshold_adaptive
        self.interval = setting.prefill_schedule_interval if choices.own_cadence else 1
        self.goes_on, self.empty_aside = choices.goes_on_behind_victim, choices.empty_part_aside
        self.capped_alone, self.pads_alone = choices.threshold_alone, choices.pads_alone
        self.pads_whole, self.place_kept = choices.pads_whole, choices.place_kept
        self.spares_unfreed, self.spares_holders = choices.spares_unfreed, choices.pause_spares_holders
        most = min(self.budget, self.threshold) if self.threshold else self.budget
        if self.caching:
            self.chunks = evolve(chunks_of(setting), most=most)
        else:
            drop = facts.block_drop and not facts.hash_lookahead
            self.chunks = Chunks(setting.align_size, most, drop, facts.hash_lookahead)
        if choices.tail_unchecked:
            inner = setting.hash_size < setting.scheduler_block_size
            self.chunks = evolve(self.chunks, inner=inner, hash_size=setting.hash_size)
        self.chunks = evolve(self.chunks, to_the_end=choices.chunks_to_the_end, tail_drops=choices.chunk_tail_drops)
        self.chunks = evolve(self.chunks, loose=choices.chunks_loose)
        #: what the chunk rule saw in this step of each request: computed tokens, most tokens
        self.cuts: dict[int, tuple[Request, int, int]] = {}
        self.step, self.cap = NextStep(self), 0
        #: who was in the last step
        self.batch: frozenset[int] = frozenset()
        self.executed, self.last_prefill, self.bound = 0, -self.interval, False

    def schedule(self) -> Planned:
        """One step: S1 to S11, S15, S30. What it returns is still to be given its zero list."""
        self.step = step = NextStep(self)
        self.cuts.clear()
        held = self._held()
        self.cap = threshold = self._threshold()
        self._running_pass(step, held, threshold)
        if not step.victims and self.paused in ((UNPAUSED, PAUSED_NEW) if self.spares_holders else (UNPAUSED,)):
            self._admission_pass(step, held, threshold)
        if step.tokens:
            self.executed += 1
        if self.interval > 1 and (step.chunk_ran or step.prefill_admitted):
            self.last_prefill = self.executed
        planned = step.planned()
        self.batch = frozenset(request.id for request in step.tokens)
        self._advance(step, planned)
        self.preempted, self.finished = [], []
        return planned

    def _threshold(self) -> int:
        """S4: most tokens of one request in a step; 0: no cap, nobody would starve."""
        if not self.threshold:
            return 0
        number = len(self.running) + len(self.waiting) + len(self.holding)
        if number < 2 and not self.capped_alone:
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

    def _running_pass(self, step: NextStep, held: bool, threshold: int) -> None:
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
                if self._waits():
                    return
                victim = self._victim()
                if self.spares_unfreed and not self._movable(victim):
                    return  # S49: its blocks would not come free now
                place = self.running.index(victim)
                del self.running[place]
                index -= place < index and (self.place_kept or victim in step.tokens)
                step.take_back(victim)
                self._preempt(victim)
                step.victims.append(victim)
                if victim is request:
                    break
                granted = self.ask(call)
            if granted.outcome != GRANTED:
                if self.by_priority and self.goes_on:
                    continue  # S29: those behind are more urgent, and blocks have come free
                return
            step.add(request, request.comp, new, granted.new)
            if request.items:
                step.encode(request, self.encoders.take(request))
            index += 1

    def _needless(self, request: Request) -> bool:
        """S32: even if all drafts are rejected, the output in flight reaches the limit."""
        return request.ph > 0 and request.comp - request.ph + 2 >= request.prompt + request.limit

    def _wanted(self, request: Request, step: NextStep, threshold: int) -> int:
        """S3: everything known, drafts and placeholders included; capped by S4, the room and the last position."""
        new = request.n + request.spec + request.ph - request.comp
        if 0 < threshold < new:
            new = threshold
        new = min(new, step.room(), self.limit - self.sampled - request.comp)
        if self.chunks.size:
            new = self._chunk(request, request.comp, new)
        if request.items:
            new = self.encoders.part(request, request.comp, new, step.encoder)
        return self._clear_of_the_end(request, request.comp, new) if self.ahead else new

    def _chunk(self, request: Request, comp: int, new: int) -> int:
        """S41: tokens of the chunk that begins at `comp` and may take `new`; 0: none ends where a state may be kept."""
        self.cuts[request.id] = request, comp, new
        return self.chunks.end(comp, comp + new, request.prompt, request.n, request.junction) - comp

    def cut_by(self, chunks: Chunks, name: int) -> int:
        """Tokens of the chunk of a request in this step if `chunks` were the rule; -1: it has none."""
        if name not in self.cuts:
            return -1
        request, comp, new = self.cuts[name]
        new = chunks.end(comp, comp + new, request.prompt, request.n, request.junction) - comp
        return self._clear_of_the_end(request, comp, new)

    def _clear_of_the_end(self, request: Request, comp: int, new: int) -> int:
        """S22: a chunk leaves nothing, or enough known tokens for the drafter's modules to read."""
        rest = request.n - comp - new
        return max(0, new - (self.ahead - rest)) if 0 < rest < self.ahead else new

    def _victim(self) -> Request:
        """S6, S27: who came last; the least urgent."""
        return max(self.running, key=lambda request: request.urgency) if self.by_priority else self.running[-1]

    def _admission_pass(self, step: NextStep, held: bool, threshold: int) -> None:
        """S8 to S10: a candidate is set aside and the scan goes on, is refused and the pass ends, or is admitted."""
        if not (self.waiting or self.holding):
            self.bound = self.bound and held
            return
        aside: list[Request] = []
        holding: list[Request] = []
        seats = self.active - self.seats_of_sessions()
        while step.open() and len(self.running) < seats:
            queue = self._next_queue()
            if not queue:
                break
            request = queue[0]
            size = self._examined(request, step, held, threshold)
            if size is None:
                break
            local, external, new, padded, loads = size
            if new == 0 and not loads:
                self.deferred.add(request)
                (holding if self._holds(request) else aside).append(queue.pop(0))
                continue
            comp = request.comp + local
            call = self._load_call(request, comp, external) if loads else self._call(request, comp, new, True, local)
            call.external = external
            seen = self.ask(call)
            if seen.outcome != GRANTED:
                self.encoders.let_go(request)
                break
            del queue[0]
            if loads:
                self._load(request, comp + external, external, seen.rows)
                self.deferred.add(request)
                holding.append(request)
                continue
            self._started(request, external)
            self.deferred.discard(request)
            self.running.append(request)
            request.comp = comp + external
            placeholders = new - 1 if self.pads_whole else self.drafts
            step.admit(request, new, seen.rows, placeholders if padded else 0)
            step.loads |= external > 0
            if request.items:
                step.encode(request, self.encoders.take(request))
            if request.comp + new < request.n:
                self.prefilling[request] = None
            request.status = RUNNING
        for queue, back in ((self.waiting, aside), (self.holding, holding)):
            if back:
                queue[:0] = back
                self._order(queue)
        if not held:
            self.bound = len(self.waiting) + len(self.holding) > len(self.deferred)

    def _examined(
        self, request: Request, step: NextStep, held: bool, threshold: int
    ) -> tuple[int, int, int, bool, bool] | None:
        """Local hit, external and new tokens, padding, whether it loads; none new: set aside. None: the pass ends."""
        aside = 0, 0, 0, False, False
        if not self._ready(request) or (request.stale and not request.drop):  # S34: not sampled twice
            return aside
        local, external, loads = 0, 0, False
        if request.comp == 0:
            if self.caching:
                request.content = request.content and request.content.renewed()
                local, request.junction = self.look(request)  # S37
            found, loads = self._match(request, local)
            if found is None:
                return aside
            external = found
            if external and local % self.size:
                local -= local % self.size
        if loads:
            return local, external, 0, False, True
        comp = request.comp + local + external
        if held and comp < request.n - 1:
            return None
        new, padded = self._size(request, comp, step, threshold)
        if new > 0 and comp == 0 and request.encoder > step.encoder:
            return aside if self.empty_aside else None  # section 9: its encoder's input does not fit into this step
        ends = new < 0 or (new == 0 and not self.empty_aside)
        return None if ends else (local, external, new, padded, False)

    def _size(self, request: Request, comp: int, step: NextStep, threshold: int) -> tuple[int, bool]:
        """S9, S21: tokens of an admitted part, and whether it is padded with placeholder drafts; -1: the pass ends."""
        room, new, padded = step.room(), request.n - comp, False
        pads = (
            self.drafts > 0
            and self.table is None
            and new == 1
            and not step.chunk_ran
            and (bool(step.cached) or (comp > 0 and self.pads_alone))
        )
        fits = comp + 1 + self.drafts + 1 <= self.limit
        if pads and (fits or not self.pads_whole):
            new, padded = 1 + self.drafts, True
            if new > room or (not self.pads_whole and comp + new > self.limit):
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
            if padded and new != 1 + self.drafts and self.pads_whole:
                new, padded = 1, False
        if request.items:
            new = self.encoders.part(request, comp, new, step.encoder)
        return self._clear_of_the_end(request, comp, new), padded

    def _advance(self, step: NextStep, planned: Planned) -> None:
        """S11, S30: optimistic; corrected when the output is back.

        S57. A step that samples for a request with a grammar has the grammar's mask, and the drafts that it verifies
        are checked against it: the worker sends them back for that.
        S58. The mask follows from all tokens before it. While one of them is in flight nothing can be sampled.
        """
        proposals = self.proposals(len(step.tokens))
        self.planned_steps += self.fenced and bool(step.tokens)
        for request, new in step.tokens.items():
            request.last = self.planned_steps
            request.comp += new
            request.fl += new
            request.chunk = request.comp < request.n + request.ph
            if not request.chunk:
                self.prefilling.pop(request, None)
                if request.grammar:
                    planned.has_structured_output_requests = True
                    planned.pending_structured_output_tokens |= request.ph + request.left > 0
            if self.overlap and not request.chunk:
                request.ph += self.sampled + step.drafts.get(request, 0)
                request.spec = proposals
        tokens = [(request.id, new) for request, new in step.tokens.items()]
        drafts = {request.id: count for request, count in step.drafts.items()}
        self.flights.append(InFlight(tokens, drafts, step.skip_drafts()))

    def reason(self, call: Call) -> Breakdown:
        """Why the request that asks in this step asks for so many tokens (S3, S9, S21, S22, S41)."""
        request = self.requests[call.request]
        terms = {
            "known": request.n,
            "drafts": request.spec,
            "placeholders": request.ph,
            "computed": call.computed,
            "padding": self.drafts if call.waiting and call.new > request.n - call.computed else 0,
            "threshold": self.cap,
            "room": self.step.room(),
            "max_model_len": self.limit,
            "cut": 0,
        }
        part = formula("S3 part of a request")
        return part.of(**terms | {"cut": part.of(**terms).value - call.new})

    def proposals(self, scheduled: int) -> int:
        """S24: drafts of the next step, by the number of requests in this one where there is a table."""
        return self.drafts if self.table is None or not scheduled else self.table[scheduled - 1]
