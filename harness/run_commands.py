"""`slotcheck run`: one level, several, or all, one after another; the worst verdict is the exit status."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from attrs import evolve, field, frozen

from harness import tracefile
from harness.console import console, progress, show_report
from harness.forks import HANG_SECONDS
from harness.levels import BESIDE, Wanted
from harness.options import Duration, Words, aspects_option, release_option, target_option
from harness.show_commands import Sampled, html_option, write_summary
from harness.targets.compat import TargetError, installed_release
from harness.verdict import EXIT, worst
from oracle.errors import SlotcheckError
from oracle.releases import CONFIRMED, runs

LEVELS = ("manager", "rules", "warmup", "scheduler")
ALL = "all"
#: where several levels share a budget: warmups and scheduler steps for each minute of it
A_MINUTE = {"warmup": 800, "scheduler": 20_000}


@frozen
class Ended:
    """One level's verdict, its object for `--json`, and what its page shows besides."""

    verdict: str
    data: dict[str, Any]
    least: Mapping[str, int] = field(factory=dict)
    samples: Sequence[tuple[float, int]] = ()


@click.command("run")
@click.option(
    "--level",
    type=Words("level", (*LEVELS, ALL)),
    metavar="WORD,...",
    default=frozenset({"manager"}),
    help=f"Which parts of vLLM are run, of {', '.join(LEVELS)}, or {ALL}; default manager.",
)
@click.option("--steps", type=click.IntRange(min=1), help="End after this many operations.")
@click.option(
    "--budget",
    type=Duration(),
    help="End after this time (60s, 5m); default 60s where --steps is not given. With several levels the manager's, "
    f"and for each minute of it {A_MINUTE['warmup']} warmups and {A_MINUTE['scheduler']:,} scheduler steps.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which traces.")
@click.option("--workers", type=click.IntRange(min=1, max=256), default=1, show_default=True, help="Processes.")
@release_option
@target_option
@aspects_option
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("slotcheck-out"), show_default=True, help="Where reports go."
)
@click.option("--no-findings", is_flag=True, help="Take declared findings for new differences.")
@click.option(
    "--hang", type=Duration(), default=HANG_SECONDS, help="A step that takes longer is a difference; default 60s."
)
@click.option(
    "--kernels",
    type=click.Choice(("all", "share", "none")),
    default="share",
    show_default=True,
    help="At the warmup level: on which traces the worker's kernels run too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@html_option
def run_command(
    level: frozenset[str],
    steps: int | None,
    budget: float | None,
    seed: int,
    workers: int,
    target: str | None,
    aspects: frozenset[str],
    out: Path,
    no_findings: bool,
    hang: float,
    kernels: str,
    as_json: bool,
    html: Path | None,
) -> None:
    """The main job: generate traces, compare, shrink, report."""
    from harness import job
    from harness.targets.loader import load_target

    names = [name for name in LEVELS if name in level or ALL in level]
    _check(names, steps, target)
    job.prepare_out(out)
    installed = installed_release()
    console(stderr=as_json).print(f"importing vLLM {installed or ''} ...")
    load_target(target if names == ["manager"] else None)  # imports it, and says what is wrong with it
    wanted = Wanted(
        steps=steps,
        budget=budget,
        seed=seed,
        workers=workers,
        target=target,
        aspects=aspects,
        out=out,
        findings=not no_findings,
        hang=hang,
        kernels=kernels,
        as_json=as_json,
        release=installed,
    )
    ends = []
    for name in names:
        one = wanted if len(names) == 1 else _share(wanted, name)
        ended = _manager(one) if name == "manager" else _other(name, one)
        page = html if html is None or len(names) == 1 else html.with_stem(f"{html.stem}-{name}")
        write_summary(page, ended.data, ended.least, ended.samples)
        ends.append(ended)
    verdict = worst([ended.verdict for ended in ends])
    if as_json:
        data = ends[0].data if len(ends) == 1 else {"verdict": verdict, "levels": [ended.data for ended in ends]}
        click.echo(tracefile.json_text(data), nl=False)
    elif len(ends) > 1:
        said = ", ".join(f"{name} {ended.verdict}" for name, ended in zip(names, ends, strict=True))
        click.echo(f"{verdict} ({said})")
    sys.exit(EXIT[verdict])


def _check(names: list[str], steps: int | None, target: str | None) -> None:
    """Refuse what no run can do, before anything is imported or written."""
    if len(names) > 1 and steps is not None:
        raise SlotcheckError(f"--steps is for one level, got {', '.join(names)}; give --budget for several")
    if target is not None and names not in (["manager"], ["scheduler"]):
        raise SlotcheckError(
            f"--target {target} is for the levels manager and scheduler, one at a time; --level {', '.join(names)} "
            "runs the installed release's own"
        )
    installed = installed_release()
    for name in names:
        if not runs(installed, name):
            raise TargetError(f"level {name} is specified for {', '.join(CONFIRMED[name])}, not for {installed}")


def _share(wanted: Wanted, name: str) -> Wanted:
    """A level's part of a run of several: a folder of its own, and where the run is not the manager's, steps."""
    minutes = (60.0 if wanted.budget is None else wanted.budget) / 60
    own = evolve(wanted, out=wanted.out / name)
    if name not in A_MINUTE:
        return evolve(own, budget=None) if name == "rules" else own
    return evolve(own, budget=None, steps=max(1, round(A_MINUTE[name] * minutes)))


def _manager(wanted: Wanted) -> Ended:
    """A run of the manager level; its report is printed."""
    from harness import job
    from harness.targets.loader import load_target, upstream

    make_target = load_target(wanted.target)
    talk = console(stderr=wanted.as_json)
    asked = job.Job(
        seed=wanted.seed,
        steps=wanted.steps,
        seconds=wanted.seconds,
        workers=wanted.workers,
        aspects=wanted.aspects,
        out=wanted.out,
        release=wanted.release,
        make_target=make_target,
        declared=wanted.declared() if wanted.findings else None,
        hang_seconds=wanted.hang,
        control=upstream(make_target),
    )
    speed = Sampled()
    with progress(talk, asked.steps, asked.seconds) as show:
        report = job.run(asked, speed.also(show))
    if not wanted.as_json:
        show_report(talk, report)
    return Ended(report.verdict, report.data(), report.minima, speed.samples)


def _other(name: str, wanted: Wanted) -> Ended:
    """A run of a level beside the manager's; its text is printed."""
    report = BESIDE[name](wanted)
    if not wanted.as_json:
        click.echo(report.text)
    return Ended(report.verdict, report.data, report.least)
