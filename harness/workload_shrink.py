"""Makes a failing workload minimal: fewer requests and steps, a plainer setting, then smaller numbers.

What counts first is how much a person must follow: requests, planned steps, features, operations, numbers. A candidate
is kept when it shows the defect and is smaller in this order; so a number may grow where that saves a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import evolve, field, fields, frozen

from harness.shrink import same_defect
from harness.workload_outcome import MakeScheduler, WorkloadOptions, WorkloadOutcome
from harness.workload_plainer import (
    ELSEWHERE,
    WITH_A_REQUEST,
    decoder_alone,
    disconnected,
    fewer_items,
    generated,
    plainer,
    rename,
    said,
    shortened,
    text_alone,
    without,
)
from harness.workloads import run_workload
from oracle.errors import SettingError
from oracle.groups import FullAttention, Group
from oracle.laws import blocks_for_one
from oracle.scheduler_setting import SchedulerSetting
from oracle.trace import Difference
from oracle.workload import Abort, SchedulerOperation, SchedulerTrace, Step, Submit, Update

#: workloads tried before the shrinker gives up
MAX_TRIES = 4000
#: drafters from plain to special
METHODS = ("none", "ngram", "eagle", "draft_model", "dflash")
#: a setting's numbers in the order in which they are lowered
NUMBERS = (
    "num_speculative_tokens",
    "max_num_seqs",
    "max_num_active_seqs",
    "long_prefill_token_threshold",
    "prefill_schedule_interval",
    "max_num_scheduled_tokens",
    "max_num_batched_tokens",
    "max_num_encoder_input_tokens",
    "encoder_cache_size",
    "max_model_len",
    "num_blocks",
)
#: ... and those that may grow where it saves a step
GROWING = ("max_num_batched_tokens", "num_blocks", "max_model_len", "max_num_seqs")
Cost = tuple[int, ...]


@frozen
class Shrunk:
    """The smallest failing workload found, its difference, and whether it is a minimum or the tries ran out."""

    trace: SchedulerTrace
    difference: Difference
    tries: int
    minimal: bool
    steps: int = 0
    """Steps planned until the difference."""
    requests: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "requests", len(_submits(self.trace)))


def _submits(trace: SchedulerTrace) -> list[Submit]:
    return [operation for operation in trace.operations if isinstance(operation, Submit)]


_DEFAULTS = {
    attribute.name: attribute.default
    for attribute in fields(SchedulerSetting)
    if attribute.name not in ("groups", "num_blocks", "max_model_len", "max_num_batched_tokens", "max_num_seqs")
}


def _cost(trace: SchedulerTrace, steps: int, implicit: bool) -> Cost:
    setting = trace.setting
    features = sum(getattr(setting, name) != value for name, value in _DEFAULTS.items())
    features += sum(not isinstance(group, FullAttention) for group in setting.groups)
    order = METHODS.index(setting.method) if setting.method in METHODS else len(METHODS)
    numbers = [getattr(setting, name) or 0 for name in NUMBERS]
    blocks = sum(group.block_size for group in setting.groups)
    return (
        len(_submits(trace)), steps, len(setting.groups), features, order,
        sum(implicit or not isinstance(operation, Step) for operation in trace.operations),
        sum(map(said, trace.operations)), sum(numbers) + blocks,
    )  # fmt: skip


class WorkloadShrinker:
    """One workload being made smaller."""

    def __init__(
        self, trace: SchedulerTrace, difference: Difference, evaluate: Callable[[SchedulerTrace], WorkloadOutcome],
        max_tries: int,
    ) -> None:  # fmt: skip
        self.best, self.difference = trace, difference
        self.evaluate, self.max_tries = evaluate, max_tries
        self.tries = 0
        self.steps = 10**9
        #: whether a step that says nothing may be left to the end of the workload, where steps follow by themselves
        self.implicit = False
        self.cost: Cost = _cost(trace, self.steps, False)
        self.seen: set[SchedulerTrace] = set()

    def attempt(self, change: Callable[[], SchedulerTrace]) -> bool:
        """Keep what `change` makes if an engine can have it, it shows the defect, and it is smaller."""
        try:
            trace = change()
        except SettingError:
            return False
        if trace in self.seen or self.tries >= self.max_tries:
            return False
        self.seen.add(trace)
        self.tries += 1
        try:
            outcome = self.evaluate(trace)
        except SettingError:  # a prompt that the smaller engine would refuse
            return False
        for difference in outcome.differences:
            if same_defect(self.difference, difference):
                steps = outcome.shown[difference.fingerprint]
                cost = _cost(trace, steps, self.implicit)
                if cost < self.cost:
                    self.best, self.difference, self.steps, self.cost = trace, difference, steps, cost
                    return True
        return False

    def run(self) -> Shrunk:
        """Repeat the passes until none makes progress."""
        self.attempt(lambda: self.best)
        self._explicit()
        self._rounds()
        self.implicit = True
        self.cost = _cost(self.best, self.steps, True)
        self.seen.clear()  # what was no gain before may be one now
        self._rounds()
        self._renamed()
        return Shrunk(self.best, self.difference, self.tries, self.tries < self.max_tries, self.steps)

    def _explicit(self) -> None:
        """Nothing behind the difference; the steps that follow by themselves are written out."""
        operations = self.best.operations
        more = self.difference.step + 1 - len(operations)
        self.best = evolve(self.best, operations=(*operations, *[Step()] * min(more, 400))[: self.difference.step + 1])

    def _renamed(self) -> None:
        """Requests counted from 0; the cost does not see it."""
        names = {submit.request: place for place, submit in enumerate(_submits(self.best))}
        renamed = tuple(rename(operation, names) for operation in self.best.operations)
        cost, self.cost = self.cost, (*self.cost, 1)
        if not self._with(list(renamed)):
            self.cost = cost

    def _rounds(self) -> None:
        progress = True
        while progress and self.tries < self.max_tries:
            before = self.cost
            for shrink in (
                self._requests, self._operations, self._features, self._groups, self._said, self._numbers,
                self._larger,
            ):  # fmt: skip
                shrink()
            progress = self.cost < before

    def _with(self, operations: list[SchedulerOperation]) -> bool:
        return self.attempt(lambda: evolve(self.best, operations=tuple(operations)))

    def _set(self, **changes: Any) -> bool:
        return self.attempt(lambda: evolve(self.best, setting=evolve(self.best.setting, **changes)))

    # ------------------------------------------------------------------------------------------ the workload

    def _requests(self) -> None:
        """Without a request and what is said of it."""
        for submit in reversed(_submits(self.best)):
            name = submit.request
            kept: list[SchedulerOperation] = []
            for operation in self.best.operations:
                if isinstance(operation, Submit | Update | Abort) and operation.request == name:
                    continue
                kept.append(without(operation, name) if isinstance(operation, Step) else operation)
            unsaid = self.steps - sum(isinstance(operation, Step) for operation in kept)  # there while it was
            if not (self._with(kept) or self._with([*kept, *[Step()] * min(unsaid, 8)])):
                fewer = evolve(self.best, operations=tuple(kept))
                any(self.attempt(partial(change, fewer)) for change in WITH_A_REQUEST)

    def _operations(self) -> None:
        """Without stretches of operations, long ones first."""
        size = max(1, len(self.best.operations) // 2)
        while size:
            start = len(self.best.operations) - size
            while start >= 0:
                operations = list(self.best.operations)
                del operations[start : start + size]
                self._with(operations)
                start = min(start, len(self.best.operations)) - size
            size //= 2
        self._sooner()

    def _sooner(self) -> None:
        """Fewer steps before the end of requests that want as many outputs less, or have them in the prompt."""
        for less in (8, 4, 2, 1):
            for index in range(len(self.best.operations) - less, -1, -1):
                gone = self.best.operations[index : index + less]
                if len(gone) < less or not all(isinstance(operation, Step) for operation in gone):
                    continue
                before, behind = self.best.operations[:index], self.best.operations[index + less :]
                fewer = [generated(one, less) for one in (*before, *behind)]
                known = [*[generated(one, less, less) for one in before], *behind]
                self._with(fewer) or self._with(known)

    def _replace(self, index: int, operation: SchedulerOperation) -> bool:
        operations = list(self.best.operations)
        operations[index] = operation
        return self._with(operations)

    def _said(self) -> None:
        """Each operation says less."""
        for index in range(len(self.best.operations) - 1, -1, -1):
            operation = self.best.operations[index]
            if isinstance(operation, Step):
                for less in plainer(operation):
                    self._replace(index, less)
            elif isinstance(operation, Update):
                for fewer in fewer_items(operation):
                    self._replace(index, fewer)
                for name in ("max_tokens", "prompt"):
                    self._lower_said(index, name)
            elif isinstance(operation, Submit):
                for fewer in fewer_items(operation):
                    self._replace(index, fewer)
                for name, value in ELSEWHERE.items():
                    if getattr(operation, name) != value:
                        changes: dict[str, Any] = {name: value}
                        self._replace(index, evolve(self.best.operations[index], **changes))
                for name in ("priority", "max_tokens", "unknown", "remote", "prompt"):
                    self._lower_said(index, name)

    def _lower_said(self, index: int, name: str) -> None:
        def value() -> int:
            return int(getattr(self.best.operations[index], name))

        def turned(number: int) -> bool:
            operation = self.best.operations[index]
            if name == "prompt" and isinstance(operation, Submit | Update):
                return self._replace(index, shortened(operation, number))
            changes: dict[str, Any] = {name: number}
            return self._replace(index, evolve(operation, **changes))

        for least in (0, 1, 2):
            if least < value() and turned(least):
                break
        step = value() // 2
        while step:
            while value() > step and turned(value() - step):
                pass
            step //= 2

    # ------------------------------------------------------------------------------------------- the setting

    def _features(self) -> None:
        """No connector, no encoder, no drafter or a plainer one, every switch at its default."""
        if self.best.setting.kv_connector:
            self.attempt(lambda: disconnected(self.best))
        if self.best.setting.encoder_cache_size:
            self.attempt(lambda: text_alone(self.best))
        if self.best.setting.max_encoder_len:
            for fewer in range(self.best.setting.num_blocks - 1):
                if self.attempt(lambda gone=fewer: decoder_alone(self.best, gone)):  # type: ignore[misc]
                    break
        if self.best.setting.long_prefill_token_threshold_adaptive:
            self._fixed_threshold()
        self._set(method="none", num_speculative_tokens=0, parallel_drafting=False)
        for name in METHODS[1:]:
            if self.best.setting.method in ("none", name) or self._set(method=name, parallel_drafting=False):
                break
        for name, default in _DEFAULTS.items():
            if name not in ("method", "num_speculative_tokens") and getattr(self.best.setting, name) != default:
                self._set(**{name: default})

    def _fixed_threshold(self) -> None:
        """The threshold that the budget gives to so many requests, whoever else is there."""
        for requests in range(1, len(_submits(self.best)) + 1):
            threshold = self.best.setting.max_num_batched_tokens // requests
            if self._set(long_prefill_token_threshold_adaptive=False, long_prefill_token_threshold=threshold):
                break

    def _groups(self) -> None:
        for index in range(len(self.best.setting.groups) - 1, -1, -1):
            groups = self.best.setting.groups
            if len(groups) > 1:
                self._fewer_groups(groups[:index] + groups[index + 1 :])
        for index, group in enumerate(self.best.setting.groups):
            if not isinstance(group, FullAttention):
                self._group(index, FullAttention(block_size=group.block_size))
            for size in (1, 2, 4):
                if size < group.block_size and self._resized(index, size):
                    break

    def _fewer_groups(self, groups: tuple[Group, ...]) -> None:
        """Without a group, if need be with as much to spare beyond one longest request as there was."""

        def smaller() -> SchedulerTrace:
            before = self.best.setting
            rest = evolve(before, groups=groups)
            blocks = before.num_blocks - blocks_for_one(before) + blocks_for_one(rest)
            return evolve(self.best, setting=evolve(rest, num_blocks=blocks))

        self._set(groups=groups) or self.attempt(smaller)

    def _resized(self, index: int, size: int) -> bool:
        """Another block size, with the pool scaled to it if need be."""
        setting = self.best.setting
        group = evolve(setting.groups[index], block_size=size)
        factor = -(-setting.groups[index].block_size // size)
        return self._group(index, group) or self._set(
            groups=(*setting.groups[:index], group, *setting.groups[index + 1 :]),
            num_blocks=1 + (setting.num_blocks - 1) * factor,
        )

    def _group(self, index: int, group: Group) -> bool:
        groups = list(self.best.setting.groups)
        groups[index] = group
        return self._set(groups=tuple(groups))

    def _knobs(self) -> Iterator[tuple[int, str]]:
        for name in NUMBERS:
            yield -1, name
        for index, group in enumerate(self.best.setting.groups):
            for attribute in fields(type(group)):
                if type(getattr(group, attribute.name)) is int:
                    yield index, attribute.name

    def _read(self, knob: tuple[int, str]) -> int:
        index, name = knob
        owner = self.best.setting if index < 0 else self.best.setting.groups[index]
        return getattr(owner, name) or 0

    def _turn(self, knob: tuple[int, str], value: int) -> bool:
        index, name = knob
        if index < 0:
            return self._set(**{name: value})
        changes: dict[str, Any] = {name: value}
        return self.attempt(
            lambda: evolve(
                self.best,
                setting=evolve(
                    self.best.setting,
                    groups=tuple(
                        evolve(group, **changes) if place == index else group
                        for place, group in enumerate(self.best.setting.groups)
                    ),
                ),
            )
        )

    def _numbers(self) -> None:
        """Round every number down: the least values, then by halves, then one by one."""
        for knob in list(self._knobs()):
            for least in (1, 2):
                if least < self._read(knob) and self._turn(knob, least):
                    break
            step = self._read(knob) // 2
            while step:
                while self._read(knob) > step and self._turn(knob, self._read(knob) - step):
                    pass
                step //= 2
        for less in (8, 4, 2, 1):
            while any(self._shorter(less, requests) for requests in (1, 2, 3)):
                pass

    def _shorter(self, less: int, requests: int) -> bool:
        """Everything that is about as long as max_model_len, by so much; the pool by that of some requests."""

        def change() -> SchedulerTrace:
            setting = self.best.setting
            longest = setting.max_model_len - less
            operations = tuple(
                shortened(operation, min(operation.prompt, longest - setting.sampled))
                if isinstance(operation, Submit)
                else operation
                for operation in self.best.operations
            )
            smaller = evolve(
                setting,
                max_model_len=longest,
                max_num_batched_tokens=setting.max_num_batched_tokens
                - (less if setting.max_num_batched_tokens >= setting.max_model_len else 0),
                num_blocks=max(2, setting.num_blocks - requests * -(-less // setting.groups[0].block_size)),
            )
            return evolve(self.best, setting=smaller, operations=operations)

        return self.attempt(change) or self._set(
            max_model_len=self.best.setting.max_model_len - less, num_blocks=self.best.setting.num_blocks - 1
        )

    def _larger(self) -> None:
        """A larger budget or pool may need fewer steps."""
        for name in GROWING:
            for grown in (4, 2):
                self._set(**{name: getattr(self.best.setting, name) * grown})
            for more in (4, 2, 1):
                self._set(**{name: getattr(self.best.setting, name) + more})


def shrink_workload(
    trace: SchedulerTrace,
    difference: Difference,
    make: MakeScheduler,
    options: WorkloadOptions | None = None,
    max_tries: int = MAX_TRIES,
) -> Shrunk:
    """The smallest workload that shows the defect `difference` of `trace`."""
    given = evolve(options or WorkloadOptions(), keep_entries=True)  # which looks at every request after each operation
    seen = run_workload(trace, make, given).differences
    if seen and not any(same_defect(difference, one) for one in seen):
        difference = seen[0]  # the closer look finds the defect earlier
    return WorkloadShrinker(trace, difference, lambda one: run_workload(one, make, given), max_tries).run()
