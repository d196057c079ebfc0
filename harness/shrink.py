"""Makes a failing trace minimal: fewer operations, requests, groups and features, then smaller numbers.

Works on the trace itself, not on the bytes it came from, so it serves generated traces, files and recordings alike. A
candidate counts when it shows the same defect (`same_defect`); operations that became void do no harm, so every
candidate is a legal trace. The passes repeat until none of them makes progress (a minimum) or the tries are used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import evolve, fields, frozen

from harness.knobs import Knob, changed, knobs_of
from harness.replay import MakeTarget, Options, run_trace
from oracle.errors import SettingError
from oracle.groups import Group
from oracle.trace import Difference, Extend, Operation, Settle, Trace

#: tries (replays of a candidate) before the shrinker gives up; a budget in steps of work, not in seconds
MAX_TRIES = 6000

Evaluate = Callable[[Trace], list[Difference]]


@frozen
class Shrunk:
    """The smallest failing trace found, its difference, and whether it is a minimum. No tries: it was not shrunk."""

    trace: Trace
    difference: Difference
    tries: int
    minimal: bool

    @property
    def end(self) -> str:
        """How the shrinking ended, in words."""
        if self.minimal:
            return "a minimum"
        return "not a minimum: the tries ran out" if self.tries else "not shrunk"


def same_defect(one: Difference, other: Difference) -> bool:
    """Whether `other`, seen on a smaller trace, is the defect `one`: kinds may have been dropped, nothing added."""
    return ((one.aspect, one.rule, one.sign, one.tags) == (other.aspect, other.rule, other.sign, other.tags)) and set(
        other.kind.split("+")
    ) <= set(one.kind.split("+"))


class Shrinker:
    """One trace being made smaller."""

    def __init__(self, trace: Trace, difference: Difference, evaluate: Evaluate, max_tries: int) -> None:
        self.best = trace
        self.difference = difference
        self.evaluate = evaluate
        self.max_tries = max_tries
        self.tries = 0
        self.seen: set[Trace] = set()

    def attempt(self, trace: Trace) -> bool:
        """Keep `trace` if it shows the defect."""
        if trace == self.best or trace in self.seen or self.tries >= self.max_tries:
            return False
        self.seen.add(trace)
        self.tries += 1
        for difference in self.evaluate(trace):
            if same_defect(self.difference, difference):
                self.best, self.difference = trace, difference
                return True
        return False

    def run(self) -> Shrunk:
        """Repeat the passes until none makes progress."""
        passes = (
            self._cut_the_tail,
            self._drop_operations,
            self._drop_requests,
            self._drop_groups,
            self._plainer_setting,
            self._plainer_operations,
            self._smaller_numbers,
            self._smaller_pairs,
            self._renumber,
        )
        progress = True
        while progress and self.tries < self.max_tries:
            before = self.best
            for shrink in passes:
                shrink()
            progress = self.best != before
        return Shrunk(self.best, self.difference, self.tries, self.tries < self.max_tries)

    def _with(self, operations: list[Operation] | tuple[Operation, ...]) -> Trace:
        return evolve(self.best, operations=tuple(operations))

    def _set(self, **changes: Any) -> bool:
        """Try the trace with a changed setting."""
        try:
            setting = evolve(self.best.setting, **changes)
        except SettingError:
            return False
        return self.attempt(evolve(self.best, setting=setting))

    # --------------------------------------------------------------------------------------- operations

    def _cut_the_tail(self) -> None:
        """Nothing after the step that differs is needed, or else only the outcomes that tell."""
        operations = self.best.operations
        self.attempt(self._with(operations[: self.difference.step + 1]))

    def _drop_operations(self) -> None:
        """Delta debugging: drop runs of halving length."""
        size = max(1, len(self.best.operations) // 2)
        while size:
            start = len(self.best.operations) - size
            while start >= 0:
                operations = self.best.operations
                self.attempt(self._with(operations[:start] + operations[start + size :]))
                start -= size
            if size > 1:
                self.attempt(self._with(self.best.operations[size:]))
            size //= 2

    def _drop_requests(self) -> None:
        for request in sorted(
            {op.request for op in self.best.operations if not isinstance(op, Settle) and hasattr(op, "request")}
        ):
            self.attempt(self._with([op for op in self.best.operations if getattr(op, "request", None) != request]))

    def _renumber(self) -> None:
        """Requests are 0, 1, 2, ... in order of appearance."""
        names: dict[int, int] = {}
        operations: list[Operation] = []
        for op in self.best.operations:
            if hasattr(op, "request"):
                op = changed(op, request=names.setdefault(op.request, len(names)))
            elif isinstance(op, Settle):
                op = Settle(accepted=tuple((names.setdefault(r, len(names)), a) for r, a in op.accepted))
            operations.append(op)
        self.attempt(self._with(operations))

    def _each(self, change: Callable[[Operation], Iterator[Operation]]) -> None:
        for index in range(len(self.best.operations)):
            progress = True
            while progress:
                progress = False
                operations = self.best.operations
                if index >= len(operations):
                    return
                for other in change(operations[index]):
                    if other != operations[index]:
                        rest = [*operations]
                        rest[index] = other
                        if self.attempt(self._with(rest)):
                            progress = True
                            break

    def _plainer_operations(self) -> None:
        """Flags back to their defaults."""

        def change(op: Operation) -> Iterator[Operation]:
            for attribute in fields(type(op)):
                if attribute.name not in ("request", "new", "prompt", "tokens", "external", "encoder"):
                    yield evolve(op, **{attribute.name: attribute.default})
            if isinstance(op, Settle):
                for index in range(len(op.accepted)):
                    yield Settle(accepted=op.accepted[:index] + op.accepted[index + 1 :])

        self._each(change)

    # ------------------------------------------------------------------------------------------ setting

    def _drop_groups(self) -> None:
        index = len(self.best.setting.groups) - 1
        while index >= 0:
            groups = self.best.setting.groups
            if len(groups) > 1 and index < len(groups):
                rest = groups[:index] + groups[index + 1 :]
                cross = any(group.kind == "cross_attention" for group in rest)
                self._set(groups=rest, **({} if cross else {"max_encoder_len": 0})) or self._set_and_drop_encoder(rest)
            index -= 1

    def _set_and_drop_encoder(self, groups: tuple[Group, ...]) -> bool:
        """Without its cross-attention group a trace must not bring encoder tokens."""
        if any(group.kind == "cross_attention" for group in groups):
            return False
        operations = tuple(evolve(op, encoder=0) if isinstance(op, Extend) else op for op in self.best.operations)
        try:
            setting = evolve(self.best.setting, groups=groups, max_encoder_len=0)
        except SettingError:
            return False
        return self.attempt(evolve(self.best, setting=setting, operations=operations))

    def _plainer_setting(self) -> None:
        """Features off, one at a time."""
        if not self._set(method="none", parallel_drafting=False, num_speculative_tokens=0):
            self._tokens_for_lookahead()
        self._set(parallel_drafting=False)
        if self.best.setting.num_speculative_tokens:
            self._set(method="eagle", parallel_drafting=False)
        for change in (
            {"watermark": 0.0},
            {"dcp_size": 1},
            {"in_flight_depth": 1},
            {"kv_connector": False},
            {"prefix_cache_retention_interval": None},
            {"hash_block_size": None},
            {"max_in_flight_tokens": None},
            {"max_num_seqs": 256},
            {"max_num_batched_tokens": 2048},
        ):
            self._set(**change)
        for index in range(len(self.best.setting.groups)):
            for attribute in fields(type(self.best.setting.groups[index])):
                if attribute.name not in ("block_size", "window", "chunk", "mode", "sink_len"):
                    self._set_group(index, **{attribute.name: attribute.default})

    def _tokens_for_lookahead(self) -> None:
        """A prompt that is longer by the lookahead asks for the same columns, without a drafter."""
        setting = self.best.setting
        more = setting.lookahead
        operations = tuple(
            evolve(op, new=op.new + more, prompt=op.prompt + more) if isinstance(op, Extend) and op.prompt else op
            for op in self.best.operations
        )
        setting = evolve(setting, max_model_len=setting.max_model_len + more)
        setting = evolve(setting, method="none", parallel_drafting=False, num_speculative_tokens=0)
        self.attempt(evolve(self.best, setting=setting, operations=operations))

    def _set_group(self, index: int, **changes: Any) -> bool:
        groups = list(self.best.setting.groups)
        try:
            groups[index] = evolve(groups[index], **changes)
        except SettingError:
            return False
        return self._set(groups=tuple(groups))

    # ------------------------------------------------------------------------------------------ numbers

    def _smaller_numbers(self) -> None:
        """Round every number down, then walk it down."""
        for knob in [*knobs_of(self.best)]:
            value = knob.read(self.best)
            if not value:
                continue
            for candidate in (0, 1, value // 2):
                if candidate < value and self._turn((knob, candidate)):
                    value = candidate
            while value > 0 and self._turn((knob, value - 1)):
                value -= 1

    def _smaller_pairs(self) -> None:
        """Numbers that only fall together: a prompt and what is loaded of it, a pool and what fills it."""
        sizes = {1, *(group.tokens_per_column(self.best.setting.dcp_size) for group in self.best.setting.groups)}
        for one in [*knobs_of(self.best)]:
            for other in [*knobs_of(self.best)]:
                if one == other:
                    continue
                for size in sorted(sizes):
                    while self._fall(one, other, size):
                        pass

    def _fall(self, one: Knob, other: Knob, size: int) -> bool:
        """Lower `one` by `size` and `other` by 1, or by the same."""
        first, second = one.read(self.best), other.read(self.best)
        if not first or not second or first < size:
            return False
        return self._turn((one, first - size), (other, second - 1))

    def _turn(self, *turns: tuple[Knob, int]) -> bool:
        trace: Trace | None = self.best
        for knob, value in turns:
            trace = None if trace is None else knob.turn(trace, value)
        return trace is not None and self.attempt(trace)


def shrink(
    trace: Trace,
    difference: Difference,
    make_target: MakeTarget,
    options: Options | None = None,
    max_tries: int = MAX_TRIES,
    evaluate: Evaluate | None = None,
) -> Shrunk:
    """The smallest trace that shows the defect `difference` of `trace`. `evaluate`: how a candidate is run.

    What does not show when the trace is run alone, for example that two runs differ (W6), is not shrunk.
    """
    given = options or Options()
    closely = Options(given.aspects, 1, given.declared, False, given.memory)

    def run(candidate: Trace) -> list[Difference]:
        return run_trace(candidate, make_target, closely).differences

    evaluate = evaluate or run
    if not any(same_defect(difference, found) for found in evaluate(trace)):
        return Shrunk(trace, difference, 0, False)
    return Shrinker(trace, difference, evaluate, max_tries).run()
