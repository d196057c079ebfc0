"""The levels as a campaign runs them, one interface for all: a shard, the canary, a trace judged, a trace made smaller.

Built in a process that has imported its vLLM; what runs a target does so in a fork of it (`survived.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from attrs import define, field

from harness import canary, findings, rules_level, rules_reach, warmup_run, worker, workload_run
from harness.campaign.results import Result
from harness.forks import HANG_SECONDS, in_a_fork, process_difference, shrink_isolated
from harness.outcome import MakeTarget, Options
from harness.reach import Reach, minima, with_caching
from harness.rules_level import compare
from harness.shrink import shrink
from harness.targets.compat import installed_release
from harness.trace_run import run_trace
from harness.tracefile import AnyTrace
from harness.warmup_shrink import shrink_warmup
from harness.warmups import WarmupOptions, run_warmups
from harness.workload_outcome import MakeScheduler, WorkloadOptions
from harness.workload_shrink import shrink_workload
from harness.workloads import run_workload
from oracle.budget import RuleTrace
from oracle.releases import NEWEST
from oracle.trace import Difference, Trace
from oracle.warmup import WarmupTrace
from oracle.workload import SchedulerTrace
from strategies import warmups, workloads

Shrunk = tuple[AnyTrace, Difference, int, bool]
Kind = TypeVar("Kind", bound=AnyTrace)


class Level(Generic[Kind]):
    """One level of the release that this process has imported."""

    #: whether a shard writes a trace down before it runs, so that a process that hangs is soon seen to
    journals = True

    def run(self, profile: str, seed: int, number: int, journal: Path) -> Result:
        """One of the level's own shards. journal: where a trace is written before it runs."""
        raise NotImplementedError

    def lost(self, seed: int, number: int, progress: worker.Progress, ended: str) -> Result:
        """What is known of a shard whose process ended so."""
        raise NotImplementedError

    def canary(self) -> int | None:
        """Steps until the planted defect was caught; None if it was not."""
        raise NotImplementedError

    def differences(self, trace: Kind) -> tuple[list[Difference], list[Difference]]:
        """Those of a trace that no finding declares, and those that one does."""
        raise NotImplementedError

    def shrunk(self, trace: Kind, difference: Difference) -> Shrunk:
        """The smallest trace, its difference, the tries, whether there is none smaller."""
        raise NotImplementedError

    def wanted(self) -> set[str]:
        """The crossings of the level."""
        raise NotImplementedError

    def crossed(self, trace: Kind) -> tuple[frozenset[str], bool]:
        """What a trace crosses, and whether it may be in a corpus: nothing differs but what a finding declares.

        At the manager level not even that: its traces are exported with the answers of the specification.
        """
        raise NotImplementedError

    def shrunk_apart(self, trace: Kind, sign: str) -> Shrunk:
        """The same for a trace that kills or blocks its process: a process a try. Without it, the trace as it is."""
        return trace, process(trace.level, sign), 0, False


def process(level: str, sign: str) -> Difference:
    """A target that killed or blocked its process."""
    aspect, kind = ("error", "scheduler") if level == "scheduler" else ("outcome", "pool")
    return Difference(
        aspect=aspect, step=0, group=None, kind=kind, rule="process", sign=sign, expected="an answer", observed=sign,
        level=level,
    )  # fmt: skip


@define(eq=False)
class ManagerLevel(Level[Trace]):
    """The manager, or a target in its place."""

    make: MakeTarget
    options: Options
    name_of: Callable[[Difference], str]

    def run(self, profile: str, seed: int, number: int, journal: Path) -> Result:
        written = worker.Journal(journal)
        if profile == "caching" and not with_caching(self.make, self.options.release):
            profile = "scheduler"
        shard = worker.run_shard(seed, number, self.make, self.options, profile, written, name_of=self.name_of)
        return _result(shard, shard.steps)

    def lost(self, seed: int, number: int, progress: worker.Progress, ended: str) -> Result:
        result = Result(progress.step, progress.traces)
        result.add(process("manager", ended).fingerprint, progress.trace())
        return result

    def canary(self) -> int | None:
        return canary.caught(self.make, Options(release=self.options.release))

    def differences(self, trace: Trace) -> tuple[list[Difference], list[Difference]]:
        outcome = run_trace(trace, self.make, self.options)
        return outcome.differences, outcome.declared

    def shrunk(self, trace: Trace, difference: Difference) -> Shrunk:
        small = shrink(trace, difference, self.make, self.options)
        return small.trace, small.difference, small.tries, small.minimal

    def wanted(self) -> set[str]:
        return set(minima(self.options.release, self.make))

    def crossed(self, trace: Trace) -> tuple[frozenset[str], bool]:
        reach = Reach()
        outcome = run_trace(trace, self.make, self.options, reach)
        return crossings_of(reach.counts), not (outcome.differences or outcome.declared)

    def shrunk_apart(self, trace: Trace, sign: str) -> Shrunk:
        small = shrink_isolated(trace, process_difference(trace, sign), self.make, self.options)
        return small.trace, small.difference, small.tries, small.minimal


@define(eq=False)
class WarmupLevel(Level[WarmupTrace]):
    """The warmup of the V2 runner."""

    make: Callable[..., Any]
    options: WarmupOptions
    name_of: Callable[[Difference], str]

    def run(self, profile: str, seed: int, number: int, journal: Path) -> Result:
        shard = warmup_run.run_shard(
            seed, number, self.make, self.options, name_of=self.name_of, kernels=profile, journal=journal
        )
        return _result(shard, shard.warmups)

    def lost(self, seed: int, number: int, progress: worker.Progress, ended: str) -> Result:
        result = Result(traces=progress.traces)
        result.add(process("warmup", ended).fingerprint, warmups.decode(progress.data, self.options.release))
        return result

    def canary(self) -> int | None:
        plain = WarmupOptions(make_manager=self.options.make_manager, release=self.options.release)
        return warmup_run.canary_caught(self.make, plain)

    def differences(self, trace: WarmupTrace) -> tuple[list[Difference], list[Difference]]:
        outcome = run_warmups(trace, self.make, self.options)
        return outcome.differences, outcome.declared

    def wanted(self) -> set[str]:
        return set(warmup_run.minima_of(self.options.release) | warmup_run.KERNEL_MINIMA)

    def crossed(self, trace: WarmupTrace) -> tuple[frozenset[str], bool]:
        outcome = run_warmups(trace, self.make, self.options)
        reach = Counter({"kernels: block tables": 1})
        warmup_run.count(reach, outcome)
        return crossings_of(reach), not outcome.differences

    def shrunk(self, trace: WarmupTrace, difference: Difference) -> Shrunk:
        small = shrink_warmup(trace, difference, self.make, self.options)
        return small.trace, small.difference, small.tries, small.minimal


@define(eq=False)
class SchedulerLevel(Level[SchedulerTrace]):
    """The scheduler, or a target in its place."""

    journals = False
    make: MakeScheduler
    options: WorkloadOptions
    name_of: Callable[[Difference], str]

    def run(self, profile: str, seed: int, number: int, journal: Path) -> Result:
        shard = workload_run.run_shard(seed, number, self.make, self.options, name_of=self.name_of)
        return _result(shard, shard.steps)

    def lost(self, seed: int, number: int, progress: worker.Progress, ended: str) -> Result:
        """No journal says which workload it was: they are run one by one."""
        result = Result()
        drawn: list[bytes] = []
        workloads.draw(seed, number, workload_run.EXAMPLES, drawn.append)
        for trace in (workloads.decode(data, self.options.release or NEWEST) for data in drawn):
            _, ended = in_a_fork(partial(run_workload, trace, self.make, self.options), HANG_SECONDS)
            if ended:
                result.add(process("scheduler", ended).fingerprint, trace)
                break
        return result

    def canary(self) -> int | None:
        return workload_run.canary_caught(self.make, WorkloadOptions(release=self.options.release))

    def differences(self, trace: SchedulerTrace) -> tuple[list[Difference], list[Difference]]:
        outcome = run_workload(trace, self.make, self.options)
        return outcome.differences, outcome.declared

    def wanted(self) -> set[str]:
        return set(workload_run.minima_of(self.options.release))

    def crossed(self, trace: SchedulerTrace) -> tuple[frozenset[str], bool]:
        outcome = run_workload(trace, self.make, self.options)
        return crossings_of(outcome.reach), not outcome.differences

    def shrunk(self, trace: SchedulerTrace, difference: Difference) -> Shrunk:
        small = shrink_workload(trace, difference, self.make, self.options)
        return small.trace, small.difference, small.tries, small.minimal


@define(eq=False)
class RulesLevel(Level[RuleTrace]):
    """The grid of configurations: no shards, since it has an end (`slotcheck run --level rules`); its cases replay."""

    release: rules_level.Release
    declared: findings.Declared

    def wanted(self) -> set[str]:
        return set(rules_reach.MINIMA)

    def crossed(self, trace: RuleTrace) -> tuple[frozenset[str], bool]:
        reach: Counter[str] = Counter({"draft counts": trace.draft_counts is not None})
        found = compare(trace.question, self.release, reach)
        return crossings_of(reach), all(self.declared(one) for one in found)

    def differences(self, trace: RuleTrace) -> tuple[list[Difference], list[Difference]]:
        found = compare(trace.question, self.release)
        return [one for one in found if not self.declared(one)], [one for one in found if self.declared(one)]

    def shrunk(self, trace: RuleTrace, difference: Difference) -> Shrunk:
        return trace, difference, 0, True


def crossings_of(counts: Mapping[str, int]) -> frozenset[str]:
    """The names of a reach table that were met at all."""
    return frozenset(name for name, count in counts.items() if count > 0)


def _result(shard: worker.ShardResult | warmup_run.WarmupShard | workload_run.WorkloadShard, steps: int) -> Result:
    result = Result(steps, shard.traces, shard.reach, declared=shard.declared)
    for fingerprint, found in shard.found.items():
        result.add(fingerprint, found.trace, shard.counts[fingerprint])
    return result


@define(eq=False)
class Levels:
    """The levels of the imported release, each built when it is first asked for. target: --target, None: upstream's."""

    target: str | None = None
    made: dict[str, Level[Any]] = field(factory=dict)

    def __getitem__(self, name: str) -> Level[Any]:
        if name not in self.made:
            self.made[name] = _build(name, self.target)
        return self.made[name]


def _build(name: str, target: str | None) -> Level[Any]:
    from harness.targets.loader import load_scheduler, load_target

    release = installed_release()
    known = findings.Declared(findings.load(), release)

    def name_of(difference: Difference) -> str:
        finding = known.explain(difference)
        return finding.name if finding is not None else difference.fingerprint

    if name == "manager":
        return ManagerLevel(load_target(target), Options(declared=known, release=release), name_of)
    if name == "scheduler":
        return SchedulerLevel(load_scheduler(target), WorkloadOptions(declared=known, release=release), name_of)
    load_target(None)
    if name == "rules":
        return RulesLevel(rules_level.installed(), known)
    from harness.targets.warmup import Warmup
    from harness.warmup_parties import SHARE, options

    return WarmupLevel(Warmup, options(SHARE, known), name_of)
