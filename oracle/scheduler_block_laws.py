"""The laws of blocks under a scheduler: each is free, held or kept back, and comes back once, from its owner.

As all laws of this level from what is seen from outside: the calls of the manager and of the connector.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from attrs import define

from oracle.call import GRANTED, Rows
from oracle.client import Client
from oracle.rounding import ceil_div
from oracle.scheduled import ASK, ENDED, FREE, GIVE, POP, TRIM, Event, Situation
from oracle.scheduler_setting import SchedulerSetting
from oracle.violation import Violation
from oracle.workload import NOTHING_MOVED, Transfers

#: events that move blocks
MOVES = frozenset({ASK, FREE, POP, GIVE, TRIM})
NO_BLOCKS = frozenset[int]()


@define(eq=False, slots=True, kw_only=True)
class Known(Client):
    """What is known of one request from outside. held: blocks of its row."""

    id: int
    priority: int
    arrival: int
    held: int = 0
    arrivals: list[int]
    """Those of the pieces that are not taken yet."""


class BlockLaws:
    """The blocks of one workload. `report` receives each violation."""

    def __init__(self, setting: SchedulerSetting, report: Callable[[Violation], None]) -> None:
        self.setting, self.report = setting, report
        self.usable = setting.num_blocks - 1
        self.free = self.usable
        #: with caching on blocks are shared: each is held once, whoever names it
        self.caching = setting.enable_caching
        self.rows_of: dict[int, Rows] = {}
        self.held_blocks: set[int] = set()
        self.live: dict[int, Known] = {}
        self.running: list[Known] = []
        #: of a connector: loads and sendings under way; loads that failed; who has ended and holds blocks; blocks kept
        #: back
        self.loading: set[int] = set()
        self.sending: set[int] = set()
        self.failed: set[int] = set()
        self.kept: dict[int, Known] = {}
        self.parked: list[set[int]] = []
        #: those that the output under way ends, each with its sampled tokens that lie behind the end
        self.ending: dict[int, int] = {}
        self.sizes = [(g.attention, g.tokens_per_column(setting.dcp_size)) for g in setting.groups]
        self.index = 0

    def broken(self, law: str, what: str, text: str) -> None:
        """Tell of a violation in the operation under way."""
        self.report(Violation(self.index, -1, law, what, text))

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

    def _counted(self, law: str, name: int, rows: Rows, tokens: int, exactly: bool, cut: int = 0) -> None:
        for row, (attention, size) in zip(rows, self.sizes, strict=True):
            needed = ceil_div(tokens, size)
            if attention and (len(row) < needed or (exactly and len(row) > needed)):
                sign = "more blocks" if len(row) > needed else "less blocks"
                if cut and self.setting.dcp_size == 1 and needed < len(row) == ceil_div(tokens + cut, size):
                    sign = "blocks of cut tokens"
                text = f"request {name}: {len(row)} columns for {tokens} tokens, {needed} are needed"
                self.broken(law, sign, text)

    def _ended(self, event: Event) -> None:
        """S51: blocks of what is computed, all known tokens but one that was sampled last; no others of a prefill."""
        known = self.live.get(event.request)
        if not event.tokens or event.seen is None or known is None:
            return
        self.sending.add(event.request)
        if event.request in self.ending:
            computed = known.prompt + known.out - self.setting.sampled
            cut = self.ending[event.request]
            self._counted("handover", known.id, event.seen.rows, computed, known.limit == 1, cut)

    def reported(self, transfers: Transfers) -> None:
        """The worker's side of the connector has told of these."""
        if transfers is NOTHING_MOVED:
            return
        self.loading.difference_update(transfers.loaded)
        self.sending.difference_update(transfers.sent)
        if transfers.failed is not None and transfers.failed[0] in transfers.loaded:
            self.failed.add(transfers.failed[0])

    def drained(self, situation: Situation) -> None:
        """Everything has ended: every block is free, once."""
        free = situation.free
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
