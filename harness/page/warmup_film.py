"""The film of a warmup trace: each step's slots as a grid, with scheduled positions and those that drafts may go to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from harness.page.film import Formulas, describe_groups, with_findings
from harness.report.warmup import operation_text, setting_rows
from harness.report.warmup_draft import HEAD as DRAFT_HEAD
from harness.report.warmup_draft import rows as draft_rows
from harness.report.warmup_reasons import reason_of
from harness.report.warmup_reasons import title as title_of
from harness.warmups import Entry, WarmupOutcome
from oracle.slots import PAD, drafted, slot
from oracle.trace import Difference
from oracle.warmup import Draft, WarmupSetting
from oracle.warmup_laws import kind_of


def make_film(
    outcome: WarmupOutcome, against: str, name: str, declared: Callable[[Difference], bool]
) -> dict[str, Any]:
    """The film of an outcome that kept its entries."""
    setting = outcome.trace.setting
    formulas = Formulas()
    frames: list[dict[str, Any]] = []
    starts: list[int] = []
    for index, operation in enumerate(outcome.trace.operations):
        starts.append(len(frames))
        words = f"{index}. {operation_text(setting, operation)}"
        if isinstance(operation, Draft):
            table = {"head": DRAFT_HEAD, "lines": draft_rows(setting, operation)}
            frames.append({"words": words, "operation": index, "table": table})
            continue
        entries = [entry for entry in outcome.entries if entry.operation == index]
        if not entries:
            frames.append({"words": f"{words}: nothing runs", "operation": index})
        for step, shown in groupby(entries, key=lambda entry: entry.step):
            frames.append({"operation": index, "step": step, **_step(setting, words, list(shown), formulas)})
    differences = with_findings(declared, outcome.declared, outcome.differences)
    groups = describe_groups(setting.groups, setting.dcp_size)
    for said, group in zip(groups, setting.groups, strict=True):
        said |= {"kind": kind_of(group), "block": group.block_size}
    return {
        "kind": "slots",
        "title": name,
        "against": against,
        "setting": [(key, text.strip("`")) for key, text in setting_rows(setting)],
        "groups": groups,
        "blocks": setting.num_blocks,
        "formulas": formulas.said,
        "frames": frames,
        "marks": [_mark(setting, one, finding, frames, starts) for one, finding in differences],
    }


def _step(setting: WarmupSetting, words: str, entries: list[Entry], formulas: Formulas) -> dict[str, Any]:
    """One step of a warmup: who is in it, which slots it writes, what each party counts."""
    parts = [_part(setting, entry) for entry in entries]
    terms = [
        formulas.add(
            f"request {entry.part.request}, group {entry.group} {kind_of(setting.groups[entry.group])}", entry.reason
        )
        for entry in entries
    ]
    return {"words": f"{words}, step {entries[0].step}: {entries[0].what}", "parts": parts, "terms": terms}


def _part(setting: WarmupSetting, entry: Entry) -> dict[str, Any]:
    group, part = setting.groups[entry.group], entry.part
    said: dict[str, Any] = {
        "request": part.request,
        "group": entry.group,
        "computed": part.computed,
        "new": part.new,
        "row": entry.row,
    }
    if group.positional and not setting.null_block_redirect:
        said["slots"] = _runs(setting, entry, range(part.computed, part.end))
        if group.drafts and setting.lookahead:
            said["drafts"] = _runs(setting, entry, drafted(setting, part))
    for name in ("expected", "manager"):
        count = getattr(entry, name)
        if count is not None:
            said[name] = count
    return said


def _runs(setting: WarmupSetting, entry: Entry, positions: Iterable[int]) -> list[list[int | None]]:
    """[first slot, how many, first position] of each run on the first rank; slot None: no block is there."""
    runs: list[list[int | None]] = []
    for position in positions:
        found = slot(setting, setting.groups[entry.group], entry.row, position, 0)
        if found == PAD:
            continue
        if runs and _follows(runs[-1], found):
            runs[-1][1] = (runs[-1][1] or 0) + 1
        else:
            runs.append([found, 1, position])
    return runs


def _follows(run: list[int | None], found: int | None) -> bool:
    first, count, _ = run
    if first is None or found is None:
        return first is found
    return found == first + (count or 0)


def _mark(
    setting: WarmupSetting, difference: Difference, declared: str, frames: list[dict[str, Any]], starts: list[int]
) -> dict[str, Any]:
    operation, step = max(difference.step, 0), getattr(difference, "at", -1)
    at = starts[operation] if operation < len(starts) else max(len(frames) - 1, 0)
    for index in range(at, len(frames)):
        if (frames[index].get("operation"), frames[index].get("step")) == (operation, step):
            at = index
            break
    reason = reason_of(difference, setting.method)
    return {
        "at": at,
        "title": title_of(difference, setting.method),
        "rule": f"{difference.rule}: {reason.why}",
        "expected": difference.expected,
        "observed": difference.observed,
        "detail": difference.detail.splitlines(),
        "declared": declared,
        "request": getattr(difference, "request", -1),
        "group": -1 if difference.group is None else difference.group,
    }
