"""A job's verdict, what is written, and how distinct differences are put together."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from attrs import evolve

from harness import job as jobs
from harness import tracefile
from harness.engine import RunResult
from harness.job import Job, Report
from harness.reach import MINIMA
from harness.shrink import Shrunk
from harness.verdict import AGREED, BROKEN, DIFFERENCES, EXIT, INCONCLUSIVE
from harness.worker import Found
from oracle.errors import SlotcheckError
from oracle.groups import KINDS
from oracle.trace import ASPECTS, Difference
from tests.unit.examples import ask, setting, trace
from tests.unit.mutants import CannotBeBuilt, Crashes, Refuses, Sound

ENOUGH = Counter(MINIMA)
FOUND = Difference(
    aspect="columns", step=0, group=0, kind="rswa", rule="A19", sign="less", expected="[1 2]", observed="[1]"
)


@pytest.fixture
def job(tmp_path, small_shards):
    """A job of one step on the sound target unless said, laws that the oracle breaks too declared."""

    def make(**fields):
        known = {
            "seed": 0,
            "steps": 1,
            "seconds": None,
            "workers": 1,
            "aspects": frozenset(ASPECTS) - {"law"},
            "out": tmp_path / "out",
            "release": "0.33.0",
            "make_target": Sound,
            "declared": None,
            "hang_seconds": 30.0,
        }
        return Job(**{**known, **fields})

    return make


#: what came of a run -> verdict
VERDICTS = {
    "everything was met": ({}, {}, (AGREED, [])),
    "something was not met": (
        {"reach": ENOUGH - Counter(session=3)},
        {},
        (INCONCLUSIVE, ["not reached often enough: session"]),
    ),
    "an unknown release": (
        {},
        {"release": "9.9.9"},
        (INCONCLUSIVE, ["rules not confirmed for release 9.9.9"]),
    ),
    "no release": ({}, {"release": None}, (INCONCLUSIVE, ["rules not confirmed for release unknown"])),
    "Ctrl-C": ({"interrupted": True}, {}, (INCONCLUSIVE, ["interrupted; what was found until then is kept"])),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_a_verdict_without_differences(job, name):
    """Green only when nothing is in doubt."""
    result, fields, expected = VERDICTS[name]
    report = Report(job(**fields), RunResult(**{"reach": ENOUGH, **result}), 100)
    jobs._judge(report)

    assert expected == (report.verdict, report.reasons)


@pytest.mark.parametrize(
    ("canary", "ended", "differs", "expected"),
    [
        (None, "", False, (BROKEN, ["the canary was not caught: this run could not have failed"])),
        (None, "hang", False, (BROKEN, ["the canary was not caught (hang): this run could not have failed"])),
        (None, "hang", True, (DIFFERENCES, ["1 difference(s) that no finding declares"])),
        (100, "", True, (DIFFERENCES, ["1 difference(s) that no finding declares"])),
    ],
    ids=["not caught", "did not end", "but it failed", "differences"],
)
def test_a_run_that_could_not_have_failed_is_broken(job, canary, ended, differs, expected):
    """Unless it did fail: then it has proved that it can."""
    found = [jobs.Reported(Shrunk(trace(setting()), FOUND, 0, True), 1, job().out)] if differs else []
    report = Report(job(), RunResult(reach=ENOUGH), canary, ended, found)
    jobs._judge(report)

    assert expected == (report.verdict, report.reasons)


def test_differences_found_before_ctrl_c_say_so(job):
    """The verdict is what was found; that there may be more is said."""
    found = [jobs.Reported(Shrunk(trace(setting()), FOUND, 0, True), 1, job().out)]
    report = Report(job(), RunResult(reach=ENOUGH, interrupted=True), 100, "", found)
    jobs._judge(report)

    assert (DIFFERENCES, "interrupted; what was found until then is kept") == (report.verdict, report.reasons[-1])


def test_exit_status():
    """0 agreed, 1 differences, 3 inconclusive, 70 the harness itself."""
    assert {AGREED: 0, DIFFERENCES: 1, INCONCLUSIVE: 3, BROKEN: 70} == EXIT


# -------------------------------------------------------------------------------------------- whole jobs


def test_a_clean_run_leaves_its_result_alone(job):
    """Journals are gone, run.json says what the run printed."""
    report = jobs.run(job())

    assert (["run.json"], report.data()) == (
        [path.name for path in job().out.iterdir()],
        json.loads((job().out / "run.json").read_text()),
    )


def test_each_defect_has_a_folder(job):
    """Named by its fingerprint, with its simplest trace."""
    one, *_ = jobs.run(job(make_target=Refuses)).differences

    assert (one.shrunk.trace, one.shrunk.difference.fingerprint.replace("/", "-")) == (
        tracefile.read(one.folder / "trace.json"),
        one.folder.name,
    )


def test_differences_that_shrink_to_one_are_counted_together(job, monkeypatch):
    """Two fingerprints whose smallest traces show the same are one difference, with the shorter trace."""
    result = jobs.Engine(jobs.Plan(**plan_of(job(make_target=Refuses)))).run()
    same = Shrunk(trace(setting(method="eagle", num_speculative_tokens=3), ask(1, prompt=1)), FOUND, 0, True)
    monkeypatch.setattr(jobs, "shrink_found", lambda one, plan: same)
    report = Report(job(make_target=Refuses), result, 100)
    jobs._shrink_all(report, jobs.Plan(**plan_of(report.job)))

    assert [(sum(result.counts.values()), same)] == [(one.count, one.shrunk) for one in report.differences]


def test_a_defect_that_shows_in_two_places_has_one_folder(job, monkeypatch):
    """The simplest trace in front, the other one beside it; counted together."""
    in_rows = Shrunk(trace(setting(), ask(2, prompt=2)), FOUND, 0, True)
    in_states = Shrunk(trace(setting(), ask(1, prompt=1)), evolve(FOUND, kind="mamba", tags=("first",)), 0, True)
    found = {one.difference.fingerprint: Found(one.difference, one.trace) for one in (in_rows, in_states)}
    monkeypatch.setattr(jobs, "shrink_found", lambda one, plan: Shrunk(one.trace, one.difference, 1, True))
    report = Report(job(), RunResult(found=found, counts=Counter(dict.fromkeys(found, 3))), 100)
    jobs._shrink_all(report, jobs.Plan(**plan_of(report.job)))
    (one,) = report.differences

    assert (in_states.trace, 6) == (one.shrunk.trace, one.count)
    assert in_rows.trace == tracefile.read(one.folder / "also-1.json")
    assert FOUND.fingerprint in (one.folder / "report.md").read_text()


def test_each_defect_is_shrunk_before_any_is_shrunk_twice(job, monkeypatch):
    """Of a defect that shows in many places the shortest trace is shrunk; the rest is counted with it."""
    monkeypatch.setattr(jobs, "MAX_SHRUNK", 2)
    differences = [*(evolve(FOUND, kind=group.kind) for group in KINDS[:3]), evolve(FOUND, sign="more")]
    found = {one.fingerprint: Found(one, trace(setting(), ask(1, prompt=1))) for one in differences}
    monkeypatch.setattr(jobs, "shrink_found", lambda one, plan: Shrunk(one.trace, one.difference, 1, True))
    report = Report(job(), RunResult(found=found, counts=Counter(dict.fromkeys(found, 1))), 100)
    jobs._shrink_all(report, jobs.Plan(**plan_of(report.job)))

    assert [("less", 3), ("more", 1)] == [(one.shrunk.difference.sign, one.count) for one in report.differences]
    assert 0 == report.not_shrunk


def plan_of(job):
    """The engine's part of a job."""
    return {
        "seed": 0,
        "steps": job.steps,
        "seconds": None,
        "workers": 1,
        "make_target": job.make_target,
        "options": jobs.Options(aspects=job.aspects),
        "inflight": job.out / "inflight",
    }


def test_ctrl_c_while_shrinking_reports_what_was_found(job, monkeypatch):
    """As it was found: not a minimum, and said so."""

    def interrupt(one, plan):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "shrink_found", interrupt)
    report = jobs.run(job(make_target=Refuses))

    assert (True, {False}) == (report.result.interrupted, {found.shrunk.minimal for found in report.differences})


def test_a_target_that_crashes_is_reported(job):
    """Canary and all: the crash is a difference of the run, with its trace."""
    report = jobs.run(job(make_target=Crashes))

    assert (DIFFERENCES, "killed by SIGSEGV", ["manager/outcome/pool/process/killed by SIGSEGV"]) == (
        report.verdict,
        report.canary_ended,
        [found.shrunk.difference.fingerprint for found in report.differences],
    )


def test_a_target_that_cannot_be_built_is_reported(job):
    """Not a run without end."""
    assert DIFFERENCES == jobs.run(job(make_target=CannotBeBuilt, steps=10_000)).verdict


def test_an_output_folder_that_cannot_be_written_is_told_first(job, tmp_path):
    """Before anything runs."""
    (tmp_path / "out").write_text("a file")
    with pytest.raises(SlotcheckError, match="out: it is a file; choose another folder with --out"):
        jobs.run(job())
