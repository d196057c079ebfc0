"""Makes a failing warmup trace minimal: one operation, fewer groups and features, then smaller numbers.

A warmup's length follows from its setting, so it is the setting that becomes small; what stays, the defect needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve, fields, frozen

from harness.shrink import same_defect
from harness.warmups import MakeWarmup, WarmupOptions, run_warmups
from oracle.errors import SettingError
from oracle.groups import CrossAttention, FullAttention, Group, Mamba
from oracle.trace import Difference
from oracle.warmup import Draft, Kernels, Mixed, TraceOperation, WarmupSetting, WarmupTrace

#: warmups tried before the shrinker gives up
MAX_TRIES = 1500
#: numbers of the setting in the order in which they are lowered
NUMBERS = (
    "num_speculative_tokens",
    "cp_interleave",
    "dcp_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_encoder_len",
    "max_model_len",
)
#: drafters from plain to special
METHODS = ("none", "ngram", "eagle", "draft_model", "dflash")

Evaluate = Callable[[WarmupTrace], list[Difference]]
#: where a number is ("setting", "group", "operation"), its index there, its name
Knob = tuple[str, int, str]


@frozen
class WarmupShrunk:
    """The smallest failing trace found, its difference, and whether it is a minimum or the tries ran out."""

    trace: WarmupTrace
    difference: Difference
    tries: int
    minimal: bool


class WarmupShrinker:
    """One trace being made smaller."""

    def __init__(self, trace: WarmupTrace, difference: Difference, evaluate: Evaluate, max_tries: int) -> None:
        self.best, self.difference = trace, difference
        self.evaluate, self.max_tries = evaluate, max_tries
        self.tries = 0
        self.seen: set[WarmupTrace] = set()

    def attempt(self, change: Callable[[], WarmupTrace]) -> bool:
        """Keep what `change` makes if an engine can have it and it shows the defect."""
        try:
            trace = change()
        except SettingError:
            return False
        if trace == self.best or trace in self.seen or self.tries >= self.max_tries:
            return False
        self.seen.add(trace)
        self.tries += 1
        for difference in self.evaluate(trace):
            if same_defect(self.difference, difference):
                self.best, self.difference = trace, difference
                return True
        return False

    def run(self) -> WarmupShrunk:
        """Repeat the passes until none makes progress."""
        progress = True
        while progress and self.tries < self.max_tries:
            before = self.best
            for shrink in (self._operations, self._groups, self._plainer, self._numbers, self._pairs):
                shrink()
            progress = self.best != before
        return WarmupShrunk(self.best, self.difference, self.tries, self.tries < self.max_tries)

    def _set(self, **changes: Any) -> bool:
        return self.attempt(lambda: evolve(self.best, setting=evolve(self.best.setting, **changes)))

    # ------------------------------------------------------------------------------------------ structure

    def _operations(self) -> None:
        """One warmup alone, then without each; one of the other kind may show it too."""
        for operation in self.best.operations:
            self._with((operation,))
        for index in range(len(self.best.operations) - 1, -1, -1):
            rest = self.best.operations[:index] + self.best.operations[index + 1 :]
            if rest:
                self._with(rest)
        for index, operation in enumerate(self.best.operations):
            if isinstance(operation, Mixed):
                self._replace(index, Kernels(fail=operation.fail))
            if not isinstance(operation, Draft):
                self._replace(index, evolve(operation, fail=0))

    def _with(self, operations: tuple[TraceOperation, ...]) -> bool:
        return self.attempt(lambda: evolve(self.best, operations=operations))

    def _replace(self, index: int, operation: TraceOperation) -> bool:
        operations = list(self.best.operations)
        operations[index] = operation
        return self._with(tuple(operations))

    def _with_groups(self, groups: tuple[Group, ...]) -> bool:
        cross = any(isinstance(group, CrossAttention) for group in groups)
        return self._set(groups=groups, max_encoder_len=self.best.setting.max_encoder_len if cross else 0)

    def _groups(self) -> None:
        for index in range(len(self.best.setting.groups) - 1, -1, -1):
            groups = self.best.setting.groups
            if len(groups) > 1 and index < len(groups):
                self._with_groups(groups[:index] + groups[index + 1 :])
        for index, group in enumerate(self.best.setting.groups):
            if not isinstance(group, FullAttention):
                self._group(index, FullAttention(block_size=group.block_size, dcp_sharded=group.dcp_sharded))

    def _group(self, index: int, group: Group) -> bool:
        groups = list(self.best.setting.groups)
        groups[index] = group
        return self._with_groups(tuple(groups))

    def _plainer(self) -> None:
        """No drafter or a plainer one, flags at their defaults."""
        self._set(method="none", num_speculative_tokens=0, parallel_drafting=False, adaptive_verification=False)
        for method in METHODS[1:]:
            if self._set(method=method, parallel_drafting=False):
                break
            if self.best.setting.method == method:
                break
        for attribute in fields(WarmupSetting):
            if isinstance(attribute.default, bool) or attribute.name == "max_in_flight_tokens":
                self._set(**{attribute.name: attribute.default})
        for index, group in enumerate(self.best.setting.groups):
            for attribute in fields(type(group)):
                if attribute.name in ("precision", "uniform_layers", "dcp_sharded", "checkpoint_blocks"):
                    self._evolve_group(index, attribute.name, attribute.default)

    def _evolve_group(self, index: int, name: str, value: object) -> bool:
        def change() -> WarmupTrace:
            groups = list(self.best.setting.groups)
            changes: dict[str, Any] = {name: value}
            groups[index] = evolve(groups[index], **changes)
            return evolve(self.best, setting=evolve(self.best.setting, groups=tuple(groups)))

        return self.attempt(change)

    # -------------------------------------------------------------------------------------------- numbers

    def _knobs(self) -> list[Knob]:
        """Every number of the trace."""
        knobs: list[Knob] = [("setting", 0, name) for name in NUMBERS]
        for index, group in enumerate(self.best.setting.groups):
            names = [attribute.name for attribute in fields(type(group))]
            knobs += [("group", index, name) for name in names if type(getattr(group, name)) is int]
        for index, operation in enumerate(self.best.operations):
            names = [attribute.name for attribute in fields(type(operation))]
            knobs += [("operation", index, name) for name in names]
        return [*knobs, ("setting", 0, "num_blocks")]  # smaller blocks need a larger pool: it falls last

    def _read(self, knob: Knob) -> int:
        where, index, name = knob
        setting, operations = self.best.setting, self.best.operations
        owner = setting if where == "setting" else setting.groups[index] if where == "group" else operations[index]
        value: int = getattr(owner, name)
        return value

    def _turn(self, knob: Knob, value: int) -> bool:
        where, index, name = knob
        if where == "setting":
            return self._set(**{name: value})
        return self._evolve_group(index, name, value) if where == "group" else self._number(index, name, value)

    def _number(self, index: int, name: str, value: int) -> bool:
        def change() -> WarmupTrace:
            operations: list[TraceOperation] = list(self.best.operations)
            changes: dict[str, Any] = {name: value}
            operations[index] = evolve(operations[index], **changes)
            return evolve(self.best, operations=tuple(operations))

        return self.attempt(change)

    def _numbers(self) -> None:
        """Round every number down: the least values, then by halves, then one by one."""
        for knob in self._knobs():
            for least in (0, 1, 2):
                if least < self._read(knob) and self._turn(knob, least):
                    break
            step = self._read(knob) // 2
            while step:
                while self._read(knob) > step and self._turn(knob, self._read(knob) - step):
                    pass
                step //= 2

    def _pairs(self) -> None:
        """Numbers that only fall together: drafts and the states kept for them, a length and a pool."""
        for index in range(len(self.best.setting.groups)):
            while self._fewer_states(index, 0) or self._fewer_states(index, 1):
                pass
        while self._together(self.best.setting.max_model_len):
            pass
        step = self.best.setting.max_model_len // 2
        while step:
            while self._shift(step):
                pass
            step //= 2
        while self._fewer_drafts():
            pass

    def _fewer_states(self, index: int, tokens: int) -> bool:
        """One draft less and one state less for it, in a block that is smaller by `tokens`."""
        setting = self.best.setting
        group, drafts = setting.groups[index], setting.num_speculative_tokens
        if not isinstance(group, Mamba) or drafts < 2 or group.block_size <= tokens:
            return False

        def change() -> WarmupTrace:
            groups = list(setting.groups)
            states = max(0, group.speculative_blocks - 1)
            groups[index] = evolve(group, speculative_blocks=states, block_size=group.block_size - tokens)
            smaller = evolve(setting, groups=tuple(groups), num_speculative_tokens=drafts - 1)
            return evolve(self.best, setting=smaller)

        return self.attempt(change)

    def _together(self, value: int) -> bool:
        """Every number that equals max_model_len, one lower: a Mamba block in mode none, a prompt that fills it."""

        def change() -> WarmupTrace:
            setting = self.best.setting
            groups = tuple(
                evolve(group, block_size=value - 1) if group.block_size == value else group for group in setting.groups
            )
            operations = tuple(
                evolve(op, num_tokens=value - 1) if isinstance(op, Mixed) and op.num_tokens == value else op
                for op in self.best.operations
            )
            smaller = evolve(setting, groups=groups, max_model_len=value - 1)
            return evolve(self.best, setting=smaller, operations=operations)

        return self.attempt(change)

    def _shift(self, step: int) -> bool:
        """max_model_len and the length of each draft step, both smaller: what is near the end stays there."""

        def change() -> WarmupTrace:
            setting = self.best.setting
            operations = tuple(
                evolve(op, computed=op.computed - step) if isinstance(op, Draft) else op for op in self.best.operations
            )
            smaller = evolve(setting, max_model_len=setting.max_model_len - step)
            return evolve(self.best, setting=smaller, operations=operations)

        return any(isinstance(op, Draft) for op in self.best.operations) and self.attempt(change)

    def _fewer_drafts(self) -> bool:
        """One draft less in a draft step that ends where it did."""

        def change() -> WarmupTrace:
            setting = self.best.setting
            operations = tuple(
                evolve(op, computed=op.computed + 1) if isinstance(op, Draft) else op for op in self.best.operations
            )
            smaller = evolve(setting, num_speculative_tokens=setting.num_speculative_tokens - 1)
            return evolve(self.best, setting=smaller, operations=operations)

        return any(isinstance(op, Draft) for op in self.best.operations) and self.attempt(change)


def shrink_warmup(
    trace: WarmupTrace,
    difference: Difference,
    make_warmup: MakeWarmup,
    options: WarmupOptions | None = None,
    max_tries: int = MAX_TRIES,
) -> WarmupShrunk:
    """The smallest trace that shows the defect `difference` of `trace`."""
    given = options or WarmupOptions()

    def evaluate(candidate: WarmupTrace) -> list[Difference]:
        return run_warmups(candidate, make_warmup, given).differences

    return WarmupShrinker(trace, difference, evaluate, max_tries).run()
