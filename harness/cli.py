"""The command line. Exit status: 0 agreed, 1 differences, 2 wrong use, 3 inconclusive, 70 the harness itself failed."""

from __future__ import annotations

import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import __version__, findings, record_commands, tracefile, warmup_commands, workload_commands
from harness.campaign.commands import campaign_command
from harness.campaign.corpus_commands import corpus_group
from harness.console import console
from harness.errors import EXIT_HARNESS, EXIT_INCONCLUSIVE, EXIT_WRONG_USE
from harness.forks import in_a_fork, replay_in_a_fork, shrink_isolated
from harness.options import aspects_option, release_option, target_option, trace_argument
from harness.outcome import Options
from harness.recording import is_recording
from harness.release_commands import bisect_command, gate_command, releases_group
from harness.report import table as step_table
from harness.run_commands import run_command
from harness.score_commands import score_command
from harness.show_commands import show_command
from harness.targets.compat import AbsentKindError, TargetError, installed_release
from harness.trace_run import run_trace
from harness.worker import is_journal, read_journal
from oracle import compiled
from oracle.budget import RuleTrace
from oracle.errors import SettingError, SlotcheckError
from oracle.releases import runs
from oracle.trace import Trace
from oracle.warmup import WarmupTrace
from oracle.workload import SchedulerTrace

if TYPE_CHECKING:
    pass

CANARY_SECONDS = 300.0
COMPILED = ", compiled" if compiled() else ""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="slotcheck", message=f"%(prog)s, version %(version)s{COMPILED}")
def cli() -> None:
    """Differential testing of vLLM's KV-cache slot allocation against an executable specification."""


def _read(path: Path) -> Trace:
    """A trace file, or the journal of a worker that was killed; of the manager level."""
    return read_journal(path).trace() if is_journal(path) else tracefile.read(path)


def _read_other(path: Path) -> WarmupTrace | RuleTrace | SchedulerTrace | None:
    """The trace of another level in a file; None when it is of the manager level, or a journal."""
    found = None if is_journal(path) else tracefile.read_any(path)
    return None if isinstance(found, Trace) else found


def _replay_rules(trace: RuleTrace, declared: findings.Declared) -> None:
    """Compare one case with the installed release; print what the rules say and what differs."""
    from harness import rules_job, rules_level

    said, agreed = rules_job.replayed(trace, rules_level.installed(), declared)
    click.echo(said)
    sys.exit(0 if agreed else 1)


@cli.command()
@trace_argument
@release_option
@target_option
@aspects_option
def replay(trace: Path, target: str | None, aspects: frozenset[str]) -> None:
    """Run one trace on the oracle and the target; print each step and both rows."""
    from harness.targets.loader import load_target

    declared = findings.Declared(findings.load(), installed_release())
    if is_recording(trace):
        sys.exit(record_commands.replay(trace, aspects, declared))
    other = _read_other(trace)
    if other is not None and not isinstance(other, SchedulerTrace):
        load_target(target)
    if isinstance(other, WarmupTrace):
        sys.exit(warmup_commands.replay(other, declared))
    if isinstance(other, SchedulerTrace):
        sys.exit(workload_commands.replay(other, declared, target))
    if isinstance(other, RuleTrace):
        _replay_rules(other, declared)
    loaded = _read(trace)
    options = Options(aspects=aspects, audit_every=1, declared=declared, keep_entries=True, release=installed_release())
    outcome = replay_in_a_fork(loaded, load_target(target), options)
    out = console()
    out.print(step_table.text(outcome), markup=False, soft_wrap=True)
    for difference in (*outcome.declared, *outcome.differences):
        finding = declared.explain(difference)
        out.print(step_table.difference_text(difference), markup=False, soft_wrap=True)
        out.print(f"declared as {finding.name}" if finding else "not declared", markup=False)
    if not outcome.differences and not outcome.declared:
        out.print("agreed")
    sys.exit(1 if outcome.differences else 0)


@cli.command()
@trace_argument
def explain(trace: Path) -> None:
    """Run one trace on the oracle alone; print each step, its row and the terms of every number. Needs no vLLM."""
    other = _read_other(trace)
    if isinstance(other, WarmupTrace):
        warmup_commands.explain(other)
        return
    if isinstance(other, SchedulerTrace):
        workload_commands.explain(other)
        return
    if isinstance(other, RuleTrace):
        from harness import rules_job

        click.echo(rules_job.explanation(other))
        return
    outcome = run_trace(_read(trace), None, Options(audit_every=1, keep_entries=True))
    console().print(step_table.explanation(outcome), markup=False, soft_wrap=True)


@cli.command("shrink")
@trace_argument
@release_option
@target_option
@aspects_option
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Where to write it; default: print it.")
@click.option("--tries", type=click.IntRange(min=1), default=6000, show_default=True, help="Candidates to run at most.")
def shrink_command(trace: Path, target: str | None, aspects: frozenset[str], output: Path | None, tries: int) -> None:
    """Make a failing trace minimal."""
    from harness.shrink import shrink
    from harness.targets.loader import load_target

    if is_recording(trace):
        plain = Options(aspects=aspects, audit_every=1)
        sys.exit(record_commands.shrink(trace, load_target(target), plain, output, tries))
    other = _read_other(trace)
    if isinstance(other, WarmupTrace):
        sys.exit(warmup_commands.shrink(other, output, tries))
    if isinstance(other, SchedulerTrace):
        sys.exit(workload_commands.shrink(other, output, tries, target))
    loaded = _read(trace)
    make_target = load_target(target)
    options = Options(aspects=aspects, audit_every=1, release=installed_release())
    outcome = replay_in_a_fork(loaded, make_target, options)
    if not outcome.differences:
        console(stderr=True).print("the trace shows no difference: nothing to shrink")
        sys.exit(0)
    difference = outcome.differences[0]
    smaller = shrink_isolated if difference.rule == "process" else shrink
    small = smaller(loaded, difference, make_target, options, tries)
    text = tracefile.dumps(small.trace)
    if output is None:
        click.echo(text, nl=False)
    else:
        tracefile.write_text(output, text)
    console(stderr=True).print(
        f"{len(loaded.operations)} -> {len(small.trace.operations)} operations in {small.tries} tries, {small.end}: "
        f"{small.difference.fingerprint}",
        soft_wrap=True,
    )
    sys.exit(1)


cli.add_command(bisect_command)
cli.add_command(campaign_command)
cli.add_command(corpus_group)
cli.add_command(gate_command)
cli.add_command(releases_group)
cli.add_command(run_command)
cli.add_command(score_command)
cli.add_command(show_command)
cli.add_command(record_commands.watch_command)


@cli.command("canary")
@release_option
@target_option
def canary_command(target: str | None) -> None:
    """Prove that the harness can fail: a planted defect must be caught."""
    from harness import canary
    from harness.targets.loader import load_target

    make_target = load_target(target)
    steps, ended = in_a_fork(lambda: canary.caught(make_target, Options(release=installed_release())), CANARY_SECONDS)
    if ended:
        raise TargetError(f"the target does not let the canary come to its end: {ended}")
    if steps is None:
        console(stderr=True).print("the canary was not caught: the harness cannot fail")
        sys.exit(EXIT_HARNESS)
    console().print(f"the canary was caught after {steps} steps")


@cli.group("findings")
def findings_group() -> None:
    """Declared findings: known differences, argued, by release."""


@findings_group.command("list")
@click.option("--markdown", is_flag=True, help="The tables of README.")
def findings_list(markdown: bool) -> None:
    """Every declared finding."""
    if markdown:
        from harness.findings_table import table

        click.echo(table(findings.load()), nl=False)
        return
    for finding in findings.load():
        console().print(f"{finding.name}  ({finding.releases})  {finding.title}", markup=False, soft_wrap=True)


def _named(name: str) -> findings.Finding:
    every = findings.load()
    for finding in every:
        if finding.name == name:
            return finding
    raise SlotcheckError(f"no finding {name!r}; there are: {', '.join(finding.name for finding in every) or 'none'}")


@findings_group.command("show")
@click.argument("name")
def findings_show(name: str) -> None:
    """The report of one finding."""
    click.echo((_named(name).folder / "report.md").read_text(encoding="utf-8"), nl=False)


@findings_group.command("refresh")
@release_option
@click.argument("names", nargs=-1)
def findings_refresh(names: tuple[str, ...]) -> None:
    """Write report.md and repro.py of findings again, from their trace.json and finding.json."""
    from harness.finding_levels import level_of

    installed = installed_release()
    for finding in [_named(name) for name in names] if names else findings.load():
        if not names and installed is not None and not finding.covers(installed):
            console().print(f"skip {finding.name}: declared for {finding.releases}", markup=False, soft_wrap=True)
            continue
        level_of(finding).refresh(finding, installed)
        console().print(f"wrote {finding.folder}", markup=False, soft_wrap=True)


@findings_group.command("check")
@release_option
@click.argument("names", nargs=-1)
def findings_check(names: tuple[str, ...]) -> None:
    """Check that findings still reproduce exactly where they say; 1 if one has gone."""
    from harness.finding_levels import level_of

    chosen = [_named(name) for name in names] if names else findings.load()
    installed = installed_release()
    today = datetime.now(tz=UTC).date()
    bad = 0
    for finding in chosen:
        if not runs(installed, finding.area):
            console().print(f"skip {finding.name}: {finding.area} is not specified for {installed}", markup=False)
            continue
        try:
            shows = level_of(finding).reproduces(finding)
        except (AbsentKindError, SettingError):  # the release does not have it
            shows = False
        should = finding.covers(installed)
        state = "reproduces" if shows else "does not reproduce"
        expired = finding.expired(today)
        wrong = shows != should or expired
        bad += wrong
        note = f", but is declared for {finding.releases} and this is {installed}" if shows != should else ""
        if expired:
            note += f"; it expired on {finding.expires}: argue it again or drop it"
        console().print(f"{'FAIL' if wrong else 'ok  '} {finding.name}: {state}{note}", markup=False, soft_wrap=True)
    sys.exit(1 if bad else 0)


def main() -> None:
    """The entry point: every error of a person's is one sentence, every error of ours is exit 70."""
    try:
        code = cli.main(prog_name="slotcheck", standalone_mode=False)
    except click.exceptions.Abort:
        _say("interrupted")
        sys.exit(EXIT_INCONCLUSIVE)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_WRONG_USE)
    except TargetError as error:
        _say(str(error))
        sys.exit(EXIT_INCONCLUSIVE)
    except SlotcheckError as error:
        _say(str(error))
        sys.exit(EXIT_WRONG_USE)
    except Exception as error:
        _say(f"the harness itself failed: {type(error).__name__}: {error}")
        _say("".join(traceback.format_exc()))
        sys.exit(EXIT_HARNESS)
    sys.exit(code or 0)


def _say(message: str) -> None:
    click.echo(f"slotcheck: {message}", err=True)
