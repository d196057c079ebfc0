"""The oracle and the real manager side by side, driven by absolute numbers: one operation a line.

The trace's ledger is left out on purpose, so that an example of the spec is one line and may be a call that no
scheduler makes.
"""

from __future__ import annotations

from typing import Any

from harness.targets.manager import Manager
from oracle.allocator import Allocator
from oracle.call import GRANTED, Call, Observation, Rows
from oracle.groups import CrossAttention, Group
from oracle.setting import Setting

#: "prompt long": more tokens than any example without a T of its own computes
LONG = 60


def call(
    computed: int,
    new: int,
    *,
    request: int = 0,
    in_flight: int = 0,
    external: int = 0,
    lookahead: int = 0,
    encoder: int = 0,
    prompt: int = LONG,
    tokens: int | None = None,
    waiting: bool = False,
    preempted: bool = False,
    gate: bool = False,
    reserved: int = 0,
    scheduled: bool = True,
    skip_zeroing: tuple[int, ...] = (),
) -> Call:
    """The call `computed:new`, RUNNING and with nothing else unless said.

    tokens: T, the prompt unless said. gate: `full_sequence_must_fit`. scheduled: `has_scheduled_reqs`.
    """
    return Call(
        request=request,
        computed=computed,
        in_flight=in_flight,
        prompt=prompt,
        tokens=prompt if tokens is None else tokens,
        waiting=waiting or preempted,
        preempted=preempted,
        new=new,
        lookahead=lookahead,
        external=external,
        encoder=encoder,
        full_sequence_must_fit=gate,
        reserved_blocks=reserved,
        has_scheduled_reqs=scheduled,
        skip_zeroing=skip_zeroing,
    )


class Both:
    """Does each operation on both, and fails at the first one after which they differ.

    Compared are the outcome, the entries added, the request's rows, the free count, then every row and the whole
    order of the free queue. Groups are named first, then `blocks` (N, null block included), `max_model_len` (M) and
    any other field of Setting. The profile is hostile: an example need not be a configuration that an engine has.
    """

    def __init__(self, *groups: Group, blocks: int = 32, max_model_len: int = 64, **fields: Any) -> None:
        if any(isinstance(group, CrossAttention) for group in groups):
            fields.setdefault("max_encoder_len", 64)
        setting = Setting(groups=groups, num_blocks=blocks, max_model_len=max_model_len, profile="hostile", **fields)
        self.oracle = Allocator(setting)
        self.real = Manager(setting)
        #: per group, what the last granted call appended by extension (A20)
        self.added: list[list[int]] = []

    def ask(self, computed: int, new: int, **fields: Any) -> list[list[int]] | str:
        """`allocate_slots`; `ask(t, n)` is the spec's `t:n`, the rest as in `call`. The rows, or why not."""
        seen = self._both("extend", call(computed, new, **fields))
        if seen.outcome == GRANTED:
            self.added = _lists(seen.new)
        return _answer(seen)

    def alone(self, party: str, computed: int, new: int, **fields: Any) -> list[list[int]] | str:
        """`ask` of one of them, "oracle" or "real", where they are known to differ: the last operation of a test."""
        return _answer(getattr(self, party).extend(call(computed, new, **fields)))

    def release(self, request: int = 0) -> None:
        """Free the request's blocks."""
        self._both("release", request, False)

    def pop(self, request: int = 0) -> list[int]:
        """Deferred free: forget the request, give its blocks in the order in which they are popped (A8)."""
        return list(self._both("release", request, True).new[0])

    def give_back(self) -> None:
        """The oldest popped blocks go back to the pool, reversed."""
        self._both("give_back")

    def trim(self, processed: int, *, request: int = 0, prompt: int = LONG) -> list[list[int]]:
        """`remove_skipped_blocks`; gives the rows."""
        return _lists(self._both("trim", request, processed, prompt).rows)

    def zero_list(self) -> list[int]:
        """`take_new_block_ids` (A60)."""
        return list(self._both("new_step").new[0])

    def rows(self, request: int = 0) -> list[list[int]]:
        """The request's rows; [] when it has none."""
        return _lists(self.real.audit().rows.get(request, ()))

    def queue(self, front: int | None = None) -> list[int]:
        """The free queue from its front, all of it or the first `front` ids."""
        return list(self.real.audit().free_order[:front])

    @property
    def free(self) -> int:
        """Free blocks."""
        return len(self.queue())

    def caps(self) -> list[int | None]:
        """Per group, the most blocks that the gate counts (A32, A35); None: no cap."""
        ours = [rule.cap for rule in self.oracle.rules]
        managers = self.real.manager.coordinator.single_type_managers
        theirs = [single.max_admission_blocks_per_request for single in managers]
        assert ours == theirs, f"caps: oracle {ours}, real {theirs}"
        return theirs

    def _both(self, operation: str, *arguments: Any) -> Observation:
        ours: Observation = getattr(self.oracle, operation)(*arguments)
        theirs: Observation = getattr(self.real, operation)(*arguments)
        assert ours == theirs, f"{operation} {arguments}: oracle {ours}, real {theirs}"
        oracle, real = self.oracle.audit(), self.real.audit()
        assert oracle == real, f"after {operation} {arguments}: oracle {oracle}, real {real}"
        return theirs


def _answer(seen: Observation) -> list[list[int]] | str:
    return _lists(seen.rows) if seen.outcome == GRANTED else seen.outcome


def _lists(rows: Rows) -> list[list[int]]:
    return [list(row) for row in rows]
