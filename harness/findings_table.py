"""README's tables of the declared findings: what breaks, the smallest trace, who can meet it, what upstream has."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from harness.findings import Finding
from oracle.releases import NEWEST

#: the areas in the order of their tables, with what stands above each
AREAS = {
    "caching": "With prefix caching on",
    "manager": "Manager level, with prefix caching off or either way",
    "scheduler": "Scheduler level",
    "rules": "Rules level",
    "warmup": "Warmup level",
}
_HEAD = "| finding | breaks | smallest trace | can a deployment meet it? | upstream |\n| --- | --- | --- | --- | --- |"
_OLD_HEAD = "| finding | breaks | releases | smallest trace | upstream |\n| --- | --- | --- | --- | --- |"


def table(findings: Sequence[Finding], release: str = NEWEST) -> str:
    """Markdown: a table an area for what `release` still shows, and one for what upstream mended since."""
    parts = []
    for area, words in AREAS.items():
        there = [finding for finding in findings if finding.area == area and finding.covers(release)]
        wrong = sum("wrong output" in finding.breaks for finding in there)
        note = f", {wrong} of which give{'s' if wrong == 1 else ''} wrong output silently" if wrong else ""
        if there:
            parts.append(f"{words}, {len(there)}{note}:\n\n{_HEAD}\n" + "\n".join(map(_row, _ordered(there))))
    mended = [finding for finding in findings if not finding.covers(release)]
    if mended:
        lead = f"Of older releases, {len(mended)}, which upstream mended since:"
        parts.append(f"{lead}\n\n{_OLD_HEAD}\n" + "\n".join(map(_old_row, _ordered(mended))))
    return "\n\n".join(parts) + "\n"


def _ordered(findings: Sequence[Finding]) -> list[Finding]:
    """Silent wrong output first, then by name."""
    return sorted(findings, key=lambda finding: ("wrong output" not in finding.breaks, finding.name))


def _row(finding: Finding) -> str:
    cells = (_link(finding), finding.breaks, smallest(finding), finding.deployment, upstream(finding))
    return f"| {' | '.join(cells)} |"


def _old_row(finding: Finding) -> str:
    cells = (_link(finding), finding.breaks, finding.releases, smallest(finding), upstream(finding))
    return f"| {' | '.join(cells)} |"


def _link(finding: Finding) -> str:
    return f"[{finding.name}](reports/{finding.name}/report.md)"


def smallest(finding: Finding) -> str:
    """How large the trace is that shows it, in the units of its level."""
    if finding.level == "rules":
        return "1 case"
    operations = json.loads(finding.file.read_text(encoding="utf-8"))["operations"]
    if finding.level == "warmup":
        return _count(len(operations), "warmup")
    if finding.level == "scheduler":
        return _count(sum(operation["op"] == "submit" for operation in operations), "request")
    return _count(len(operations), "operation") if operations else "the setting alone"


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def upstream(finding: Finding) -> str:
    """The numbers of upstream's issues and pull requests; those that are only near are called related."""
    first, _, _ = finding.reference.partition(";")
    numbers = ", ".join(dict.fromkeys(re.findall(r"#\d+", finding.reference)))
    if not numbers:
        return "-"
    return (
        numbers
        if re.match(r"(issue |PR )?#\d+(, #\d+)*( |$|,)", first) and "asks" not in first
        else f"related: {numbers}"
    )
