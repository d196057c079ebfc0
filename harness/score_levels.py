"""Every level as the score needs it: a fixed sequence of traces, the first new difference on it, its smallest trace.

What a mutant cannot change is done once, before anything is forked: the traces are drawn and, at the manager level, the
oracle's answers noted, so that a mutant costs what the target costs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, field, frozen

from harness import passes, warmup_run, workload_run
from harness.finding_levels import level_of
from harness.findings import Declared, Finding
from harness.outcome import MakeTarget, Options
from harness.shrink import shrink
from harness.tracefile import AnyTrace
from harness.warmup_shrink import shrink_warmup
from harness.warmups import WarmupOptions, run_warmups
from harness.worker import EXAMPLES
from harness.workload_outcome import WorkloadOptions
from harness.workload_shrink import shrink_workload
from harness.workloads import run_workload
from oracle.budget import RuleTrace
from oracle.trace import Difference
from strategies import traces, warmups, workloads

MANAGER, CACHING, WARMUP, KERNELS, SCHEDULER, RULES = "manager", "caching", "warmup", "kernels", "scheduler", "rules"
LEVELS = (MANAGER, CACHING, WARMUP, SCHEDULER, KERNELS, RULES)
#: the aspect of a declared difference that has gone
DECLARED = "declared"
#: candidates that the shrinker of a score tries at most: a sixth of what a run spends
TRIES = 1000
#: steps of the manager level for each warmup, scheduler step, and configuration that a budget has
STEPS_A_WARMUP, STEPS_A_PLAN = 50, 4
#: K of the rules level's grid; all of them where the budget is large
FEW_DRAFTS, ALL_FROM = (1, 2, 3, 7), 100_000


@frozen
class Met:
    """The first new difference of a hunt: `steps` of the level until it showed, and what a shrinker needs.

    steps: None where a declared difference has gone.
    """

    steps: int | None
    difference: Difference
    trace: Any


class Level:
    """One level. `begin` is called before each trace: it winds up a watchdog."""

    name: str

    def prepare(self, seed: int) -> None:
        """Do what needs no target: draw the budget's traces, note what the oracle answers."""

    def hunt(self, begin: Callable[[], None]) -> Met | None:
        """Run the budget; the first difference that no finding declares."""
        raise NotImplementedError

    def smallest(self, met: Met) -> AnyTrace | None:
        """The smallest trace that shows the same defect; None where it does not show alone, or is no trace."""
        raise NotImplementedError

    def gone(self, findings: Iterable[Finding], begin: Callable[[], None]) -> Met | None:
        """The first finding declared for the level that does not show any more: its own smallest trace agrees."""
        for finding in findings:
            begin()
            if finding.area == self.name and not level_of(finding).reproduces(finding):
                return Met(None, _no_more(finding), json.loads(finding.file.read_text(encoding="utf-8")))
        return None

    def size(self, met: Met) -> int | None:
        """Its operations; of a finding that has gone those of its own trace."""
        small = met.trace if met.difference.aspect == DECLARED else self.smallest(met)
        if isinstance(small, dict):
            return len(small.get("operations", (small,)))
        return None if small is None else len(getattr(small, "operations", (small,)))


def _no_more(finding: Finding) -> Difference:
    return Difference(
        aspect=DECLARED,
        step=0,
        group=None,
        kind=finding.name,
        rule="declared",
        sign="gone",
        expected="the declared difference",
        observed="none",
        level=finding.level,
    )


@define(eq=False)
class ManagerLevel(Level):
    """The manager with caching off (every other shard hostile), or on. steps: the budget."""

    name: str
    make: MakeTarget
    options: Options
    steps: int
    predictions: list[tuple[bytes, str, passes.Prediction]] = field(factory=list)

    def prepare(self, seed: int) -> None:
        turns = (CACHING,) if self.name == CACHING else ("scheduler", "scheduler", "hostile")
        steps = shard = 0
        while steps < self.steps:
            drawn: list[bytes] = []
            traces.draw(seed, shard, EXAMPLES, drawn.append)
            for data in drawn:
                profile = turns[shard % len(turns)]
                self.predictions.append((data, profile, passes.predict(data, profile, self.options)))
                steps += self.predictions[-1][2].outcome.steps
            shard += 1

    def hunt(self, begin: Callable[[], None]) -> Met | None:
        steps = 0
        for data, profile, prediction in self.predictions:
            begin()
            if passes.play(prediction, self.make) is not None:
                outcome = passes.lockstep(data, profile, self.make, self.options)
                if outcome.differences:
                    return Met(steps + outcome.steps, outcome.differences[0], outcome.trace)
            steps += prediction.outcome.steps
        return None

    def smallest(self, met: Met) -> AnyTrace | None:
        small = shrink(met.trace, met.difference, self.make, self.options, TRIES)
        return small.trace if small.tries else None


@define(eq=False)
class WarmupLevel(Level):
    """The warmup without the worker's kernels, or only the traces whose kernels a run looks at. warmups: the budget."""

    name: str
    make: Callable[..., Any]
    options: WarmupOptions
    warmups: int
    drawn: list[bytes] = field(factory=list)

    def prepare(self, seed: int) -> None:
        # more than the budget needs: a trace is one warmup or two
        for shard in range(-(-self.warmups // warmup_run.EXAMPLES)):
            warmups.draw(seed, shard, warmup_run.EXAMPLES, self.drawn.append)

    def hunt(self, begin: Callable[[], None]) -> Met | None:
        from harness.warmup_parties import SHARE, sampled

        done = 0
        for data in self.drawn:
            trace = warmups.decode(data, self.options.release)
            if self.name == KERNELS and not sampled(SHARE, data, trace):
                continue
            begin()
            outcome = run_warmups(trace, self.make, self.options)
            done += outcome.warmups
            if outcome.differences:
                return Met(done, outcome.differences[0], trace)
            if done >= self.warmups:
                break
        return None

    def smallest(self, met: Met) -> AnyTrace | None:
        small = shrink_warmup(met.trace, met.difference, self.make, self.options, TRIES // 4)
        return small.trace if small.tries else None


@define(eq=False)
class SchedulerLevel(Level):
    """The scheduler. steps: planned steps of the budget."""

    make: Callable[..., Any]
    options: WorkloadOptions
    steps: int
    name: str = SCHEDULER
    drawn: list[bytes] = field(factory=list)

    def prepare(self, seed: int) -> None:
        # more than the budget needs: a workload has some 180 steps
        for shard in range(-(-self.steps // (60 * workload_run.EXAMPLES))):
            workloads.draw(seed, shard, workload_run.EXAMPLES, self.drawn.append)

    def hunt(self, begin: Callable[[], None]) -> Met | None:
        steps = 0
        for data in self.drawn:
            begin()
            trace = workloads.decode(data)
            outcome = run_workload(trace, self.make, self.options)
            if outcome.differences:
                first = min(outcome.shown.values(), default=outcome.steps)
                return Met(steps + first, outcome.differences[0], trace)
            steps += outcome.steps
            if steps >= self.steps:
                break
        return None

    def smallest(self, met: Met) -> AnyTrace | None:
        small = shrink_workload(met.trace, met.difference, self.make, self.options, TRIES)
        return small.trace if small.tries else None


@define(eq=False)
class RulesLevel(Level):
    """The grid of configurations; its steps are cases, its first case is its smallest."""

    declared: Declared
    drafts: tuple[int, ...]
    name: str = RULES

    def hunt(self, begin: Callable[[], None]) -> Met | None:
        from harness import rules_level

        for cases, found in enumerate(rules_level.walk(rules_level.installed(), self.drafts, Counter()), 1):
            begin()
            for difference in found:
                if not self.declared(difference):
                    return Met(cases, difference, difference.case)
        return None

    def smallest(self, met: Met) -> AnyTrace | None:
        return None if met.trace is None else RuleTrace(case=met.trace)

    def size(self, met: Met) -> int | None:
        return 1


def build(names: tuple[str, ...], steps: int, seed: int, release: str | None, declared: Declared) -> dict[str, Level]:
    """The levels of these names, ready to be forked. `steps`: the manager level's budget, the others in proportion."""
    made: dict[str, Level] = {}
    for name in LEVELS:
        if name in names:
            made[name] = _build(name, steps, release, declared)
            made[name].prepare(seed)
    return made


def _build(name: str, steps: int, release: str | None, declared: Declared) -> Level:
    from harness import warmup_parties
    from harness.targets import engine, scheduler, warmup
    from harness.targets.loader import load_target

    if name in (MANAGER, CACHING):
        return ManagerLevel(name, load_target(None), Options(declared=declared, release=release), steps)
    if name in (WARMUP, KERNELS):
        options = warmup_parties.options("all" if name == KERNELS else "none", declared)
        return WarmupLevel(name, warmup.Warmup, options, max(1, steps // STEPS_A_WARMUP))
    engine.prepare()
    if name == SCHEDULER:
        return SchedulerLevel(scheduler.Scheduler, WorkloadOptions(declared=declared), max(1, steps // STEPS_A_PLAN))
    from harness.rules_grid import ALL_DRAFTS

    return RulesLevel(declared, ALL_DRAFTS if steps >= ALL_FROM else FEW_DRAFTS)
