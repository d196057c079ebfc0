"""A step being put together by the oracle's scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oracle.call import Rows
from oracle.content import item_length
from oracle.scheduled import WAITING, Planned
from oracle.scheduler_request import Request
from oracle.workload import PAUSED_ALL

if TYPE_CHECKING:
    from oracle.scheduler import Scheduler


class NextStep:
    """A step being put together: the two budgets (S1), who is in it, what the worker will be told."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        paused = scheduler.paused == PAUSED_ALL
        self.g, self.i, self.charged = 0 if paused else scheduler.budget, scheduler.rows, scheduler.charged
        self.encoder = scheduler.encoder_budget
        self.tokens: dict[Request, int] = {}
        self.drafts: dict[Request, int] = {}
        self.encoded: dict[Request, list[int]] = {}
        self.cached: dict[Request, Rows] = {}
        self.new: list[tuple[Request, Rows]] = []
        self.resumed: list[tuple[Request, Rows]] = []
        self.victims: list[Request] = []
        self.needed = not scheduler.can_skip
        self.chunk_ran = self.prefill_admitted = self.loads = False

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
        """A newcomer, or one that comes back; with its encoder's input, where it begins."""
        self.encoder -= request.encoder if request.comp == 0 else 0
        self._take(request, request.comp, new)
        (self.new if request.status == WAITING else self.resumed).append((request, rows))
        if drafts:
            self.drafts[request] = drafts
        self.prefill_admitted |= request.comp < request.n - 1

    def encode(self, request: Request, places: list[int]) -> None:
        """The items of its prompt that the encoder takes in this step."""
        if places:
            self.encoded[request] = places
            self.encoder -= sum(item_length(request.items[place][0]) for place in places)

    def take_back(self, victim: Request) -> None:
        """S28: a victim that was scheduled already is taken out of the step."""
        new = self.tokens.pop(victim, 0)
        if new:
            self.g += new
            self.i += new + self.charged
            self.drafts.pop(victim, None)
            self.encoder += sum(item_length(victim.items[place][0]) for place in self.encoded.pop(victim, ()))
            del self.cached[victim]

    def skip_drafts(self) -> bool:
        """S23: no scheduled request can use drafts proposed after this step."""
        return not self.needed

    def planned(self) -> Planned:
        """What the worker is told, before anything moves on. V2 takes a resumed request for a new one, V1 does not.

        S59. A step that reads what a connector loads in it (S46) starts its loads before the forward pass, any other
        behind it.
        """
        scheduler = self.scheduler
        second = scheduler.second_runner
        new, again = ([*self.new, *self.resumed], []) if second else (self.new, self.resumed)
        cached: list[tuple[int, int, int, Rows | None]] = [
            (r.id, r.comp, r.out + r.ph, blocks if any(blocks) else None) for r, blocks in self.cached.items()
        ]
        cached += [(r.id, r.comp, r.out + r.ph, rows) for r, rows in again]
        return Planned(
            [(request.id, count) for request, count in self.tokens.items()],
            [(request.id, count) for request, count in self.drafts.items()],
            [(r.id, r.comp, r.n if second else r.prompt, rows) for r, rows in new],
            cached,
            sorted([r.id for r, _ in again]),
            sorted(scheduler.preempted),
            sorted(scheduler.finished),
            (),
            scheduler.proposals(len(self.tokens)),
            self.skip_drafts(),
            (),
            tuple((request.id, tuple(places)) for request, places in self.encoded.items()),
            tuple(scheduler.encoders.leave()),
            () if second else self._again(),
            has_sync_kv_loads=self.loads and scheduler.choices.tells_loads,
        )

    def _again(self) -> tuple[tuple[int, int], ...]:
        """S55: whose tokens the V1 worker lacks: its batch has only who was in the step before, with the same row."""
        there = self.scheduler.batch
        left_out = [request for request in self.cached if request.id not in there]
        return tuple((request.id, request.n) for request in (*left_out, *(r for r, _ in self.resumed)))
