"""The levels beside the manager's: one run of each, from the options of `slotcheck run` to a verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import field, frozen

from harness.findings import Declared, load
from oracle.trace import Difference


@frozen
class LevelReport:
    """What came of one level: verdict, the object for `--json`, and the same as text. least: what reach must show."""

    verdict: str
    data: dict[str, Any]
    text: str
    least: dict[str, int] = field(factory=dict)


@frozen(kw_only=True)
class Wanted:
    """The options of a run of one level. steps: operations, warmups or cases. findings: whether declared ones count."""

    steps: int | None
    budget: float | None
    seed: int
    workers: int
    target: str | None
    aspects: frozenset[str]
    out: Path
    findings: bool
    hang: float
    kernels: str
    as_json: bool
    release: str | None

    @property
    def seconds(self) -> float | None:
        """When a level ends by time."""
        return self.budget if self.budget is not None else None if self.steps is not None else 60.0

    def declared(self) -> Declared:
        """What is no new difference."""
        return Declared(load() if self.findings else (), self.release)


def _namer(known: Declared) -> Callable[[Difference], str]:
    """A difference by its finding, else by its fingerprint."""

    def name_of(difference: Difference) -> str:
        finding = known.explain(difference)
        return finding.name if finding is not None else difference.fingerprint

    return name_of


def run_rules(wanted: Wanted) -> LevelReport:
    """The table of speculative methods beside the real configuration; a walk cut short is inconclusive.

    The grid has an end of its own, some half a minute away: without a budget nothing else ends it.
    """
    from harness import rules_job, rules_level
    from harness.rules_reach import MINIMA

    job = rules_job.RulesJob(
        release=rules_level.installed(),
        version=wanted.release,
        declared=wanted.declared(),
        out=wanted.out,
        seconds=wanted.budget,
        most=wanted.steps,
    )
    report = rules_job.run_job(job)
    return LevelReport(report.verdict, report.data(), rules_job.text(report), MINIMA)


def run_warmup(wanted: Wanted) -> LevelReport:
    """The release's warmup on generated settings, beside the oracle and the real manager."""
    from harness import warmup_job
    from harness.targets.warmup import Warmup
    from harness.warmup_parties import options

    known = wanted.declared()
    report = warmup_job.run(
        warmup_job.WarmupJob(
            seed=wanted.seed,
            warmups=wanted.steps,
            seconds=wanted.seconds,
            workers=wanted.workers,
            out=wanted.out,
            release=wanted.release,
            make_warmup=Warmup,
            options=options(wanted.kernels, known),
            name_of=_namer(known),
            hang_seconds=wanted.hang,
            kernels=wanted.kernels,
        )
    )
    data = report.data()
    caught = f"canary caught after {data['canary_warmups']} warmups"
    of = "" if data["kernel_traces"] is None else f" ({data['kernel_traces']:,} with the worker's kernels)"
    lines = [f"{data['warmups']:,} warmups in {data['traces']:,} traces{of}, {data['seconds']} s, {caught}"]
    lines += [f"  declared: {name} {count:,}" for name, count in data["declared"].items()]
    lines += [f"  {one['fingerprint']}  x{one['count']}  {one['trace']}" for one in data["differences"]]
    said = "\n".join([*lines, _verdict(report.verdict, report.reasons)])
    return LevelReport(report.verdict, data, said, report.total.minima)


def run_scheduler(wanted: Wanted) -> LevelReport:
    """The release's scheduler on generated workloads, beside prediction, laws and memory."""
    from harness import workload_job
    from harness.targets.loader import load_scheduler
    from harness.targets.scheduler import Scheduler
    from harness.workload_outcome import WorkloadOptions
    from harness.workload_run import minima_of

    make = load_scheduler(wanted.target)
    known = wanted.declared()
    report = workload_job.run(
        workload_job.WorkloadJob(
            seed=wanted.seed,
            steps=wanted.steps,
            seconds=wanted.seconds,
            workers=wanted.workers,
            out=wanted.out,
            release=wanted.release,
            make=make,
            control=None if make is Scheduler else Scheduler,
            options=WorkloadOptions(declared=known, release=wanted.release),
            name_of=_namer(known),
            hang_seconds=wanted.hang,
        )
    )
    data = report.data()
    caught = f"canary caught after {data['canary_steps']} steps"
    lines = [f"{data['steps']:,} steps in {data['traces']:,} workloads, {data['seconds']} s, {caught}"]
    lines += [f"  declared: {name} {count:,}" for name, count in data["declared"].items()]
    for one in data["differences"]:
        shared = "" if "upstream" not in one else ", upstream " + ("the same" if one["upstream"] else "agrees")
        lines.append(f"  {one['fingerprint']}  x{one['count']}{shared}  {one['trace']}")
    said = "\n".join([*lines, _verdict(report.verdict, report.reasons)])
    return LevelReport(report.verdict, data, said, minima_of(wanted.release))


def _verdict(verdict: str, reasons: list[str]) -> str:
    return f"{verdict}{': ' if reasons else ''}{'; '.join(reasons)}"


#: the levels beside the manager's
BESIDE: dict[str, Callable[[Wanted], LevelReport]] = {
    "rules": run_rules,
    "warmup": run_warmup,
    "scheduler": run_scheduler,
}
