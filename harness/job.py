"""One `slotcheck run` from its options to its verdict: canary, shards, shrinking, reports, exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from harness import canary, findings, tracefile
from harness.engine import MAX_SHRUNK, Engine, Plan, RunResult, shrink_found
from harness.forks import in_a_fork
from harness.outcome import MakeTarget, Options
from harness.reach import CACHING_STEPS, minima
from harness.report.folder import Seen, also_names, write_report
from harness.shrink import Shrunk, defect_of, rank, same_defect
from harness.trace_run import run_trace
from harness.verdict import AGREED, folder_name, judge
from harness.worker import Found
from oracle.errors import SlotcheckError
from oracle.trace import Difference


@frozen(kw_only=True)
class Job:
    """What was asked for. `declared` None: no findings are considered."""

    seed: int
    steps: int | None
    seconds: float | None
    workers: int
    aspects: frozenset[str]
    out: Path
    release: str | None
    make_target: MakeTarget
    declared: findings.Declared | None
    hang_seconds: float
    control: MakeTarget | None = None
    """Upstream's manager, where the target is somebody else's: which differences do both have?"""


@frozen
class Reported:
    """One defect: its simplest trace, how often it was met, its folder, and what else it showed as.

    shared: whether upstream shows it on that trace too; None where the target is upstream's.
    """

    shrunk: Shrunk
    count: int
    folder: Path
    also: tuple[Seen, ...] = ()
    shared: bool | None = None


@define
class Report:
    """What came of a job."""

    job: Job
    result: RunResult
    canary_steps: int | None
    canary_ended: str = ""
    """How the canary's process ended, if the target did not let it come to its end."""
    differences: list[Reported] = field(factory=list)
    not_shrunk: int = 0
    verdict: str = AGREED
    reasons: list[str] = field(factory=list)

    @property
    def minima(self) -> dict[str, int]:
        """What this run must meet."""
        return minima(self.job.release, self.job.make_target, self.result.reach[CACHING_STEPS])

    @property
    def missed(self) -> list[str]:
        """Reach counters below their minimum."""
        return [name for name, least in self.minima.items() if self.result.reach[name] < least]

    def data(self) -> dict[str, Any]:
        """The one JSON object of `run --json`."""
        result = self.result
        return {
            "verdict": self.verdict,
            "reasons": self.reasons,
            "release": self.job.release,
            "level": "manager",
            "seed": self.job.seed,
            "steps": result.steps,
            "traces": result.traces,
            "shards": result.shards,
            "seconds": round(result.seconds, 3),
            "steps_per_second": round(result.steps / result.seconds) if result.seconds else 0,
            "interrupted": result.interrupted,
            "canary_steps": self.canary_steps,
            "differences": [
                {
                    "fingerprint": reported.shrunk.difference.fingerprint,
                    "level": "manager",
                    "aspect": reported.shrunk.difference.aspect,
                    "step": reported.shrunk.difference.step,
                    "operations": len(reported.shrunk.trace.operations),
                    "minimal": reported.shrunk.minimal,
                    "count": reported.count,
                    "trace": str(reported.folder / "trace.json"),
                    **({} if reported.shared is None else {"upstream": reported.shared}),
                    "also": [
                        {
                            "fingerprint": one.shrunk.difference.fingerprint,
                            "operations": len(one.shrunk.trace.operations),
                            "count": one.count,
                            "trace": str(reported.folder / name),
                        }
                        for name, one in also_names(reported.also)
                    ],
                }
                for reported in self.differences
            ],
            "declared": dict(sorted(result.declared.items())),
            "reach": {name: result.reach[name] for name in self.minima},
            "missed": self.missed,
        }


def prepare_out(out: Path) -> None:
    """Make sure that reports can be written before anything runs."""
    probe = out / ".writable"
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe.write_text("", encoding="utf-8")
        probe.unlink()
    except OSError as error:
        why = "it is a file" if out.is_file() else error.strerror
        raise SlotcheckError(f"cannot write to {out}: {why}; choose another folder with --out") from None


def run(job: Job, progress: Callable[[RunResult], None] = lambda result: None) -> Report:
    """Run a job to its verdict. Raises SlotcheckError for what the user can mend."""
    prepare_out(job.out)
    declared = job.declared
    options = Options(aspects=job.aspects, release=job.release)
    flown = job.out / "inflight" / "canary.journal"
    canary_steps, ended = in_a_fork(
        lambda: canary.caught(job.make_target, options, journal=flown), job.hang_seconds, flown
    )
    plan = Plan(
        seed=job.seed,
        steps=job.steps,
        seconds=job.seconds,
        workers=job.workers,
        make_target=job.make_target,
        options=Options(aspects=job.aspects, declared=declared or (lambda difference: False), release=job.release),
        inflight=job.out / "inflight",
        name_of=_namer(declared),
        hang_seconds=job.hang_seconds,
    )
    report = Report(job, RunResult(), canary_steps, canary_ended=ended)
    report.result = Engine(plan, progress).run()
    _shrink_all(report, plan)
    _judge(report)
    tracefile.write_text(job.out / "run.json", tracefile.json_text(report.data()))
    for journal in plan.inflight.glob("*.journal"):
        journal.unlink(missing_ok=True)
    if plan.inflight.is_dir():
        plan.inflight.rmdir()
    return report


def _namer(declared: findings.Declared | None) -> Callable[[Difference], str]:
    def name(difference: Difference) -> str:
        finding = declared.explain(difference) if declared is not None else None
        return finding.name if finding is not None else difference.fingerprint

    return name


def _shrink_all(report: Report, plan: Plan) -> None:
    """Shrink what was found, each defect's shortest trace first, and report each defect once.

    Ctrl-C ends the shrinking: the rest is reported as it was found.
    """
    from harness.page.beside import write_page

    found = report.result.found
    todo = in_turn(found)
    of: dict[tuple[str, ...], tuple[str, ...]] = {}  # what was found -> what it was after shrinking
    seen: dict[tuple[str, ...], dict[str, Seen]] = {}
    skip = False
    for name in todo[:MAX_SHRUNK]:
        one = found[name]
        try:
            shrunk = Shrunk(one.trace, one.difference, 0, False) if skip else shrink_found(one, plan)
        except KeyboardInterrupt:
            skip = report.result.interrupted = True
            shrunk = Shrunk(one.trace, one.difference, 0, False)
        defect = defect_of(shrunk.difference)
        of.setdefault(defect_of(one.difference), defect)
        known = seen.setdefault(defect, {})
        final = shrunk.difference.fingerprint
        known[final] = Seen(shrunk, report.result.counts[name]).with_more(known.get(final))
    rest: Counter[tuple[str, ...]] = Counter()
    for name in todo[MAX_SHRUNK:]:
        defect = of.get(defect_of(found[name].difference), ())
        rest[defect] += report.result.counts[name]
        report.not_shrunk += not defect
    for defect, known in sorted(seen.items()):
        first, *also = sorted(known.values(), key=lambda one: rank(one.shrunk.trace))
        folder = report.job.out / folder_name(first.shrunk.difference.fingerprint)
        write_report(folder, first.shrunk, report.job.release, report.job.make_target, also)
        write_page(folder, first.shrunk.trace, report.job.make_target, plan.options)
        count = sum(one.count for one in known.values()) + rest[defect]
        shared = _shared(report.job, first.shrunk, plan)
        report.differences.append(Reported(first.shrunk, count, folder, tuple(also), shared))


def _shared(job: Job, shrunk: Shrunk, plan: Plan) -> bool | None:
    """Whether upstream shows a defect of the target, too."""
    control = job.control
    if control is None:
        return None
    options = evolve(plan.options, audit_every=1)

    def shows() -> bool:
        return any(
            same_defect(shrunk.difference, found) for found in run_trace(shrunk.trace, control, options).differences
        )

    answer, _ = in_a_fork(shows, job.hang_seconds)
    return bool(answer)


def in_turn(found: Mapping[str, Found]) -> list[str]:
    """Fingerprints by the length of their traces, but each defect once before any comes twice."""
    ordered = sorted(found, key=lambda name: (len(found[name].trace.operations), name))
    turns: Counter[tuple[str, ...]] = Counter()
    turn = {}
    for name in ordered:
        defect = defect_of(found[name].difference)
        turn[name] = turns[defect]
        turns[defect] += 1
    return sorted(ordered, key=turn.__getitem__)


def _judge(report: Report) -> None:
    """The verdict and why."""
    job, result = report.job, report.result
    report.verdict, report.reasons = judge(
        new=len(report.differences),
        caught=report.canary_steps is not None,
        ended=report.canary_ended,
        release=job.release,
        level="manager",
        missed=report.missed,
        cut_short="interrupted; what was found until then is kept" if result.interrupted else "",
    )
