"""One shard of a scheduler run: draw, run, judge, collect; with the reach minima and the canary of this level."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

from attrs import define, evolve, field, frozen

from harness.workload_outcome import MakeScheduler, WorkloadOptions
from harness.workloads import Driven
from oracle.releases import NEWEST, choices_of
from oracle.scheduled import Planned
from oracle.scheduler_setting import SchedulerSetting
from oracle.trace import Difference
from oracle.workload import SchedulerTarget, SchedulerTrace
from strategies.workloads import decode, draw

#: traces a shard
EXAMPLES = 10
#: crossings of the scheduler level and how often a run must meet each
MINIMA: dict[str, int] = {
    "full step": 100,
    "mixed batch": 50,
    "chunk": 100,
    "refused at admission": 50,
    "refused while running": 50,
    "preemption": 50,
    "resumed": 50,
    "resumed with output": 20,
    "preempted in flight": 20,
    "speculation x preemption": 20,
    "speculation x hybrid x preemption": 40,
    "overlap x preemption": 20,
    "speculation x preemption x caching": 40,
    "hit": 50,
    "hit of a state": 20,
    "junction": 20,
    "block copied": 10,
    "priority x preemption": 20,
    "refund": 1,
    "drafts verified": 100,
    "draft rejected": 50,
    "draft accepted": 20,
    "all drafts accepted": 20,
    "drafts skipped": 20,
    "draft table": 10,
    "padded newcomer": 1,
    "ended inside drafts": 5,
    "finished by stop": 5,
    "finished by length": 50,
    "abort in flight": 2,
    "reset while running": 2,
    "reset in vain": 1,
    "reset beside a connector": 1,
    "encoder input": 20,
    "encoder budget full": 2,
    "structured output": 20,
    "grammar masks a step": 50,
    "mask waits for tokens in flight": 20,
    "pooled": 50,
    "pooled after chunks": 50,
    "pooled x overlap": 10,
    "pooled x preemption": 2,
    "pooled up to max_model_len": 5,
    "reads no cache": 10,
    "item encoded": 50,
    "encoder budget full of items": 5,
    "output dropped": 10,
    "output found": 10,
    "part ends before an item": 20,
    "part ends inside an item": 20,
    "item encoded for the drafter alone": 3,
    "item x preemption": 5,
    "item x speculation x overlap": 5,
    "hit inside an item": 3,
    "hit behind an item": 5,
    "session updated": 15,
    "session waits": 8,
    "session goes on": 8,
    "session x caching": 8,
    "session's piece hit": 1,
    "session beside a connector": 3,
    "session with items": 5,
    "item in a later piece": 5,
    "DCP": 50,
    "DCP x caching": 20,
    "async load": 50,
    "sync load": 20,
    "load behind a hit": 2,
    "load after a preemption": 1,
    "load beside reserved blocks": 10,
    "match not known yet": 5,
    "failed load": 4,
    "failed load tried again": 3,
    "failed load ends well": 2,
    "load failed in part": 1,
    "finished by error": 1,
    "blocks kept until sent": 50,
    "blocks kept back for a step": 2,
    "refused while blocks are sent": 10,
}

#: what a run that decides about a release meets: a run of so many steps or more
GATE_STEPS = 100_000
GATE_MINIMA = {
    "speculation x preemption x caching": 1000,
    "speculation x hybrid x preemption": 1000,
    "session goes on in flight": 20,
    "item x preemption": 200,
    "item x speculation x overlap": 50,
    "hit inside an item": 100,
    "pooled x preemption": 50,
}


#: crossings of multimodal items
OF_ITEMS = frozenset(
    (
        "item encoded", "encoder budget full of items", "output dropped", "output found", "part ends before an item",
        "part ends inside an item", "item encoded for the drafter alone", "item x preemption",
        "item x speculation x overlap", "hit inside an item", "hit behind an item", "item in a later piece",
    )
)  # fmt: skip


def minima_of(release: str | None, steps: int = 0) -> dict[str, int]:
    """The crossings that a release has (None: the newest), and how often a run of so many steps must meet each."""
    minima = MINIMA | GATE_MINIMA if steps >= GATE_STEPS else MINIMA
    chosen = release or NEWEST
    choices = choices_of(chosen)
    lacking = {"drafts skipped"} if not choices.skips_drafts else set()
    if not choices.asks_for_frees:
        lacking.add("refused while blocks are sent")
    if not choices.sessions:
        lacking |= {name for name in minima if name.startswith("session")}
    if chosen != NEWEST:
        lacking |= OF_ITEMS
    return {name: least for name, least in minima.items() if name not in lacking}


@frozen
class Found:
    """A difference with the trace that showed it."""

    difference: Difference
    trace: SchedulerTrace


@define
class WorkloadShard:
    """What one shard gave. Differences once a fingerprint, with their number."""

    shard: int
    steps: int = 0
    traces: int = 0
    reach: Counter[str] = field(factory=Counter)
    found: dict[str, Found] = field(factory=dict)
    counts: Counter[str] = field(factory=Counter)
    declared: Counter[str] = field(factory=Counter)

    def add(self, difference: Difference, trace: SchedulerTrace, times: int = 1) -> None:
        """A difference; of each fingerprint the trace with fewest groups and operations is kept."""
        name = difference.fingerprint
        self.counts[name] += times
        kept = self.found.get(name)
        if kept is None or _size(trace) < _size(kept.trace):
            self.found[name] = Found(difference, trace)

    def merge(self, other: WorkloadShard) -> None:
        """Take in another shard."""
        self.steps += other.steps
        self.traces += other.traces
        self.reach.update(other.reach)
        self.declared.update(other.declared)
        for name, found in other.found.items():
            self.add(found.difference, found.trace, other.counts[name])

    def missed(self, release: str | None = None) -> list[str]:
        """The crossings of a release that were not met often enough."""
        minima = minima_of(release, self.steps)
        return [name for name, least in minima.items() if self.reach[name] < least]


def _size(trace: SchedulerTrace) -> tuple[int, int]:
    return len(trace.setting.groups), len(trace.operations)


def run_shard(
    run_seed: int,
    shard: int,
    make: MakeScheduler,
    options: WorkloadOptions,
    examples: int = EXAMPLES,
    name_of: Callable[[Difference], str] = lambda difference: difference.fingerprint,
) -> WorkloadShard:
    """Draw the examples of one shard and judge each. `name_of` names the finding behind a declared difference."""
    result = WorkloadShard(shard)
    traces: list[SchedulerTrace] = []
    draw(run_seed, shard, examples, lambda data: traces.append(decode(data, options.release or NEWEST, options.limits)))
    gc.disable()  # a collection looks at all of vLLM
    driven = [Driven(trace, make, options) for trace in traces]
    while driven:
        outcome = driven.pop(0).judged()
        result.traces += 1
        result.steps += outcome.steps
        result.reach.update(outcome.reach)
        for difference in outcome.declared:
            result.declared[name_of(difference)] += 1
        for difference in outcome.differences:
            result.add(difference, outcome.trace)
    gc.enable()
    return result


class Canary:
    """A scheduler that does not tell the worker of a running request's new blocks."""

    def __init__(self, target: SchedulerTarget) -> None:
        self.target = target

    def __getattr__(self, name: str) -> object:
        return getattr(self.target, name)

    def schedule(self) -> Planned:
        planned = self.target.schedule()
        return evolve(planned, cached=[(*one[:3], None) for one in planned.cached])


def canary_caught(make: MakeScheduler, options: WorkloadOptions, shards: int = 4) -> int | None:
    """Steps until the canary was caught by each of the three oracles; None if it was not."""

    def planted(setting: SchedulerSetting) -> SchedulerTarget:
        return Canary(make(setting))  # type: ignore[return-value]

    told: set[str] = set()
    steps = 0
    for shard in range(shards):
        for checked in (options, evolve(options, predict=False)):  # the prediction ends a trace before it has run
            result = run_shard(0, shard, planted, checked, examples=5)
            steps += result.steps
            told.update(result.found)
        if all(any(f"/{oracle}/" in name for name in told) for oracle in ("worker row", "W1", "output")):
            return steps
    return None
