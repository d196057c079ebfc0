"""What a shrinker tries: traces with a part changed, or None where no engine could have the change."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import chain
from math import ceil
from typing import Any

from attrs import evolve

from harness.outcome import Entry, Options
from harness.trace_run import new_replay, run_operations
from oracle.errors import SettingError
from oracle.groups import Group
from oracle.trace import Extend, Operation, Trace

#: yields candidates and is sent the best trace so far: the candidate itself if it was kept
Candidates = Generator[Trace | None, Trace, None]
Reduction = Callable[[Trace], Candidates]


def changed(operation: Operation, **changes: Any) -> Operation:
    """The operation with other values; what it is changes nothing for the type checker."""
    other: Operation = evolve(operation, **changes)
    return other


def with_operations(trace: Trace, operations: Iterable[Operation]) -> Trace:
    """The trace with other operations."""
    return evolve(trace, operations=tuple(operations))


def replaced(trace: Trace, changes: Mapping[int, Iterable[Operation]]) -> Trace:
    """The trace with the operations at some indices replaced by others, or by none."""
    return with_operations(
        trace, chain.from_iterable(changes.get(index, (op,)) for index, op in enumerate(trace.operations))
    )


def with_setting(trace: Trace, **changes: Any) -> Trace | None:
    """The trace with a changed setting."""
    try:
        return evolve(trace, setting=evolve(trace.setting, **changes))
    except SettingError:
        return None


def with_pool(trace: Trace, num_blocks: int) -> Trace | None:
    """The trace on another pool, with the same watermark in blocks."""
    return with_watermark(with_setting(trace, num_blocks=num_blocks), trace.setting.watermark_blocks)


def with_watermark(trace: Trace | None, blocks: int) -> Trace | None:
    """The trace with a watermark of so many blocks, as a share with few digits."""
    if trace is None or not blocks:
        return trace and with_setting(trace, watermark=0.0)
    digits = len(str(trace.setting.num_blocks))
    return with_setting(trace, watermark=ceil(10**digits * blocks / trace.setting.num_blocks) / 10**digits)


def with_groups(trace: Trace, groups: Iterable[Group]) -> Trace | None:
    """The trace with other groups; without cross-attention among them it brings no encoder tokens."""
    kept = tuple(groups)
    if any(group.kind == "cross_attention" for group in kept):
        return with_setting(trace, groups=kept)
    plain = [evolve(op, encoder=0) if isinstance(op, Extend) else op for op in trace.operations]
    return with_setting(with_operations(trace, plain), groups=kept, max_encoder_len=0)


def with_group(trace: Trace, index: int, **changes: Any) -> Trace | None:
    """The trace with one group changed."""
    groups = list(trace.setting.groups)
    try:
        groups[index] = evolve(groups[index], **changes)
    except SettingError:
        return None
    return with_setting(trace, groups=tuple(groups))


def entries_of(trace: Trace) -> list[Entry]:
    """What the oracle alone makes of each operation."""
    replay = new_replay(trace.setting, None, Options(aspects=frozenset(), keep_entries=True))
    run_operations(replay, trace.operations)
    return replay.entries


def each(trace: Trace, alternatives: Callable[[Trace], Iterable[Trace | None]]) -> Candidates:
    """The alternatives to a trace until one is kept, then those to that one, until none is."""
    before = None
    while before is not trace:
        before = trace
        for candidate in alternatives(before):
            trace = yield candidate
            if trace is not before:
                break
