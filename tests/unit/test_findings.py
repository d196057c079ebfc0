"""Declared findings: what they match, which releases they cover, and declarations that cannot be read."""

from __future__ import annotations

import json
from datetime import date

import pytest
from attrs import evolve

from harness import findings, tracefile
from harness.findings import Declared, Finding, FindingError, Match
from oracle.trace import Difference
from tests.unit.examples import ask, setting, trace
from tests.unit.mutants import NoLookahead, Sound

GOOD = {
    "title": "A drafter without slots",
    "releases": ">=0.33,<0.35",
    "breaks": "drafts without slots",
    "deployment": "yes: every drafter",
    "law": "Every position that the drafter writes has a slot.",
    "match": [{"aspect": "columns", "rule": "A19", "signs": ["less"], "kinds": ["full_attention"], "tags": ["first"]}],
    "reference": "#1",
    "reachable": "Everybody.",
}
SEEN = Difference(
    aspect="columns",
    step=0,
    group=0,
    kind="full_attention",
    rule="A19",
    sign="less",
    expected="[1 2]",
    observed="[1]",
    tags=("first", "sync"),
)
SHOWS = trace(setting(method="eagle", num_speculative_tokens=3), ask(4, prompt=4))


def declare(folder, name="no-slots", **changes):
    """A folder with one declaration."""
    (folder / name).mkdir()
    (folder / name / "finding.json").write_text(json.dumps({**GOOD, **changes}))
    tracefile.write_text(folder / name / "trace.json", tracefile.dumps(SHOWS))
    return folder


def finding(**changes) -> Finding:
    match = Match(aspect="columns", rule="A19", signs=("less",), kinds=("full_attention",), tags=("first",))
    fields = {**GOOD, "match": (match,), **changes}
    return Finding(**fields)


def test_declarations_are_read_by_folder(tmp_path):
    """The folder's name is the finding's; others are passed over."""
    declare(declare(tmp_path, "b"), "a")
    (tmp_path / "runs").mkdir()

    assert ["a", "b"] == [found.name for found in findings.load(tmp_path)]


def test_the_trace_comes_with_it(tmp_path):
    """The shortest trace lies beside the declaration."""
    assert SHOWS == findings.load(declare(tmp_path))[0].trace()


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"tags": ("first",)}, True),
        ({"tags": ("sync",)}, False),
        ({"sign": "more"}, False),
        ({"rule": "A42"}, False),
        ({"aspect": "free"}, False),
        ({"kind": "sliding_window"}, False),
        ({"kind": "full_attention+sliding_window"}, False),
    ],
    ids=["it", "just the tag", "another tag", "another sign", "rule", "aspect", "kind", "kinds, not all allowed"],
)
def test_what_a_finding_matches(changes, fits):
    """Aspect and rule, one of its signs, kinds that are all allowed, and all of its tags."""
    assert fits is finding().fits(evolve(SEEN, **changes))


def test_what_is_not_named_is_free():
    """Without signs, kinds and tags every difference of the rule is meant."""
    everything = finding(match=(Match(aspect="columns", rule="A19"),))

    assert everything.fits(evolve(SEEN, sign="more", kind="rswa+mla_attention", tags=()))


def test_one_pattern_of_several_is_enough():
    """A finding may show in several ways."""
    several = finding(match=(Match(aspect="free", rule="A2"), Match(aspect="columns", rule="A19")))

    assert several.fits(SEEN)


@pytest.mark.parametrize(
    ("release", "covered"),
    [("0.33.0", True), ("0.34.1", True), ("0.34.0rc1", True), ("0.33.0+cpu", True), ("0.35.0", False), (None, False)],
)
def test_releases_that_a_finding_covers(release, covered):
    """A version specifier; pre-releases and builds count, no vLLM does not."""
    assert covered is finding().covers(release)


def test_a_finding_explains_only_in_its_releases():
    """In 0.35 the same difference is new."""
    assert [True, False] == [Declared([finding()], release)(SEEN) for release in ("0.33.0", "0.35.0")]


def test_the_first_finding_that_fits_explains():
    """A difference is counted once."""
    two = Declared([finding(name="a"), finding(name="b")], "0.33.0")

    assert "a" == two.explain(SEEN).name


@pytest.mark.parametrize(
    ("expires", "expired"), [("", False), ("2027-06-30", False), ("2027-06-29", True)], ids=["never", "today", "since"]
)
def test_a_finding_expires(expires, expired):
    """The day itself still counts."""
    assert expired is finding(expires=expires).expired(date(2027, 6, 30))


@pytest.mark.parametrize(
    ("make", "shows"), [(NoLookahead, True), (Sound, False)], ids=["the defect is there", "it has gone"]
)
def test_whether_a_finding_reproduces(tmp_path, make, shows):
    """Its own trace on the target."""
    assert shows is findings.reproduces(findings.load(declare(tmp_path))[0], make)


def test_a_finding_that_has_gone_is_not_refreshed(tmp_path):
    """Nothing is written over the argument."""
    found = findings.load(declare(tmp_path))[0]
    with pytest.raises(FindingError, match=r"finding no-slots does not reproduce on 0\.33\.0: nothing is written"):
        findings.refresh(found, Sound, "0.33.0")

    assert not (found.folder / "report.md").exists()


def test_a_refreshed_report_begins_with_the_argument(tmp_path):
    """Title, what breaks, who can meet it; then the report as for a new difference."""
    found = findings.load(declare(tmp_path, expires="2027-06-30"))[0]
    findings.refresh(found, NoLookahead, "0.33.0")

    assert (found.folder / "report.md").read_text().startswith(findings.argument(found))


BAD = {
    "[]": "must be one JSON object, got list",
    "{": "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    json.dumps({**GOOD, "severity": 1}): "extra fields found (severity) @ $",
    json.dumps({name: value for name, value in GOOD.items() if name != "law"}): "required field missing @ $.law",
    json.dumps({**GOOD, "releases": "new"}): "Invalid specifier: 'new'",
    json.dumps({**GOOD, "expires": "soon"}): "Invalid isoformat string: 'soon'",
    json.dumps({**GOOD, "match": []}): "invalid value for type, expected tuple @ $.match",
    json.dumps({**GOOD, "match": [{"aspect": "columns"}]}): "required field missing @ $.match.rule",
    json.dumps({**GOOD, "match": [{"aspect": "columns", "rule": "A19", "signs": "less"}]}): (
        "invalid value for type, expected tuple @ $.match.signs"
    ),
}


@pytest.mark.parametrize(("text", "problem"), BAD.items(), ids=list(BAD.values()))
def test_a_malformed_declaration_is_told_in_a_sentence(tmp_path, text, problem):
    """The file and what is wrong in it."""
    declare(tmp_path)
    (tmp_path / "no-slots" / "finding.json").write_text(text)
    with pytest.raises(FindingError) as refused:
        findings.load(tmp_path)

    assert f"finding {tmp_path}/no-slots/finding.json cannot be read: {problem}" == str(refused.value)


@pytest.mark.parametrize("found", findings.load(), ids=lambda found: found.name)
def test_the_findings_of_this_project_are_argued(found):
    """Each has a law, who can meet it, a reference, and a trace that can be read."""
    assert all((found.law, found.reachable, found.reference, tracefile.read_any(found.file)))
