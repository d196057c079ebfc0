"""What must hold in every step of any scheduler (scheduling spec, section 10), judged from what it shows.

No prediction: the laws see the workload, the steps that are sent to the worker, the calls of the manager and the
tokens that are delivered. A broken one is a Violation like the memory's; `index` is the operation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import chain

from attrs import define, field

from oracle.client import Client
from oracle.groups import ceil_div
from oracle.memory import Violation
from oracle.scheduler_encoder_laws import EncoderLaws
from oracle.scheduler_setting import PRIORITY, SchedulerSetting
from oracle.trace import GRANTED, REFUSED, Row, Rows
from oracle.workload import (
    ASK,
    ENDED,
    FREE,
    GIVE,
    NOTHING_MOVED,
    PAUSED_ALL,
    POP,
    RUNNING,
    TRIM,
    UNPAUSED,
    Delivered,
    Event,
    Planned,
    Situation,
    Submit,
    Transfers,
    Update,
)

#: events that move blocks
MOVES = frozenset({ASK, FREE, POP, GIVE, TRIM})
NO_BLOCKS = frozenset[int]()
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
#: a preemption in vain, since the one who would have to go next holds blocks that do not come free at once
NEXT_STAYS = "not scheduled, the next victim is in flight"


@define(eq=False, slots=True, kw_only=True)
class Known(Client):
    """What is known of one request from outside. held: blocks of its row."""

    id: int
    priority: int
    arrival: int
    held: int = 0
    arrivals: list[int] = field(factory=list)
    """Those of the pieces that are not taken yet."""


class SchedulerLaws:
    """The laws of one workload. `report` receives each violation."""

    def __init__(self, setting: SchedulerSetting, report: Callable[[Violation], None]) -> None:
        self.setting, self.report = setting, report
        facts = setting.facts
        self.usable = setting.num_blocks - 1
        self.free = self.usable
        #: with caching on blocks are shared: each is held once, whoever names it
        self.caching = setting.enable_caching
        self.rows_of: dict[int, Rows] = {}
        self.held_blocks: set[int] = set()
        self.budget, self.rows, self.charged = setting.budget, setting.max_num_batched_tokens, setting.charged
        self.active = facts.active or setting.max_num_seqs
        self.drafts, self.lookahead, self.ahead = facts.drafts, facts.lookahead, facts.prefill_lookahead
        self.longest, self.encoder_budget = setting.max_model_len, setting.encoder_budget
        self.by_priority = setting.policy == PRIORITY
        self.overlap = setting.in_flight_depth > 1
        self.live: dict[int, Known] = {}
        self.gone: set[int] = set()
        self.running: list[Known] = []
        #: of a connector: loads and sendings under way; loads that failed, some as a whole; who has ended and holds
        #: blocks; blocks kept back
        self.loading: set[int] = set()
        self.sending: set[int] = set()
        self.failed: set[int] = set()
        self.again: set[int] = set()
        #: those that the output under way ends
        self.ending: set[int] = set()
        #: whether there were sessions; those that ran and wait for input
        self.sessions = False
        self.seated: set[int] = set()
        #: who was scheduled in the last steps that had anybody; how many of these are in flight
        self.recent: deque[set[int]] = deque(maxlen=8)
        self.flying = 0
        self.kept: dict[int, Known] = {}
        self.parked: list[set[int]] = []
        self.sizes = [(g.attention, g.tokens_per_column(setting.dcp_size)) for g in setting.groups]
        self.patience = 3
        self.encoded = 0
        self.encoders = EncoderLaws(setting, self.broken) if setting.encoder_cache_size else None
        self.idle = 0
        #: somebody was refused in this step
        self.refused = False
        #: nobody will ever move again
        self.stuck = False
        self.paused = UNPAUSED
        self.index = 0

    def broken(self, law: str, what: str, text: str) -> None:
        """Tell of a violation in the operation under way."""
        self.report(Violation(self.index, -1, law, what, text))

    def submitted(self, operation: Submit, arrival: int) -> None:
        """A request arrives."""
        self.patience = max(self.patience, 3 + operation.unknown + operation.grammar)
        self.live[operation.request] = Known(
            id=operation.request,
            prompt=operation.prompt,
            limit=operation.max_tokens,
            priority=operation.priority,
            arrival=arrival,
            session=operation.session,
        )
        self.sessions |= operation.session
        if self.encoders is not None:
            self.encoders.submitted(operation)

    def updated(self, operation: Update, arrival: int) -> bool:
        """A session gets a piece of input; whether it ends by it."""
        known = self.live[operation.request]
        if known.waits:
            known.arrival = arrival
            self.seated.discard(known.id)
        else:
            known.arrivals.append(arrival)
        return known.update(operation)

    # ------------------------------------------------------------------------------------------- the manager

    def _blocks(self, event: Event, ends: frozenset[int] = NO_BLOCKS) -> None:
        """Conservation: what is free, held and kept back are all blocks, after each call.

        ends: blocks that the step copies from and to; some of them may be held for that (caching spec, P36).
        """
        if event.what not in MOVES:
            if event.what == ENDED:
                self._ended(event)
            return
        rows = () if event.seen is None else event.seen.rows
        if event.what == GIVE:
            self.free += len(self.parked.pop(0)) if self.parked else 0
        else:
            known = self._owner(event)
            if known is None:
                self.broken("owner", "a stranger's blocks", f"request {event.request} is gone and {event.what}s")
                return
            before = known.held
            known.held = sum([len(row) - row.count(0) for row in rows])
            if event.what == POP:
                self._kept_back(event.request, before)
            else:
                self.free += before - known.held
            if event.call is not None and event.call.new == 0:
                self._loads(event)
        if self.caching:
            if event.what != GIVE and self.rows_of.get(event.request, ()) != rows:
                if rows:
                    self.rows_of[event.request] = rows
                else:
                    del self.rows_of[event.request]
                self.held_blocks = set(chain.from_iterable(chain.from_iterable(self.rows_of.values())))
                self.held_blocks.discard(0)
            held = self.held_blocks.union(*self.parked) if self.parked else self.held_blocks
            self.free = self.usable - len(held)
            if ends and self.free - len(ends - held) <= event.free <= self.free:
                self.free = event.free
        if event.free != self.free and not (event.seen and event.seen.outcome.startswith("error")):
            self.broken(
                "conservation",
                "more free" if event.free > self.free else "less free",
                f"{event.free} blocks are free, but {self.usable - self.free} of {self.usable} are held",
            )
            self.free = event.free

    # ----------------------------------------------------------------------------------------- a connector

    def _owner(self, event: Event) -> Known | None:
        """Whose blocks these are. Of a request that has ended they come back once, when nothing moves them any more."""
        if event.request in self.live:
            return self.live[event.request]
        if event.request in self.loading or event.request in self.sending:
            self.broken("owner", "too early", f"blocks of request {event.request} come back while they are moved")
        return self.kept.pop(event.request, None)

    def _kept_back(self, name: int, held: int) -> None:
        """Blocks that nobody holds and that are not free yet; without caching their number is all that counts."""
        blocks = chain.from_iterable(self.rows_of.get(name, ())) if self.caching else range(1, held + 1)
        if held:
            self.parked.append(set(blocks) - {0})

    def _loads(self, event: Event) -> None:
        """S51: a load beside the steps holds the blocks of its tokens, as the side that sends them does."""
        call, seen = event.call, event.seen
        if call is not None and seen is not None and call.external and seen.outcome == GRANTED:
            self.loading.add(call.request)
            self._counted("load", call.request, seen.rows, call.computed + call.external, True)

    def _counted(self, law: str, name: int, rows: Rows, tokens: int, exactly: bool) -> None:
        for row, (attention, size) in zip(rows, self.sizes, strict=True):
            needed = ceil_div(tokens, size)
            if attention and (len(row) < needed or (exactly and len(row) > needed)):
                sign = "more blocks" if len(row) > needed else "less blocks"
                text = f"request {name}: {len(row)} columns for {tokens} tokens, {needed} are needed"
                self.broken(law, sign, text)

    def _ended(self, event: Event) -> None:
        """S51: blocks of what is computed, all known tokens but the last; no others from the prefill side of a pair."""
        known = self.live.get(event.request)
        if not event.tokens or event.seen is None or known is None:
            return
        self.sending.add(event.request)
        if event.request in self.ending:
            self._counted("handover", known.id, event.seen.rows, known.prompt + known.out - 1, known.limit == 1)

    def reported(self, transfers: Transfers) -> None:
        """The worker's side of the connector has told of these."""
        if transfers is NOTHING_MOVED:
            return
        self.loading.difference_update(transfers.loaded)
        self.sending.difference_update(transfers.sent)
        if transfers.failed is not None and transfers.failed[0] in transfers.loaded:
            self.failed.add(transfers.failed[0])

    def drained(self, situation: Situation) -> None:
        """Everything has ended: every block is free, once, and nobody holds an encoder's output."""
        free = situation.free
        if self.encoders is not None:
            self.encoders.drained(situation)
        if free != self.usable or self.parked or self.kept:
            self.broken("drain", "blocks", f"everything has ended, but {free} of {self.usable} blocks are free")

    # ---------------------------------------------------------------------------------------------- blocks

    def returned(self, events: list[Event]) -> None:
        """Blocks that come back outside a step: of who finished, was aborted, or was reset."""
        for event in events:
            self._blocks(event)

    def holders(self) -> bool:
        """Whether others than those that run hold blocks."""
        running = {known.id for known in self.running}
        return bool(self.parked or self.kept) or any(one.held and one.id not in running for one in self.live.values())

    def emptied(self, done: bool, all_preempted: bool) -> None:
        """P12: where nobody but the running held blocks, preempting them makes sure that the cache is emptied."""
        if all_preempted and not done:
            what = "blocks of a step in flight" if self.parked else "blocks are held"
            self.broken("reset", what, f"all that held blocks were preempted, {self.usable - self.free} are not free")

    def preempted(self, request: int) -> None:
        """A request no longer runs, by a reset."""
        self.running = [known for known in self.running if known.id != request]

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
            what = AGAIN if self.again.intersection(self.live) else HELD if held else "nobody runs"
            holders = sum([known.session and known.held > 0 for known in self.live.values()])
            if self.refused and holders:
                what = SESSIONS if holders > 1 else SESSION
            self.broken("progress", what, f"nothing is in flight, nobody is scheduled: requests {waits} wait")

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
        self.ending = {name for name, tokens in ended if tokens}
        self.returned(events)
        self.ending = set()
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
        self.seated.discard(name)
        if known is None:
            self.broken("finished", "twice", f"request {name} ends a second time")
            return
        if name in self.loading or name in self.sending:
            self.kept[name] = known
        elif known.held:
            self.broken("owner", "not returned", f"request {name} has ended and holds {known.held} blocks")
        self.running = [other for other in self.running if other is not known]

    def settled(self, situation: Situation, flying: int) -> None:
        """Certainty: computed less placeholders is what is surely there; with nothing in flight there are no others.

        With nothing in flight the engine sleeps unless it says that it has work: then nobody must be able to move.
        """
        able = situation.running and self.paused != PAUSED_ALL
        if not (situation.busy or flying) and (able or self.kept or self.parked):
            waits = f"requests {situation.running} run" if able else "blocks are to come back"
            self.broken("progress", "the engine sleeps", f"nothing is in flight, the engine sleeps, and {waits}")
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
