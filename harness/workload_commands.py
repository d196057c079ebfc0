"""`replay` and `shrink` of a workload: what is printed, and the exit status."""

from __future__ import annotations

from pathlib import Path

import click

from harness import tracefile, workload_table
from harness.console import console
from harness.findings import Declared
from harness.targets.compat import installed_release
from harness.workload_outcome import WorkloadOptions
from harness.workload_shrink import shrink_workload
from harness.workloads import run_workload
from oracle.scheduler_party import OracleScheduler
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import SchedulerTarget, SchedulerTrace


def replay(trace: SchedulerTrace, declared: Declared, target: str | None) -> int:
    """Run one workload on the real scheduler, or on `target`, beside the oracles; print the table."""
    from harness.targets.loader import load_scheduler

    make = load_scheduler(target)
    outcome = run_workload(
        trace, make, WorkloadOptions(declared=declared, keep_entries=True, release=installed_release())
    )
    click.echo(workload_table.text(outcome), nl=False)
    for difference in outcome.declared:
        finding = declared.explain(difference)
        click.echo(f"declared as {finding.name}" if finding else "not declared")
    if not outcome.differences and not outcome.declared:
        click.echo("agreed")
    return 1 if outcome.differences else 0


def explain(trace: SchedulerTrace) -> None:
    """Print what the oracle alone makes of the workload: the table, and the terms of every ask."""
    parties: list[OracleScheduler] = []

    def make(setting: SchedulerSetting) -> SchedulerTarget:
        parties.append(OracleScheduler(setting))
        return parties[-1]

    outcome = run_workload(trace, make, WorkloadOptions(keep_entries=True, predict=False))
    click.echo(workload_table.text(outcome), nl=False)
    for line in workload_table.terms(trace.setting, parties[-1].reasons):
        click.echo(line)


def shrink(trace: SchedulerTrace, output: Path | None, tries: int, target: str | None) -> int:
    """Make a failing workload minimal."""
    from harness.targets.loader import load_scheduler

    make = load_scheduler(target)
    options = WorkloadOptions(release=installed_release())
    outcome = run_workload(trace, make, options)
    if not outcome.differences:
        console(stderr=True).print("the workload shows no difference: nothing to shrink")
        return 0
    small = shrink_workload(outcome.trace, outcome.differences[0], make, options, max_tries=tries)
    text = tracefile.dumps(small.trace)
    if output is None:
        click.echo(text, nl=False)
    else:
        tracefile.write_text(output, text)
    end = "minimal" if small.minimal else "tries used up"
    console(stderr=True).print(
        f"{len(trace.operations)} -> {len(small.trace.operations)} operations, {small.requests} requests, "
        f"{small.steps} steps, in {small.tries} tries, {end}: {small.difference.fingerprint}",
        soft_wrap=True,
    )
    return 1
