"""The summary of a run as data for its page: verdict, reach as bars, speed over time, differences, findings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import log10
from pathlib import Path
from typing import Any

from harness.findings import Finding

#: (seconds since the start, steps so far)
Samples = Sequence[tuple[float, int]]
MOST_POINTS = 120
_COUNTED = ("steps", "warmups", "cases", "traces")


def summary_of(
    data: Mapping[str, Any], page: Path, least: Mapping[str, int], samples: Samples, findings: Iterable[Finding]
) -> dict[str, Any]:
    """What the page says of a run's JSON object. `page`: where it will lie; links are relative to it.

    `least`: how often each crossing must be met; one without is drawn without a mark.
    """
    known = {finding.name: finding for finding in findings}
    return {
        "data": data,
        "facts": _facts(data),
        "reach": bars(data.get("reach", {}), least),
        "speed": speed(samples),
        "differences": [_difference(one, page) for one in data["differences"]],
        "declared": [_declared(name, count, known.get(name), page) for name, count in data["declared"].items()],
    }


def _facts(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [("vLLM", str(data["release"])), ("level", str(data["level"]))]
    facts += [(name, f"{data[name]:,}") for name in _COUNTED if data.get(name) is not None]
    facts.append(("seconds", f"{data['seconds']:,.1f}"))
    facts += [(name.replace("_", " "), f"{data[name]:,}") for name in data if name.endswith(("_second", "_minute"))]
    if "seed" in data:
        facts.append(("seed", str(data["seed"])))
    canary = next((data[name] for name in data if name.startswith("canary")), None)
    facts.append(("canary", "not caught" if canary is None else f"caught after {canary:,}"))
    return facts


def bars(reach: Mapping[str, int], least: Mapping[str, int]) -> list[dict[str, Any]]:
    """Each crossing with its count as a share of the largest, in logarithms, and the place of its minimum (percent)."""
    most = log10(1 + max([*reach.values(), *least.values(), 1]))

    def share(count: int) -> float:
        return round(100 * log10(1 + count) / most, 1)

    return [
        {
            "name": name,
            "count": count,
            "least": least.get(name),
            "width": share(count),
            "mark": share(least[name]) if name in least else None,
            "missed": count < least.get(name, 0),
        }
        for name, count in reach.items()
    ]


def speed(samples: Samples) -> dict[str, Any] | None:
    """Steps a second over time as the points of a line in a field of 1,000 by 100; None for fewer than two."""
    apart = samples[-1][0] / MOST_POINTS if samples else 0.0
    kept = [(0.0, 0)]
    for at, steps in samples:  # shards end in bursts: a rate is taken from one that brought steps to the next
        if steps > kept[-1][1] and at - kept[-1][0] > apart:
            kept.append((at, steps))
    found = [(end, (now - before) / (end - start)) for (start, before), (end, now) in pairwise(kept)]
    if len(found) < 2:
        return None
    last, most = found[-1][0], max(rate for _, rate in found) or 1.0
    points = " ".join(f"{1000 * at / last:.0f},{100 - 96 * rate / most:.1f}" for at, rate in found)
    table = [(f"{at:.1f}", f"{rate:,.0f}") for at, rate in found]
    return {"points": points, "most": f"{most:,.0f}", "seconds": f"{last:.0f}", "table": table}


def _difference(one: Mapping[str, Any], page: Path) -> dict[str, Any]:
    shown = Path(one.get("trace") or one.get("case") or "")
    folder = shown.parent
    files = [name for name in ("page.html", "report.md", "repro.py", shown.name) if name and (folder / name).is_file()]
    links = [(name, _relative(folder / name, page)) for name in files]
    return {**one, "links": links}


def _declared(name: str, count: int, finding: Finding | None, page: Path) -> dict[str, Any]:
    said: dict[str, Any] = {"name": name, "count": count, "title": "", "link": ""}
    if finding is not None:
        said |= {"title": finding.title, "link": _relative(finding.folder / "report.md", page)}
    return said


def _relative(path: Path, page: Path) -> str:
    return Path(os.path.relpath(path.resolve(), page.resolve().parent)).as_posix()
