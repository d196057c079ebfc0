"""One run of the warmup level from its options to its verdict: canary, shards, shrinking, reports.

Each shard runs in a forked process; where that dies or hangs, the trace that it was at is a difference of its own.
Shards are merged in order, so the number of workers changes nothing.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from harness import level_job, tracefile
from harness.forks import in_a_fork
from harness.report.warmup import write_warmup_report
from harness.verdict import AGREED, folder_name, judge
from harness.warmup_parties import NONE
from harness.warmup_run import Found, WarmupShard, canary_caught, run_shard
from harness.warmup_shrink import WarmupShrunk, shrink_warmup
from harness.warmups import MakeWarmup, WarmupDifference, WarmupOptions
from harness.worker import read_journal
from oracle.trace import Difference
from oracle.warmup import WarmupTrace
from strategies.warmups import decode


@frozen(kw_only=True)
class WarmupJob:
    """What was asked for. warmups or seconds ends it. dump: a trace as the text of its file."""

    seed: int
    warmups: int | None
    seconds: float | None
    workers: int
    out: Path
    release: str | None
    make_warmup: MakeWarmup
    options: WarmupOptions
    name_of: Callable[[Difference], str]
    hang_seconds: float
    kernels: str


@define
class WarmupReport:
    """What came of a job. differences: shrunk, with how often each was met and its folder."""

    job: WarmupJob
    total: WarmupShard = field(init=False)
    shards: int = 0
    seconds: float = 0.0
    canary_warmups: int | None = None
    canary_ended: str = ""
    """How the canary's process ended, when the target did not let it finish."""
    differences: list[tuple[WarmupShrunk, int, Path]] = field(factory=list)
    verdict: str = AGREED
    reasons: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.total = WarmupShard(0, self.job.options.release)

    def data(self) -> dict[str, Any]:
        """The one JSON object of `run --level warmup --json`."""
        total = self.total
        return {
            "verdict": self.verdict,
            "reasons": self.reasons,
            "release": self.job.release,
            "level": "warmup",
            "seed": self.job.seed,
            "warmups": total.warmups,
            "steps": total.steps,
            "traces": total.traces,
            "kernel_traces": total.kernels,
            "shards": self.shards,
            "seconds": round(self.seconds, 3),
            "warmups_per_minute": round(total.warmups / self.seconds * 60) if self.seconds else 0,
            "canary_warmups": self.canary_warmups,
            "differences": [
                level_job.described(shrunk, "warmup", count, folder / "trace.json")
                for shrunk, count, folder in self.differences
            ],
            "declared": dict(sorted(total.declared.items())),
            "reach": {name: total.reach[name] for name in total.minima},
            "missed": total.missed(),
        }


def _merge(total: WarmupShard, shard: WarmupShard) -> None:
    total.warmups += shard.warmups
    total.steps += shard.steps
    total.traces += shard.traces
    total.kernels = None if shard.kernels is None else (total.kernels or 0) + shard.kernels
    total.reach.update(shard.reach)
    total.declared.update(shard.declared)
    counts = Counter(total.counts) + shard.counts
    for found in shard.found.values():
        total.add(found.difference, found.trace)
    total.counts = counts


def _shard(job: WarmupJob, number: int) -> WarmupShard:
    """One shard in a process of its own; where that does not live, its journal names the trace."""
    journal = job.out / "inflight" / f"warmup-{number}.journal"
    work = partial(
        run_shard, job.seed, number, job.make_warmup, job.options, name_of=job.name_of, kernels=job.kernels,
        journal=journal,
    )  # fmt: skip
    try:
        value, ended = in_a_fork(work, job.hang_seconds, journal)
        if not ended:
            shard: WarmupShard = value
            return shard
        result = WarmupShard(number, job.options.release, kernels=None if job.kernels == NONE else 0)
        trace = decode(read_journal(journal).data, job.options.release)
        result.add(_lost(trace, ended), trace)
        return result
    finally:
        journal.unlink(missing_ok=True)


def _lost(trace: WarmupTrace, ended: str) -> Difference:
    return WarmupDifference(
        aspect="outcome",
        step=len(trace.operations) - 1,
        group=None,
        kind="pool",
        rule="process",
        sign=ended,
        expected="an answer",
        observed=ended,
    )


def run(job: WarmupJob, progress: Callable[[WarmupReport], None] = lambda report: None) -> WarmupReport:
    """Run a job to its verdict."""
    report = WarmupReport(job)
    plain = evolve(job.options, declared=lambda difference: False, make_tables=None, draft=None)
    caught, report.canary_ended = in_a_fork(lambda: canary_caught(job.make_warmup, plain), job.hang_seconds * 5)
    report.canary_warmups = None if report.canary_ended else caught

    def enough() -> bool:
        progress(report)
        return job.warmups is not None and report.total.warmups >= job.warmups

    shards = level_job.in_order(lambda numbers: [_shard(job, number) for number in numbers], job.workers)
    level_job.take_all(shards, report, partial(_merge, report.total), enough, job.seconds)
    _shrink_all(report)
    _judge(report)
    with contextlib.suppress(OSError):
        (job.out / "inflight").rmdir()
    tracefile.write_text(job.out / "run.json", tracefile.json_text(report.data()))
    return report


def _shrink_all(report: WarmupReport) -> None:
    from harness.page.beside import write_warmup_page

    job, total = report.job, report.total
    for final, shrunk, count in level_job.each_once(total.found, total.counts, partial(_shrink, job)):
        folder = job.out / folder_name(final)
        write_warmup_report(folder, shrunk, job.release, job.make_warmup, job.options)
        if shrunk.difference.rule != "process":
            write_warmup_page(folder, shrunk.trace, job.make_warmup, job.options)
        report.differences.append((shrunk, count, folder))


def _shrink(job: WarmupJob, found: Found) -> WarmupShrunk:
    plain = WarmupShrunk(found.trace, found.difference, 0, False)
    shrink = partial(shrink_warmup, found.trace, found.difference, job.make_warmup, job.options)
    return level_job.shrunk_apart(found, plain, shrink, job.hang_seconds * 5)


def _judge(report: WarmupReport) -> None:
    report.verdict, report.reasons = judge(
        new=level_job.told(report.total.found, report.differences),
        caught=report.canary_warmups is not None,
        ended=report.canary_ended,
        release=report.job.release,
        level="warmup",
        missed=report.total.missed(),
    )
