"""A run of the rules level on tables that stand for a release: verdict, reports, canary, findings. No vLLM."""

from __future__ import annotations

import json

import pytest
from attrs import evolve

from harness import rules_job
from harness.findings import Declared, FindingError, load
from harness.rules_job import RulesJob, canary_caught, explanation, replayed, run_job
from harness.rules_level import OF_RESUMED, Release
from oracle.budget import Case, DraftCounts, RuleTrace, predict
from tests.rules.test_controls import CLEAN

FINDINGS = [finding for finding in load() if finding.level == "rules"]
KNOWN = Declared(FINDINGS, "0.33.0")


def short(case):
    """A release whose DFlash reserves K."""
    facts = predict(case)
    return facts if facts.refused or case.method != "dflash" else evolve(facts, lookahead=case.drafts)


@pytest.fixture
def job(tmp_path):
    return RulesJob(release=CLEAN, version="0.33.0", declared=KNOWN, out=tmp_path)


def test_the_clean_pair_agrees(job):
    report = run_job(job)

    assert ("agreed", [], []) == (report.verdict, report.reasons, report.differences)
    assert report.data() == json.loads((job.out / "run.json").read_text())


def test_a_difference_gets_its_folder(job):
    report = run_job(evolve(job, release=evolve(CLEAN, facts=short)))
    lookahead, law = report.data()["differences"][1], report.data()["differences"][0]

    assert ("differences", ["2 difference(s) that no finding declares"]) == (report.verdict, report.reasons)
    assert ("rules/law/dflash/D-L1/broken", "rules/lookahead/dflash/D6/less") == (
        law["fingerprint"],
        lookahead["fingerprint"],
    )
    assert {"case.json", "repro.py", "report.md"} == {
        path.name for path in (job.out / "rules-lookahead-dflash-D6-less").iterdir()
    }


def test_without_findings_what_is_declared_is_new(job):
    assert "differences" == run_job(evolve(job, declared=Declared((), "0.33.0"))).verdict


def test_a_walk_that_is_cut_short_is_inconclusive(job):
    report = run_job(evolve(job, most=2000))

    assert "inconclusive" == report.verdict
    assert "the walk ended after 2,000 cases, before the end of the grid" == report.reasons[0]


def test_a_release_that_was_not_compared_is_inconclusive(job):
    report = run_job(evolve(job, version="0.40.0", declared=Declared(FINDINGS, "0.33.0")))

    assert ("inconclusive", ["rules not confirmed for release 0.40.0"]) == (report.verdict, report.reasons)


def test_a_build_of_a_known_release_agrees(job):
    assert "agreed" == run_job(evolve(job, version="0.33.0+cpu", declared=Declared(FINDINGS, "0.33.0+cpu"))).verdict


def test_the_canary_goes_through_the_release():
    assert canary_caught(CLEAN)


@pytest.mark.parametrize("blind", ["_differences", "_places"])
def test_a_run_that_cannot_fail_is_broken(job, monkeypatch, blind):
    """A comparison that sees nothing lets the canary pass."""
    name = {"_differences": "differences", "_places": "place_differences"}[blind]
    monkeypatch.setattr(rules_job, name, lambda *arguments: [])
    report = run_job(job)

    assert ("broken", None) == (report.verdict, report.canary_cases)


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_a_finding_that_has_gone_is_told(finding):
    """Progress and padding are laws of what is accepted: they show whatever number the release says."""
    assert (finding.match[0].rule in OF_RESUMED) == rules_job.reproduces(finding, CLEAN)


def test_a_finding_that_has_gone_is_not_written():
    gone = next(finding for finding in FINDINGS if finding.name == "v1-dflash-says-k-new-slots")
    with pytest.raises(FindingError, match=r"does not reproduce on 0\.33\.0: nothing is written"):
        rules_job.refresh(gone, CLEAN, "0.33.0")


@pytest.mark.parametrize(
    "trace",
    [
        RuleTrace(case=Case(method="dflash", drafts=8, budget=2048, seqs=256)),
        RuleTrace(case=Case(method="eagle", drafts=3, budget=3, seqs=1)),
        RuleTrace(case=Case(method="ngram", drafts=3, budget=3, seqs=1)),
        RuleTrace(draft_counts=DraftCounts(ranges=((1, 2, 3), (5, 6, 1)), drafts=2, seqs=8)),
    ],
    ids=["clamped", "refused", "stuck", "draft counts"],
)
def test_explanation(trace, snapshot):
    assert snapshot == explanation(trace)


def test_replay_names_the_finding(snapshot):
    """A difference that is declared, and one that is not."""
    trace = RuleTrace(case=Case(method="dflash", drafts=3))
    said, agreed = replayed(trace, Release(short), KNOWN)

    assert (snapshot, False) == (said, agreed)
