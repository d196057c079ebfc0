"""The real `KVCacheManager` behind the Target protocol."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from harness.targets import compat
from oracle.call import DONE, GRANTED, REFUSED, Call, Observation, Row, Rows
from oracle.setting import Setting
from oracle.trace import Audit

BLOCK_ID = attrgetter("block_id")


class StubRequest:
    """What the manager reads of a request; a real one costs more than the call."""

    __slots__ = (
        "block_hashes",
        "num_computed_tokens",
        "num_in_flight_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_tokens",
        "request_id",
        "shared_prefix_boundary",
        "skip_reading_prefix_cache",
        "status",
    )

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.num_computed_tokens = 0
        self.num_in_flight_tokens = 0
        self.num_prompt_tokens = 0
        self.num_tokens = 0
        self.num_preemptions = 0
        self.block_hashes: list[Any] = []
        self.shared_prefix_boundary = 0
        self.skip_reading_prefix_cache = True
        self.status: Any = None


class Manager:
    """A manager of the installed release, or of a fork: any class with `KVCacheManager`'s methods."""

    def __init__(self, setting: Setting, manager_class: Any = None) -> None:
        found = manager_class or compat.manager_class()
        with compat.environment(setting.prefix_cache_retention_interval):
            self.manager = found(**compat.manager_keywords(found, setting))
        statuses = compat.request_statuses()
        self.waiting, self.running, self.preempted = statuses.WAITING, statuses.RUNNING, statuses.PREEMPTED
        self.pool = self.manager.block_pool
        self.queue = self.pool.free_block_queue
        self.limit = setting.num_blocks
        self.tables = [single.req_to_blocks for single in self.manager.coordinator.single_type_managers]
        self.rows_of = [table.get for table in self.tables]
        self.nothing: Rows = tuple(() for _ in self.tables)
        self.stubs: dict[int, StubRequest] = {}
        self.popped: list[list[Any]] = []
        self.zeroing = compat.takes(found.allocate_slots, "skip_zeroing_group_ids")
        self.reserves = compat.takes(found.allocate_slots, "reserved_blocks")
        self.watermarked = compat.takes(found.allocate_slots, "has_scheduled_reqs")

    def allocate(self, call: Call) -> Any:
        """The bare call: what the scheduler would do, nothing observed."""
        stub = self.stubs.get(call.request)
        if stub is None:
            stub = self.stubs[call.request] = StubRequest(str(call.request))
        stub.num_computed_tokens = call.computed
        stub.num_in_flight_tokens = call.in_flight
        stub.num_prompt_tokens = call.prompt
        stub.num_tokens = call.tokens
        stub.status = self.preempted if call.preempted else self.waiting if call.waiting else self.running
        more: dict[str, Any] = {}
        if self.zeroing and call.skip_zeroing:
            more["skip_zeroing_group_ids"] = call.skip_zeroing
        if self.reserves:
            more["reserved_blocks"] = call.reserved_blocks
        if self.watermarked:
            more["has_scheduled_reqs"] = call.has_scheduled_reqs
        return self.manager.allocate_slots(
            stub,
            call.new,
            num_lookahead_tokens=call.lookahead,
            num_external_computed_tokens=call.external,
            delay_cache_blocks=call.new == 0,
            num_encoder_tokens=call.encoder,
            full_sequence_must_fit=call.full_sequence_must_fit,
            **more,
        )

    def extend(self, call: Call) -> Observation:
        try:
            blocks = self.allocate(call)
        except Exception as error:
            return Observation(f"error:{type(error).__name__}", self.nothing, self._rows(call.request), self._free())
        name = self.stubs[call.request].request_id
        rows = tuple([tuple(map(BLOCK_ID, row_of(name, ()))) for row_of in self.rows_of])
        if blocks is None:
            return Observation(REFUSED, self.nothing, rows, self.queue.num_free_blocks)
        new = tuple([tuple(map(BLOCK_ID, group)) if group else () for group in blocks.blocks])
        return Observation(GRANTED, new, rows, self.queue.num_free_blocks)

    def release(self, request: int, deferred: bool) -> Observation:
        stub = self.stubs.pop(request, None)
        popped: Row = ()
        if deferred:
            blocks = [] if stub is None else self.manager.pop_blocks_for_free(stub)
            self.popped.append(list(blocks))
            popped = tuple(map(BLOCK_ID, blocks))
        elif stub is not None:
            self.manager.free(stub)
        return Observation(DONE, (popped,), self._rows(request), self._free())

    def give_back(self) -> Observation:
        if self.popped:
            self.pool.free_blocks(reversed(self.popped.pop(0)))
        return Observation(DONE, self.nothing, self.nothing, self._free())

    def trim(self, request: int, processed: int, prompt: int) -> Observation:
        self.manager.remove_skipped_blocks(str(request), processed, prompt)
        return Observation(DONE, self.nothing, self._rows(request), self._free())

    def new_step(self) -> Observation:
        self.manager.new_step_starts()
        zeroed = self.manager.take_new_block_ids()
        return Observation(DONE, (tuple(zeroed),), self.nothing, self._free())

    def _free(self) -> int:
        return int(self.queue.num_free_blocks)

    def _rows(self, request: int) -> Rows:
        return self._named(str(request))

    def _named(self, name: str) -> Rows:
        return tuple([tuple(map(BLOCK_ID, row_of(name, ()))) for row_of in self.rows_of])

    def audit(self) -> Audit:
        names = {name for table in self.tables for name, blocks in table.items() if blocks}
        return Audit({int(name): self._named(name) for name in names}, self._free_order())

    def _free_order(self) -> Row:
        """Ids from the queue's front, at most one more than the pool has: a damaged queue may run in a circle."""
        head = getattr(self.queue, "fake_free_list_head", None)
        if head is None:  # a fork's own queue
            return tuple(map(BLOCK_ID, self.queue.get_all_free_blocks()))
        order: list[int] = []
        block = head.next_free_block
        following = block and block.next_free_block
        while following is not None and len(order) <= self.limit:
            order.append(block.block_id)
            block, following = following, following.next_free_block
        return tuple(order)
