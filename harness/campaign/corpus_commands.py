"""`slotcheck corpus`: build, grow, export, check, mutants."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from harness import tracefile
from harness.campaign import corpus, storage
from harness.campaign.corpus import Corpus
from harness.console import console
from harness.options import Words, release_option
from harness.targets.compat import installed_release
from harness.tracefile import LEVELS

store_option = click.option(
    "--store", metavar="FOLDER|REDIS", default="slotcheck-store", show_default=True, help="Where it is kept."
)
seed_option = click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Which traces; the score's."
)
steps_option = click.option(
    "--steps", type=click.IntRange(min=100), default=20_000, show_default=True, help="Budget a mutant; the score's."
)
levels_option = click.option(
    "--levels", type=Words("level", LEVELS), metavar="WORD,...", default=frozenset(LEVELS), help="Default: all."
)


@click.group("corpus")
def corpus_group() -> None:
    """The fewest traces that reach every crossing and kill every mutant that a score killed."""


@corpus_group.command("build")
@store_option
@click.option(
    "--score", "page", type=click.Path(path_type=Path), required=True, help="The page of a score: its mutants."
)
@seed_option
@steps_option
@levels_option
@release_option
def build(store: str, page: Path, seed: int, steps: int, levels: frozenset[str]) -> None:
    """Draw, hunt and choose; some half an hour. What is in the store stays: a build that was ended goes on."""
    kept = storage.open_store(store)
    had = corpus.kept(kept) if kept.names(storage.CORPUS) else Corpus(release=installed_release(), entries=())
    found = _grown(had, page, seed, steps, levels, lambda so_far: corpus.keep(kept, so_far))
    click.echo(f"{len(found.entries)} traces kept in {kept.address}")


def _grown(
    had: Corpus, page: Path | None, seed: int, steps: int, levels: frozenset[str], keep: Callable[[Corpus], object]
) -> Corpus:
    from harness.campaign import gathering, killing

    only = [level for level in LEVELS if level in levels]
    return gathering.grown(had, seed, _say, only, {} if page is None else killing.killed(page), steps, keep)


def _say(line: str) -> None:
    console(stderr=True).print(line, markup=False, soft_wrap=True)


@corpus_group.command("grow")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--score", "page", type=click.Path(path_type=Path), help="The page of a score: also for mutants that it killed."
)
@seed_option
@steps_option
@levels_option
@release_option
def grow(file: Path, page: Path | None, seed: int, steps: int, levels: frozenset[str]) -> None:
    """Add traces to a corpus file for the crossings, and mutants, that it lacks; what it has stays.

    The file is written after each level: where this was ended, it goes on.
    """
    had = corpus.read(file)
    found = _grown(had, page, seed, steps, levels, lambda so_far: tracefile.write_text(file, so_far.text()))
    click.echo(f"{len(found.entries) - len(had.entries)} traces added to {file}")


@corpus_group.command("export")
@store_option
@click.option("--from", "source", type=click.Path(path_type=Path), help="A corpus file in place of the store.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The corpus as JSON; default: print it.")
@click.option("--script", type=click.Path(path_type=Path), help="Also a plain pytest file that needs vLLM alone.")
@click.option(
    "--of",
    "level",
    type=click.Choice(LEVELS),
    default="manager",
    show_default=True,
    help="The level of the pytest file.",
)
def export(store: str, source: Path | None, output: Path | None, script: Path | None, level: str) -> None:
    """Write the corpus as one JSON file, and as a pytest file for those who have vLLM alone."""
    from harness.campaign import plain, plain_rules, plain_scheduler, plain_warmup

    found = corpus.read(source) if source is not None else corpus.kept(storage.open_store(store))
    if script is not None:
        writers = {"manager": plain, "rules": plain_rules, "scheduler": plain_scheduler, "warmup": plain_warmup}
        tracefile.write_text(script, writers[level].script(found, script.name))
    if output is not None:
        tracefile.write_text(output, found.text())
    elif script is None:
        click.echo(found.text(), nl=False)


@corpus_group.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--target", metavar="MODULE:CLASS", help="In place of the class of --level; that level alone is run.")
@click.option("--level", type=click.Choice(["manager", "scheduler"]), default="manager", help="Of --target.")
@release_option
def check(file: Path, target: str | None, level: str) -> None:
    """Replay a corpus file on the installed release, or on a target; 1 where an entry differs."""
    from harness.campaign.replayed import judged

    found = corpus.read(file)
    entries = [one for one in found.entries if target is None or one.trace.level == level]
    bad = 0
    for entry in entries:
        said = judged(entry.trace, target)
        bad += bool(said)
        for line in said:
            click.echo(f"FAIL {entry.name} ({entry.trace.level}): {line}")
    click.echo(f"{len(entries) - bad} of {len(entries)} traces agree")
    sys.exit(1 if bad else 0)


@corpus_group.command("mutants")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--mutant", "only", multiple=True, metavar="NAME", help="Only this one, as the file names it.")
@release_option
def mutants(file: Path, only: tuple[str, ...]) -> None:
    """Plant the mutants that a corpus file says it kills, one by one; 1 where one lives."""
    from harness.campaign import killing

    lived = killing.surviving(corpus.read(file), only, _say)
    for name in lived:
        click.echo(f"FAIL lives: {name}")
    sys.exit(1 if lived else 0)
