"""Pages to look at: `slotcheck show` of a trace, `run --html` of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from attrs import define, field

from harness import findings, tracefile
from harness.console import console
from harness.engine import RunResult
from harness.options import release_option, target_option, trace_argument
from harness.recording import is_recording
from harness.targets.compat import installed_release
from harness.worker import is_journal, read_journal


def _not_a_folder(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Before a run of hours, not behind it."""
    if path is not None and path.is_dir():
        raise click.BadParameter(f"{path} is a folder; name a file, such as {path / 'run.html'}", context, parameter)
    return path


html_option = click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_not_a_folder,
    help="Also write a page: verdict, reach, speed, differences, findings.",
)


@define
class Sampled:
    """How far a run was at which second since it began."""

    start: float = field(factory=time.monotonic)
    samples: list[tuple[float, int]] = field(factory=list)

    def also(self, show: Callable[[RunResult], None]) -> Callable[[RunResult], None]:
        """`show`, and a sample each time."""

        def both(result: RunResult) -> None:
            self.samples.append((time.monotonic() - self.start, result.steps))
            show(result)

        return both


def write_summary(
    page: Path | None, data: Mapping[str, Any], least: Mapping[str, int], samples: Sequence[tuple[float, int]] = ()
) -> None:
    """Write the page of a run, if one is wanted."""
    if page is None:
        return
    from harness.page.render import summary_page
    from harness.page.summary import summary_of

    tracefile.write_text(page, summary_page(summary_of(data, page, least, samples, findings.load())))


def _load(path: Path) -> tracefile.AnyTrace:
    """A trace file, or a worker's journal."""
    return read_journal(path).trace() if is_journal(path) else tracefile.read_any(path)


@click.command("show")
@trace_argument
@release_option
@target_option
@click.option("--out", type=click.Path(path_type=Path), help="The page to write; default: the trace's name with .html.")
def show_command(trace: Path, target: str | None, out: Path | None) -> None:
    """Write a page that shows a trace step by step: rows, pool, what differs. Needs no vLLM, but uses it."""
    from harness.page.of_trace import film_of
    from harness.page.render import film_page

    installed = installed_release()
    declared = findings.Declared(findings.load(), installed)
    if is_recording(trace):
        from harness.page.recorded_film import recorded_film

        film = recorded_film(trace, declared)
    else:
        film = film_of(_load(trace), installed, target, declared)
    path = out or Path(trace.with_suffix(".html").name)
    tracefile.write_text(path, film_page(film))
    console().print(f"wrote {path}", markup=False, soft_wrap=True)
