"""The levels beside the manager's: one run of each, from the options of `slotcheck run` to a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import field, frozen

from harness.findings import Declared
from oracle.trace import Difference


@frozen
class LevelReport:
    """What came of one level: verdict, the object for `--json`, and the same as text. least: what reach must show."""

    verdict: str
    data: dict[str, Any]
    text: str
    least: dict[str, int] = field(factory=dict)


def run_rules(
    *, seconds: float | None, most: int | None, out: Path, release: str | None, declared: Declared
) -> LevelReport:
    """The table of speculative methods beside the real configuration; a walk cut short is inconclusive."""
    from harness import rules_job, rules_level
    from harness.rules_reach import MINIMA

    job = rules_job.RulesJob(
        release=rules_level.installed(), version=release, declared=declared, out=out, seconds=seconds, most=most
    )
    report = rules_job.run_job(job)
    return LevelReport(report.verdict, report.data(), rules_job.text(report), MINIMA)


def run_warmup(
    *,
    seed: int,
    warmups: int | None,
    seconds: float | None,
    workers: int,
    out: Path,
    release: str | None,
    findings: bool,
    hang_seconds: float,
    kernels: str,
) -> LevelReport:
    """The release's warmup on generated settings, beside the oracle and the real manager."""
    from harness import findings as declarations
    from harness import warmup_job
    from harness.targets.warmup import Warmup
    from harness.warmup_parties import options

    known = Declared(declarations.load() if findings else (), release)

    def name_of(difference: Difference) -> str:
        finding = known.explain(difference)
        return finding.name if finding is not None else difference.fingerprint

    report = warmup_job.run(
        warmup_job.WarmupJob(
            seed=seed,
            warmups=warmups,
            seconds=seconds,
            workers=workers,
            out=out,
            release=release,
            make_warmup=Warmup,
            options=options(kernels, known),
            name_of=name_of,
            hang_seconds=hang_seconds,
            kernels=kernels,
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


def run_scheduler(
    *,
    seed: int,
    steps: int | None,
    seconds: float | None,
    workers: int,
    out: Path,
    release: str | None,
    findings: bool,
    hang_seconds: float,
    target: str | None,
) -> LevelReport:
    """The release's scheduler on generated workloads, beside prediction, laws and memory."""
    from harness import workload_job
    from harness.findings import load
    from harness.targets.loader import load_scheduler
    from harness.targets.scheduler import Scheduler
    from harness.workload_outcome import WorkloadOptions
    from harness.workload_run import minima_of

    make = load_scheduler(target)
    known = Declared(load() if findings else (), release)

    def name_of(difference: Difference) -> str:
        finding = known.explain(difference)
        return finding.name if finding is not None else difference.fingerprint

    report = workload_job.run(
        workload_job.WorkloadJob(
            seed=seed,
            steps=steps,
            seconds=seconds,
            workers=workers,
            out=out,
            release=release,
            make=make,
            control=None if make is Scheduler else Scheduler,
            options=WorkloadOptions(declared=known, release=release),
            name_of=name_of,
            hang_seconds=hang_seconds,
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
    return LevelReport(report.verdict, data, said, minima_of(release))


def _verdict(verdict: str, reasons: list[str]) -> str:
    return f"{verdict}{': ' if reasons else ''}{'; '.join(reasons)}"
