"""What a KV connector adds to the oracle's scheduler (scheduling spec, section 8).

Loads are matched (S42), reserved for (S44), started (S43), end well (S45) or not (S48); blocks come back later where a
step in flight may still write them (S49) or somebody else reads them (S50).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from oracle.call import Call, Rows
from oracle.content import Content
from oracle.groups import Mamba
from oracle.remote import FarSide
from oracle.rounding import ceil_div
from oracle.scheduled import COMPILING, ERROR, LOADING, PAUSED_SESSION, PREEMPTED, WAITING
from oracle.scheduler_queues import Ask, Free, Look, Publish
from oracle.scheduler_request import InFlight, Request
from oracle.scheduler_sessions import Sessions
from oracle.scheduler_setting import RECOMPUTE, SchedulerSetting
from oracle.workload import NOTHING_MOVED, Delivered, Submit, Transfers


class Blocks(Protocol):
    """What a scheduler with a connector asks of the manager beside `allocate_slots`, and tells the connector."""

    def pop(self, request: int) -> bool: ...

    def give_back(self) -> None: ...

    def trim(self, request: int, processed: int, prompt: int) -> None: ...

    def remaining(self, call: Call, more: int) -> int: ...

    def matched(self, request: int, external: int | None) -> None: ...

    def started(self, request: int, external: int) -> None: ...

    def ended(self, request: int, computed: int, kept: bool) -> None: ...

    def cleared(self) -> None: ...


class Loads(Sessions):
    """Queues with a connector. `blocks` is asked where the setting has one."""

    def __init__(
        self, setting: SchedulerSetting, ask: Ask, free: Free, look: Look, name: Publish, blocks: Blocks | None = None
    ) -> None:
        super().__init__(setting, ask, free, look, name)
        self.connected, self.fenced = setting.kv_connector, setting.defers_frees
        self.delivers, self.spares_senders = setting.drops_preempted, setting.spares_for_sending
        self.recomputes = setting.kv_load_failure_policy == RECOMPUTE
        self.blocks = blocks
        self.far = FarSide(setting)
        sizes = [(group, group.tokens_per_column(setting.dcp_size)) for group in setting.groups]
        #: S44: rows that a request needs beyond what is known, and blocks of a step for them
        self.beyond = 1 + self.drafts + self.lookahead if self.drafts else 0
        self.spare = sum(ceil_div(self.beyond, size) for group, size in sizes if not isinstance(group, Mamba))
        self.size = setting.scheduler_block_size
        self.by_block = setting.fails_by_block
        self.sizes = [size for _, size in sizes]
        #: groups whose blocks a load leaves out of the zero list; or blocks that are taken out of it afterwards
        skips = not self.choices.load_zeroing
        self.skipped = tuple(index for index, group in enumerate(setting.groups) if group.cacheable and skips)
        self.loaded_blocks: set[int] = set()
        self.prefilling: dict[Request, None] = {}
        self.arrived: set[Request] = set()
        self.failed: set[Request] = set()
        self.kept: dict[int, Request] = {}
        self.planned_steps = self.processed_steps = 0
        self.fences: deque[int] = deque()

    # ---------------------------------------------------------------------------------------------- blocks

    def _movable(self, request: Request) -> bool:
        """S49: no step in flight can still write the request's blocks."""
        return not self.fenced or request.last <= self.processed_steps

    def _waits(self) -> bool:
        """S49: blocks come back without a preemption, and the connector would rather have them waited for."""
        return self.spares_senders and self.far.gives_back()

    def _give(self, request: Request) -> None:
        """The blocks come back now, or when the last step in flight is processed."""
        if self._movable(request):
            self.free(request.id)
            return
        assert self.blocks is not None
        if self.blocks.pop(request.id):
            self.fences.append(self.planned_steps)

    def _preempt(self, request: Request, drop: bool = False) -> None:
        """A producer drops what is in flight: it would be delivered without the blocks to hand over."""
        self.prefilling.pop(request, None)
        super()._preempt(request, drop or self.delivers)

    def _end(self, request: Request) -> None:
        """S50: the connector may keep the blocks; those of a load under way stay until it has ended."""
        self.prefilling.pop(request, None)
        self.encoders.let_go(request)
        loading = request.status == LOADING and request not in self.arrived
        self.arrived.discard(request)
        self.failed.discard(request)
        keeps = False
        if self.blocks is not None:
            self.blocks.trim(request.id, max(0, request.comp - request.fl), request.prompt)
            keeps = self.far.keeps(request.id, request.comp)
            self.blocks.ended(request.id, request.comp, keeps)
        del self.requests[request.id]
        self.finished.append(request.id)
        if loading or keeps:
            self.kept[request.id] = request
        else:
            self._give(request)

    # ---------------------------------------------------------------------------------------------- a load

    def _match(self, request: Request, local: int) -> tuple[int | None, bool]:
        """S42: what the connector has beyond the local hit."""
        if self.blocks is None:
            return 0, False
        tail = local % self.size
        external, asynchronous = self.far.match(request.id, local - tail, request.n, request.preemptions)
        self.blocks.matched(request.id, external)
        if request.skip and self.choices.skip_covers_loads:
            return 0, False
        if external is not None and tail:
            external = 0 if external <= tail else external  # a longer load covers the tail
            asynchronous = asynchronous and external > 0
        return external, asynchronous

    def _reserved(self) -> int:
        """S44 (blocks): what those who started earlier still need, and the drafts of a step."""
        assert self.blocks is not None
        calls = [self._call(one, one.comp, 0, False) for one in self.prefilling]
        if self.choices.load_reserve == "each group":
            return sum(self.blocks.remaining(call, self.beyond) for call in calls) + self.spare
        step = ceil_div(self.beyond, self.size) if self.choices.load_reserve == "one group" else 0
        return sum(self.blocks.remaining(call, 0) + step for call in calls) + step

    def _load_call(self, request: Request, local: int, external: int) -> Call:
        """S43: nothing is computed, so no draft slots: both sides must hold equally many blocks."""
        call = self._call(request, local, 0, True, local)
        call.external, call.lookahead = external, 0
        call.reserved_blocks, call.skip_zeroing = self._reserved(), self.skipped
        return call

    def _started(self, request: Request, external: int) -> None:
        if self.blocks is not None:
            self.far.started(request.id, external, request.preemptions)
            self.blocks.started(request.id, external)

    def _load(self, request: Request, computed: int, external: int, rows: Rows) -> None:
        """S43: it waits, with its blocks, for what is loaded."""
        self._started(request, external)
        request.status, request.comp = LOADING, computed
        self.prefilling[request] = None
        if self.choices.load_zeroing:
            for row, size in zip(rows, self.sizes, strict=True):
                self.loaded_blocks.update(row[(computed - external) // size : ceil_div(computed, size)])

    def zero_list(self, taken: tuple[int, ...]) -> tuple[int, ...]:
        """What of the manager's zero list the worker is told: not what a load writes (A60)."""
        skipped, self.loaded_blocks = self.loaded_blocks, set()
        return tuple(block for block in taken if block not in skipped) if skipped else taken

    def _ready(self, request: Request) -> bool:
        """S45: whether a load under way has ended, or a grammar is compiled; then it is an ordinary candidate."""
        if request.status == PAUSED_SESSION:
            return False
        if request.status == COMPILING:
            if request.grammar > 1:
                request.grammar -= 1
                return False
            request.status = WAITING
        if request.status != LOADING:
            return True
        if request not in self.arrived:
            return False
        self.arrived.remove(request)
        if request in self.failed and not request.comp:
            self.free(request.id)
        elif self.caching:
            self.name(request, self._call(request, request.comp, 0, False), request.comp)
        self.failed.discard(request)
        request.comp = min(request.comp, request.n - 1)
        request.status = PREEMPTED if request.preemptions else WAITING
        return True

    # ---------------------------------------------------------------------------------------- what ends it

    def output(
        self,
        returned: dict[int, list[int]],
        stop: int,
        proposed: dict[int, int] | None,
        transfers: Transfers = NOTHING_MOVED,
    ) -> list[Delivered]:
        """The oldest step's output, and what the connector's worker side reports with it (S45, S48, S50)."""
        flight = self.flights[0]
        if self.fenced and flight.tokens:
            self.processed_steps += 1
            while self.fences and self.fences[0] <= self.processed_steps:
                self.fences.popleft()
                assert self.blocks is not None
                self.blocks.give_back()
        failed = self._failures(transfers.failed, flight)
        skipped = None if failed is None or (self.recomputes and failed.status == LOADING) else failed.id
        delivered = self.back(returned, stop, skipped, transfers.refused)
        if failed is not None and not self.recomputes:
            delivered.append((failed.id, (), ERROR))
            self._end(failed)
            self._leave([failed])
        for name in transfers.loaded:
            self.far.arrived(name, failed is not None and failed.id == name)
            if name in self.kept:
                self._give(self.kept.pop(name))
            else:
                self.arrived.add(self.requests[name])
        for name in transfers.sent:
            self.far.sent(name)
            self._give(self.kept.pop(name))
        if proposed:
            self.propose(proposed, dict(transfers.valid))
        return delivered

    def _failures(self, failed: tuple[int, int] | None, flight: InFlight) -> Request | None:
        """S48: computed tokens end where the first column begins that did not load."""
        if failed is None:
            return None
        name, column = failed
        request = self.requests.get(name)
        if request is None:
            return None
        if request.status == LOADING:
            if self.by_block:
                request.comp = column * self.size
            elif self.recomputes:
                request.comp = 0
            self.failed.add(request)
            return request
        request.comp = column * self.size
        self.far.failures[name] += 1
        return request

    def reset_cache(self, running: bool, connector: bool, emptied: Callable[[], bool]) -> bool:
        """P12: who runs is preempted, if wanted, then the cache is `emptied` if it can be; whether it was.

        Last the connector forgets what it has, if wanted; not where all were preempted in vain.
        """
        self.reset(running)
        done = emptied()
        if connector and (done or not running) and self.blocks is not None:
            self.far.cleared()
            self.blocks.cleared()
        return done

    def busy(self) -> bool:
        """Blocks that are sent, or loaded for nobody, come back with a step."""
        return super().busy() or bool(self.kept)

    def submit(self, operation: Submit, arrival: int, content: Content | None = None) -> None:
        """A request arrives."""
        self.far.submitted(operation)
        super().submit(operation, arrival, content)
