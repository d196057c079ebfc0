"""Planted defects of the rules level: an edited table or an edited place, each found under its own name. No vLLM."""

from __future__ import annotations

import pytest
from attrs import evolve

from harness import rules_grid, rules_level, rules_places
from harness.rules_level import Release, compare
from oracle.budget import BUDGET, Case, Facts, predict
from oracle.methods import METHODS, MTP_FAMILIES, WORDS, draft_counts

SOME = (1, 2, 3, 8)


def _places(name="", off=0):
    """The further places as the table has them, one of them off by a number."""
    return {
        kept.name: lambda case, kept=kept: kept.expected(case) + (off if kept.name == name else 0)
        for kept in rules_places.KEPT
    }


#: the table beside itself
CLEAN = Release(
    predict,
    _places(),
    lambda counts: draft_counts(counts.ranges, counts.drafts, counts.seqs),
    {*WORDS, *MTP_FAMILIES},
)


def _edit(change):
    """A release that answers as the table, changed for accepted cases."""

    def party(case):
        facts = predict(case)
        return facts if facts.refused else change(case, facts)

    return Release(party)


def _dflash_k(case, facts):
    return evolve(facts, lookahead=case.drafts) if case.method == "dflash" else facts


def _fill_in_k(case, facts):
    return evolve(facts, lookahead=case.drafts) if case.method == "dspark_fill_in" else facts


def _eagle_without_lookahead(case, facts):
    return evolve(facts, lookahead=0) if case.method == "eagle" else facts


def _modules_as_one(case, facts):
    return evolve(facts, prefill_lookahead=min(1, facts.prefill_lookahead))


def _hash_with_connector(case, facts):
    wrong = case.row.block_drop and case.connector and case.caching
    return evolve(facts, hash_lookahead=facts.prefill_lookahead) if wrong else facts


def _dflash_charged(case, facts):
    return evolve(facts, charged=case.drafts - 1) if case.method == "dflash" else facts


def _pard_charged_one(case, facts):
    return evolve(facts, charged=1) if case.row.title == "draft_model parallel" else facts


def _no_clamp(case, facts):
    return evolve(facts, active=case.active)


def _clamp_by_drafts(case, facts):
    """The rows of a pass taken for K: 2048 // K instead of 2048 // (K + 1)."""
    if case.method != "dflash":
        return facts
    wanted = case.seqs if case.active is None else case.active
    fit = case.budget // case.drafts
    return evolve(facts, active=fit if fit < wanted else case.active)


def _up_front(case, facts):
    return evolve(facts, scheduled=None if facts.scheduled is None else facts.scheduled - facts.charged * case.seqs)


def _in_flight_once(case, facts):
    return evolve(facts, in_flight=case.budget)


def _dflash_drops(case, facts):
    return evolve(facts, block_drop=True) if case.method == "dflash" else facts


def _extra_query(case, facts):
    return evolve(facts, query_rows=facts.query_rows + 1)


def _dspark_is_no_eagle(case, facts):
    return evolve(facts, eagle=False) if case.method == "dspark" else facts


CONTROLS = [
    (_dflash_k, "rules/lookahead/dflash/D6/less", "more = 0 (ours 1) would give"),
    (_dflash_k, "rules/law/dflash/D-L1/broken", ""),
    (_fill_in_k, "rules/lookahead/dspark_fill_in/D8/less", "more = 0 (ours 1) would give"),
    (_eagle_without_lookahead, "rules/lookahead/eagle/D1/less", "would give 0"),
    (_modules_as_one, "rules/prefill_lookahead/mtp_modules/D10/less", ""),
    (_hash_with_connector, "rules/hash_lookahead/eagle3/D11/more", ""),
    (_dflash_charged, "rules/charged/dflash/B5/more", ""),
    (_pard_charged_one, "rules/charged/draft_model parallel/B4/less", ""),
    (_pard_charged_one, "rules/law/draft_model parallel/B-L1/broken", ""),
    (_no_clamp, "rules/active/dflash/B5/other", ""),
    (_no_clamp, "rules/law/dflash/B-L1/broken", ""),
    (_clamp_by_drafts, "rules/active/dflash/B5/more", "rows = "),
    (_up_front, "rules/scheduled/eagle3 parallel/S1/less", ""),
    (_in_flight_once, "rules/in_flight/eagle/S30/less", "steps = 1 (ours 2) would give"),
    (_dflash_drops, "rules/block_drop/dflash/D11/other", ""),
    (_extra_query, "rules/query_rows/eagle/S21/more", "sampled = 2 (ours 1) would give"),
    (_dspark_is_no_eagle, "rules/eagle/dspark/D10/other", ""),
]


@pytest.mark.parametrize(("change", "name", "term"), CONTROLS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_planted_defect_is_found_with_its_term(change, name, term):
    found = rules_level.run(_edit(change), drafts=SOME).found

    assert name in found
    assert term in found[name].detail


def test_smallest_case_is_shown():
    """The clamp by K: K = 1 takes 1 row instead of 2, first wrong where 2 rows do not fit and 1 does: T = 3, R = 2."""
    found = rules_level.run(_edit(_clamp_by_drafts), drafts=SOME).found["rules/active/dflash/B5/other"]

    assert "dflash K=1 T=3 R=2" == str(found.case)
    assert ("1", "None") == (found.expected, found.observed)


def test_missing_refusal_is_found():
    """T = lookahead let through."""

    def party(case):
        facts = predict(case)
        return Facts(drafts=case.drafts) if facts.refused == BUDGET else facts

    found = rules_level.run(Release(party), drafts=SOME).found

    assert "rules/refusal/eagle/B6/accepted" in found
    assert "eagle K=1 T=1 R=1" == str(found["rules/refusal/eagle/B6/accepted"].case)


def test_needless_refusal_is_found():
    """T = lookahead + 1 refused."""

    def party(case):
        edge = case.budget == case.row.reserved.of(case.drafts) + 1
        return Facts(refused=BUDGET) if edge else predict(case)

    assert "rules/refusal/eagle/B6/refused" in rules_level.run(Release(party), drafts=SOME).found


def test_table_beside_itself_breaks_no_law_but_the_declared_ones():
    """The clean pair: nothing differs; but the refusals let a resumed decode wait for ever, or be cut."""
    assert {"progress", "padding"} == {
        found.rule for found in rules_level.run(Release(predict), drafts=SOME).found.values()
    }


def test_grid_meets_every_crossing():
    """All of K 1 .. 16, the further places and the draft counts."""
    assert [] == rules_level.run(CLEAN).missed


def test_grid_that_is_cut_short_misses_crossings():
    result = rules_level.run(CLEAN, most=100)

    assert (100, False) == (result.cases, result.whole)
    assert result.missed


def _kept(places):
    """The differences of the further places alone."""
    release = Release(predict, places)
    return [d for d in rules_level.run(release, drafts=SOME).found.values() if d.aspect in rules_places.NAMES]


@pytest.mark.parametrize("kept", rules_places.KEPT, ids=lambda kept: kept.name)
def test_a_place_one_too_small_is_found(kept):
    found = _kept(_places(kept.name, -1))

    assert {kept.name} == {difference.aspect for difference in found}
    assert {"less"} == {difference.sign for difference in found}


@pytest.mark.parametrize("kept", [kept for kept in rules_places.KEPT if not kept.least], ids=lambda kept: kept.name)
def test_a_place_one_too_large_is_found(kept):
    assert {"more"} == {found.sign for found in _kept(_places(kept.name, 1))}


def test_a_place_that_breaks_is_found():
    places = {**_places(), "v1_room": lambda case: 1 // 0}

    assert {"error:ZeroDivisionError"} == {found.sign for found in _kept(places)}


def test_a_configuration_that_is_refused_is_one_difference():
    """Where the release builds nothing, none of its places can be asked: one refusal, not an error a place."""

    def fails(case):
        raise ValueError("no such configuration")

    def refuses(case):
        return Facts(refused=BUDGET) if case.method == "ngram" else predict(case)

    broken = dict.fromkeys(CLEAN.places, fails)
    case = Case(method="ngram", drafts=3)
    refused = compare(case, evolve(CLEAN, facts=refuses, places=broken))
    asked = compare(case, evolve(CLEAN, places=broken))

    assert ["rules/refusal/ngram/B6/refused"] == [one.fingerprint for one in refused]
    assert {"error:ValueError"} == {one.sign for one in asked}
    assert len(asked) > 1


def test_places_like_the_table_agree():
    assert [] == _kept(_places())


def test_draft_counts_that_forget_a_gap_are_found():
    def lookup(asked):
        counts = draft_counts(asked.ranges, asked.drafts, asked.seqs)
        inside = [any(first <= batch <= last for first, last, _ in asked.ranges) for batch in range(1, asked.seqs + 1)]
        return tuple(count if known else 0 for count, known in zip(counts, inside, strict=True))

    assert "rules/draft_counts/draft counts/S24/other" in rules_level.run(Release(predict, {}, lookup), drafts=()).found


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ({*WORDS, *MTP_FAMILIES, "medusa"}, "rules/methods/medusa/D9/more"),
        ({*WORDS, *MTP_FAMILIES} - {"suffix"}, "rules/methods/suffix/D9/less"),
    ],
    ids=["one that the table lacks", "one that the release lacks"],
)
def test_a_method_that_one_side_lacks_is_found(words, name):
    assert {name} == set(rules_level.run(Release(predict, words=words), drafts=()).found)


def test_every_method_is_in_the_grid():
    assert set(METHODS) == {(case.method, case.parallel) for case in rules_grid.cases((3,))}
