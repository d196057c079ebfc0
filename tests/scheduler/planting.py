"""Defects planted in the release's own scheduler: its source text with a line changed, run as a module of its own."""

from __future__ import annotations

import importlib
import linecache
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import frozen

from harness.findings import Declared, load
from harness.targets.compat import installed_release
from harness.targets.scheduler import Scheduler
from harness.workload_outcome import WorkloadOptions
from harness.workload_shrink import Shrunk, shrink_workload
from harness.workloads import run_workload
from oracle.scheduler_setting import SchedulerSetting
from oracle.trace import Difference
from oracle.workload import SchedulerTarget, SchedulerTrace
from strategies.workloads import decode, draw

#: steps planned before a defect counts as missed
MOST_STEPS = 20_000


@frozen
class Defect:
    """`old` becomes `new` in scheduler.py, or in another file beside it. why: the rule or law that it breaks."""

    name: str
    old: str
    new: str
    why: str
    file: str = "scheduler"


@cache
def _source(name: str) -> str:
    module = importlib.import_module(f"vllm.v1.core.sched.{name}")
    return Path(str(module.__file__)).read_text(encoding="utf-8")


def _run(name: str, text: str) -> ModuleType:
    module = ModuleType(f"planted_{name}")
    module.__package__ = "vllm.v1.core.sched"
    lines = text.splitlines(keepends=True)
    linecache.cache[f"planted {name}"] = len(text), None, lines, f"planted {name}"  # a raised assertion shows its line
    exec(compile(text, f"planted {name}", "exec"), vars(module))
    return module


def planted(defect: Defect) -> Callable[[SchedulerSetting], SchedulerTarget]:
    """Makes schedulers with the defect in them."""
    texts = {name: _source(name) for name in ("scheduler", "async_scheduler")}
    assert 1 == texts[defect.file].count(defect.old), f"{defect.name}: the release's source has changed"
    texts[defect.file] = texts[defect.file].replace(defect.old, defect.new)
    base = _run("scheduler", texts["scheduler"]).Scheduler
    line = "from vllm.v1.core.sched.scheduler import Scheduler\n"
    overlapping = texts["async_scheduler"]
    assert line in overlapping
    module = ModuleType("planted_async")
    vars(module)["Scheduler"] = base
    exec(compile(overlapping.replace(line, ""), "planted async", "exec"), vars(module))

    def make(setting: SchedulerSetting) -> SchedulerTarget:
        found: Any = module.AsyncScheduler if setting.in_flight_depth > 1 else base
        return Scheduler(setting, found)

    return make


class Hunt:
    """Looks for a planted defect in generated workloads."""

    def __init__(self, defect: Defect) -> None:
        self.make = planted(defect)
        self.options = WorkloadOptions(declared=Declared(load(), installed_release()))
        self.steps = 0

    def find(self) -> tuple[SchedulerTrace, Difference] | None:
        """The first workload that shows a difference, within the steps allowed."""
        shard = 0
        while self.steps < MOST_STEPS:
            drawn: list[bytes] = []
            draw(17, shard, 20, drawn.append)
            for data in drawn:
                trace = decode(data)
                outcome = run_workload(trace, self.make, self.options)
                self.steps += outcome.steps
                if outcome.differences and self.steps <= MOST_STEPS:
                    return trace, outcome.differences[0]
            shard += 1
        return None

    def shrink(self, trace: SchedulerTrace, difference: Difference) -> Shrunk:
        """The smallest workload that shows it."""
        return shrink_workload(trace, difference, self.make, self.options)
