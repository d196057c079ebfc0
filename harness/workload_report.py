"""The folder of one difference of the scheduler level: trace.json, report.md, and repro.py, which needs vLLM alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve, fields
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harness import __version__, tracefile
from harness.report import workload_reasons
from harness.report.calls import call_text, keywords
from harness.report.script import spec_text
from harness.report.terms import terms_text
from harness.targets.config import MODELS
from harness.targets.source import locate
from harness.targets.specs import spec_arguments
from harness.workload_outcome import MakeScheduler, WorkloadOptions, WorkloadOutcome
from harness.workload_table import HEAD, describe, rows
from harness.workloads import run_workload
from oracle.groups import Group
from oracle.methods import METHODS
from oracle.trace import Difference
from oracle.workload import SchedulerSetting, SchedulerTrace, Step

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "report"),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)


def write(
    folder: Path,
    trace: SchedulerTrace,
    difference: Difference,
    make: MakeScheduler,
    options: WorkloadOptions,
    release: str | None,
    title: str = "",
) -> None:
    """Write the three files; with a connector no script yet. title: of a declared finding."""
    tracefile.write_text(folder / "trace.json", tracefile.dumps(trace))
    if difference.rule == "process":
        return  # it would take this process along
    told = evolve(options, keep_entries=True, declared=lambda one: False)
    outcome = run_workload(trace, make, told)
    named = title or workload_reasons.title(difference)
    context = {
        "title": named,
        "version": __version__,
        "release": release or "unknown",
        "setting": setting_lines(trace.setting),
        "table": _markdown(outcome),
        "difference": difference,
        "place": f"operation {difference.step}",
        "terms": terms_text(difference.detail, 100),
        "reason": workload_reasons.reason(difference.rule),
        "locations": [locate(*place) for place in workload_reasons.places(difference)],
        "script": not trace.setting.kv_connector,  # the script has no far side
    }
    tracefile.write_text(folder / "report.md", _TEMPLATES.get_template("workload.md.j2").render(context))
    if context["script"]:
        tracefile.write_text(folder / "repro.py", script(trace, difference, outcome, named, release))


def setting_lines(setting: SchedulerSetting) -> list[tuple[str, object]]:
    """What is not at its default."""
    shown: list[tuple[str, object]] = [("groups", ", ".join(_group(group) for group in setting.groups))]
    for attribute in fields(SchedulerSetting):
        value = getattr(setting, attribute.name)
        if attribute.name != "groups" and value != attribute.default:
            shown.append((attribute.name, value))
    return shown


def _group(group: Group) -> str:
    more = [
        f"{one.name} {getattr(group, one.name)}"
        for one in fields(type(group))
        if getattr(group, one.name) != one.default
    ]
    return f"{group.kind} ({', '.join(more)})"


def _markdown(outcome: WorkloadOutcome) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    lines += ["| " + " | ".join(cell or " " for cell in row) + " |" for row in rows(outcome)]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------- repro.py


def script(
    trace: SchedulerTrace, difference: Difference, outcome: WorkloadOutcome, title: str, release: str | None
) -> str:
    """repro.py: the workload as literal calls on vLLM's scheduler; exits 1 while the defect is there."""
    setting = trace.setting
    models = MODELS[setting.method if setting.num_speculative_tokens else "none"]
    operations = [
        describe(operation) if not isinstance(operation, Step) else operation
        for operation in trace.operations[: difference.step + 1]
    ]
    steps = max(0, outcome.shown.get(difference.fingerprint, outcome.steps))
    return _TEMPLATES.get_template("workload_repro.py.j2").render(
        title=title,
        fingerprint=difference.fingerprint,
        version=__version__,
        release=release or "unknown",
        setting=setting,
        target=repr(models.target),
        drafter=repr(models.drafter) if setting.num_speculative_tokens else "None",
        method=METHODS[setting.method, setting.parallel_drafting].release_word
        if setting.num_speculative_tokens
        else "",
        specs=[spec_text(group, indent=4) for group in setting.groups],
        classes=sorted({spec_arguments(group)[0] for group in setting.groups}),
        scheduler_config=call_text("scheduler_config=SchedulerConfig", keywords(_scheduler(setting)), indent=4).strip(),
        workload=list(_lines(trace, steps)),
        count=len(operations),
        raises=difference.sign.removeprefix("error:") if difference.aspect == "error" else "",
        stuck=difference.rule in ("progress", "drain"),
        expected=difference.expected,
        observed=difference.observed,
        contents={name: content.tokens for name, content in sorted(outcome.contents.items())},
        block_size=_block_size(setting),
        wrong=_last(outcome),
    )


def _block_size(setting: SchedulerSetting) -> int:
    """What the engine writes into the cache's configuration."""
    if setting.enable_caching:
        return min(group.block_size for group in setting.groups if group.cacheable)
    return setting.align_size or setting.scheduler_block_size


def _scheduler(setting: SchedulerSetting) -> dict[str, Any]:
    return {
        "max_model_len": setting.max_model_len,
        "is_encoder_decoder": False,
        "max_num_batched_tokens": setting.max_num_batched_tokens,
        "max_num_seqs": setting.max_num_seqs,
        "max_num_scheduled_tokens": setting.max_num_scheduled_tokens,
        "max_num_active_seqs": setting.max_num_active_seqs,
        "long_prefill_token_threshold": setting.long_prefill_token_threshold,
        "long_prefill_token_threshold_adaptive": setting.long_prefill_token_threshold_adaptive,
        "enable_chunked_prefill": setting.enable_chunked_prefill,
        "policy": setting.policy,
        "prefill_schedule_interval": setting.prefill_schedule_interval,
        "scheduler_reserve_full_isl": setting.scheduler_reserve_full_isl,
        "watermark": setting.watermark,
        "async_scheduling": setting.in_flight_depth > 1,
    }


def _lines(trace: SchedulerTrace, steps: int) -> list[str]:
    """The operations as calls; the steps of the drain written out."""
    lines = []
    left = steps
    for operation in trace.operations:
        if isinstance(operation, Step):
            left -= 1
            said = [
                f"{name}={dict(getattr(operation, name))}"
                for name in ("accepted", "stops", "drafts")
                if getattr(operation, name)
            ]
            lines.append(f"step({', '.join([*said, *(['early=True'] if operation.early else [])])})")
        else:
            names = [one.name for one in fields(type(operation)) if one.name != "forks"]
            values = [(name, getattr(operation, name)) for name in names]
            given = ", ".join(f"{name}={value!r}" for name, value in values)
            lines.append(f"{type(operation).__name__.lower()}({given})")
    if left > 0:
        lines.append(f"for _ in range({left}):\n    step()")
    return lines


def _last(outcome: WorkloadOutcome) -> str:
    """What the last planned step was, as the script compares it."""
    if not outcome.entries:
        return "None"
    planned = outcome.entries[-1].planned
    rows = [(str(name), computed, blocks) for name, computed, _, blocks in planned.new]
    rows += [(str(name), computed, blocks or ()) for name, computed, _, blocks in planned.cached]
    tokens, drafts = ({str(name): count for name, count in pairs} for pairs in (planned.tokens, planned.drafts))
    return repr((tokens, drafts, rows, planned.copies))
