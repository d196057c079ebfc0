"""The folder of one difference of the warmup level: trace.json, report.md with the table, repro.py for vLLM alone."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from attrs import evolve, fields

from harness import tracefile
from harness.report import warmup_draft, warmup_tables
from harness.report.calls import WIDTH
from harness.report.folder import TEMPLATES, Locate, Versions, comment, versions_here, write_texts
from harness.report.script import spec_line, spec_text
from harness.report.warmup_judge import WarmupJudge, judge_of
from harness.report.warmup_reasons import reason_of, title
from harness.targets import source
from harness.targets.specs import spec_arguments
from harness.warmup_table import grid, in_words, markdown
from harness.warmups import MakeWarmup, WarmupDifference, WarmupOptions, WarmupOutcome, run_warmups
from oracle.trace import Difference
from oracle.warmup import Draft, Mixed, Ran, TraceOperation, WarmupSetting, WarmupTrace

if TYPE_CHECKING:
    from pathlib import Path

    from harness.warmup_shrink import WarmupShrunk

LEGEND = (
    "What each request holds after each step: block ids, then the slots of the step's positions and, behind a bar, of "
    "those that the drafter may write. *expected* and *manager*: blocks that the scheduler holds for the same tokens, "
    "by the oracle and by the real `KVCacheManager`."
)


def write_warmup_report(
    folder: Path,
    shrunk: WarmupShrunk,
    release: str | None,
    make_warmup: MakeWarmup | None = None,
    options: WarmupOptions | None = None,
    *,
    versions: Versions | None = None,
    locate: Locate = source.locate,
) -> Path:
    """Write the report of a difference; other files in `folder` are left alone. Returns the folder.

    The trace is run again for its table unless it kills its process, or there is no `make_warmup`.
    """
    trace, difference = shrunk.trace, shrunk.difference
    runs = make_warmup is not None and difference.rule != "process"
    known = versions or versions_here(release)
    outcome = WarmupOutcome(trace)
    again = True
    if runs and make_warmup is not None:
        given = evolve(options or WarmupOptions(), declared=lambda other: False, keep_entries=True)
        outcome = run_warmups(trace, make_warmup, given)
        same = [found for found in outcome.differences if found.fingerprint == difference.fingerprint]
        again = bool(same)
        difference = same[0] if same else difference
    context = _report(evolve(shrunk, difference=difference), outcome, again, known, locate)
    texts = {"trace.json": tracefile.dumps(trace), "repro.py": _repro(trace, difference, outcome, known)}
    texts["report.md"] = TEMPLATES.get_template("warmup_report.md.j2").render(context)
    return write_texts(folder, texts)


def setting_rows(setting: WarmupSetting) -> list[tuple[str, str]]:
    """The setting, without what has its default."""
    rows = [(f"group {n}", f"`{spec_line(group)}`") for n, group in enumerate(setting.groups)]
    rows.append(("num_blocks", f"{setting.num_blocks} ({setting.num_blocks - 1} usable)"))
    for attribute in fields(WarmupSetting):
        value = getattr(setting, attribute.name)
        if attribute.name not in ("groups", "num_blocks") and value != attribute.default:
            rows.append((attribute.name, str(value)))
    if setting.lookahead:
        rows.append(("num_lookahead_tokens", f"{setting.lookahead} (by the method)"))
    return rows


def operation_text(setting: WarmupSetting, operation: TraceOperation) -> str:
    """An operation in words."""
    if isinstance(operation, Draft):
        return warmup_draft.step_text(setting, operation)
    return in_words(operation)


def _report(
    shrunk: WarmupShrunk, outcome: WarmupOutcome, again: bool, versions: Versions, locate: Locate
) -> dict[str, Any]:
    trace, difference = shrunk.trace, shrunk.difference
    method = trace.setting.method
    reason = reason_of(difference, method)
    operations = trace.operations[: difference.step + 1]
    drafts = isinstance(operations[-1], Draft)
    what = "step" if drafts else "warmup"
    count = f"one {what}" if len(operations) == 1 else f"{len(operations)} operations"
    shown = [entry for entry in outcome.entries if entry.operation == difference.step]
    return {
        "title": title(difference, method),
        "versions": versions,
        "count": count,
        "minimal": shrunk.minimal,
        "again": again,
        "setting": setting_rows(trace.setting),
        "heading": "Step" if drafts else "Warmup",
        "operations": [operation_text(trace.setting, operation) for operation in operations],
        "legend": warmup_draft.LEGEND if drafts else LEGEND,
        "table": _table(trace, operations[-1], evolve(outcome, entries=shown), difference),
        "difference": difference,
        "terms": "\n".join(_wrapped(difference.detail)),
        "rule": difference.rule,
        "reason": reason,
        "locations": [locate(*place) for place in reason.places],
    }


def _table(trace: WarmupTrace, operation: TraceOperation, outcome: WarmupOutcome, difference: Difference) -> str:
    if isinstance(operation, Draft):
        return grid(warmup_draft.HEAD, warmup_draft.rows(trace.setting, operation))
    return markdown(outcome, getattr(difference, "at", -1)) if outcome.entries else ""


def _wrapped(detail: str) -> list[str]:
    return [line for part in detail.splitlines() for line in textwrap.wrap(part, 100, subsequent_indent="  ")]


# ------------------------------------------------------------------------------------------------------ repro.py


def _repro(trace: WarmupTrace, difference: Difference, outcome: WarmupOutcome, versions: Versions) -> str:
    operations = trace.operations[: difference.step + 1]
    if isinstance(operations[-1], Draft) and isinstance(difference, WarmupDifference):
        return _draft_repro(trace.setting, operations[-1], difference, versions)
    if difference.rule == "slots" and isinstance(difference, WarmupDifference) and len(outcome.ran) > difference.step:
        return _tables_repro(trace.setting, difference, outcome.ran[difference.step], versions)
    setting, judge = trace.setting, judge_of(trace, difference)
    names = {"Mixed": "run_mixed_prefill_decode_warmup", "Kernels": "warmup_kernels"}
    classes = {spec_arguments(group)[0] for group in setting.groups}
    classes |= {"UniformTypeKVCacheSpecs"} if any(group.uniform_layers for group in setting.groups) else set()
    intro = (
        f"Needs vLLM alone (written for {versions.vllm or 'an unknown release'}): no GPU, weights or network. "
        "Exits 1 while the defect is there, 0 once it is gone. The release's own warmup is run with a stand-in for the "
        f"model runner. Written by slotcheck {versions.slotcheck}. Fingerprint: {difference.fingerprint}."
    )
    reason = reason_of(difference, setting.method)
    fails = any(operation.fail for operation in operations)
    return TEMPLATES.get_template("warmup_repro.py.j2").render(
        title=_title(setting, difference),
        intro="\n".join(textwrap.wrap(intro, WIDTH)),
        classes=sorted(classes),
        functions=sorted({names[type(operation).__name__] for operation in operations}),
        specs=[spec_text(group, indent=4) for group in setting.groups],
        s=setting,
        zeroer=setting.zeroes_blocks,
        fail=fails,
        calls=[line for operation in operations for line in _call(operation, names, fails)],
        judge=judge,
        found=_found(outcome, difference, judge),
        why="\n".join(map(comment, (f"{difference.rule}: {reason.why}", *_wrapped(difference.detail)))),
    )


def _title(setting: WarmupSetting, difference: Difference) -> str:
    return "\n".join(textwrap.wrap(f"{title(difference, setting.method)}.", WIDTH))


def _draft_repro(setting: WarmupSetting, operation: Draft, difference: WarmupDifference, versions: Versions) -> str:
    made = warmup_draft.script(setting, operation, difference)
    intro = (
        f"Needs vLLM alone (written for {versions.vllm or 'an unknown release'}): no GPU, weights or network. "
        "Exits 1 while the defect is there, 0 once it is gone. The drafter's own code is run on one decode step, with "
        f"nothing in the model's place. Written by slotcheck {versions.slotcheck}. "
        f"Fingerprint: {difference.fingerprint}."
    )
    reason = reason_of(difference, setting.method)
    return TEMPLATES.get_template("draft_repro.py.j2").render(
        title=_title(setting, difference),
        intro="\n".join(textwrap.wrap(intro, WIDTH)),
        source=made.source,
        rows=made.rows,
        arguments=made.arguments,
        call=made.call,
        judge=made.judge,
        must=made.must,
        why="\n".join(map(comment, (f"{difference.rule}: {reason.why}", *_wrapped(difference.detail)))),
    )


def _tables_repro(setting: WarmupSetting, difference: WarmupDifference, ran: Ran, versions: Versions) -> str:
    intro = (
        f"Needs vLLM alone (written for {versions.vllm or 'an unknown release'}): no GPU, weights or network. "
        "Exits 1 while the defect is there, 0 once it is gone. The worker's block tables are given the blocks of a "
        f"recorded warmup. Written by slotcheck {versions.slotcheck}. Fingerprint: {difference.fingerprint}."
    )
    why = reason_of(difference, setting.method).why
    return TEMPLATES.get_template("slots_repro.py.j2").render(
        title=_title(setting, difference),
        intro="\n".join(textwrap.wrap(intro, WIDTH)),
        why="\n".join(map(comment, (f"{difference.rule}: {why}", *_wrapped(difference.detail)))),
        **warmup_tables.script(setting, difference, ran),
    )


def _call(operation: TraceOperation, names: dict[str, str], fails: bool) -> list[str]:
    arguments = [names[type(operation).__name__]]
    if isinstance(operation, Mixed):
        arguments.append(str(operation.num_tokens))
    failing = [f"calls, fail = 0, {operation.fail}"] if fails else []
    return [*failing, f"answer, error = run({', '.join(arguments)})"]


def _found(outcome: WarmupOutcome, difference: Difference, judge: WarmupJudge) -> str:
    """What was recorded, as the script's `seen`, where the script compares with it."""
    if "found" not in judge.there or difference.step >= len(outcome.ran):
        return ""
    return repr(steps_of(outcome.ran[difference.step], len(outcome.trace.setting.groups)))


def steps_of(ran: Ran, groups: int) -> list[dict[int, tuple[int, int, list[list[int]]]]]:
    """The steps as the script keeps them: request -> computed, scheduled, blocks per group so far."""
    seen, rows = [], dict[int, list[list[int]]]()
    for step in ran.steps:
        shown = {}
        for part, blocks in zip(step.parts, step.blocks, strict=True):
            held = rows.setdefault(part.request, [[] for _ in range(groups)])
            for row, more in zip(held, blocks or (), strict=False):
                row += more
            shown[part.request] = (part.computed, part.new, [list(row) for row in held])
        if step.parts or step.finished:
            seen.append(shown)
        for request in step.finished:
            rows.pop(request, None)
    return seen
