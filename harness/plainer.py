"""Reductions of what a trace uses: groups, kinds, features of the setting, flags of operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve, fields

from harness.candidates import Candidates, changed, each, with_group, with_groups, with_operations, with_setting
from oracle.groups import FullAttention, Group, SlidingWindow, SlidingWindowMLA
from oracle.trace import Extend, Operation, Settle, Trace

#: speculative methods from plain to special
METHODS = ("none", "ngram", "eagle", "dflash")
NO_DRAFTER: dict[str, Any] = {"method": "none", "parallel_drafting": False, "num_speculative_tokens": 0}
#: what only prefix caching has
CACHING: dict[str, Any] = {
    "use_eagle": False,
    "num_hash_lookahead_tokens": 0,
    "num_prefill_lookahead_tokens": 0,
    "enable_mamba_shared_prefix_checkpoint": False,
    "enable_kv_cache_events": False,
    "divergent_hits": False,
}
#: each alone back to what most settings have
FEATURES: tuple[dict[str, Any], ...] = (
    {"profile": "scheduler"},
    {"enable_caching": False, **CACHING},
    *({name: plain} for name, plain in CACHING.items()),
    NO_DRAFTER,
    *({"method": name, "parallel_drafting": False} for name in METHODS[1:]),
    {"watermark": 0.0},
    {"dcp_size": 1},
    {"in_flight_depth": 1},
    {"kv_connector": False, "divergent_hits": False},
    {"prefix_cache_retention_interval": None},
    {"hash_block_size": None},
    {"max_in_flight_tokens": None},
    {"max_num_seqs": 256},
    {"max_num_batched_tokens": 2048},
)
#: fields of a group that are numbers or choices without a plain value
_SIZES = ("block_size", "window", "chunk", "mode", "sink_len")


def drop_groups(trace: Trace) -> Candidates:
    """One group after the other, the last first."""
    for index in reversed(range(len(trace.setting.groups))):
        groups = trace.setting.groups
        if len(groups) > 1:
            trace = yield with_groups(trace, groups[:index] + groups[index + 1 :])


def plainer_groups(trace: Trace) -> Candidates:
    """A plainer kind, and fields with their default."""
    return each(trace, _plainer_groups)


def _plainer_groups(trace: Trace) -> Iterator[Trace | None]:
    groups = trace.setting.groups
    for index, group in enumerate(groups):
        for plain in _plainer_kinds(group):
            yield with_groups(trace, (*groups[:index], plain, *groups[index + 1 :]))
        for attribute in fields(type(group)):
            if attribute.name not in _SIZES and getattr(group, attribute.name) != attribute.default:
                yield with_group(trace, index, **{attribute.name: attribute.default})


def _plainer_kinds(group: Group) -> Iterator[Group]:
    if not isinstance(group, FullAttention):
        yield FullAttention(block_size=group.block_size)
    if isinstance(group, SlidingWindowMLA):
        yield SlidingWindow(**{a.name: getattr(group, a.name) for a in fields(SlidingWindow)})


def plainer_setting(trace: Trace) -> Candidates:
    """Features off, one at a time."""
    for changes in FEATURES:
        trace = yield with_setting(trace, **changes)
    if trace.setting.lookahead:
        trace = yield _tokens_for_lookahead(trace)


def _tokens_for_lookahead(trace: Trace) -> Trace | None:
    """A prompt that is longer by the lookahead asks for the same columns, without a drafter."""
    more = trace.setting.lookahead
    longer = [
        evolve(op, new=op.new + more, prompt=op.prompt + more) if isinstance(op, Extend) and op.prompt else op
        for op in trace.operations
    ]
    return with_setting(with_operations(trace, longer), max_model_len=trace.setting.max_model_len + more, **NO_DRAFTER)


def plainer_operations(trace: Trace) -> Candidates:
    """Flags back to their defaults, no drafts accepted."""
    return each(trace, _plainer_operations)


def _plainer_operations(trace: Trace) -> Iterator[Trace]:
    for index, op in enumerate(trace.operations):
        for other in _plainer_operation(op):
            yield with_operations(trace, (*trace.operations[:index], other, *trace.operations[index + 1 :]))


def _plainer_operation(op: Operation) -> Iterator[Operation]:
    for attribute in fields(type(op)):
        if attribute.default != getattr(op, attribute.name) and attribute.name not in ("request", "new", "tokens"):
            yield changed(op, **{attribute.name: attribute.default})
    if isinstance(op, Extend) and op.external:
        yield evolve(op, new=op.external + op.new, external=0)
    for name in ("accepted", "forks", "items", "blocks"):
        values = getattr(op, name, ())
        for index in range(len(values)):
            yield changed(op, **{name: values[:index] + values[index + 1 :]})


def renumber(trace: Trace) -> Candidates:
    """Requests are 0, 1, 2, ... in order of appearance."""
    names: dict[int, int] = {}
    operations: list[Operation] = []
    for op in trace.operations:
        if isinstance(op, Settle):
            told = sorted((names.setdefault(request, len(names)), taken) for request, taken in op.accepted)
            operations.append(Settle(accepted=tuple(told)))
        elif hasattr(op, "request"):
            operations.append(changed(op, request=names.setdefault(op.request, len(names))))
        else:
            operations.append(op)
    yield with_operations(trace, operations)
