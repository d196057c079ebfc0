"""Plainer workloads: operations that say less, a setting without a part and what goes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import evolve

from oracle.content import item_length
from oracle.groups import CrossAttention
from oracle.scheduler_setting import KV_BOTH, RECOMPUTE
from oracle.workload import ASYNC, Abort, SchedulerOperation, SchedulerTrace, Step, Submit, Update

#: what a step says of requests, each with a count
PAIRS = ("accepted", "stops", "drafts", "loaded", "valid")
#: what a request says of a connector, an encoder, a grammar; with what says nothing
ELSEWHERE: dict[str, Any] = {
    "remote": 0,
    "load": ASYNC,
    "unknown": 0,
    "again": False,
    "keeps": False,
    "encoder": 0,
    "grammar": 0,
    "session": False,
    "items": (),
    "skip": False,
}


def said(operation: SchedulerOperation) -> int:
    """How much an operation says."""
    if isinstance(operation, Submit):
        more = sum(bool(getattr(operation, name) != value) for name, value in ELSEWHERE.items())
        more += sum(2 + item + offset for item, offset in operation.items)
        numbers = operation.prompt + operation.max_tokens + operation.priority + operation.remote
        return numbers + operation.unknown + more
    if isinstance(operation, Update):
        return operation.prompt + operation.max_tokens
    if isinstance(operation, Step):
        pairs: list[tuple[int, int]] = [pair for name in PAIRS for pair in getattr(operation, name)]
        return (
            3 * (len(pairs) + len(operation.sent) + len(operation.refused))
            + operation.early
            + sum(count for _, count in pairs)
        )
    return 0


def rename(operation: SchedulerOperation, names: dict[int, int]) -> SchedulerOperation:
    """The same operation with other names of requests."""
    if isinstance(operation, Submit | Update | Abort):
        return evolve(operation, request=names.get(operation.request, operation.request))
    if isinstance(operation, Step):
        pairs: dict[str, Any] = {
            name: tuple((names[request], count) for request, count in getattr(operation, name) if request in names)
            for name in PAIRS
        }
        sent = tuple(names[request] for request in operation.sent if request in names)
        refused = tuple(names[request] for request in operation.refused if request in names)
        return evolve(operation, sent=sent, refused=refused, **pairs)
    return operation


def without(step: Step, name: int) -> Step:
    """The same step, saying nothing of one request."""
    kept: dict[str, Any] = {part: tuple(pair for pair in getattr(step, part) if pair[0] != name) for part in PAIRS}
    sent, refused = ([request for request in part if request != name] for part in (step.sent, step.refused))
    return evolve(step, sent=tuple(sent), refused=tuple(refused), **kept)


def plainer(step: Step) -> Iterator[Step]:
    """The same step, saying less: all of it, one part, one pair, a smaller count."""
    yield Step()
    for index in range(len(step.sent)):
        yield evolve(step, sent=step.sent[:index] + step.sent[index + 1 :])
    if step.refused:
        yield evolve(step, refused=())
    for name in PAIRS:
        pairs = getattr(step, name)
        without: dict[str, Any] = {name: ()}
        yield evolve(step, **without)
        for index, (request, count) in enumerate(pairs):
            fewer: dict[str, Any] = {name: pairs[:index] + pairs[index + 1 :]}
            yield evolve(step, **fewer)
            if count > 1:
                lower: dict[str, Any] = {name: (*pairs[:index], (request, 1), *pairs[index + 1 :])}
                yield evolve(step, **lower)
    if step.early:
        yield evolve(step, early=False)


def disconnected(trace: SchedulerTrace) -> SchedulerTrace:
    """The same workload without a connector."""
    operations = tuple(
        evolve(operation, **ELSEWHERE)
        if isinstance(operation, Submit)
        else evolve(operation, loaded=(), sent=())
        if isinstance(operation, Step)
        else operation
        for operation in trace.operations
    )
    off: dict[str, Any] = {
        "kv_connector": False,
        "waits_for_block_frees": False,
        "kv_role": KV_BOTH,
        "kv_load_failure_policy": RECOMPUTE,
    }
    setting = evolve(trace.setting, **off)
    return evolve(trace, setting=setting, operations=operations)


def decoder_alone(trace: SchedulerTrace, fewer: int) -> SchedulerTrace:
    """The same workload without an encoder, and with so many blocks less in the pool."""
    operations = tuple(
        evolve(operation, encoder=0) if isinstance(operation, Submit) else operation for operation in trace.operations
    )
    groups = tuple(group for group in trace.setting.groups if not isinstance(group, CrossAttention))
    blocks = trace.setting.num_blocks - fewer
    setting = evolve(
        trace.setting, groups=groups, num_blocks=blocks, max_encoder_len=0, max_num_encoder_input_tokens=None
    )
    return evolve(trace, setting=setting, operations=operations)


def text_alone(trace: SchedulerTrace) -> SchedulerTrace:
    """The same workload without multimodal items."""
    operations = tuple(
        evolve(operation, items=()) if isinstance(operation, Submit | Update) else operation
        for operation in trace.operations
    )
    setting = evolve(
        trace.setting, encoder_cache_size=0, max_num_encoder_input_tokens=None, disable_chunked_mm_input=False
    )
    return evolve(trace, setting=setting, operations=operations)


def fewer_items(said: Submit | Update) -> Iterator[Submit | Update]:
    """The same request, or piece, without one of its items, with one at an earlier place, or with a smaller one."""
    for index, (item, offset) in enumerate(said.items):
        before, behind = said.items[:index], said.items[index + 1 :]
        yield evolve(said, items=before + behind)
        yield evolve(said, items=(*before, (item, offset - 1), *behind)) if offset else said
        for smaller in range(item):
            yield evolve(said, items=(*before, (smaller, offset), *behind))


def shortened(said: Submit | Update, prompt: int) -> Submit | Update:
    """The same request, or piece, with a prompt of so many tokens, and what of it still fits."""
    items = tuple((item, offset) for item, offset in said.items if offset + item_length(item) <= prompt)
    if isinstance(said, Update):
        return evolve(said, prompt=prompt, items=items)
    return evolve(said, prompt=prompt, remote=min(said.remote, prompt), items=items)


def generated(operation: SchedulerOperation, less: int, more: int = 0) -> SchedulerOperation:
    """A request asked for so many outputs less, with a prompt that is longer by so many."""
    if not isinstance(operation, Submit):
        return operation
    return evolve(operation, max_tokens=max(1, operation.max_tokens - less), prompt=operation.prompt + more)


def one_seat_less(trace: SchedulerTrace) -> SchedulerTrace:
    """A limit of requests goes with the request."""
    setting = trace.setting
    active = setting.max_num_active_seqs
    fewer = {
        "max_num_seqs": setting.max_num_seqs - 1,
        "max_num_active_seqs": active and min(active, setting.max_num_seqs - 1),
    }
    if active is not None and active < setting.max_num_seqs:
        fewer = {"max_num_active_seqs": active - 1}
    changed: dict[str, Any] = fewer
    return evolve(trace, setting=evolve(setting, **changed))


def seat_and_share_less(trace: SchedulerTrace) -> SchedulerTrace:
    """And the pool is that of the seats that are left, where it had room for each."""
    rest, blocks, seats = one_seat_less(trace), trace.setting.num_blocks - 1, trace.setting.max_num_seqs
    return evolve(rest, setting=evolve(rest.setting, num_blocks=1 + blocks * rest.setting.max_num_seqs // seats))


def _blocks_less(trace: SchedulerTrace, blocks: int) -> SchedulerTrace:
    return evolve(trace, setting=evolve(trace.setting, num_blocks=trace.setting.num_blocks - blocks))


#: what may have to go with a request
WITH_A_REQUEST: tuple[Callable[[SchedulerTrace], SchedulerTrace], ...] = (
    one_seat_less, seat_and_share_less, partial(_blocks_less, blocks=1), partial(_blocks_less, blocks=2),
)  # fmt: skip
