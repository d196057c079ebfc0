"""`slotcheck corpus`: build, export, check."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness import tracefile
from harness.campaign import corpus, storage
from harness.console import console
from harness.options import Words, release_option
from harness.tracefile import LEVELS
from oracle.errors import SlotcheckError

store_option = click.option(
    "--store", metavar="FOLDER|REDIS", default="slotcheck-store", show_default=True, help="Where it is kept."
)


@click.group("corpus")
def corpus_group() -> None:
    """The fewest traces that reach every crossing and kill every mutant that a score killed."""


@corpus_group.command("build")
@store_option
@click.option(
    "--score", "page", type=click.Path(path_type=Path), required=True, help="The page of a score: its mutants."
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Which traces; the score's.")
@click.option("--steps", type=click.IntRange(min=100), default=20_000, show_default=True, help="Budget; the score's.")
@click.option(
    "--levels", type=Words("level", LEVELS), metavar="WORD,...", default=frozenset(LEVELS), help="Default: all."
)
@release_option
def build(store: str, page: Path, seed: int, steps: int, levels: frozenset[str]) -> None:
    """Draw, hunt and choose; some half an hour. What is in the store stays."""
    from harness.campaign import gathering

    kept = storage.open_store(store)
    if not page.is_file():
        raise SlotcheckError(f"no page of a score {page}; slotcheck score --page writes one")
    only = [level for level in LEVELS if level in levels]
    found = gathering.build(page, seed, steps, _say, only)
    corpus.keep(kept, found)
    click.echo(f"{len(found.entries)} traces kept in {kept.address}")


def _say(line: str) -> None:
    console(stderr=True).print(line, markup=False, soft_wrap=True)


@corpus_group.command("grow")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Which traces.")
@release_option
def grow(file: Path, seed: int) -> None:
    """Add traces to a corpus file for the crossings that it lacks; some minutes."""
    from harness.campaign import gathering

    had = corpus.read(file)
    found = gathering.grown(had, seed, _say)
    tracefile.write_text(file, found.text())
    click.echo(f"{len(found.entries) - len(had.entries)} traces added to {file}")


@corpus_group.command("export")
@store_option
@click.option("--from", "source", type=click.Path(path_type=Path), help="A corpus file in place of the store.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The corpus as JSON; default: print it.")
@click.option("--script", type=click.Path(path_type=Path), help="Also a plain pytest file that needs vLLM alone.")
def export(store: str, source: Path | None, output: Path | None, script: Path | None) -> None:
    """Write the corpus as one JSON file, and as a pytest file for those who have vLLM alone."""
    found = corpus.read(source) if source is not None else corpus.kept(storage.open_store(store))
    if script is not None:
        from harness.campaign import plain

        tracefile.write_text(script, plain.script(found, script.name))
    if output is not None:
        tracefile.write_text(output, found.text())
    elif script is None:
        click.echo(found.text(), nl=False)


@corpus_group.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--target", metavar="MODULE:CLASS", help="In place of the manager's class; its level alone is run.")
@release_option
def check(file: Path, target: str | None) -> None:
    """Replay a corpus file on the installed release, or on a target; 1 where an entry differs."""
    from harness.campaign.replayed import judged

    found = corpus.read(file)
    entries = [one for one in found.entries if target is None or one.trace.level == "manager"]
    bad = 0
    for entry in entries:
        said = judged(entry.trace, target)
        bad += bool(said)
        for line in said:
            click.echo(f"FAIL {entry.name} ({entry.trace.level}): {line}")
    click.echo(f"{len(entries) - bad} of {len(entries)} traces agree")
    sys.exit(1 if bad else 0)
