"""The tables at the end of a run, of a report made up by hand: each part that a run may print."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest
from attrs import evolve
from rich.console import Console

from harness.console import PLAIN_EVERY, console, progress, show_report
from harness.engine import RunResult
from harness.job import Job, Report, Reported
from harness.reach import MINIMA
from harness.shrink import Shrunk
from harness.verdict import AGREED, BROKEN, DIFFERENCES, INCONCLUSIVE
from oracle.trace import ASPECTS, Difference
from tests.unit.examples import ask, setting, trace
from tests.unit.mutants import Sound

SEEN = Difference(
    aspect="columns", step=0, group=0, kind="rswa", rule="A19", sign="less", expected="[1 2]", observed="[1]"
)
#: an error's text may look like markup
BUILD = evolve(
    SEEN, aspect="outcome", rule="build", sign="error:ValueError", observed="ValueError: no [red] :key: [/x]"
)
JOB = Job(
    seed=7,
    steps=None,
    seconds=60.0,
    workers=2,
    aspects=frozenset(ASPECTS),
    out=Path("out"),
    release="0.33.0",
    make_target=Sound,
    declared=None,
    hang_seconds=60.0,
)
RESULT = RunResult(steps=1_234_567, traces=12_345, shards=90, seconds=60.0, reach=Counter(dict.fromkeys(MINIMA, 1000)))


def reported(difference, operations, minimal, count):
    of = trace(setting(), *(ask(1, prompt=1) for _ in range(operations)))
    return Reported(Shrunk(of, difference, 10, minimal), count, Path("out") / difference.fingerprint.replace("/", "-"))


REPORTS = {
    "agreed": Report(JOB, RESULT, 100),
    "declared": Report(JOB, evolve(RESULT, declared=Counter({"b-finding": 2, "a-finding": 12_000})), 100),
    "missed": Report(
        JOB,
        evolve(RESULT, reach=RESULT.reach + Counter(granted=1_000_000) - Counter(session=998)),
        100,
        verdict=INCONCLUSIVE,
        reasons=["not reached often enough: session", "interrupted; what was found until then is kept"],
    ),
    "differences": Report(
        JOB,
        RESULT,
        100,
        "",
        [reported(SEEN, 1, True, 1200), reported(BUILD, 25, False, 1)],
        3,
        DIFFERENCES,
        ["2 difference(s) that no finding declares"],
    ),
    "broken": Report(
        JOB, evolve(RESULT, seconds=0.0), None, "hang", verdict=BROKEN, reasons=["the canary was not caught (hang)"]
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_what_a_run_prints_at_its_end(name, snapshot):
    """Reach, declared findings, differences, numbers, verdict, reports."""
    stream = io.StringIO()
    show_report(Console(file=stream, width=120, highlight=False, emoji=False), REPORTS[name])

    assert snapshot == "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def test_every_verdict_is_shown():
    """None of the four is forgotten above."""
    assert {AGREED, INCONCLUSIVE, DIFFERENCES, BROKEN} == {report.verdict for report in REPORTS.values()}


def test_without_a_terminal_progress_is_a_line_now_and_then():
    """Every `PLAIN_EVERY` steps, not every turn."""
    stream = io.StringIO()
    with progress(Console(file=stream, width=120), None, 60.0) as show:
        for steps in (1, PLAIN_EVERY - 1, PLAIN_EVERY, PLAIN_EVERY + 1, 3 * PLAIN_EVERY):
            show(RunResult(steps=steps))

    assert [
        "100,000 steps, 0 new difference(s)",
        "300,000 steps, 0 new difference(s)",
    ] == stream.getvalue().splitlines()


def test_on_a_terminal_progress_is_a_bar():
    """With what was found so far."""
    stream = io.StringIO()
    with progress(Console(file=stream, width=120, force_terminal=True), 2000, None) as show:
        show(RunResult(steps=1234, declared=Counter({"a": 2})))
        show(RunResult(steps=2000, declared=Counter({"a": 3})))

    assert "2,000 steps" in stream.getvalue()
    assert "0 new, 3 declared" in stream.getvalue()


def test_a_console_without_a_terminal_is_plain(capsys):
    """No colour, no emoji, markup only where we put it."""
    console().print("error:key: 12 [x]", markup=False)

    assert "error:key: 12 [x]\n" == capsys.readouterr().out
