"""The table of methods and its laws, without vLLM."""

from __future__ import annotations

import pytest
from attrs import evolve

from oracle.errors import SettingError
from oracle.methods import (
    K_LESS_1,
    METHODS,
    OWN_PASS,
    TARGET_PASS,
    WRITERS,
    K,
    draft_counts,
    lookahead_tokens,
    method,
    uncharged,
    unreserved,
)

ROWS = list(METHODS.values())
ALL_K = range(1, 17)


def titles(row):
    return row.title


@pytest.mark.parametrize("row", ROWS, ids=titles)
def test_each_position_the_drafter_writes_is_reserved(row):
    """Law D-L1, for every K and every rejection count."""
    lacking = [(drafts, gone) for drafts in ALL_K for gone in range(drafts + 1) if unreserved(row, drafts, gone)]

    assert [] == lacking


@pytest.mark.parametrize("row", ROWS, ids=titles)
def test_each_row_added_to_the_targets_batch_is_charged(row):
    assert [] == [drafts for drafts in ALL_K if uncharged(row, drafts)]


@pytest.mark.parametrize("row", ROWS, ids=titles)
def test_rows_are_in_the_pass_that_the_row_names(row):
    added, own = row.added_rows.of(3), row.own_rows.of(3)

    assert not (added and own)
    assert (own > 0) == (row.rows_in == OWN_PASS)
    assert not added or row.rows_in == TARGET_PASS


def test_no_drafts_need_nothing():
    assert {0} == {lookahead_tokens(row.name, row.parallel, 0) for row in ROWS}


@pytest.mark.parametrize(
    ("name", "parallel", "expected"),
    [
        # K = 3: (needed, reserved, charged, added, own)
        ("ngram", False, (0, 0, 0, 0, 0)),
        ("eagle", False, (2, 3, 0, 0, 0)),
        ("eagle3", True, (2, 3, 2, 2, 0)),
        ("mtp_constant", False, (0, 3, 0, 0, 0)),
        ("mtp_modules", False, (0, 3, 0, 0, 0)),
        ("draft_model", False, (3, 3, 1, 1, 0)),
        ("draft_model", True, (3, 3, 3, 3, 0)),
        ("dflash", False, (4, 4, 0, 0, 4)),
        ("dspark", False, (3, 3, 0, 0, 3)),
        ("dspark_fill_in", False, (4, 4, 0, 0, 4)),
        ("diffusion", False, (0, 0, 0, 0, 0)),
    ],
)
def test_rule_tables_for_three_drafts(name, parallel, expected):
    """Rules D1 to D9 and B1 to B5, by hand for K = 3."""
    row = method(name, parallel)
    counts = (row.needed, row.reserved, row.charged, row.added_rows, row.own_rows)

    assert expected == tuple(count.of(3) for count in counts)


def test_a_rejection_takes_one_position_off():
    """DFlash, K = 4, 3 rejected: v = n - 4, queries at v + 1 .. v + 5 = n - 3 .. n + 1, so 2 past n - 1."""
    assert 2 == method("dflash").furthest(4, rejected=3)


def test_parallel_is_what_dflash_is():
    assert method("dflash", parallel=True) is method("dflash")


def test_an_unknown_method_is_named():
    with pytest.raises(SettingError, match="no speculative method 'medusa'"):
        method("medusa")


def test_writers_are_those_that_reserve():
    assert ("eagle", False) in WRITERS
    assert ("ngram", False) not in WRITERS


# ------------------------------------------------------------------------------------------------------- controls


@pytest.mark.parametrize("name", ["dflash", "dspark_fill_in"])
def test_law_sees_the_lookahead_of_0_22(name):
    """F-47, F-05: K reserved where K + 1 are written: one position lacks a slot whatever K is."""
    historic = evolve(method(name), reserved=K)

    assert [1] * 16 == [unreserved(historic, drafts) for drafts in ALL_K]


def test_law_sees_the_charge_before_p_eagle():
    """F-71: one row charged, K - 1 added: K = 7 lacks 5."""
    historic = evolve(method("eagle3", parallel=True), charged=method("draft_model").charged)

    assert 5 == uncharged(historic, 7)
    assert 0 == uncharged(evolve(historic, charged=K_LESS_1), 7)


# --------------------------------------------------------------------------------------------------- draft counts


def test_draft_counts_carry_on_through_a_gap_and_past_the_end():
    """Ranges 1-2: 3, 5-6: 1, K = 2: batches 1 .. 8 get 2 2 2 2 1 1 1 1 (3 is cut to K, 3 and 4 keep it)."""
    assert (2, 2, 2, 2, 1, 1, 1, 1) == draft_counts(((1, 2, 3), (5, 6, 1)), 2, 8)


@pytest.mark.parametrize("row", ROWS, ids=titles)
def test_fewer_drafts_never_need_more_than_is_reserved(row):
    """Dynamic counts: what K drafts reserve covers every smaller count."""
    assert all(row.needed.of(few) <= row.reserved.of(most) for most in ALL_K for few in range(most + 1))


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ((), "at least one range"),
        (((2, 4, 1),), "must start at 1"),
        (((1, 4, 1), (4, 6, 2)), "must not overlap"),
        (((1, 0, 1),), "got (1, 0, 1)"),
    ],
)
def test_draft_counts_are_refused_with_the_value(ranges, said):
    with pytest.raises(SettingError) as caught:
        draft_counts(ranges, 3, 8)

    assert said in str(caught.value)
