"""The gate: how what two releases showed is sorted, and the pages made of it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter
from random import Random

import pytest

from harness import gate
from harness.findings import load
from harness.gate import Sorted
from harness.reach import MINIMA
from harness.side import Side
from harness.targets.compat import TargetError

LESS, MORE = "manager/columns/full_attention/A19/less", "manager/columns/full_attention/A19/more"


class Told:
    """A release that answers what it was told to."""

    def __init__(self, release, seen):
        self.release, self.seen, self.asked = release, seen, []
        self.reach, self.caught = dict(MINIMA), True

    def start(self):
        return {"release": self.release}

    def send(self, question):
        self.asked.append(question)

    def take(self):
        question = self.asked[-1]
        if "shard" in question:
            return {"traces": 3, "steps": 30, "seen": self.seen, "reach": self.reach}
        if "canary" in question:
            return {"caught": self.caught}
        return {"a": ["x"]} if "interface" in question else {}

    def ask(self, question):
        self.send(question)
        return self.take()

    def close(self):
        self.seen = []


def seen(place, new=(), declared=()):
    return {"place": place, "new": [*new], "declared": [*declared]}


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """A gate on one shard whose sides saw what is given."""

    def run(before, after, releases=("0.32.0", "0.33.0"), seconds=0, steps=None, **newer):
        told = [Told(release, found) for release, found in zip(releases, (before, after), strict=True)]
        vars(told[1]).update(newer)
        sides = iter(told)
        monkeypatch.setattr(gate, "Side", lambda release, limits: next(sides))
        monkeypatch.setattr(gate, "EXAMPLES", 3)
        found = gate.run(*releases, seconds=seconds, steps=steps, seed=0, out=tmp_path)
        return found, told

    return run


SORTED = {
    "a new one": ([], [seen(1, [LESS])], {"regressions": {LESS: 1}}),
    "the same on both": ([seen(1, [LESS])], [seen(1, [LESS])], {"unknown": {LESS: 1}}),
    "the same on other traces": ([seen(0, [LESS])], [seen(1, [LESS])], {"regressions": {LESS: 1}, "fixed": {LESS: 1}}),
    "another one": ([seen(1, [LESS])], [seen(1, [MORE])], {"regressions": {MORE: 1}}),
    "gone": ([seen(1, [LESS])], [], {"fixed": {LESS: 1}}),
    "a finding that is gone": ([seen(1, [], ["leak"])], [], {"fixed": {"leak": 1}}),
    "a finding": ([seen(1, [], ["leak"])], [seen(1, [], ["leak"])], {"declared": {"leak": 1}}),
    "a finding of the newer one": ([], [seen(2, [], ["leak"])], {"declared": {"leak": 1}}),
}


@pytest.mark.parametrize(("before", "after", "expected"), SORTED.values(), ids=SORTED)
def test_what_one_trace_showed_is_sorted(ran, before, after, expected):
    """By what each of the two did."""
    found, _ = ran(before, after)
    kinds = {name: dict(getattr(found, name)) for name in ("regressions", "unknown", "fixed", "declared")}

    assert expected == {name: counts for name, counts in kinds.items() if counts}
    assert found.passed is not bool({"regressions", "unknown"} & expected.keys())


HAD, HAS = "warmup-counts-a-tail-as-a-window", "window-cap-leaves-out-lookahead"
NEW = "event-lookahead-of-a-discarded-token"


def test_a_finding_is_fixed_where_it_does_not_cover_the_newer_release(ran):
    """One that both have was led elsewhere; the page tells what either met, and which came with the newer one."""
    found, _ = ran([seen(0, [], [HAD, HAS]), seen(1, [], [HAS])], [seen(0, [], [HAS, NEW])])

    assert (Counter({HAD: 1}), Counter({HAS: 1, NEW: 1}), Counter({HAS: 2})) == (
        found.fixed,
        found.declared,
        found.declared_before,
    )
    releases = {finding.name: finding.releases for finding in load()}
    assert f"| {HAS} | {releases[HAS]} | 2 | 1 |\n" in gate.markdown(found)
    assert f"| {NEW} | {releases[NEW]} | 0 | 1 |\n" in gate.markdown(found)


def test_a_gate_by_steps_ends_with_the_shard_that_reaches_them(ran):
    """Whatever the clock says: a shard of these has 30 steps."""
    found, _ = ran([], [], seconds=None, steps=61)

    assert (90, 3) == (found.steps, found.shards)


def test_a_gate_that_could_not_have_failed_does_not_pass(ran):
    """Its canary was not caught, or it met too little."""
    blind, _ = ran([], [], caught=False)
    short, _ = ran([], [], reach={**MINIMA, "trim": 1})

    assert (False, "**Broken:**") == (blind.passed, blind.verdict.split()[0])
    assert (False, ["trim"], "**Inconclusive:**") == (short.passed, short.missed, short.verdict.split()[0])


def test_a_release_without_confirmed_rules_has_no_regressions(ran):
    """Nobody knows whether the rules changed on purpose: unknown, and not passed."""
    found, _ = ran([], [seen(1, [LESS])], ("0.33.0", "0.40.0"))

    assert (Counter({LESS: 1}), Counter(), False) == (found.unknown, found.regressions, found.passed)


def test_both_run_the_same_traces_and_a_regression_is_reported(ran, tmp_path):
    """The same shards; the trace that shows it goes to the newer release to be made minimal."""
    found, (older, newer) = ran([], [seen(1, [LESS])])
    shards = [[question for question in side.asked if "shard" in question] for side in (older, newer)]
    reports = [question for question in newer.asked if "report" in question]

    assert shards[0] == shards[1] != []
    assert [str(tmp_path / found.reports[LESS])] == [question["out"] for question in reports]


@pytest.mark.parametrize(
    ("older", "newer", "rules"),
    [
        ("0.32.0", "0.33.0", {"deferred free"}),
        ("0.31.0", "0.32.0", {"blocks of an async load"}),
        ("0.27.1", "0.28.0", {"freed block, caching off", "zero list"}),
        ("0.29.0", "0.30.0", set()),
    ],
)
def test_the_rule_behind_an_intended_difference_is_named(older, newer, rules):
    """Each rule that decides is taken alone; one that changed nothing is not named."""
    source = Random(1)
    named = set()
    for _ in range(150):
        named.update(gate.responsible(source.randbytes(300), "scheduler", older, newer))

    assert rules == named


def test_every_level_has_its_turn(ran, monkeypatch):
    """Shards of the manager, with caching too, of the warmup and of the scheduler, whose shards are smaller."""
    monkeypatch.setattr(gate.time, "monotonic", iter(range(100)).__next__)
    found, (older, newer) = ran([], [], seconds=2 * len(gate.TURNS))
    asked = [(question["profile"], question["examples"]) for question in newer.asked if "shard" in question]

    assert {"scheduler", "caching", "warmup", "hostile", "workload"} == {profile for profile, _ in asked}
    assert {gate.WORKLOADS} == {examples for profile, examples in asked if profile == "workload"}
    assert [question for question in older.asked if "shard" in question] == [
        question for question in newer.asked if "shard" in question
    ]
    assert {"manager, caching off", "manager, caching on", "warmup", "scheduler"} == found.by_level.keys()


def test_a_level_that_is_not_specified_for_both_gives_its_turn_away(ran, monkeypatch):
    """The scheduler level of 0.25.1, and prefix caching before 0.29.0."""
    monkeypatch.setattr(gate.time, "monotonic", iter(range(100)).__next__)
    found, _ = ran([], [], ("0.25.1", "0.27.1"), seconds=2 * len(gate.TURNS))

    assert {"manager, caching off", "warmup"} == found.by_level.keys()


def test_drift():
    """What one of two interfaces has alone."""
    before = {"f": ["a", "b=1"], "g": ["x"], "same": ["y"]}
    after = {"f": ["a", "c=2"], "h": [], "same": ["y"]}

    assert [("f", "b=1", "c=2"), ("g", "all of it", ""), ("h", "", "all of it")] == gate.drift(before, after)


FULL = Sorted(
    "0.31.0",
    "0.32.0",
    shards=2,
    reach=Counter(MINIMA),
    traces=92,
    steps=9200,
    by_level=Counter({"manager, caching off": 6000, "manager, caching on": 3000, "warmup": 200}),
    seconds=61.04,
    regressions=Counter({LESS: 3}),
    unknown=Counter({MORE: 1}),
    fixed=Counter({"leak": 2}),
    intended=Counter({"blocks of an async load": 5}),
    declared=Counter({HAS: 4}),
    declared_before=Counter({HAS: 3}),
    reports={LESS: "manager-columns"},
    drift=[("f", "b=1", ""), ("g", "", "all of it")],
)


def test_pages(snapshot):
    """Markdown, JSON, JUnit."""
    assert snapshot == gate.markdown(FULL)
    assert snapshot == gate.junit(FULL)
    assert snapshot == json.dumps(FULL.data(), indent=1)


def test_the_page_of_a_gate_that_passed(snapshot):
    """Sections that are empty say so; a tree that is no release is named."""
    assert snapshot == gate.markdown(
        Sorted("0.33.0", "0.33.0", traces=46, steps=4600, reach=Counter(MINIMA), tree="/home/me/vllm")
    )


def test_junit_counts():
    """One case for the run, one for each difference that stands in the way."""
    suite = ET.fromstring(gate.junit(FULL).partition("\n")[2])

    assert ("3", "2", 3) == (suite.get("tests"), suite.get("failures"), len(suite))


def test_a_side_that_is_not_at_hand():
    """The sentence of its process is ours."""
    side = Side("9.9.9")
    with pytest.raises(TargetError, match=r"^release 9\.9\.9 is not at hand"):
        side.start()
    side.close()


def test_a_side_that_has_ended():
    """Asked again, it is named with its status."""
    side = Side("9.9.9")
    side.process.wait()
    side.process.stdout.readline()
    with pytest.raises(TargetError, match=r"the process of release 9\.9\.9 has ended"):
        side.ask({"shard": 0})
    side.close()
