"""Recordings on the command line: `watch`, and what `replay`, `shrink` and `show` do with one."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from harness import tracefile
from harness.console import console
from harness.errors import EXIT_INCONCLUSIVE
from harness.findings import Declared
from harness.options import Duration, aspects_option
from harness.outcome import MakeTarget, Options
from harness.recorded import Judged
from harness.recorded_shrink import shrink_recording
from harness.recording import Recording, recordings
from harness.report.table import difference_text
from harness.report.title import title
from harness.shrink import Shrunk
from harness.targets.compat import TargetError, installed_release
from oracle.errors import TraceError
from oracle.trace import Trace

#: seconds between two looks at a recording that grows
LOOK_EVERY = 0.5
#: lines between two progress lines of a recording that is caught up with
SAY_EVERY = 5_000


def judge(recording: Recording, options: Options) -> Judged:
    """Everything that is there of a recording."""
    judged = Judged(recording.head, options)
    for line in recording.lines():
        judged.feed(line)
    return judged


def said(name: str, judged: Judged) -> list[str]:
    """What came of a recording: the first difference with its step and wall time, or how far it agreed."""
    far = f"{name}: {judged.steps:,} engine steps, {judged.replay.steps:,} operations"
    when = judged.at.isoformat(sep=" ", timespec="milliseconds")
    if judged.began is not None:
        far += f"; its first parts were dropped, it is judged from {judged.since:%Y-%m-%d %H:%M:%S} on"
    lines = [f"declared: {title(one)} (operation {one.step})" for one in judged.replay.declared]
    difference = judged.difference
    if difference is not None:
        return [
            *lines,
            f"{name}: the first difference comes after {judged.steps:,} engine steps, {when}",
            difference_text(difference),
        ]
    if judged.parted:
        return [*lines, f"{far}; from {when} on nothing can be judged: {judged.parted}"]
    return [*lines, f"{far}: agreed up to {when}"]


def status(judged: list[Judged]) -> int:
    """1 for a difference, 3 where a recording could not be judged to its end."""
    if any(one.difference is not None for one in judged):
        return 1
    return EXIT_INCONCLUSIVE if any(one.parted for one in judged) else 0


def replay(path: Path, aspects: frozenset[str], declared: Declared) -> int:
    """Judge every recording at a path; the exit status."""
    found = []
    for recording in recordings(path):
        judged = judge(recording, Options(aspects=aspects, declared=declared))
        found.append(judged)
        for line in said(recording.name, judged):
            console().print(line, markup=False, soft_wrap=True)
    return status(found)


def first_different(path: Path, options: Options) -> Judged | None:
    """The first recording at a path that shows a difference."""
    for recording in recordings(path):
        judged = judge(recording, options)
        if judged.difference is not None:
            return judged
    return None


def one_recording(path: Path) -> Recording:
    """The recording at a path; TraceError where there are more."""
    found = recordings(path)
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise TraceError(f"{path} holds {len(found)} recordings; name a file of one of {names}")
    return found[0]


def as_trace(judged: Judged) -> Trace:
    """The operations of a recording up to its first difference, with its prefixes as contents."""
    from harness.recorded_shrink import forks_of, with_forks

    forks = forks_of(judged.head.setting, judged.digests)
    return Trace(setting=judged.head.setting, operations=tuple(with_forks(judged.replay.operations, forks)))


def shrink(path: Path, make_target: MakeTarget, options: Options, output: Path | None, tries: int) -> int:
    """Find the smallest trace that shows a recording's first difference on the target; the exit status.

    `output`: a file for the trace, a folder (a name without an ending) for a report with it, None to print the trace.
    """
    talk = console(stderr=True)
    judged = first_different(path, options)
    if judged is None:
        talk.print("the recording shows no difference: nothing to shrink")
        return 0
    small = shrink_recording(judged, make_target, options, tries)
    if small is None:
        raise TargetError(
            f"the target does not show what the recording shows after {judged.steps:,} engine steps; name the manager "
            "that was recorded with --target"
        )
    text = tracefile.dumps(small.trace)
    if output is None:
        click.echo(text, nl=False)
    elif output.suffix:
        tracefile.write_text(output, text)
    else:
        _report(output, small, make_target, options)
    talk.print(
        f"{judged.steps:,} engine steps, {judged.replay.steps:,} operations -> {len(small.trace.operations)} "
        f"operations in {small.tries} tries, {small.end}: {small.difference.fingerprint}",
        soft_wrap=True,
        markup=False,
    )
    return 1


def _report(folder: Path, small: Shrunk, make_target: MakeTarget, options: Options) -> None:
    """The folder that a run writes of a difference: trace.json, report.md, repro.py, page.html."""
    from harness.page.beside import write_page
    from harness.report.folder import write_report

    write_report(folder, small, installed_release(), make_target)
    write_page(folder, small.trace, make_target, options)


@click.command("watch")
@click.argument("folder", type=click.Path(path_type=Path))
@aspects_option
@click.option("--for", "seconds", type=Duration(), help="End after this time; default: at the first difference.")
def watch_command(folder: Path, aspects: frozenset[str], seconds: float | None) -> None:
    """Judge recordings while they grow; end at the first difference."""
    from harness import findings

    declared = findings.Declared(findings.load(), installed_release())
    options = Options(aspects=aspects, declared=declared)
    seen: dict[str, tuple[Recording, Judged]] = {}
    start, last = time.monotonic(), 0
    talk = console()
    while True:
        for recording in _there(folder):
            seen.setdefault(recording.name, (recording, Judged(recording.head, options)))
        for recording, judged in seen.values():
            for line in recording.lines():
                judged.feed(line)
        steps = sum(judged.steps for _, judged in seen.values())
        ended = seconds is not None and time.monotonic() - start > seconds
        if steps - last >= SAY_EVERY:
            last = steps
            talk.print(f"{len(seen)} recording(s), {steps:,} engine steps", markup=False)
        if ended or any(judged.over for _, judged in seen.values()):
            break
        time.sleep(LOOK_EVERY)
    for name, (_, judged) in seen.items():
        for text in said(name, judged):
            talk.print(text, markup=False, soft_wrap=True)
    if not seen:
        raise TraceError(f"no recording in {folder}; start the engine with SLOTCHECK_RECORD={folder}")
    sys.exit(status([judged for _, judged in seen.values()]))


def _there(folder: Path) -> list[Recording]:
    """The recordings of a folder; none while no engine has started."""
    if not folder.exists() or (folder.is_dir() and not any(folder.glob("*.jsonl"))):
        return []
    return recordings(folder)
