"""What a campaign comes to: a verdict for each release and level, and one for all; as data and as text."""

from __future__ import annotations

from typing import Any

from harness import warmup_run, workload_run
from harness.campaign.driver import Campaign, Part
from harness.campaign.results import Result, size_of
from harness.campaign.storage import Stored
from harness.reach import CACHING_STEPS, minima, plain_minima
from harness.verdict import AGREED, BROKEN, DIFFERENCES, INCONCLUSIVE, judge
from oracle.releases import NEWEST, runs


def minima_of(level: str, release: str | None, result: Result) -> dict[str, int]:
    """What so many steps of a level must have reached."""
    if level == "manager":
        caching = result.reach[CACHING_STEPS]
        return minima(release, None, caching) if caching else plain_minima(release)
    if level == "scheduler":
        return workload_run.minima_of(release, result.steps)
    kernels = warmup_run.KERNEL_MINIMA if runs(release or NEWEST, "kernels") else {}
    return warmup_run.minima_of(release or NEWEST) | kernels


def _judged(campaign: Campaign, part: Part) -> dict[str, Any]:
    """One release and level."""
    _, level = part
    result = campaign.of[part]
    caught = campaign.caught.get(part)
    release = caught.release if caught is not None else part[0]
    least = minima_of(level, release, result)
    missed = [name for name, wanted in least.items() if result.reach[name] < wanted]
    verdict, reasons = judge(
        new=len(result.found),
        caught=caught is not None and caught.steps is not None,
        ended="" if caught is None else caught.ended,
        release=release,
        level=level,
        missed=missed,
        cut_short=_cut_short(campaign),
    )
    if caught is None and verdict == BROKEN:  # it was not asked yet
        verdict, reasons = INCONCLUSIVE, [_cut_short(campaign)]
    return {
        "release": release,
        "level": level,
        "verdict": verdict,
        "reasons": reasons,
        "steps": result.steps,
        "traces": result.traces,
        "canary_steps": None if caught is None else caught.steps,
        "declared": dict(sorted(result.declared.items())),
        "reach": {name: result.reach[name] for name in least},
        "missed": missed,
    }


def _cut_short(campaign: Campaign) -> str:
    return "interrupted; --resume goes on" if campaign.interrupted else ""


def data(campaign: Campaign) -> dict[str, Any]:
    """The one JSON object of `campaign --json`."""
    parts = [_judged(campaign, part) for part in campaign.of]
    verdicts = [part["verdict"] for part in parts]
    verdict = next((one for one in (DIFFERENCES, BROKEN, INCONCLUSIVE) if one in verdicts), AGREED)
    steps = sum(part["steps"] for part in parts)
    return {
        "verdict": verdict,
        "campaign": campaign.plan.name,
        "store": campaign.store.address,
        "seed": campaign.plan.seed,
        "shards": campaign.merged,
        "run": campaign.ran,
        "lost": campaign.lost,
        "machines": campaign.machines,
        "steps": steps,
        "seconds": round(campaign.elapsed, 3),
        "interrupted": campaign.interrupted,
        "levels": parts,
        "differences": differences(campaign),
    }


def differences(campaign: Campaign) -> list[dict[str, Any]]:
    """Each fingerprint once, with how often it was met under all names that became it."""
    grouped: dict[str, list[tuple[Stored, int]]] = {}
    for found, kept in sorted(campaign.kept.items()):
        count = sum(result.counts[found] for result in campaign.of.values())
        if count:
            grouped.setdefault(kept.fingerprint, []).append((kept, count))
    told = []
    for fingerprint, several in sorted(grouped.items()):
        kept, _ = min(several, key=lambda one: (size_of(one[0].trace), one[0].found))
        told.append(
            {
                "fingerprint": fingerprint,
                "count": sum(count for _, count in several),
                "operations": size_of(kept.trace),
                "minimal": kept.minimal,
                "replay": f"{campaign.store.address}#{kept.name}",
                "also": sorted(one.name for one, _ in several if one is not kept),
            }
        )
    return told


def text(found: dict[str, Any]) -> str:
    """The same for people."""
    lines = []
    for part in found["levels"]:
        caught = part["canary_steps"]
        canary = "not caught" if caught is None else f"caught after {caught:,}"
        reasons = f": {'; '.join(part['reasons'])}" if part["reasons"] else ""
        lines.append(f"{part['level']}, vLLM {part['release']}: {part['steps']:,} steps, canary {canary}")
        lines += [f"  declared: {name} {count:,}" for name, count in part["declared"].items()]
        lines.append(f"  {part['verdict']}{reasons}")
    for one in found["differences"]:
        lines.append(f"  {one['fingerprint']}  x{one['count']:,}  slotcheck replay '{one['replay']}'")
    again = f", {found['lost']} lost and run again" if found["lost"] else ""
    kept = f", {found['shards'] - found['run']} of them from the store" if found["run"] < found["shards"] else ""
    lines.append(f"{found['shards']:,} shards{kept}{again}, {found['steps']:,} steps, {found['seconds']:.1f} s")
    return "\n".join([*lines, found["verdict"]])
