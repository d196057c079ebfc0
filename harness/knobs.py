"""The numbers of a trace, each as a knob that a shrinker can turn: read it, or get the trace with another value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from attrs import evolve, fields, frozen

from oracle.errors import SettingError
from oracle.trace import LEAST, Extend, Loaded, Operation, Resume, Trace


def changed(operation: Operation, **changes: Any) -> Operation:
    """The operation with other values; what it is changes nothing for the type checker."""
    other: Operation = evolve(operation, **changes)
    return other


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
        try:
            groups = setting.groups
            if self.name == "max_model_len":  # a Mamba group in mode none keeps one block for all of it
                groups = tuple(
                    evolve(g, block_size=value) if g.kind == "mamba" and g.block_size == setting.max_model_len else g
                    for g in groups
                )
            changes: dict[str, Any] = {self.name: value}
            return evolve(trace, setting=evolve(setting, groups=groups, **changes))
        except SettingError:
            return None


@frozen
class GroupKnob:
    """A number of one group."""

    index: int
    name: str

    def read(self, trace: Trace) -> int | None:
        groups = trace.setting.groups
        return getattr(groups[self.index], self.name, None) if self.index < len(groups) else None

    def turn(self, trace: Trace, value: int) -> Trace | None:
        groups = list(trace.setting.groups)
        try:
            changes: dict[str, Any] = {self.name: value}
            groups[self.index] = evolve(groups[self.index], **changes)
            return evolve(trace, setting=evolve(trace.setting, groups=tuple(groups)))
        except SettingError:
            return None


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
        if self.index >= len(operations):
            return None
        operations[self.index] = changed(operations[self.index], **{self.name: value})
        if value < LEAST.get(self.name, 0):
            return None
        return evolve(trace, operations=tuple(operations))


SETTING_NUMBERS = (
    "num_speculative_tokens",
    "max_in_flight_tokens",
    "num_blocks",
    "max_encoder_len",
    "max_model_len",
)
OPERATION_NUMBERS = {
    Extend: ("prompt", "external", "new", "encoder", "reserved_blocks"),
    Resume: ("tokens",),
    Loaded: ("valid",),
}


def knobs_of(trace: Trace) -> Iterator[Knob]:
    """Every number of a trace that could be smaller."""
    for name in SETTING_NUMBERS:
        yield SettingKnob(name)
    for index, group in enumerate(trace.setting.groups):
        for attribute in fields(type(group)):
            value = getattr(group, attribute.name)
            if isinstance(value, int) and not isinstance(value, bool):
                yield GroupKnob(index, attribute.name)
    for index, operation in enumerate(trace.operations):
        for name in OPERATION_NUMBERS.get(type(operation), ()):
            yield OperationKnob(index, name)
