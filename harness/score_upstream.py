"""The release's own tests on the mutants of a score: `python -m harness.score_upstream FOLDER SCORED.json`.

FOLDER holds the `tests` of the release's source distribution and nothing else of it (its `vllm` would hide the
installed one). The tests read their models from the hub; without a network a folder `facebook/opt-125m` with its
config.json beside `tests` is enough for most. SCORED.json is what `slotcheck score --json` printed. Each mutant is
planted in a forked process, in which pytest runs until the first failure that the clean release does not have.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import click
from attrs import define, field, frozen

from harness import score_page, tracefile
from harness.forks import in_a_fork
from harness.mutants import Mutant, mutants_of
from harness.score import FILES
from harness.targets import mutated
from oracle.errors import SlotcheckError

#: what is run: those that need no device, no weights and no engine
TESTS = ("tests/v1/core", "tests/v1/worker/test_gpu_warmup_blocks.py", "tests/v1/worker/test_gpu_block_table.py")
WITHOUT = (
    "tests/v1/core/test_scheduler_e2e.py",
    "tests/v1/core/test_reset_prefix_cache_e2e.py",
    "tests/v1/core/prefix_cache/test_hybrid_prefix_cache_hit_rate.py",
    "tests/v1/core/test_kv_cache_planning.py::test_is_kv_cache_spec_uniform",  # waits a minute for the hub
)
#: seconds by the clock for a mutant, then it hangs; the whole selection takes some 12 of CPU
LIMIT = 120.0


@frozen
class Ran:
    """One run of the tests: what failed, how many were run and skipped, CPU seconds."""

    failed: tuple[str, ...]
    passed: int
    skipped: int
    seconds: float


class Report(Protocol):
    """What is used of pytest's report of one phase of one test."""

    nodeid: str
    when: str
    passed: bool
    failed: bool
    skipped: bool


@define
class _Seen:
    """A pytest plugin that keeps what happened."""

    failed: list[str] = field(factory=list)
    passed: int = 0
    skipped: int = 0

    def pytest_runtest_logreport(self, report: Report) -> None:
        """Called by pytest for set-up, call and tear-down of each test."""
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)
        self.passed += report.when == "call" and report.passed
        self.skipped += bool(report.skipped)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Nothing that pytest or a test prints is seen."""
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        sys.stdout.flush()
        for number in (1, 2):
            os.dup2(nowhere, number)
        yield
    finally:
        sys.stdout.flush()
        for number in (1, 2):
            os.dup2(kept[number - 1], number)


def run_tests(known: tuple[str, ...], *more: str) -> Ran:
    """Run the tests here, but for those known to fail."""
    import pytest

    seen = _Seen()
    start = time.process_time()
    left_out = [f"--deselect={name}" for name in (*WITHOUT, *known)]
    there = [name for name in TESTS if Path(name).exists()]
    plain = ("--noconftest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--no-header", "--tb=no")
    with _silence():
        pytest.main([*plain, *more, *left_out, *there], plugins=[seen])
    return Ran(tuple(seen.failed), seen.passed, seen.skipped, time.process_time() - start)


def compare(folder: Path, rows: list[dict[str, Any]]) -> tuple[Ran, list[dict[str, Any]]]:
    """Run the tests on the clean release, then on each mutant; what they say of each."""
    if not any((folder / name).exists() for name in TESTS):
        raise SlotcheckError(f"{folder} has no {TESTS[0]}: give the folder that holds upstream's `tests`")
    mutated.choose_cpu()
    mutants = {one.name: one for file in FILES for one in mutants_of(mutated.source_of(file), file)}
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    run_tests((), "--collect-only")  # imports every test module, before anything is forked
    functions = mutated.Functions(FILES)
    gc.freeze()
    clean, ended = in_a_fork(partial(run_tests, ()), LIMIT)
    if ended:
        raise SlotcheckError(f"the tests in {folder} do not run on the clean release: {ended}")
    if not clean.passed:
        raise SlotcheckError(f"no test in {folder} passes on the clean release: they can tell nothing")
    found = []
    for number, row in enumerate(rows, 1):
        mutant = mutants[row["mutant"]]
        start = time.monotonic()
        ran, ended = in_a_fork(partial(_run_mutant, functions, mutant, clean.failed), LIMIT)
        seconds = time.monotonic() - start if ended else ran.seconds
        by = ended or (ran.failed[0] if ran.failed else "")
        found.append({"mutant": row["mutant"], "killed_by": by, "seconds": round(seconds, 1)})
        click.echo(f"{number}/{len(rows)} {row['mutant']}: {by or 'survived'} ({seconds:.1f} s)", err=True)
    return clean, found


def _run_mutant(functions: mutated.Functions, mutant: Mutant, known: tuple[str, ...]) -> Ran:
    functions.plant(mutant)
    return run_tests(known, "-x")


def page(scored: dict[str, Any], clean: Ran, theirs: list[dict[str, Any]], why: dict[str, score_page.Reason]) -> str:
    """Both on the same mutants, as Markdown."""
    killed = {one["mutant"]: one for one in theirs if one["killed_by"]}
    rows = scored["mutants"]
    fair = [row for row in rows if row["level"] or row["mutant"] in killed or _missed(row["mutant"], why)]
    budget = max((row["seconds"] for row in rows if row["level"]), default=0.0)
    quick = sum(1 for one in killed.values() if one["seconds"] <= budget)
    ran = f"{clean.passed:,} tests pass on the clean release, in {clean.seconds:.0f} s of CPU"
    not_ran = f"{len(clean.failed)} fail there and are left out, {clean.skipped} skip without CUDA"
    lines = [
        f"{len(fair)} mutants that one of the two can tell from the release, or should. Upstream: {', '.join(TESTS)}.",
        f"{ran}; {not_ran}.",
        "",
        "| | killed | share | median seconds to kill |",
        "| --- | ---: | ---: | ---: |",
        _line("slotcheck", [row["seconds"] for row in fair if row["level"]], len(fair)),
        _line("upstream's tests, no limit", [one["seconds"] for one in killed.values()], len(fair)),
        f"| upstream's tests, {budget:.0f} s (our slowest kill) | {quick} | {quick / max(1, len(fair)):.0%} | |",
        "",
        "| file | mutants | slotcheck | upstream |",
        "| --- | ---: | ---: | ---: |",
    ]
    for file in dict.fromkeys(row["file"] for row in fair):
        own = [row for row in fair if row["file"] == file]
        ours, others = sum(1 for row in own if row["level"]), sum(1 for row in own if row["mutant"] in killed)
        lines.append(f"| {file} | {len(own)} | {ours} | {others} |")
    lines += ["", "Killed by upstream's tests alone:", ""]
    alone = [one for one in killed.values() if not _row(rows, one["mutant"])["level"]]
    lines += [f"- `{one['mutant']}`: {one['killed_by']}" for one in alone] or ["- none"]
    return "\n".join(lines) + "\n"


def _missed(name: str, why: dict[str, score_page.Reason]) -> bool:
    return name not in why or why[name].verdict == score_page.MISSED


def _row(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["mutant"] == name)


def _line(name: str, seconds: list[float], of: int) -> str:
    middle = f"{median(seconds):.1f}" if seconds else ""
    return f"| {name} | {len(seconds)} | {len(seconds) / max(1, of):.0%} | {middle} |"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("scored", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--out", type=click.Path(path_type=Path), help="Where the answers go, as JSON.")
@click.option(
    "--page", "page_path", type=click.Path(path_type=Path), help="A page whose section `upstream` is renewed."
)
def main(folder: Path, scored: Path, out: Path | None, page_path: Path | None) -> None:
    """Run upstream's tests on the mutants of a score."""
    why = score_page.reasons(score_page.reasons_file())
    before = score_page.read(scored, why)
    paths = [path.resolve() if path is not None else None for path in (out, page_path)]
    try:
        clean, theirs = compare(folder.resolve(), before["mutants"])
    except SlotcheckError as error:
        raise click.UsageError(str(error)) from None
    if paths[0] is not None:
        tracefile.write_text(paths[0], tracefile.json_text({"clean": clean.seconds, "mutants": theirs}))
    text = page(before, clean, theirs, why)
    if paths[1] is not None:
        score_page.write_section(paths[1], "upstream", text)
    click.echo(text, nl=False)


if __name__ == "__main__":
    main()
