"""The declared findings of the warmup level, run again: each has its shortest trace in its folder under reports/."""

from __future__ import annotations

from harness import tracefile
from harness.findings import Declared, Finding, FindingError, argument, load
from harness.report.warmup import write_warmup_report
from harness.targets.compat import installed_release
from harness.targets.warmup import Warmup
from harness.warmup_parties import ALL, options
from harness.warmup_shrink import WarmupShrunk
from harness.warmups import run_warmups
from oracle.releases import choices_of
from oracle.trace import Difference
from oracle.warmup import WarmupTrace


def declared(release: str | None) -> Declared:
    """The findings of every level that cover a release."""
    return Declared(load(), release)


def traces_of(finding: Finding) -> list[WarmupTrace]:
    """The shortest trace that shows it, and those of older releases where it does not (trace-0.26.0.json)."""
    traces = [tracefile.read_any(path) for path in (finding.file, *sorted(finding.folder.glob("trace-*.json")))]
    if not all(isinstance(trace, WarmupTrace) for trace in traces):
        raise FindingError(f"finding {finding.name} is of the warmup level, a trace of its folder is not")
    return [trace for trace in traces if isinstance(trace, WarmupTrace)]


def _possible(trace: WarmupTrace) -> bool:
    """Whether the release can have such groups: before 0.29.0 every row of attention was sharded (A62)."""
    setting = trace.setting
    replicated = any(group.positional and not group.dcp_sharded for group in setting.groups)
    sharded = choices_of(installed_release()).sharded
    return setting.dcp_size == 1 or not replicated or sharded in ("full", "each")


def _shown(finding: Finding, trace: WarmupTrace) -> list[Difference]:
    """What a trace shows of the finding, in the order of its patterns."""
    if not _possible(trace):
        return []
    found = run_warmups(trace, Warmup, options(ALL)).differences
    return [difference for match in finding.match for difference in found if match.fits(difference)]


def reproduces(finding: Finding) -> bool:
    """Whether one of the finding's own traces still shows it."""
    return any(_shown(finding, trace) for trace in traces_of(finding))


def refresh(finding: Finding, release: str | None) -> None:
    """Write the finding's report.md and repro.py again, from its trace and its declaration."""
    trace = traces_of(finding)[0]
    found = _shown(finding, trace)
    if not found:
        raise FindingError(f"finding {finding.name} does not reproduce on {release}: nothing is written")
    write_warmup_report(finding.folder, WarmupShrunk(trace, found[0], 0, True), release, Warmup, options(ALL))
    path = finding.folder / "report.md"
    _, _, rest = path.read_text(encoding="utf-8").partition("\n")
    tracefile.write_text(path, argument(finding) + rest)
