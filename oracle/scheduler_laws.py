"""What must hold in every step of any scheduler (scheduling spec, section 10), judged from what it shows.

No prediction: the laws see the workload, the steps that are sent to the worker, the calls of the manager and the
tokens that are delivered. A broken one is a Violation like the memory's; `index` is the operation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import chain

from oracle.call import GRANTED, REFUSED, Row, Rows
from oracle.scheduled import ASK, FREE, POP, RUNNING, Event, Planned, Situation
from oracle.scheduler_block_laws import NO_BLOCKS, BlockLaws, Known
from oracle.scheduler_encoder_laws import EncoderLaws
from oracle.scheduler_setting import PRIORITY, SchedulerSetting
from oracle.violation import Violation
from oracle.workload import PAUSED_ALL, PAUSED_NEW, UNPAUSED, Delivered, Submit, Update

#: what is told of a request that an idle engine cannot hold
ALONE = "preempts itself alone"
#: what is told of nobody running when a load has failed as a whole
AGAIN = "nobody runs after a failed load"
#: ... while blocks are held by who waits, in a release where they may wait behind others
HELD = "nobody runs, blocks are held"
#: what is told of nobody running where sessions hold blocks that others need
SESSIONS = "nobody runs beside sessions that hold blocks"
#: ... or the only one needs more, and nobody but itself holds any
SESSION = "a session does not go on beside its own blocks"
#: ... else; of a workload that goes on for ever
NOBODY, NEVER = "nobody runs", "never ends"
#: signs of an end: nothing that is planned from then on tells anything new
ENDS = frozenset({ALONE, AGAIN, HELD, SESSIONS, SESSION, NOBODY, NEVER})
#: what is told of an engine that sleeps although somebody could move; where sessions wait that hold nothing
SLEEPS = "the engine sleeps"
ASLEEP = "the engine sleeps beside sessions without blocks"
#: a preemption in vain, since the one who would have to go next holds blocks that do not come free at once
NEXT_STAYS = "not scheduled, the next victim is in flight"


class SchedulerLaws(BlockLaws):
    """The laws of one workload. `report` receives each violation."""

    def __init__(self, setting: SchedulerSetting, report: Callable[[Violation], None]) -> None:
        super().__init__(setting, report)
        facts = setting.facts
        self.gone: set[int] = set()
        #: loads that failed as a whole
        self.again: set[int] = set()
        self.budget, self.rows, self.charged = setting.budget, setting.max_num_batched_tokens, setting.charged
        self.active = facts.active or setting.max_num_seqs
        self.drafts, self.lookahead, self.ahead = facts.drafts, facts.lookahead, facts.prefill_lookahead
        self.longest, self.encoder_budget = setting.max_model_len, setting.encoder_budget
        self.by_priority = setting.policy == PRIORITY
        self.overlap = setting.in_flight_depth > 1
        #: whether there were sessions; those that ran and wait for input
        self.sessions = False
        self.seated: set[int] = set()
        #: who was scheduled in the last steps that had anybody; how many of these are in flight
        self.recent: deque[set[int]] = deque(maxlen=8)
        self.flying = 0
        self.patience = 3
        self.encoded = 0
        self.encoders = EncoderLaws(setting, self.live, self.broken) if setting.encoder_cache_size else None
        self.idle = 0
        #: somebody was refused in this step
        self.refused = False
        #: nobody will ever move again
        self.stuck = False
        self.paused = UNPAUSED

    def submitted(self, operation: Submit, arrival: int) -> None:
        """A request arrives."""
        self.patience = max(self.patience, 3 + operation.unknown + operation.grammar)
        self.idle = 0
        self.live[operation.request] = Known(
            id=operation.request,
            prompt=operation.prompt,
            limit=operation.max_tokens,
            priority=operation.priority,
            arrival=arrival,
            session=operation.session,
            items=operation.items,
            arrivals=[],
        )
        self.sessions |= operation.session

    def updated(self, operation: Update, arrival: int) -> bool:
        """A session gets a piece of input; whether it ends by it."""
        known = self.live[operation.request]
        self.idle = 0
        if known.waits:
            known.arrival = arrival
            self.seated.discard(known.id)
        else:
            known.arrivals.append(arrival)
        return known.update(operation)

    def drained(self, situation: Situation) -> None:
        """And nobody holds an encoder's output."""
        if self.encoders is not None:
            self.encoders.drained(situation)
        super().drained(situation)

    # ----------------------------------------------------------------------------------------------- a step

    def planned(self, planned: Planned, events: list[Event], flying: int) -> None:
        """A step was planned; `flying`: steps in flight before it."""
        self.flying = flying
        victims = self._calls(events, planned)
        if planned.tokens:
            self.recent.append({name for name, _ in planned.tokens})
        if planned.new or planned.resumed:
            self._admitted(planned, victims)
        self._budgets(planned)
        self._requests(planned)
        if self.encoders is not None:
            self.encoders.planned(planned, events)
        self._progress(planned, flying)

    def _admitted(self, planned: Planned, victims: list[int]) -> None:
        """Who begins to run; nobody in a step that preempts."""
        admitted = {name for name, *_ in planned.new}.union(planned.resumed)
        newcomers = [name for name, _ in planned.tokens if name in admitted]
        if victims and newcomers:
            self.broken("order", "newcomer", f"{newcomers} admitted in a step that preempted {victims}")
        self.running += [self.live[name] for name in newcomers if name in self.live]

    def _calls(self, events: list[Event], planned: Planned) -> list[int]:
        """No needless preemption, the right victim; the lookahead of every ask."""
        victims: list[int] = []
        asker = -1
        self.encoded = 0
        self.refused = False
        events = [event for event in events if event.what in (ASK, FREE, POP)]
        ends = frozenset(chain.from_iterable(planned.copies)) if planned.copies else NO_BLOCKS
        for number, event in enumerate(events):
            self._blocks(event, ends)
            call = event.call
            if event.what == ASK and call is not None:
                if event.seen is not None and event.seen.outcome == GRANTED:
                    self.encoded += call.encoder
                    if self.failed or self.again:
                        self.failed.discard(call.request)
                        self.again.discard(call.request)
                self.refused |= event.seen is not None and event.seen.outcome == REFUSED
                needed = self.lookahead if call.new else 0  # S43: a load beside the steps computes nothing
                if call.lookahead != needed:
                    sign = "more" if call.lookahead > needed else "less"
                    self.broken("lookahead", sign, f"asked with lookahead {call.lookahead}, needs {needed}")
                continue
            if event.request in self.failed:  # nothing of its load is valid: it begins anew
                self.failed.discard(event.request)
                self.again.add(event.request)
                continue
            if event.what == POP:
                self.broken("needless", "not free at once", f"{event.request} preempted, its blocks do not come free")
            before = events[number - 1] if number else None
            if before is None or before.seen is None or before.seen.outcome != REFUSED:
                self.broken("needless", "no refusal", f"request {event.request} preempted though nothing was refused")
            elif before.call is not None:
                asker = before.call.request
                after = events[number + 1] if number + 1 < len(events) else None
                again = after is not None and after.what == ASK and after.request == asker
                if event.request != asker and not again:
                    self.broken("needless", "not asked again", f"{event.request} preempted for {asker} in vain")
            if event.request == asker and self.free == self.usable and before is not None and before.call is not None:
                self.stuck = True
                where = f"{before.call.new} tokens behind {before.call.computed}"
                self.broken(
                    "progress", ALONE, f"request {asker}, alone in the pool, is refused {where} and starts again"
                )
            if self.setting.spares_for_sending and self.sending.intersection(self.kept):
                self.broken("needless", "blocks come back", f"{event.request} preempted while blocks are being sent")
            self._victim(event.request)
            victims.append(event.request)
        if victims and asker not in victims and asker not in {name for name, _ in planned.tokens}:
            sign = NEXT_STAYS if self._next_stays() else "not scheduled"
            self.broken("needless", sign, f"{victims} preempted for {asker}, which is not scheduled")
        return victims

    def _next_victim(self) -> Known | None:
        """S6, S27: who came last; the least urgent, of equals the first in the list."""
        if self.by_priority:
            return max(self.running, key=lambda known: (known.priority, known.arrival), default=None)
        return self.running[-1] if self.running else None

    def _next_stays(self) -> bool:
        """S49: whether a step in flight may still write the blocks of the one who would have to go next."""
        following = self._next_victim()
        flying = list(self.recent)[len(self.recent) - self.flying :]
        return self.setting.defers_frees and following is not None and any(following.id in step for step in flying)

    def _victim(self, name: int) -> None:
        right = self._next_victim()
        if right is None:
            return
        if right.id != name:
            self.broken("victim", "wrong", f"preempted {name}, the victim is {right.id}")
        self.preempted(name)

    def _budgets(self, planned: Planned) -> None:
        """S1: rows of the worker's buffers, drafter's rows included."""
        total, scheduled = sum([tokens for _, tokens in planned.tokens]), len(planned.tokens)
        if total > self.budget:
            self.broken("budget", "tokens", f"{total} tokens in a step of {self.budget}")
        rows = total + self.charged * scheduled
        if rows > self.rows:
            self.broken("budget", "rows", f"{total} tokens and {rows - total} draft slots in {self.rows} rows")
        if len(self.running) + len(self.seated) > self.active:
            shown = (
                f"{len(self.running)} requests run, {len(self.seated)} sessions wait in their seats, {self.active} may"
            )
            self.broken("seats", "running", shown)
        if self.encoded > self.encoder_budget:
            self.broken("budget", "encoder", f"{self.encoded} encoder tokens in {self.encoder_budget}")
        if scheduled > self.active or len({name for name, _ in planned.tokens}) < scheduled:
            self.broken("seats", "scheduled", f"{scheduled} requests scheduled, {self.active} may run")

    def _requests(self, planned: Planned) -> None:
        """Positions below max_model_len, drafts that were proposed, rows that the worker can follow."""
        computed = {name: at for name, at, _, _ in planned.cached}
        for name, at, _, _ in planned.new:
            computed.setdefault(name, at)
        drafts = dict(planned.drafts)
        for name, tokens in planned.tokens:
            known = self.live.get(name)
            if known is None or name not in computed:
                self.broken("stranger", "scheduled", f"request {name} is scheduled but unknown to the worker")
                continue
            end, count = computed[name] + tokens, drafts.get(name, 0)
            if tokens < 1:
                self.broken("tokens", "none", f"request {name} is scheduled with {tokens} tokens")
            if end > self.longest:
                self.broken("positions", "past max_model_len", f"request {name} is scheduled to position {end}")
            if count > self.drafts or count >= tokens:
                self.stuck = True  # what is counted as rejected later was never there
                self.broken("drafts", "too many", f"{count} drafts among {tokens} tokens, K is {self.drafts}")
            rest = known.prompt + known.out - end
            if 0 < rest < self.ahead:
                self.broken("chunk", "prefill lookahead", f"a chunk leaves {rest} known tokens, {self.ahead} are read")
            if count and end - count < known.prompt:
                self.broken("drafts", "inside the prompt", f"{count} drafts end at {end} of {known.prompt}")
        for name in drafts.keys() - {name for name, _ in planned.tokens} if drafts else ():
            self.broken("drafts", "of nobody", f"drafts of request {name}, which is not scheduled")

    def _progress(self, planned: Planned, flying: int) -> None:
        """If some request could run alone in the idle engine, there is no sequence of empty steps."""
        moves = bool(planned.tokens or flying or self.loading or self.kept)  # blocks that move elsewhere come back
        # what comes next for a session that waits, or its end, may free blocks
        outside = self.sessions and any(known.waits for known in self.live.values())
        stands = not moves and not outside and self.live and self.paused == UNPAUSED
        self.idle = self.idle + 1 if stands else 0
        if self.idle == self.patience:
            self.stuck = True
            waits = ", ".join(f"{name} ({known.prompt + known.out} tokens)" for name, known in self.live.items())
            held = not self.setting.choices.holders_first and any(known.held for known in self.live.values())
            what = AGAIN if self.again.intersection(self.live) else HELD if held else NOBODY
            holders = sum([known.session and known.held > 0 for known in self.live.values()])
            if self.refused and holders:
                what = SESSIONS if holders > 1 else SESSION
            text = f"nothing is in flight, nobody is scheduled: requests {waits} wait"
            self.report(Violation(self.index, -1, "progress", what, text))

    # --------------------------------------------------------------------------------------------- outputs

    def delivered(self, delivered: list[Delivered], returned: dict[int, list[int]], events: list[Event]) -> None:
        """Tokens reach the client once, in order, no more than asked for; who has ended gives its blocks back once."""
        for name, tokens, _ in delivered:
            known = self.live.get(name)
            if known is None:
                self.broken("delivered", "stranger", f"{len(tokens)} tokens for request {name}, which is gone")
                continue
            if [*tokens] != returned.get(name, [])[: len(tokens)]:
                self.broken("delivered", "order", f"request {name} gets {tokens}, sampled {returned.get(name)}")
            known.out += len(tokens)
            if known.out > known.limit or known.prompt + known.out > self.longest:
                self.broken("length", "too long", f"request {name} has {known.out} outputs, {known.limit} may be")
        ended = [(name, tokens) for name, tokens, reason in delivered if reason]
        self.ending = {
            name: len(returned.get(name, ())) - len(tokens) for name, tokens in ended if tokens or self.setting.pooling
        }
        self.returned(events)
        self.ending = {}
        for name, _, reason in delivered:
            known = self.live.get(name)
            if reason and (known is None or known.over(reason)):
                self.left(name)
            elif reason and known is not None:
                self._goes_on(known)

    def _goes_on(self, known: Known) -> None:
        """A session has been answered: it does not run until it is admitted again."""
        if known.arrivals and not known.waits:
            known.arrival = known.arrivals.pop(0)
        if known.waits and known in self.running:
            self.seated.add(known.id)
        self.preempted(known.id)

    def left(self, name: int) -> None:
        """A request has ended: nothing of it is held any more."""
        known = self.live.pop(name, None)
        self.idle = 0
        self.seated.discard(name)
        if known is None:
            self.broken("finished", "twice", f"request {name} ends a second time")
            return
        if name in self.loading or name in self.sending:
            self.kept[name] = known
        elif known.held:
            self.broken("owner", "not returned", f"request {name} has ended and holds {known.held} blocks")
        self.running = [other for other in self.running if other is not known]

    def rests_apart(self) -> bool:
        """Whether no newcomer is admitted, and a session waits for input that holds nothing."""
        return self.paused == PAUSED_NEW and any(one.waits and not one.held for one in self.live.values())

    def settled(self, situation: Situation, flying: int) -> None:
        """Certainty: computed less placeholders is what is surely there; with nothing in flight there are no others.

        With nothing in flight the engine sleeps unless it says that it has work: then nobody must be able to move.
        """
        able = situation.running and self.paused != PAUSED_ALL
        if not (situation.busy or flying) and (able or self.kept or self.parked):
            waits = f"requests {situation.running} run" if able else "blocks are to come back"
            what = ASLEEP if self.rests_apart() else SLEEPS
            self.broken("progress", what, f"nothing is in flight, the engine sleeps, and {waits}")
        for state in situation.states:
            known = self.live.get(state.request)
            if known is None:
                self.broken("stranger", state.status, f"request {state.request} is {state.status} but has ended")
                continue
            if state.status != RUNNING:
                continue
            sure = state.computed - state.placeholders
            if state.tokens != known.prompt + known.out:
                self.broken("certainty", "known", f"knows {state.tokens} tokens, has {known.prompt + known.out}")
            most = state.tokens + (self.drafts if flying and not self.overlap else 0)  # they have no placeholders
            if not 0 <= sure <= most:
                self.broken("certainty", "computed", f"{sure} tokens are computed for sure, {state.tokens} are known")
            if not flying and (state.placeholders or state.computed > state.tokens or state.in_flight):
                self.broken(
                    "certainty",
                    "nothing in flight",
                    f"request {state.request}: {state.computed} computed of {state.tokens}, {state.placeholders} "
                    f"placeholders, {state.in_flight} in flight",
                )


def follows(worker: Rows, rows: Rows) -> bool:
    """Whether the worker's append-only row is the manager's: as long, and equal wherever that is not null."""
    return worker == rows or all(
        mine == theirs or _follows(mine, theirs) for mine, theirs in zip(worker, rows, strict=True)
    )


def _follows(worker: Row, row: Row) -> bool:
    return len(worker) == len(row) and [b for b in row if b] == [a for a, b in zip(worker, row, strict=True) if b]
