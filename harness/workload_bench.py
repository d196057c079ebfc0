"""The scheduler level's share of `harness.bench`: checked steps per second over bare ones, on the same workloads.

Bare is the real scheduler alone, without the spy: built, and given the calls that the workloads came to, recorded
beforehand; nothing is observed. Checked is what a run does with them in one process: drawing, decoding, target, laws,
memory, prediction. Steps are those that were judged, for both. In seconds of CPU; of each shard the least of the
rounds counts, because machines are shared and noise only adds.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import frozen

from harness.findings import Declared, load
from harness.targets.compat import installed_release
from harness.targets.engine import prepare
from harness.targets.scheduler import Bare, Scheduler
from harness.workload_drive import END, SITUATION, Drive, Note
from harness.workload_outcome import WorkloadOptions
from harness.workload_run import run_shard
from harness.workloads import judged
from oracle.scheduler_setting import SchedulerSetting
from strategies.workloads import decode, draw

SHARDS, TRACES, ROUNDS = 10, 10, 3


@frozen
class Calls:
    """A workload as the bare scheduler gets it: method and arguments. failed: the last one raises."""

    setting: SchedulerSetting
    calls: list[tuple[str, tuple[Any, ...]]]
    failed: bool
    steps: int


def record(data: bytes, options: WorkloadOptions) -> Calls:
    """Run packed bytes checked once, and keep what the scheduler was told until the judge had enough."""
    trace = decode(data)
    drive = Drive(trace.setting, Scheduler)
    notes: list[Note] = []

    def kept() -> Iterator[Note]:
        for note in drive.run(trace):
            notes.append(note)
            yield note

    steps = judged(trace, drive, kept(), options).steps
    calls = [(note.method, note.arguments) for note in notes if note.method not in (SITUATION, END)]
    return Calls(trace.setting, calls, notes[-1].error is not None, steps)


def bare(shard: list[Calls]) -> None:
    """The bare scheduler on all workloads of a shard."""
    for workload in shard:
        gc.disable()  # as a run does
        target = Bare(workload.setting)
        with contextlib.suppress(Exception) if workload.failed else contextlib.nullcontext():
            for name, arguments in workload.calls:
                getattr(target, name)(*arguments)
        gc.enable()


def seconds(work: Callable[[], object]) -> float:
    """Of CPU."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure() -> dict[str, Any]:
    """The figures of this level."""
    prepare()
    options = WorkloadOptions(declared=Declared(load(), installed_release()))
    shards: list[list[Calls]] = []
    for number in range(SHARDS):
        drawn: list[bytes] = []
        draw(0, number, TRACES, drawn.append)
        shards.append([record(data, options) for data in drawn])
    steps = sum(workload.steps for shard in shards for workload in shard)
    gc.collect()
    gc.freeze()
    bare_seconds = checked_seconds = 0.0
    for number, shard in enumerate(shards):
        checked = partial(run_shard, 0, number, Scheduler, options, examples=TRACES)
        rounds = [(seconds(partial(bare, shard)), seconds(checked)) for _ in range(ROUNDS)]
        bare_seconds += min(one[0] for one in rounds)
        checked_seconds += min(one[1] for one in rounds)
    return {
        "scheduler_steps": steps,
        "scheduler_bare_steps_per_second": round(steps / bare_seconds),
        "scheduler_checked_steps_per_second": round(steps / checked_seconds),
        "scheduler_checked_over_bare": round(bare_seconds / checked_seconds, 3),
    }
