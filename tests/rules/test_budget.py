"""Budgets, limits and refusals by hand, and the law that the draft rows fit, without vLLM."""

from __future__ import annotations

import pytest
from attrs import evolve

from oracle.budget import (
    ACTIVE,
    BUDGET,
    MODULES,
    OVERLAP,
    SEQS,
    Case,
    broken_laws,
    cut_padding,
    predict,
    stuck,
)
from oracle.charges import CHARGES, Policy, charge_of, rows_over
from oracle.errors import SettingError
from oracle.methods import METHODS, NONE, ONE, Count, method
from oracle.released import method_of
from oracle.releases import CONFIRMED, NEWEST

DFLASH = Case(method="dflash", drafts=8, budget=2048, seqs=256)


def test_the_clamp():
    """DFlash, K = 8, T = 20, R = 8: L = 9, 20 // 9 = 2 (scheduling spec, S17)."""
    assert 2 == predict(evolve(DFLASH, budget=20, seqs=8)).active


def test_the_clamp_leaves_a_smaller_wish_alone():
    """2048 // 9 = 227: 200 wanted are 200, 256 are 227."""
    assert 200 == predict(evolve(DFLASH, active=200)).active
    assert 227 == predict(evolve(DFLASH, active=228)).active
    assert 227 == predict(DFLASH).active


def test_the_clamp_is_exact_where_the_pass_is_filled():
    """256 x 9 = 2304 rows: T = 2304 needs no clamp, T = 2303 one."""
    assert predict(evolve(DFLASH, budget=2304)).active is None
    assert 255 == predict(evolve(DFLASH, budget=2303)).active


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"method": "eagle", "drafts": 3, "budget": 3, "seqs": 1}, BUDGET),
        ({"method": "eagle", "drafts": 3, "budget": 4, "seqs": 1}, ""),
        ({"method": "dflash", "drafts": 3, "budget": 4, "seqs": 1}, BUDGET),
        ({"method": "dflash", "drafts": 3, "budget": 5, "seqs": 1}, ""),
        ({"method": "ngram", "drafts": 3, "budget": 1, "seqs": 1}, ""),
        ({"method": "mtp_modules", "drafts": 4}, MODULES),
        ({"method": "mtp_modules", "drafts": 6}, ""),
        ({"method": "eagle", "drafts": 3, "budget": 15}, SEQS),
        ({"method": "eagle", "drafts": 3, "active": 17}, ACTIVE),
        ({"method": "suffix", "drafts": 3, "overlap": True}, OVERLAP),
    ],
)
def test_refusals(changes, expected):
    assert expected == predict(Case(**changes)).refused


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1),
        ({"caching": False}, 0),
        ({"connector": True}, 0),
        ({"drop_disabled": True}, 0),
        ({"hash_disabled": True}, 0),
        ({"method": "mtp_modules"}, 3),
        ({"method": "dflash"}, 0),
    ],
)
def test_hash_lookahead(changes, expected):
    assert expected == predict(Case(**{"method": "eagle3", "drafts": 3, **changes})).hash_lookahead


def test_overlap_doubles_the_tokens_in_flight():
    assert (512, 1024) == tuple(
        predict(Case(method="eagle", drafts=3, overlap=overlap)).in_flight for overlap in (False, True)
    )


def test_drafts_without_a_method_are_refused():
    with pytest.raises(SettingError, match="drafts must be 0 for method 'none'"):
        Case(method="none", drafts=2)


# -------------------------------------------------------------------------------------------- the draft rows fit

#: T, R and K with which DFlash overflowed
OVERFLOWED = (8, 2048, 256)


#: which break the law: declared as dflash-charged-one-row-short and fill-in-charged-one-row-short
BROKEN = {
    *(("dflash", release) for release in CONFIRMED["manager"][:2]),
    *(("dspark_fill_in", release) for release in CONFIRMED["manager"][:-1]),
}


@pytest.mark.parametrize("release", CONFIRMED["manager"])
@pytest.mark.parametrize("row", METHODS.values(), ids=lambda row: row.title)
def test_draft_rows_fit(row, release):
    """Law B-L1 with the policy of a confirmed release, every K, at the borders of T and R."""
    charge = charge_of(row.name, release, parallel=row.parallel)
    policy = Policy(charged=row.charged) if charge is None else charge.policy
    over = [
        (drafts, budget, seqs)
        for drafts in range(1, 17)
        for seqs in (1, 2, 7, 256)
        for budget in {seqs, seqs * (drafts + 1), seqs * (drafts + 1) - 1, 2048}
        if budget >= seqs and budget > row.reserved.of(drafts) and rows_over(row, policy, drafts, budget, seqs)
    ]

    assert ((row.name, release) in BROKEN) == bool(over)


@pytest.mark.parametrize("release", CONFIRMED["manager"])
def test_policies_of_a_confirmed_release_are_its_table(release):
    """What is charged, and the limit for a pass of its own: one fact, kept in the table of methods too."""
    here = [charge for charge in CHARGES if charge.covers(release)]

    rows = [(charge, method_of(charge.name, charge.parallel, release)) for charge in here]

    assert [row.charged for _, row in rows] == [charge.policy.charged for charge, _ in rows]
    limited = [charge for charge, row in rows if row.own_rows.of(1) and release == NEWEST]
    assert limited == [charge for charge in here if charge.policy.limited]
    assert all(charge.policy.charged == Count() for charge in limited)


#: what each release let through of the batch that overflowed: rows past T = 2048 for R = 256, K = 8
HISTORIC = [
    ("dflash", "0.20.2", 256),
    ("dflash", "0.27.1", 256),
    ("dflash", "0.28.0", 0),
    ("dflash", "0.33.0", 0),
    ("dspark", "0.27.1", 0),
    ("dspark", "0.32.0", 0),
    ("dspark", "0.33.0", 0),
    ("dspark_fill_in", "0.27.1", 256),
    ("dspark_fill_in", "0.32.0", 256),
    ("dspark_fill_in", "0.33.0", 0),
]


@pytest.mark.parametrize(("name", "release", "expected"), HISTORIC)
def test_the_draft_batch_that_overflowed(name, release, expected):
    """T = 2048, R = 256, K = 8. K - 1 up front: 2048 - 7 x 256 = 256 tokens, 256 requests x 9 = 2304 rows: 256 over.

    K a scheduled request: 2048 // 9 = 227 requests, 2043 rows. 0 and the limit 227: 2043 rows. DSpark with K - 1: 2048
    // 8 = 256 requests of 8 rows (anchor) are 2048, of 9 (fill-in) 2304.
    """
    assert expected == rows_over(method(name), charge_of(name, release).policy, *OVERFLOWED)


def test_nothing_charged_and_no_limit_overflows_again():
    """The limit of 0.33.0 is what its charge of 0 rests on: 256 requests of 9 rows are 2304 of 2048."""
    assert 256 == rows_over(method("dflash"), Policy(charged=NONE), *OVERFLOWED)


def test_the_target_batch_that_overflowed():
    """F-71, P-EAGLE, K = 7, T = 2048, R = 256, one row charged up front: 1792 + 256 x 6 = 3328 rows, 1280 over."""
    row = method("eagle3", parallel=True)

    assert 1280 == rows_over(row, Policy(charged=ONE, up_front=True), 7, 2048, 256)
    assert [0, 0] == [
        rows_over(row, charge_of("eagle3", release, parallel=True).policy, 7, 2048, 256)
        for release in ("0.20.2", "0.33.0")
    ]


def test_a_release_before_the_method_has_no_policy():
    assert charge_of("dspark", "0.24.0") is None
    assert charge_of("dspark", "0.33.0+cpu") == charge_of("dspark", "0.33.0")


def test_laws_see_facts_that_break_them():
    """DFlash without its lookahead of K + 1 and without its clamp: two laws, each by its name."""
    facts = evolve(predict(DFLASH), lookahead=8, active=None)

    assert ["D-L1", "B-L1"] == [rule for rule, _ in broken_laws(DFLASH, facts)]


# ------------------------------------------------------------------------------------------------------- progress


@pytest.mark.parametrize(
    ("name", "parallel", "least"),
    [
        ("ngram", False, 4),
        ("eagle3", False, 4),
        ("draft_model", False, 5),
        ("draft_model", True, 7),
        ("eagle3", True, 6),
    ],
)
def test_least_budget_in_which_a_resumed_decode_runs(name, parallel, least):
    """K = 3: 1 + K rows beside the charge: 4 + 0, 4 + 0, 4 + 1, 4 + 3, 4 + 2."""
    row = method(name, parallel)
    budgets = [t for t in range(1, 20) if not stuck(_alone(name, parallel, t), row.charged.of(3))]

    assert list(range(least, 20)) == budgets


def test_without_cached_prompts_one_row_is_enough():
    assert 0 == stuck(evolve(_alone("ngram", False, 1), caching=False), 0)


@pytest.mark.parametrize(("threshold", "cut"), [(None, 0), (1, 3), (3, 1), (4, 0), (16, 0)])
def test_rows_that_the_cap_takes_off_a_padded_decode(threshold, cut):
    """K = 3: 4 rows; what does not fit the budget is not padded."""
    case = evolve(_alone("eagle3", False, 16), threshold=threshold)

    assert cut == cut_padding(case, 0)
    assert 0 == cut_padding(evolve(case, budget=4, scheduled=3), 0)
    assert 0 == cut_padding(evolve(case, caching=False), 0)


def _alone(name, parallel, budget):
    return Case(method=name, parallel=parallel, drafts=3, budget=budget, seqs=1)
