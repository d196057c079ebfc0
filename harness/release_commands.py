"""Commands about more than one release: what is at hand, the rules by release, gate and bisect."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from packaging.version import InvalidVersion, Version
from rich.table import Table

from harness import tracefile
from harness.console import console, download
from harness.errors import EXIT_HARNESS, EXIT_INCONCLUSIVE
from harness.options import Duration, trace_argument
from harness.targets.compat import TargetError, installed_release
from oracle.errors import SlotcheckError
from oracle.release_table import RULES, Rule
from oracle.releases import changed, confirmed


@click.command("bisect")
@trace_argument
@click.option("--releases", metavar="R,...", help="Which of the releases at hand; default all.")
def bisect_command(trace: Path, releases: str | None) -> None:
    """In which releases does a trace diverge, and which is the first?"""
    from harness import first_bad

    tracefile.read_any(trace)
    here = first_bad.at_hand()
    wanted = [name.strip() for name in releases.split(",")] if releases else here
    absent = [name for name in wanted if name not in here]
    if absent:
        raise TargetError(
            f"not at hand: {', '.join(absent)}; slotcheck releases fetch brings them, at hand: {', '.join(here)}"
        )
    rows = []
    for release in wanted:
        rows.append(first_bad.row(release, trace))
        mark = {None: "cannot run", True: "diverges", False: "agrees"}[rows[-1].bad]
        console().print(f"{release:10} {mark:10} {rows[-1].text if rows[-1].bad is not False else ''}".rstrip())
    console().print(first_bad.first(rows))
    sys.exit(1 if any(row.bad for row in rows) else 0 if any(row.bad is False for row in rows) else EXIT_INCONCLUSIVE)


@click.command("gate")
@click.option("--from", "older", required=True, metavar="RELEASE", help="The release that is in use.")
@click.option("--to", "newer", required=True, metavar="RELEASE|FOLDER", help="The one to move to.")
@click.option("--budget", type=Duration(), help="How long to look; default 60s where --steps is not given.")
@click.option("--steps", type=click.IntRange(min=1), help="End after this many: the same page on every machine.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which traces.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("slotcheck-out"), show_default=True, help="Where pages go."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def gate_command(
    older: str, newer: str, budget: float | None, steps: int | None, seed: int, out: Path, as_json: bool
) -> None:
    """May we move from one release to another? Writes gate.md, gate.json and gate.xml (JUnit)."""
    from harness import gate, job

    talk = console(stderr=as_json)
    job.prepare_out(out)
    talk.print(f"importing vLLM {older} and {newer} ...")
    seconds = 60.0 if budget is None and steps is None else budget
    found = gate.run(older, newer, seconds=seconds, steps=steps, seed=seed, out=out)
    tracefile.write_text(out / "gate.md", gate.markdown(found))
    tracefile.write_text(out / "gate.json", tracefile.json_text(found.data()))
    tracefile.write_text(out / "gate.xml", gate.junit(found))
    click.echo(tracefile.json_text(found.data()) if as_json else gate.markdown(found), nl=False)
    sys.exit(1 if found.bad else EXIT_HARNESS if not found.canary else EXIT_INCONCLUSIVE if found.missed else 0)


@click.group("releases")
def releases_group() -> None:
    """The vLLM releases at hand; the rules and when they changed."""


@releases_group.command("list")
def releases_list() -> None:
    """The release that is installed, and those in the cache folder."""
    from harness import store

    installed = installed_release()
    if installed is None:
        console().print("none: vLLM is not installed; install the extra: pip install 'slotcheck[vllm]'", markup=False)
    else:
        console().print(f"{installed}  installed, {_known(installed)}", highlight=False)
    stored = store.stored()
    for each in stored:
        text = f"{each.release}  fetched {each.fetched}, {each.size / 2**20:.0f} MiB, {_known(each.release)}"
        console().print(text, highlight=False)
    if stored:
        console().print(f"in {store.folder()}", markup=False, soft_wrap=True, highlight=False)


def _known(release: str) -> str:
    return "rules confirmed" if confirmed(release) else "rules not confirmed: a run is inconclusive"


@releases_group.command("fetch")
@click.argument("releases", nargs=-1, required=True)
def releases_fetch(releases: tuple[str, ...]) -> None:
    """Bring the Python files of releases into the cache folder."""
    from harness import store

    for release in releases:
        with download(console(stderr=True), f"vllm {release}") as show:
            here = store.fetch(release, show)
        console().print(
            f"{here.release}  {here.size / 2**20:.0f} MiB in {here.folder}", soft_wrap=True, highlight=False
        )


@releases_group.command("remove")
@click.argument("releases", nargs=-1, required=True)
def releases_remove(releases: tuple[str, ...]) -> None:
    """Delete releases from the cache folder."""
    from harness import store

    for release in releases:
        console().print(f"removed {store.remove(release).folder}", soft_wrap=True, highlight=False)


@releases_group.command("rules")
@click.option("--diff", nargs=2, metavar="OLDER NEWER", help="Only what changed from one release to another.")
def releases_rules(diff: tuple[str, str] | None) -> None:
    """Every rule that upstream changed: value, releases, reference."""
    shown = Table(box=None, padding=(0, 1))
    if diff is not None:
        older, newer = sorted(map(_number, diff), key=Version)
        for name in ("rule", older, newer, "since", "spec", "upstream"):
            shown.add_column(name, overflow="fold")
        for old, rule in changed(older, newer):
            shown.add_row(rule.name, old.value if old else "-", rule.value, rule.since, rule.spec, rule.reference)
        console().print(shown)
        return
    for name in ("rule", "value", "since", "until", "spec", "upstream"):
        shown.add_column(name, overflow="fold")
    for rule in RULES:
        shown.add_row(*_rule_cells(rule))
    console().print(shown)


def _number(release: str) -> str:
    try:
        return str(Version(release))
    except InvalidVersion:
        raise SlotcheckError(f"--diff takes two releases like 0.27.1 0.33.0, got {release!r}") from None


def _rule_cells(rule: Rule) -> tuple[str, ...]:
    return (rule.name, rule.value, rule.since, rule.until or "now", rule.spec, rule.reference)
