"""A trace of any level to its film: replayed on the installed release where there is one, else on the oracle alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.outcome import MakeTarget, Options
from harness.page import film, warmup_film, workload_film
from harness.targets.compat import TargetError
from harness.tracefile import AnyTrace
from oracle.budget import RuleTrace
from oracle.errors import TraceError
from oracle.trace import Difference, Trace
from oracle.warmup import WarmupTrace
from oracle.workload import SchedulerTrace

Declared = Callable[[Difference], bool]
ALONE = "The oracle alone: no vLLM is installed."


def film_of(trace: AnyTrace, release: str | None, target: str | None, declared: Declared) -> dict[str, Any]:
    """Replay and record. `release`: the installed one, None without vLLM; `target`: as --target takes it.

    TraceError for a trace without steps; TargetError where a workload finds no vLLM.
    """
    if isinstance(trace, RuleTrace):
        raise TraceError("a trace of the rules level is one question without steps to show; use replay or explain")
    if isinstance(trace, WarmupTrace):
        made = _warmup(trace, release, declared)
    elif isinstance(trace, SchedulerTrace):
        made = _workload(trace, release, declared)
    else:
        made = _manager(trace, release, target, declared)
    return titled(made)


def titled(made: dict[str, Any]) -> dict[str, Any]:
    """Named by the first difference that no finding declares, else the first that one does, else by its length."""
    marks = sorted(made["marks"], key=lambda one: bool(one["declared"]))
    count = len(made["frames"])
    made["title"] = marks[0]["title"] if marks else f"{made['title']}: {count} step{'s' * (count != 1)}"
    return made


def _manager(trace: Trace, release: str | None, target: str | None, declared: Declared) -> dict[str, Any]:
    from harness.targets.loader import load_target

    make_target: MakeTarget | None = None if release is None and target is None else load_target(target)
    return film.make_film(trace, make_target, Options(declared=declared, release=release), "A trace of the manager")


def _warmup(trace: WarmupTrace, release: str | None, declared: Declared) -> dict[str, Any]:
    from harness.warmups import WarmupOptions, run_warmups
    from oracle.warmup_party import OracleWarmup

    if release is None:
        options = WarmupOptions(aspects=frozenset(), keep_entries=True, memory=False)
        return warmup_film.make_film(
            run_warmups(trace, OracleWarmup, options), ALONE, "A trace of the warmup", declared
        )
    from harness.targets.loader import load_target
    from harness.targets.warmup import Warmup
    from harness.warmup_parties import ALL
    from harness.warmup_parties import options as parties

    load_target(None)
    given = parties(ALL, declared)
    given.keep_entries = True
    against = f"The warmup of vLLM {release}, beside the oracle, the real manager and the worker's kernels."
    return warmup_film.make_film(run_warmups(trace, Warmup, given), against, "A trace of the warmup", declared)


def _workload(trace: SchedulerTrace, release: str | None, declared: Declared) -> dict[str, Any]:
    from harness.workload_outcome import WorkloadOptions
    from harness.workloads import run_workload

    if release is None:
        raise TargetError(
            "a workload is shown as the real scheduler ran it, and vLLM is not installed; install the extra: "
            "pip install 'slotcheck[vllm]'"
        )
    from harness.targets.engine import prepare
    from harness.targets.scheduler import Scheduler
    from harness.workload_report import setting_lines

    prepare()
    outcome = run_workload(trace, Scheduler, WorkloadOptions(declared=declared, keep_entries=True))
    against = f"The scheduler of vLLM {release}, beside the oracle's."
    setting = [(name, str(value)) for name, value in setting_lines(trace.setting)]
    return workload_film.make_film(outcome, against, setting, "A workload", declared)
