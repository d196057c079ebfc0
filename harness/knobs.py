"""The numbers of a trace, each as a knob that a shrinker can turn: read it, or get the trace with another value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from attrs import evolve, fields, frozen

from harness.candidates import changed, with_group, with_operations, with_pool, with_setting, with_watermark
from oracle.trace import LEAST, Evict, Extend, Loaded, Lookup, Resume, Settle, Trace


class Knob(Protocol):
    """One number of a trace."""

    def read(self, trace: Trace) -> int | None:
        """Its value, None where the trace has no such number."""

    def turn(self, trace: Trace, value: int) -> Trace | None:
        """The trace with another value; None when no engine could have it."""


@frozen
class SettingKnob:
    """A number of the setting."""

    name: str

    def read(self, trace: Trace) -> int | None:
        value: int | None = getattr(trace.setting, self.name)
        return value

    def turn(self, trace: Trace, value: int) -> Trace | None:
        setting = trace.setting
        if self.name == "num_blocks":
            return with_pool(trace, value)
        changes: dict[str, Any] = {self.name: value}
        if self.name == "max_model_len":  # a Mamba group in mode none keeps one block for all of it
            whole = [g.kind == "mamba" and g.block_size == setting.max_model_len for g in setting.groups]
            if value < 1:
                return None
            changes["groups"] = tuple(
                evolve(g, block_size=value) if all_of_it else g
                for g, all_of_it in zip(setting.groups, whole, strict=True)
            )
        return with_setting(trace, **changes)


@frozen
class WatermarkKnob:
    """The watermark, in blocks."""

    def read(self, trace: Trace) -> int | None:
        return trace.setting.watermark_blocks or None

    def turn(self, trace: Trace, value: int) -> Trace | None:
        return with_watermark(trace, value)


@frozen
class GroupKnob:
    """A number of one group."""

    index: int
    name: str

    def read(self, trace: Trace) -> int | None:
        groups = trace.setting.groups
        return getattr(groups[self.index], self.name, None) if self.index < len(groups) else None

    def turn(self, trace: Trace, value: int) -> Trace | None:
        return with_group(trace, self.index, **{self.name: value})


@frozen
class OperationKnob:
    """A number of one operation."""

    index: int
    name: str

    def read(self, trace: Trace) -> int | None:
        operations = trace.operations
        return getattr(operations[self.index], self.name, None) if self.index < len(operations) else None

    def turn(self, trace: Trace, value: int) -> Trace | None:
        operations = list(trace.operations)
        if self.index >= len(operations) or value < LEAST.get(self.name, 0):
            return None
        operations[self.index] = changed(operations[self.index], **{self.name: value})
        return with_operations(trace, operations)


@frozen
class AcceptedKnob:
    """The drafts that one output accepts of one request."""

    index: int
    request: int

    def read(self, trace: Trace) -> int | None:
        op = trace.operations[self.index] if self.index < len(trace.operations) else None
        return dict(op.accepted).get(self.request) if isinstance(op, Settle) else None

    def turn(self, trace: Trace, value: int) -> Trace | None:
        operations = list(trace.operations)
        op = operations[self.index]
        if not isinstance(op, Settle):
            return None
        told = {**dict(op.accepted), self.request: value}
        operations[self.index] = Settle(accepted=tuple((r, taken) for r, taken in told.items() if taken))
        return with_operations(trace, operations)


@frozen
class BlockKnob:
    """One of the blocks that lose their names: what took it may only go if another one will do."""

    index: int
    place: int

    def read(self, trace: Trace) -> int | None:
        op = trace.operations[self.index] if self.index < len(trace.operations) else None
        return op.blocks[self.place] if isinstance(op, Evict) and self.place < len(op.blocks) else None

    def turn(self, trace: Trace, value: int) -> Trace | None:
        operations = list(trace.operations)
        op = operations[self.index]
        if not isinstance(op, Evict):
            return None
        operations[self.index] = Evict(blocks=(*op.blocks[: self.place], value, *op.blocks[self.place + 1 :]))
        return with_operations(trace, operations)


SETTING_NUMBERS = (
    "num_speculative_tokens",
    "num_hash_lookahead_tokens",
    "num_prefill_lookahead_tokens",
    "max_in_flight_tokens",
    "num_blocks",
    "max_encoder_len",
    "max_model_len",
)
OPERATION_NUMBERS = {
    Extend: ("prompt", "external", "new", "encoder", "lookahead", "reserved_blocks"),
    Resume: ("tokens",),
    Loaded: ("valid",),
    Lookup: ("tokens", "bound"),
}


def knobs_of(trace: Trace) -> Iterator[Knob]:
    """Every number of a trace that could be smaller."""
    for name in SETTING_NUMBERS:
        yield SettingKnob(name)
    yield WatermarkKnob()
    for index, group in enumerate(trace.setting.groups):
        for attribute in fields(type(group)):
            value = getattr(group, attribute.name)
            if isinstance(value, int) and not isinstance(value, bool):
                yield GroupKnob(index, attribute.name)
    for index, operation in enumerate(trace.operations):
        for name in OPERATION_NUMBERS.get(type(operation), ()):
            yield OperationKnob(index, name)
        if isinstance(operation, Settle):
            for request, _ in operation.accepted:
                yield AcceptedKnob(index, request)
        if isinstance(operation, Evict):
            for place in range(len(operation.blocks)):
                yield BlockKnob(index, place)
