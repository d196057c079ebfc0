"""Reductions of a trace's numbers: each alone, those that fall together, all lengths at once."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import combinations, permutations

from harness.candidates import Candidates
from harness.knobs import AcceptedKnob, Knob, OperationKnob, SettingKnob, knobs_of
from oracle.trace import Extend, Settle, Trace

#: numbers that count tokens: of the setting, of groups, of operations
TOKENS = (
    *("num_speculative_tokens", "max_encoder_len", "max_in_flight_tokens", "max_model_len"),
    *("block_size", "window", "chunk"),
    *("prompt", "external", "new", "encoder", "tokens", "valid"),
)


def smaller_numbers(trace: Trace) -> Candidates:
    """Each number alone: 0, 1, then down by halving strides."""
    for knob in [*knobs_of(trace)]:
        for low in (0, 1):
            if (knob.read(trace) or 0) > low:
                trace = yield knob.turn(trace, low)
        trace = yield from _fall(trace, (knob,))


def smaller_together(trace: Trace) -> Candidates:
    """Numbers that only fall together: a prompt and what is loaded of it, a block and the tokens that fill it."""
    sizes = {1, *(group.tokens_per_column(trace.setting.dcp_size) for group in trace.setting.groups)}
    for knobs in [*_bundles(trace)]:
        trace = yield from _fall(trace, knobs)
    for one, other in permutations([*knobs_of(trace)], 2):
        if _related(one, other):
            for size in sorted(sizes):
                before = None
                while before is not trace:
                    before, trace = trace, (yield _turned(trace, (one, other), (size, 1)))


def _related(one: Knob, other: Knob) -> bool:
    """Whether two numbers may depend on each other: those of two operations hardly do."""
    return getattr(one, "index", None) == getattr(other, "index", None) or not (
        isinstance(one, OperationKnob) and isinstance(other, OperationKnob)
    )


def scaled_down(trace: Trace) -> Candidates:
    """All lengths divided by the same number, rounded up or down."""
    for divisor in sorted({2, 3, *(group.block_size for group in trace.setting.groups)} - {1}, reverse=True):
        for up in (True, False):
            candidate: Trace | None = trace
            for knob in _lengths(trace):
                value = None if candidate is None else knob.read(candidate)
                if candidate is not None and value:
                    candidate = knob.turn(candidate, max(1, -(-value // divisor) if up else value // divisor))
            trace = yield candidate


def _lengths(trace: Trace) -> Iterator[Knob]:
    """What is in tokens, that of the setting first."""
    for knob in knobs_of(trace):
        if isinstance(knob, AcceptedKnob) or getattr(knob, "name", "") in TOKENS:
            yield knob


def _bundles(trace: Trace) -> Iterator[tuple[Knob, ...]]:
    """Knobs of one request's operations, with and without max_model_len."""
    longest = SettingKnob("max_model_len")
    for index, op in enumerate(trace.operations):
        if not isinstance(op, Extend) or not op.prompt:
            continue
        prompt = OperationKnob(index, "prompt")
        later = [
            OperationKnob(k, name)
            for k, other in enumerate(trace.operations)
            if isinstance(other, Extend) and other.request == op.request
            for name in ("new", "external")
            if getattr(other, name)
        ]
        for count in (1, 2):
            for knobs in combinations(later, count):
                yield (longest, prompt, *knobs)
                yield (prompt, *knobs)
    for index, op in enumerate(trace.operations):
        for request, _ in op.accepted if isinstance(op, Settle) else ():
            drafted = [
                OperationKnob(k, "new")
                for k, other in enumerate(trace.operations[:index])
                if isinstance(other, Extend) and other.request == request
            ]
            if drafted:
                yield (AcceptedKnob(index, request), drafted[-1])
                yield (AcceptedKnob(index, request), drafted[-1], SettingKnob("num_speculative_tokens"))


def _fall(trace: Trace, knobs: Sequence[Knob]) -> Generator[Trace | None, Trace, Trace]:
    """Lower the knobs by the same stride as long as it is kept, then by half of it, down to 1; give the best trace."""
    values = [knob.read(trace) for knob in knobs]
    stride = min(value or 0 for value in values) // 2 or 1
    while stride:
        before, trace = trace, (yield _turned(trace, knobs, [stride] * len(knobs)))
        if trace is before:
            stride //= 2
    return trace


def _turned(trace: Trace, knobs: Sequence[Knob], by: Sequence[int]) -> Trace | None:
    turned: Trace | None = trace
    for knob, amount in zip(knobs, by, strict=True):
        value = None if turned is None else knob.read(turned)
        if turned is None or value is None or value < amount:
            return None
        turned = knob.turn(turned, value - amount)
    return turned
