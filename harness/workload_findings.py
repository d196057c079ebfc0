"""The declared findings of the scheduler level: run again, and their reports written."""

from __future__ import annotations

from harness import tracefile
from harness.findings import Finding, FindingError, argument
from harness.targets.compat import installed_release
from harness.workload_outcome import MakeScheduler, WorkloadOptions, WorkloadOutcome
from harness.workload_report import write
from harness.workloads import run_workload
from oracle.workload import SchedulerTrace


def _outcome(finding: Finding, make: MakeScheduler, name: str = "trace.json") -> WorkloadOutcome:
    path = finding.folder / name
    trace = tracefile.read_any(path)
    if not isinstance(trace, SchedulerTrace):
        raise FindingError(f"finding {finding.name}: {path} must be a trace of the scheduler level, got {trace.level}")
    return run_workload(trace, make, WorkloadOptions(release=installed_release()))


def reproduces(finding: Finding, make: MakeScheduler) -> bool:
    """Whether the finding's own workload still shows it, or that of an older release (trace-0.30.0.json)."""
    names = ["trace.json", *sorted(path.name for path in finding.folder.glob("trace-*.json"))]
    return any(finding.fits(found) for name in names for found in _outcome(finding, make, name).differences)


def refresh(finding: Finding, make: MakeScheduler, release: str | None) -> None:
    """Write the finding's report.md and repro.py again, from its workload and its declaration."""
    outcome = _outcome(finding, make)
    found = [difference for difference in outcome.differences if finding.fits(difference)]
    if not found:
        raise FindingError(f"finding {finding.name} does not reproduce on {release}: nothing is written")
    write(finding.folder, outcome.trace, found[0], make, WorkloadOptions(), release, finding.title)
    path = finding.folder / "report.md"
    _, _, rest = path.read_text(encoding="utf-8").partition("\n")
    tracefile.write_text(path, argument(finding) + rest)
