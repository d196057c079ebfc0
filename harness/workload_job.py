"""One run of the scheduler level from its options to its verdict: canary, shards, shrinking, reports.

Each shard runs in a forked process; one whose process dies or hangs is run again trace by trace, and the trace that did
it is a difference of its own. Shards are merged in order, so the number of workers changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from harness import level_job, tracefile
from harness.forks import in_a_fork
from harness.shrink import same_defect
from harness.verdict import AGREED, folder_name, judge
from harness.workload_outcome import MakeScheduler, WorkloadOptions
from harness.workload_report import write
from harness.workload_run import EXAMPLES, Found, WorkloadShard, canary_caught, minima_of, run_shard
from harness.workload_shrink import Shrunk, shrink_workload
from harness.workloads import run_workload
from oracle.releases import NEWEST
from oracle.trace import Difference
from oracle.workload import SchedulerDifference, SchedulerTrace
from strategies.workloads import decode, draw

#: most shards in one process: a fork copies what it touches of vLLM, which costs as much as two shards
A_FORK = 8


@frozen(kw_only=True)
class WorkloadJob:
    """What was asked for. steps or seconds ends it."""

    seed: int
    steps: int | None
    seconds: float | None
    workers: int
    out: Path
    release: str | None
    make: MakeScheduler
    options: WorkloadOptions
    name_of: Callable[[Difference], str]
    hang_seconds: float
    control: MakeScheduler | None = None
    """Upstream's, where another target is run."""


@define
class WorkloadReport:
    """What came of a job. differences: shrunk, with how often each was met and its folder."""

    job: WorkloadJob
    total: WorkloadShard = field(factory=lambda: WorkloadShard(0))
    shards: int = 0
    seconds: float = 0.0
    canary_steps: int | None = None
    canary_ended: str = ""
    """How the canary's process ended, when the target did not let it finish."""
    differences: list[tuple[Shrunk, int, Path]] = field(factory=list)
    shared: dict[str, bool] = field(factory=dict)
    """Of each shrunk difference whether upstream shows it on the same workload."""
    verdict: str = AGREED
    reasons: list[str] = field(factory=list)

    def data(self) -> dict[str, Any]:
        """The one JSON object of `run --level scheduler --json`."""
        total = self.total
        return {
            "verdict": self.verdict,
            "reasons": self.reasons,
            "release": self.job.release,
            "level": "scheduler",
            "seed": self.job.seed,
            "steps": total.steps,
            "traces": total.traces,
            "shards": self.shards,
            "seconds": round(self.seconds, 3),
            "steps_per_second": round(total.steps / self.seconds) if self.seconds else 0,
            "canary_steps": self.canary_steps,
            "differences": [
                {
                    **level_job.described(shrunk, "scheduler", count, folder / "trace.json"),
                    "requests": shrunk.requests,
                    "steps": shrunk.steps,
                    **self._upstream(shrunk),
                }
                for shrunk, count, folder in self.differences
            ],
            "declared": dict(sorted(total.declared.items())),
            "reach": {name: total.reach[name] for name in minima_of(self.job.release)},
            "missed": total.missed(self.job.release),
        }

    def _upstream(self, shrunk: Shrunk) -> dict[str, bool]:
        name = shrunk.difference.fingerprint
        return {"upstream": self.shared[name]} if name in self.shared else {}


def _run(job: WorkloadJob, number: int) -> WorkloadShard:
    return run_shard(job.seed, number, job.make, job.options, name_of=job.name_of)


def _shards(job: WorkloadJob, numbers: range) -> list[WorkloadShard]:
    """Some shards in one process; where that does not live, or takes as long as one may, shard by shard.

    The same answers either way.
    """
    value, ended = in_a_fork(lambda: [_run(job, number) for number in numbers], job.hang_seconds)
    if not ended:
        some: list[WorkloadShard] = value
        return some
    return [_shard(job, number) for number in numbers]


def _shard(job: WorkloadJob, number: int) -> WorkloadShard:
    """One shard in a process of its own; trace by trace where that process does not live."""
    value, ended = in_a_fork(partial(_run, job, number), job.hang_seconds)
    if not ended:
        shard: WorkloadShard = value
        return shard
    result = WorkloadShard(number)
    drawn: list[bytes] = []
    draw(job.seed, number, EXAMPLES, drawn.append)
    for data in drawn:
        trace = decode(data, job.options.release or NEWEST)
        _, ended = in_a_fork(partial(run_workload, trace, job.make, job.options), job.hang_seconds)
        if ended:
            result.add(_lost(trace, ended), trace)
            break
    return result


def _lost(trace: SchedulerTrace, ended: str) -> Difference:
    return SchedulerDifference(
        aspect="error",
        step=len(trace.operations) - 1,
        group=None,
        kind="scheduler",
        rule="process",
        sign=ended,
        expected="an answer",
        observed=ended,
    )


def run(job: WorkloadJob, progress: Callable[[WorkloadReport], None] = lambda report: None) -> WorkloadReport:
    """Run a job to its verdict."""
    report = WorkloadReport(job)
    plain = evolve(job.options, declared=lambda difference: False)
    caught, report.canary_ended = in_a_fork(lambda: canary_caught(job.make, plain), job.hang_seconds * 5)
    report.canary_steps = None if report.canary_ended else caught

    def enough() -> bool:
        progress(report)
        # a scheduler that cannot be built makes no steps
        return job.steps is not None and max(report.total.steps, report.total.traces) >= job.steps

    shards = level_job.in_order(partial(_shards, job), job.workers, A_FORK)
    level_job.take_all(shards, report, report.total.merge, enough, job.seconds)
    _shrink_all(report)
    _judge(report)
    tracefile.write_text(job.out / "run.json", tracefile.json_text(report.data()))
    return report


def _shrink_all(report: WorkloadReport) -> None:
    from harness.page.beside import write_workload_page

    job, total = report.job, report.total
    for final, shrunk, count in level_job.each_once(total.found, total.counts, partial(_shrink, job)):
        folder = job.out / folder_name(final)
        write(folder, shrunk.trace, shrunk.difference, job.make, job.options, job.release)
        if shrunk.difference.rule != "process":
            write_workload_page(folder, shrunk.trace, job.make, job.options)
        report.differences.append((shrunk, count, folder))
        if job.control is not None:
            report.shared[final] = _shows(job, shrunk, job.control)


def _shows(job: WorkloadJob, shrunk: Shrunk, control: MakeScheduler) -> bool:
    """Whether upstream shows the defect on the same workload."""
    plain = evolve(job.options, declared=lambda difference: False)
    found, ended = in_a_fork(lambda: run_workload(shrunk.trace, control, plain).differences, job.hang_seconds)
    return bool(ended) or any(same_defect(shrunk.difference, one) for one in found)


def _shrink(job: WorkloadJob, found: Found) -> Shrunk:
    plain = Shrunk(found.trace, found.difference, 0, False)
    shrink = partial(shrink_workload, found.trace, found.difference, job.make, job.options)
    return level_job.shrunk_apart(found, plain, shrink, job.hang_seconds * 5)


def _judge(report: WorkloadReport) -> None:
    report.verdict, report.reasons = judge(
        new=level_job.told(report.total.found, report.differences),
        caught=report.canary_steps is not None,
        ended=report.canary_ended,
        release=report.job.release,
        level="scheduler",
        missed=report.total.missed(report.job.release),
    )
