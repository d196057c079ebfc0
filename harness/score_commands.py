"""`slotcheck score`: which share of planted defects does the harness find?"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness import tracefile
from harness.console import console
from harness.options import release_option
from harness.targets.compat import import_vllm


@click.command("score")
@click.option("--sample", type=click.IntRange(min=1), default=96, show_default=True, help="Mutants.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which mutants, which traces.")
@click.option(
    "--steps",
    type=click.IntRange(min=100),
    default=30_000,
    show_default=True,
    help="Manager steps for each mutant at most; the other levels in proportion.",
)
@click.option("--workers", type=click.IntRange(min=1, max=64), default=1, show_default=True, help="Processes.")
@click.option("--file", "files", multiple=True, metavar="FILE", help="Only this file of vLLM; may be repeated.")
@click.option("--mutant", "only", multiple=True, metavar="NAME", help="Only this mutant, as a score names it.")
@click.option("--least", type=click.FloatRange(0, 1), default=0.0, help="Fail below this share.")
@click.option(
    "--scored", type=click.Path(path_type=Path), help="Run nothing: judge what --json printed by today's reasons."
)
@click.option("--survivors", type=click.Path(path_type=Path), help="Why mutants survive; default: the project's own.")
@click.option("--page", type=click.Path(path_type=Path), help="A Markdown page whose section of tables is renewed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@release_option
def score_command(
    sample: int,
    seed: int,
    steps: int,
    workers: int,
    files: tuple[str, ...],
    only: tuple[str, ...],
    least: float,
    scored: Path | None,
    survivors: Path | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Plant small defects in the release, one by one; say which share is found. Exit 1: unexplained survivors."""
    from harness import score, score_page

    plan = score_page.plan_of(sample, seed, steps, workers, files)
    why = score_page.reasons(survivors or score_page.reasons_file())
    talk = console(stderr=True)
    if scored is not None:
        found = score_page.read(scored, why)
    else:
        talk.print(f"importing vLLM {plan.release or ''} ...")
        import_vllm()
        result = score.run(plan, lambda line: talk.print(line, markup=False, soft_wrap=True), only)
        found = score_page.data(result, why)
    if page is not None:
        score_page.write_section(page, "score", score_page.page(found, why))
    click.echo(tracefile.json_text(found) if as_json else score_page.page(found, why), nl=False)
    for name in found["unexplained"]:
        talk.print(f"unexplained survivor: {name}", markup=False, soft_wrap=True)
    if found["share"] < least:
        talk.print(f"share {found['share']:.1%}, at least {least:.1%} wanted")
    sys.exit(1 if found["unexplained"] or found["share"] < least else 0)
