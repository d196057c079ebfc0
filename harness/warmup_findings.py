"""The declared findings of the warmup level, run again: each has its shortest trace in its folder under reports/."""

from __future__ import annotations

from harness import tracefile
from harness.findings import Declared, Finding, FindingError, argument, load
from harness.report.warmup import write_warmup_report
from harness.targets.warmup import Warmup
from harness.warmup_parties import ALL, options
from harness.warmup_shrink import WarmupShrunk
from harness.warmups import run_warmups
from oracle.trace import Difference
from oracle.warmup import WarmupTrace


def declared(release: str | None) -> Declared:
    """The findings of every level that cover a release."""
    return Declared(load(), release)


def trace_of(finding: Finding) -> WarmupTrace:
    """The shortest trace that shows it."""
    trace = tracefile.read_any(finding.file)
    if not isinstance(trace, WarmupTrace):
        raise FindingError(f"finding {finding.name} is of the warmup level, its trace.json is not")
    return trace


def _shown(finding: Finding) -> tuple[WarmupTrace, list[Difference]]:
    """The trace, and what it shows of the finding, in the order of its patterns."""
    trace = trace_of(finding)
    found = run_warmups(trace, Warmup, options(ALL)).differences
    return trace, [difference for match in finding.match for difference in found if match.fits(difference)]


def reproduces(finding: Finding) -> bool:
    """Whether the finding's own trace still shows it."""
    return bool(_shown(finding)[1])


def refresh(finding: Finding, release: str | None) -> None:
    """Write the finding's report.md and repro.py again, from its trace and its declaration."""
    trace, found = _shown(finding)
    if not found:
        raise FindingError(f"finding {finding.name} does not reproduce on {release}: nothing is written")
    write_warmup_report(finding.folder, WarmupShrunk(trace, found[0], 0, True), release, Warmup, options(ALL))
    path = finding.folder / "report.md"
    _, _, rest = path.read_text(encoding="utf-8").partition("\n")
    tracefile.write_text(path, argument(finding) + rest)
