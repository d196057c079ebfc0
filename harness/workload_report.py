"""The folder of one difference of the scheduler level: trace.json, report.md, and repro.py, which needs vLLM alone."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve, fields

from harness import __version__, tracefile
from harness.report import workload_reasons
from harness.report.folder import TEMPLATES
from harness.report.reasons import cause_of
from harness.report.terms import terms_text
from harness.report.workload_script import script
from harness.targets.source import locate
from harness.workload_outcome import MakeScheduler, WorkloadOptions, WorkloadOutcome
from harness.workload_table import HEAD, rows
from harness.workloads import run_workload
from oracle.groups import Group
from oracle.scheduler_setting import SchedulerSetting
from oracle.trace import Difference
from oracle.workload import SchedulerTrace


def write(
    folder: Path,
    trace: SchedulerTrace,
    difference: Difference,
    make: MakeScheduler,
    options: WorkloadOptions,
    release: str | None,
    title: str = "",
) -> None:
    """Write the three files. title: of a declared finding."""
    tracefile.write_text(folder / "trace.json", tracefile.dumps(trace))
    if difference.rule == "process":
        return  # it would take this process along
    told = evolve(options, keep_entries=True, declared=lambda one: False)
    outcome = run_workload(trace, make, told)
    named = title or workload_reasons.title(difference)
    cause = cause_of(difference)
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
        "cause": cause.words if cause else "",
        "locations": [locate(*place) for place in workload_reasons.places(difference)],
    }
    tracefile.write_text(folder / "report.md", TEMPLATES.get_template("workload.md.j2").render(context))
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
