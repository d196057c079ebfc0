"""Reductions of a trace's length: operations and requests dropped, histories and pairs of steps made one step."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from harness.candidates import Candidates, each, entries_of, replaced, with_operations, with_setting
from oracle.groups import Mamba
from oracle.setting import Setting
from oracle.trace import Extend, GiveBack, Loaded, NewStep, Operation, Release, Resume, Settle, Trace

#: operations between two steps that may go when the steps become one
_BETWEEN = (Settle, Loaded, NewStep, GiveBack)
#: outputs after a step among which the one that is to accept its drafts is looked for
_OUTPUTS = 3


def _request(op: Operation) -> int | None:
    return getattr(op, "request", None)


def _requests(trace: Trace) -> list[int]:
    return sorted({op.request for op in trace.operations if hasattr(op, "request")}, reverse=True)


def drop_operations(trace: Trace) -> Candidates:
    """Delta debugging: drop runs of halving length, from the end."""
    size = max(1, len(trace.operations) // 2)
    while size:
        start = len(trace.operations) - size
        while start >= 0:
            trace = yield with_operations(trace, trace.operations[:start] + trace.operations[start + size :])
            start -= size
        size //= 2


def drop_requests(trace: Trace) -> Candidates:
    """All operations of one request, the last request first."""
    for request in _requests(trace):
        trace = yield with_operations(trace, [op for op in trace.operations if _request(op) != request])


def replace_requests(trace: Trace) -> Candidates:
    """All operations of one request with one output of a step, or with the start of a step in their place."""
    return each(trace, _without_request)


def _without_request(trace: Trace) -> Iterator[Trace]:
    for request in _requests(trace):
        own = [index for index, op in enumerate(trace.operations) if _request(op) == request]
        gone: dict[int, tuple[Operation, ...]] = dict.fromkeys(own, ())
        for index, op in enumerate(trace.operations):
            if isinstance(op, Settle):
                yield replaced(trace, {**gone, index: ()})
        for index in own:
            yield replaced(trace, {**gone, index: (NewStep(),)})


def begin_later(trace: Trace) -> Candidates:
    """A request comes with all that it knows before some step: its history becomes one step, or part of that one."""
    return each(trace, _begun_later)


def _begun_later(trace: Trace) -> Iterator[Trace]:
    entries = entries_of(trace)
    for index in reversed(range(len(entries))):
        op, call = trace.operations[index], entries[index].call
        history = [k for k in range(index) if _request(trace.operations[k]) == _request(op)]
        if call is None or not history or not isinstance(op, Extend):
            continue
        first = trace.operations[history[0]]
        encoder = first.encoder if isinstance(first, Extend) else 0
        known = call.computed if call.computed == call.tokens - 1 else call.tokens
        before = Extend(request=op.request, prompt=known, new=call.computed, encoder=encoder)
        step = evolve(op, prompt=call.tokens, new=op.new + call.computed, encoder=encoder)
        gone: dict[int, tuple[Operation, ...]] = dict.fromkeys(history, ())
        outputs = [k for k in range(history[0], index) if isinstance(trace.operations[k], Settle)]
        for dropped in ({**gone, **dict.fromkeys(outputs, ())}, gone):
            yield replaced(trace, {**dropped, index: (step,)})
            for place in (history[0], history[-1]) if call.computed else ():
                yield replaced(trace, {**dropped, place: (before,)})
                yield replaced(trace, {**dropped, place: (before, Settle())})


def merge_steps(trace: Trace) -> Candidates:
    """Two steps of a request become one: with the tokens of both, with a longer prompt, or with accepted drafts."""
    return each(trace, _merged)


def _pairs(operations: tuple[Operation, ...]) -> Iterator[tuple[int, int, Extend, int, Extend]]:
    """The first step of a request, and two that follow each other while it keeps its row: indices, and the two."""
    last: dict[int, tuple[int, Extend]] = {}
    first: dict[int, int] = {}
    for index, op in enumerate(operations):
        if isinstance(op, Extend):
            first.setdefault(op.request, index)
            if op.request in last:
                yield first[op.request], *last[op.request], index, op
            last[op.request] = index, op
        elif isinstance(op, Release):
            last.pop(op.request, None)
            if not op.preempt:
                first.pop(op.request, None)


def _merged(trace: Trace) -> Iterator[Trace | None]:
    operations = trace.operations
    for first, i, one, j, two in _pairs(operations):
        own = [k for k in range(i, j + 1) if _request(operations[k]) == one.request]
        between = [k for k in range(i + 1, j) if isinstance(operations[k], _BETWEEN)]
        resumed = sum(op.tokens for k in own if isinstance(op := operations[k], Resume))
        begin = operations[first]
        for dropped in (between, [], *([k] for k in between)):
            gone: dict[int, tuple[Operation, ...]] = dict.fromkeys((*own, *dropped), ())
            for more in sorted({0, 1, two.new, resumed}):
                for step in _sums(one, two, trace.setting):
                    for place in (i, j):
                        if first == i:
                            longer = evolve(step, prompt=step.prompt + more)
                            yield replaced(trace, {**gone, place: (longer,)})
                        elif isinstance(begin, Extend):
                            longer = evolve(begin, prompt=begin.prompt + more)
                            yield replaced(trace, {**gone, place: (step,), first: (longer,)})
        yield from _drafted(trace, i, one, j, two)


def _sums(one: Extend, two: Extend, setting: Setting) -> Iterator[Extend]:
    """One step in place of two: both computed, the first one dropped or loaded, or what it loads computed too."""
    yield evolve(one, new=one.new + two.new)
    yield evolve(one, new=two.new)
    if setting.kv_connector:
        yield evolve(one, new=two.new, external=one.external + one.new)
    if one.external:
        yield evolve(one, new=one.new + two.new + one.external, external=0)


def _drafted(trace: Trace, i: int, one: Extend, j: int, two: Extend) -> Iterator[Trace | None]:
    """The second step's tokens as drafts of the first, all accepted when its output is back."""
    outputs = [(k, op) for k, op in enumerate(trace.operations) if k > i and isinstance(op, Settle)]
    drafts = one.new + two.new - 1
    for output, settle in outputs[:_OUTPUTS]:
        accepted = {**dict(settle.accepted), one.request: drafts}
        changes: dict[int, tuple[Operation, ...]] = {
            i: (evolve(one, new=one.new + two.new),),
            j: (),
            output: (Settle(accepted=tuple(accepted.items())),),
        }
        others = [k for k, _ in outputs if k < j and k != output]
        for gone in (others, *([k] for k in others)):
            yield _drafting(replaced(trace, {**changes, **dict.fromkeys(gone, ())}), drafts)


def _drafting(trace: Trace, drafts: int) -> Trace | None:
    """The trace with a drafter that gives at least so many drafts."""
    setting = trace.setting
    drafts = max(drafts, setting.num_speculative_tokens)
    groups = [
        evolve(group, speculative_blocks=max(drafts, group.speculative_blocks)) if isinstance(group, Mamba) else group
        for group in setting.groups
    ]
    method = "ngram" if setting.method == "none" else setting.method
    return with_setting(trace, groups=tuple(groups), method=method, num_speculative_tokens=drafts)
