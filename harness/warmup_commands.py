"""What `replay`, `explain` and `shrink` do with a trace of the warmup level."""

from __future__ import annotations

from pathlib import Path

import click

from harness import tracefile, warmup_table
from harness.findings import Declared
from harness.report import warmup_draft
from harness.warmups import WarmupOptions, WarmupOutcome, run_warmups
from oracle.warmup import Draft, WarmupTrace
from oracle.warmup_party import OracleWarmup


def replay(trace: WarmupTrace, declared: Declared) -> int:
    """Run the trace beside oracle, manager and kernels; print the tables and each difference. The exit status."""
    from harness.targets.warmup import Warmup
    from harness.warmup_parties import ALL, options

    given = options(ALL, declared)
    given.keep_entries = True
    outcome = run_warmups(trace, Warmup, given)
    click.echo(_tables(outcome), nl=False)
    for difference in (*outcome.declared, *outcome.differences):
        finding = declared.explain(difference)
        click.echo(warmup_table.difference_text(difference))
        click.echo(f"declared as {finding.name}" if finding else "not declared")
    if not outcome.differences and not outcome.declared:
        click.echo("agreed")
    return 1 if outcome.differences else 0


def explain(trace: WarmupTrace) -> None:
    """Print what the oracle alone says of the trace, with the terms of every number."""
    given = WarmupOptions(aspects=frozenset(), keep_entries=True, memory=False, release=trace.setting.release)
    outcome = run_warmups(trace, OracleWarmup, given)
    click.echo(_tables(outcome), nl=False)
    for line in warmup_table.terms(outcome):
        click.echo(line)


def _tables(outcome: WarmupOutcome) -> str:
    setting = outcome.trace.setting
    said = [warmup_table.text(outcome)]
    for index, operation in enumerate(outcome.trace.operations):
        if isinstance(operation, Draft):
            lines = [warmup_draft.HEAD, *warmup_draft.rows(setting, operation)]
            said.append(f"{index}. {warmup_draft.step_text(setting, operation)}")
            said += [*warmup_table.aligned(lines), ""]
    return "\n".join(said) + "\n"


def shrink(trace: WarmupTrace, output: Path | None, tries: int) -> int:
    """Make the trace minimal and write it; the exit status."""
    from harness.targets.warmup import Warmup
    from harness.warmup_parties import ALL, options
    from harness.warmup_shrink import shrink_warmup

    given = options(ALL)
    found = run_warmups(trace, Warmup, given).differences
    if not found:
        click.echo("the trace shows no difference: nothing to shrink", err=True)
        return 0
    small = shrink_warmup(trace, found[0], Warmup, given, tries)
    text = tracefile.dumps(small.trace)
    if output is None:
        click.echo(text, nl=False)
    else:
        tracefile.write_text(output, text)
    end = "a minimum" if small.minimal else "stopped at the limit of tries, not a minimum"
    click.echo(f"{small.tries} tries, {end}: {small.difference.fingerprint}", err=True)
    return 1
