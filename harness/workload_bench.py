"""The scheduler level's share of `harness.bench`: checked steps per second over bare ones, on the same workloads.

Bare is the real scheduler alone, without the spy: built, and given the calls that the workloads came to, recorded
beforehand. Checked is what a run does: drawing, decoding, target, laws, memory, prediction. In seconds of CPU.
"""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any

from harness.findings import Declared, load
from harness.targets.compat import installed_release
from harness.targets.engine import prepare
from harness.targets.scheduler import Bare, Scheduler
from harness.workload_outcome import WorkloadOptions
from harness.workload_run import run_shard
from harness.workloads import run_workload
from oracle.workload import Planned, SchedulerSetting
from strategies.workloads import decode, draw

SHARDS, TRACES, ROUNDS = 4, 10, 3
Call = tuple[str, tuple[Any, ...]]
RECORDED = ("submit", "output", "abort", "reset", "pause")


class Recorder:
    """A scheduler whose calls are kept."""

    def __init__(self, setting: SchedulerSetting) -> None:
        self.target = Scheduler(setting)
        self.setting = setting
        self.calls: list[Call] = []
        TRACED.append(self)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the target has
        found = getattr(self.target, name)
        if name not in RECORDED:
            return found

        def call(*arguments: Any) -> Any:  # noqa: ANN401  # what the method gives
            self.calls.append((name, arguments))
            return found(*arguments)

        return call

    def schedule(self) -> Planned:
        self.calls.append(("schedule", ()))
        return self.target.schedule()


TRACED: list[Recorder] = []


def _record(options: WorkloadOptions) -> list[tuple[SchedulerSetting, list[Call], int]]:
    found = []
    for shard in range(SHARDS):
        drawn: list[bytes] = []
        draw(0, shard, TRACES, drawn.append)
        for data in drawn:
            outcome = run_workload(decode(data), Recorder, options)
            if not outcome.differences and not outcome.declared:
                found.append((TRACED[-1].setting, TRACED[-1].calls, outcome.steps))
            TRACED.clear()
    return found


def _bare(recorded: list[tuple[SchedulerSetting, list[Call], int]]) -> float:
    start = time.process_time()
    for setting, calls, _ in recorded:
        gc.disable()  # as a run does
        target = Bare(setting)
        for name, arguments in calls:
            getattr(target, name)(*arguments)
        gc.enable()
    return time.process_time() - start


def measure() -> dict[str, Any]:
    """The figures of this level, medians over the rounds."""
    prepare()
    options = WorkloadOptions(declared=Declared(load(), installed_release()))
    recorded = _record(options)
    steps = sum(one[2] for one in recorded)
    gc.collect()
    gc.freeze()
    rows = []
    for _ in range(ROUNDS):
        bare = steps / _bare(recorded)
        start = time.process_time()
        checked = sum(run_shard(0, shard, Scheduler, options, examples=TRACES).steps for shard in range(SHARDS))
        rows.append((bare, checked / (time.process_time() - start)))
    return {
        "scheduler_steps": steps,
        "scheduler_bare_steps_per_second": round(statistics.median(row[0] for row in rows)),
        "scheduler_checked_steps_per_second": round(statistics.median(row[1] for row in rows)),
        "scheduler_checked_over_bare": round(statistics.median(row[1] / row[0] for row in rows), 3),
    }
