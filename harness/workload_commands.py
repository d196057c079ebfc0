"""`replay` and `shrink` of a workload: what is printed, and the exit status."""

from __future__ import annotations

from pathlib import Path

import click

from harness import tracefile, workload_table
from harness.console import console
from harness.findings import Declared
from harness.workload_outcome import WorkloadOptions
from harness.workload_shrink import shrink_workload
from harness.workloads import run_workload
from oracle.workload import SchedulerTrace


def replay(trace: SchedulerTrace, declared: Declared) -> int:
    """Run one workload on the real scheduler beside the oracles; print the table."""
    from harness.targets.scheduler import Scheduler, prepare

    prepare()
    outcome = run_workload(trace, Scheduler, WorkloadOptions(declared=declared, keep_entries=True))
    click.echo(workload_table.text(outcome), nl=False)
    for difference in outcome.declared:
        finding = declared.explain(difference)
        click.echo(f"declared as {finding.name}" if finding else "not declared")
    return 1 if outcome.differences else 0


def shrink(trace: SchedulerTrace, output: Path | None, tries: int) -> int:
    """Make a failing workload minimal."""
    from harness.targets.scheduler import Scheduler, prepare

    prepare()
    outcome = run_workload(trace, Scheduler, WorkloadOptions())
    if not outcome.differences:
        console(stderr=True).print("the workload shows no difference: nothing to shrink")
        return 0
    small = shrink_workload(trace, outcome.differences[0], Scheduler, max_tries=tries)
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
