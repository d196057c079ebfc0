"""What a run prints: progress bars on a terminal, plain lines elsewhere; tables at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn
from rich.table import Table

from harness.engine import RunResult
from harness.job import Report
from harness.verdict import AGREED, DIFFERENCES

#: without a terminal, a line every so many steps
PLAIN_EVERY = 100_000
_STYLE = {AGREED: "green", DIFFERENCES: "red"}


def console(stderr: bool = False) -> Console:
    """A console that is plain where it is not a terminal."""
    made = Console(stderr=stderr, highlight=False, emoji=False)
    if not made.is_terminal:
        made = Console(stderr=stderr, highlight=False, emoji=False, width=120)
    return made


@contextmanager
def progress(out: Console, steps: int | None, seconds: float | None) -> Iterator[Callable[[RunResult], None]]:
    """A callback that shows how far a run is: by steps, or by time where no steps are given."""
    if not out.is_terminal:
        yield _lines(out)
        return
    import time

    start = time.monotonic()
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[steps]:,} steps"),
        TextColumn("{task.fields[differences]} new, {task.fields[declared]} declared"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("manager", total=steps or seconds, steps=0, differences=0, declared=0)

        def show(result: RunResult) -> None:
            done = result.steps if steps else time.monotonic() - start
            bar.update(
                task,
                completed=done,
                steps=result.steps,
                differences=len(result.found),
                declared=sum(result.declared.values()),
            )

        yield show


def _lines(out: Console) -> Callable[[RunResult], None]:
    last = 0

    def show(result: RunResult) -> None:
        nonlocal last
        if result.steps // PLAIN_EVERY > last:
            last = result.steps // PLAIN_EVERY
            out.print(f"{result.steps:,} steps, {len(result.found)} new difference(s)")

    return show


@contextmanager
def download(out: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """A callback that shows how much of a file is there, in bytes; a plain line where there is no terminal."""
    if not out.is_terminal:
        out.print(f"fetching {what} ...", markup=False)
        yield lambda done, total: None
        return
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task(escape(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show_report(out: Console, report: Report) -> None:
    """Reach, differences, verdict."""
    out.print(_reach(report))
    if report.result.declared:
        out.print(_declared(report))
    if report.differences:
        out.print(_differences(report))
        if report.not_shrunk:
            out.print(f"{report.not_shrunk} more distinct difference(s) were met but not shrunk")
    result = report.result
    speed = result.steps / result.seconds if result.seconds else 0
    canary = "not caught" if report.canary_steps is None else f"caught after {report.canary_steps} steps"
    out.print(
        f"{result.steps:,} steps in {result.traces:,} traces, {result.seconds:.1f} s, {speed:,.0f} steps/s, "
        f"seed {report.job.seed}, vLLM {report.job.release}, canary {canary}",
        soft_wrap=True,
    )
    style = _STYLE.get(report.verdict, "yellow")
    reasons = f": {'; '.join(report.reasons)}" if report.reasons else ""
    out.print(f"[{style} bold]{report.verdict}[/]{escape(reasons)}", soft_wrap=True)
    for reported in report.differences:
        out.print(f"  {reported.folder / 'report.md'}", markup=False, soft_wrap=True)


def _table(title: str, show_header: bool) -> Table:
    """A table that is at least as wide as its title."""
    return Table(
        title=title,
        title_justify="left",
        min_width=len(title),
        box=None,
        padding=(0, 1),
        show_header=show_header,
    )


def _reach(report: Report) -> Table:
    """The crossings, in three pairs of columns."""
    table = _table("reached (least wanted)", show_header=False)
    for _ in range(3):
        table.add_column()
        table.add_column(justify="right")
    cells = []
    for name, least in report.minima.items():
        count = report.result.reach[name]
        text = f"{count:,} ({least})"
        cells.append((name, text if count >= least else f"[red]{text} MISSED[/]"))
    height = -(-len(cells) // 3)
    for row in range(height):
        line: list[str] = []
        for column in range(3):
            index = column * height + row
            line += cells[index] if index < len(cells) else ("", "")
        table.add_row(*line)
    return table


def _declared(report: Report) -> Table:
    table = _table("declared findings met", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in sorted(report.result.declared.items()):
        table.add_row(name, f"{count:,}")
    return table


def _differences(report: Report) -> Table:
    table = _table("differences", show_header=True)
    for name in ("times", "operations", "fingerprint", "expected", "observed"):
        table.add_column(name, justify="right" if name in ("times", "operations") else "left", overflow="fold")
    compared = report.job.control is not None
    if compared:
        table.add_column("upstream")
    for reported in report.differences:
        difference = reported.shrunk.difference
        table.add_row(
            f"{reported.count:,}",
            f"{len(reported.shrunk.trace.operations)}{'' if reported.shrunk.minimal else '+'}",
            escape(difference.fingerprint) + f" and {len(reported.also)} more" * bool(reported.also),
            escape(difference.expected),
            escape(difference.observed),
            *(["the same" if reported.shared else "agrees"] if compared else []),
        )
    return table
