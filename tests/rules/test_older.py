"""The rules of older releases: rows by hand, the table beside itself and beside that of another one. No vLLM."""

from __future__ import annotations

import pytest

from harness import rules_level
from harness.rules_grid import cases, methods_at
from harness.rules_level import Release
from harness.rules_places import KEPT
from harness.rules_reach import minima_of
from oracle.budget import BUDGET, OVERLAP, Case, Facts, broken_laws, cut_padding, predict, said, stuck
from oracle.errors import SettingError
from oracle.methods import METHODS, draft_counts
from oracle.released import row_of, rows_of, words_of
from oracle.releases import CONFIRMED, NEWEST, changed, choices_of

SOME = (1, 2, 3, 8)
OLDER = ("0.22.1", "0.23.0", "0.24.0", "0.25.1", *CONFIRMED["manager"][:-1])
#: T = 2048, R = 256, K = 8
OVERFLOWED = {"method": "dflash", "drafts": 8, "budget": 2048, "seqs": 256}


#: release -> rules of this level's facts that it changed
FACTS_CHANGED = {
    "0.23.0": {"D6", "S23"},
    "0.24.0": {"S8", "S11", "S23"},
    "0.25.1": {"B6", "S8", "S11"},
    "0.26.0": {"S30"},
    "0.27.1": {"S4"},
    "0.28.0": {"B5", "B6", "D10", "S1"},
    "0.29.0": {"S23"},
    "0.31.0": {"S23"},
    "0.32.0": {"D8", "S23"},
    "0.33.0": {"B5", "B6", "D11", "S30"},
}


def _table(release, rules=None):
    """The table of a release as a party; `rules`: what it says it is."""

    def facts(case):
        try:
            return said(Case(**{**_fields(case), "release": release}))
        except SettingError:
            return Facts(refused="no such method")

    places = {kept.name: kept.expected for kept in KEPT}
    counts = (lambda c: draft_counts(c.ranges, c.drafts, c.seqs)) if choices_of(release).draft_counts else None
    return Release(facts, places, counts, words_of(rules or release), rules or release)


def _fields(case):
    return {name: getattr(case, name) for name in Case.__annotations__}


def test_the_newest_release_has_the_table_itself():
    assert METHODS == rows_of(NEWEST)


@pytest.mark.parametrize(
    ("name", "release", "reserved"),
    [
        ("dflash", "0.22.1", 8),
        ("dflash", "0.23.0", 9),
        ("dspark", "0.25.1", 8),
        ("dspark_fill_in", "0.31.0", 8),
        ("dspark_fill_in", "0.32.0", 9),
        ("eagle3", "0.22.1", 8),
        ("draft_model", "0.22.1", 8),
        ("ngram", "0.22.1", 0),
    ],
)
def test_lookahead_by_release(name, release, reserved):
    """K = 8."""
    assert reserved == row_of(name, False, release).reserved.of(8)


@pytest.mark.parametrize(
    ("release", "charged", "scheduled", "active"),
    [("0.27.1", 7, 256, None), ("0.28.0", 8, 2048, None), ("0.32.0", 8, 2048, None), ("0.33.0", 0, 2048, 227)],
)
def test_budget_model_by_release(release, charged, scheduled, active):
    """2048 - 7 x 256 = 256 up front; then 8 for each scheduled request; then none, and 2048 // 9 requests."""
    facts = predict(Case(**OVERFLOWED, release=release))

    assert (charged, scheduled, active) == (facts.charged, facts.scheduled, facts.active)


@pytest.mark.parametrize(
    ("release", "broken"),
    [("0.22.1", ["D-L1", "B-L1"]), ("0.27.1", ["B-L1"]), ("0.28.0", []), ("0.33.0", [])],
)
def test_the_budget_that_overflowed(release, broken):
    """256 requests x 9 rows = 2304 of 2048, up to 0.27.1; on 0.22.1 the slots are one short too."""
    case = Case(**OVERFLOWED, release=release)

    assert broken == [rule for rule, _ in broken_laws(case, predict(case))]


def test_a_budget_charged_up_front_is_refused():
    """Draft model, one slot: 16 x 1 of T = 16 leaves nothing; T = 17 leaves one; given 2, T = 17 lacks one."""
    wanted = {"method": "draft_model", "drafts": 3, "seqs": 16, "release": "0.27.1"}

    assert BUDGET == predict(Case(**wanted, budget=16)).refused
    assert 1 == predict(Case(**wanted, budget=17)).scheduled
    assert BUDGET == predict(Case(**wanted, budget=17, scheduled=2)).refused


def test_slots_are_refused_before_the_lookahead_was():
    """EAGLE, K = 3, T = 3: no slots, so nothing is refused up to 0.32.0."""
    wanted = {"method": "eagle", "drafts": 3, "budget": 3, "seqs": 1}

    assert ["", BUDGET] == [predict(Case(**wanted, release=release)).refused for release in ("0.32.0", "0.33.0")]


def test_overlap_of_ngram_came_last():
    asked = [Case(method="ngram", drafts=1, overlap=True, release=release) for release in ("0.32.0", "0.33.0")]

    assert [OVERLAP, ""] == [predict(case).refused for case in asked]


@pytest.mark.parametrize(
    ("release", "cut", "lacking"), [("0.24.0", 0, 0), ("0.25.1", 3, 0), ("0.29.0", 3, 0), ("0.30.0", 3, 1)]
)
def test_padding_by_release(release, cut, lacking):
    """K = 3: 4 rows beside running decodes since 0.25.1 (a cap of 1 takes 3), alone since 0.30.0 (T = 3 lacks 1)."""
    assert cut == cut_padding(Case(method="ngram", drafts=3, threshold=1, release=release), 0)
    assert lacking == stuck(Case(method="ngram", drafts=3, budget=3, seqs=1, release=release), 0)


def test_a_hit_that_gives_up_a_block_is_not_padded():
    """With the EAGLE drop more than one token is left, unless a connector loads the rest."""
    dropped = Case(method="eagle3", drafts=3, threshold=1, hash_disabled=True)

    assert [0, 3] == [cut_padding(case, 0) for case in (dropped, Case(**{**_fields(dropped), "connector": True}))]


@pytest.mark.parametrize("release", OLDER)
def test_every_older_table_meets_its_crossings_and_agrees_with_itself(release):
    result = rules_level.run(_table(release))

    assert [] == result.missed
    assert {"law"} >= {difference.aspect for difference in result.found.values()}


@pytest.mark.parametrize(("older", "newer"), list(zip(OLDER, (*OLDER[1:], NEWEST), strict=True)))
def test_neighbours_are_told_apart_where_the_table_says_so(older, newer):
    """The older table in place of the newer one is found out, but where none of these facts changed."""
    result = rules_level.run(_table(older, newer), drafts=SOME)
    shown = {found.rule for found in result.found.values() if found.aspect != "law"}

    assert shown == FACTS_CHANGED.get(newer, set())


def test_the_diff_of_two_releases_names_what_moved_between_them():
    """Lookahead, charged slots, budget model, warmup's reservation, free queue, Mamba modes, checkpoints, retention."""
    names = {rule.name for _, rule in changed("0.27.1", NEWEST)}

    assert {
        "lookahead of dspark, fill-in",
        "where lookahead is kept",
        "charged slots of dflash",
        "max_num_scheduled_tokens unset",
        "budget refused",
        "requests of a draft pass",
        "warmup blocks",
        "freed block, caching off",
        "Mamba mode all",
        "align mode checkpoint",
        "retention default",
    } <= names


def test_what_moved_before_is_in_the_table():
    """The admission rule, the basis of removal and partial hits are those of 0.26.0 since."""
    names = {rule.name for _, rule in changed("0.22.1", "0.26.0")}

    assert {
        "lookahead at admission",
        "lookahead of dflash",
        "removal",
        "partial hits",
        "whole-sequence gate",
    } - names == {"whole-sequence gate"}


def test_a_method_that_came_later_is_no_case():
    with pytest.raises(SettingError, match=r"vLLM 0\.24\.0 has no speculative method 'dspark'"):
        Case(method="dspark", drafts=1, release="0.24.0")


def test_a_release_must_be_a_number():
    with pytest.raises(SettingError, match="release must be a number like"):
        Case(method="none", release="nightly")


def test_switches_that_a_release_lacks_are_not_asked():
    asked = list(cases((3,), "0.29.0"))

    assert not any(case.drop_disabled or case.hash_disabled or case.active for case in asked)
    assert {(case.method, case.parallel) for case in asked} == {
        key for key in methods_at("0.29.0") if key[0] != "none"
    } | {("none", False)}


def test_minima_name_what_a_release_has():
    assert "hash lookahead" not in minima_of("0.32.0")
    assert "method dspark" not in minima_of("0.24.0")
    assert "place scheduler_running" not in minima_of("0.30.0")
    assert minima_of(None) == minima_of(NEWEST)
