"""What must hold whatever the release does: checked on what a party shows, with no prediction beside it.

The laws of the memory are in `oracle.memory`; here are those of the pool, the caps and the gate (allocation spec,
section 6). A broken law is a Violation like the memory's.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from oracle.call import GRANTED, REFUSED, Call, Observation, Rows
from oracle.groups import CircularBuffer, CrossAttention, Mamba, Sink
from oracle.rounding import ceil_div
from oracle.setting import Setting
from oracle.trace import Audit
from oracle.violation import Violation


def blocks_for_one(setting: Setting) -> int:
    """Blocks that one request of max_model_len tokens holds at its peak: what start-up sizing grants it."""
    total = 0
    for group in setting.groups:
        size = group.tokens_per_column(setting.dcp_size)
        columns = ceil_div(setting.max_model_len, size)
        if isinstance(group, Mamba):
            columns = 1 + group.speculative_blocks
            if group.mode == "align":
                columns += 1 + group.checkpoint_blocks
            elif group.mode == "all":
                columns = ceil_div(setting.max_model_len, size) + group.speculative_blocks
        elif isinstance(group, CircularBuffer):
            columns = 1
        elif isinstance(group, CrossAttention):
            columns = ceil_div(setting.max_encoder_len, size)
        cap = group.admission_cap(setting.in_flight_limit, setting.max_model_len)
        total += columns if cap is None else cap
    return total


class Laws:
    """The laws of one trace. `report` receives each violation."""

    def __init__(self, setting: Setting, report: Callable[[Violation], None]) -> None:
        self.setting = setting
        self.report = report
        sinks = [group.sink_len // group.block_size for group in setting.groups if isinstance(group, Sink)]
        self.usable = setting.num_blocks - 1 - sum(sinks)  # a sink's blocks are set aside at the start (A49)
        self.blocks = frozenset(range(1, setting.num_blocks))
        #: requests with a row, and blocks popped but not given back
        self.holding: set[int] = set()
        self.popped: list[list[int]] = []
        self.realistic = setting.profile == "scheduler"
        limit, longest = setting.in_flight_limit, setting.max_model_len
        self.limit = limit
        self.caps = [
            (index, cap)
            for index, group in enumerate(setting.groups)
            if (cap := group.admission_cap(limit, longest)) is not None
        ]
        self.over_cap: set[int] = set()
        #: a pool below start-up sizing need not hold what the gate does not count: lookahead, a second align state
        self.align = any(isinstance(group, Mamba) and group.mode == "align" for group in setting.groups)
        self.promised = self.usable >= blocks_for_one(setting) or not (setting.lookahead or self.align)
        #: the request that the gate admitted to an idle pool and that has been alone since, with its known tokens
        self.alone: tuple[int, int] | None = None

    def _broken(self, index: int, law: str, what: str, text: str, group: int = -1) -> None:
        self.report(Violation(index, group, law, what, text))

    def extended(self, index: int, call: Call, seen: Observation, before: Rows) -> None:
        """After `allocate_slots`: a refusal that changes nothing, caps, the gate's promise."""
        if seen.outcome == REFUSED:
            if seen.rows != before or self.alone is not None:
                self._refused(index, call, seen.rows, before)
        elif seen.outcome == GRANTED:
            self.holding.add(call.request)
            if self.realistic:
                self._granted(index, call, seen.rows, before)

    def _refused(self, index: int, call: Call, rows: Rows, before: Rows) -> None:
        if rows != before and any(before):
            for group, (old, new) in enumerate(zip(before, rows, strict=True)):
                if len(old) != len(new) or any(b not in (0, a) for a, b in zip(old, new, strict=True)):
                    text = f"a refused call changed row {list(old)} to {list(new)}"
                    self._broken(index, "A22", "refusal", text, group)
        alone = self.alone
        if alone is None or alone[0] != call.request or not self.realistic:
            return
        end = call.computed + call.external + call.new
        fits = call.in_flight + call.new <= self.limit and end <= alone[1]
        hindered = call.reserved_blocks or (call.waiting and call.has_scheduled_reqs and self.setting.watermark)
        if fits and not hindered and self.promised:
            self.alone = None  # once is enough
            self._broken(
                index,
                "W5",
                "gate in flight" if self.align and call.in_flight else "gate",
                f"the gate admitted {alone[1]} tokens to an idle pool of {self.usable} blocks, "
                f"but the chunk that ends at {end} is refused with nobody else there",
            )

    def _granted(self, index: int, call: Call, rows: Rows, before: Rows) -> None:
        if self.caps and call.in_flight + call.new <= self.limit:
            for group, cap in self.caps:
                row = rows[group]
                count = len(row) - row.count(0)
                if count > cap and group not in self.over_cap:
                    self.over_cap.add(group)
                    self._broken(index, "W4", "cap", f"holds {count} blocks, its cap is {cap}", group)
        if self.alone is not None and self.alone[0] != call.request:
            self.alone = None
        if call.full_sequence_must_fit and len(self.holding) == 1 and not self.popped and not any(before):
            self.alone = (call.request, call.tokens)

    def released(self, request: int, rows: Rows, deferred: bool) -> None:
        """A request's `rows` are gone; when deferred, their blocks are not free yet."""
        self.holding.discard(request)
        self.alone = None
        if deferred:
            self.popped.append([block for row in rows for block in row if block])

    def given_back(self) -> None:
        """The oldest deferred blocks are free again."""
        self.popped.pop(0)

    def not_alone(self) -> None:
        """The promise of the gate ends: a session goes on with tokens it did not see, or its answer was a finding."""
        self.alone = None

    def audited(self, index: int, audit: Audit) -> None:
        """A1, A2: each id is free once, held once, or popped; the null block is none of these."""
        columns = chain.from_iterable(chain.from_iterable(audit.rows.values()))
        ids = [*audit.free_order, *filter(None, columns)]
        owned = set(ids)
        count = len(ids) + sum(map(len, self.popped))
        if len(owned) != len(ids):
            twice = sorted({block for block in ids if ids.count(block) > 1})
            self._broken(index, "A2", "owner", f"blocks {twice} have two owners, or are held and free")
        elif not owned <= self.blocks:
            self._broken(index, "A1", "owner", f"ids {min(ids)}..{max(ids)} in a pool of 1..{len(self.blocks)}")
        elif count != self.usable:
            self._broken(index, "A2", "conservation", f"{count} blocks are held, free or popped, of {self.usable}")
