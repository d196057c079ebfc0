"""page.html in the folder of a report, beside trace.json, report.md and repro.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve

from harness.outcome import MakeTarget, Options
from harness.page.film import make_film
from harness.page.of_trace import titled
from harness.page.render import film_page
from harness.page.warmup_film import make_film as make_warmup_film
from harness.page.workload_film import make_film as make_workload_film
from harness.tracefile import write_text
from harness.warmups import MakeWarmup, WarmupOptions, run_warmups
from harness.workload_outcome import MakeScheduler, WorkloadOptions
from harness.workload_report import setting_lines
from harness.workloads import run_workload
from oracle.trace import Trace
from oracle.warmup import WarmupTrace
from oracle.workload import SchedulerTrace

PAGE = "page.html"


def write_page(folder: Path, trace: Trace, make_target: MakeTarget, options: Options) -> None:
    """The page of a manager trace; SlotcheckError when the folder does not allow it."""
    _write(folder, make_film(trace, make_target, options, "A trace of the manager"))


def write_warmup_page(folder: Path, trace: WarmupTrace, make: MakeWarmup, options: WarmupOptions) -> None:
    """The page of a warmup trace that does not kill its process."""
    outcome = run_warmups(trace, make, evolve(options, keep_entries=True))
    _write(folder, make_warmup_film(outcome, "The release's warmup.", "A trace of the warmup", options.declared))


def write_workload_page(folder: Path, trace: SchedulerTrace, make: MakeScheduler, options: WorkloadOptions) -> None:
    """The page of a workload that does not kill its process."""
    outcome = run_workload(trace, make, evolve(options, keep_entries=True))
    setting = [(name, str(value)) for name, value in setting_lines(trace.setting)]
    against = "The release's scheduler, beside the oracle's."
    _write(folder, make_workload_film(outcome, against, setting, "A workload", options.declared))


def _write(folder: Path, film: dict[str, Any]) -> None:
    write_text(folder / PAGE, film_page(titled(film)))
