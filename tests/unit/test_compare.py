"""Two answers beside each other: the first aspect that differs, from robust to strict, and what is said of it."""

from __future__ import annotations

import pytest
from attrs import evolve

from harness import compare
from oracle.allocator import Allocator
from oracle.call import GRANTED, REFUSED, Call, Observation
from oracle.groups import FullAttention, SlidingWindow
from oracle.trace import ASPECTS, Audit
from tests.unit.examples import setting

ALL = frozenset(ASPECTS)
CALL = Call(0, 8, 0, 20, 20, False, False, 4, 0, 0, 0, False, 0, True, ())
BEFORE = ((1, 2), (3, 4))
#: 12 tokens in blocks of 4, window 4: one column more in both, the window's first is dead
OURS = Observation(GRANTED, ((5,), (6,)), ((1, 2, 5), (0, 4, 6)), 10)


def differ(theirs, aspects=ALL, call=CALL, zeroing=False):
    allocator = Allocator(setting(FullAttention(block_size=4), SlidingWindow(block_size=4, window=4)))
    return compare.observations(OURS, theirs, aspects, allocator, 7, call, BEFORE, zeroing)


#: what the target shows -> aspect, kind, rule, sign
SEEN = {
    "refusal": (evolve(OURS, outcome=REFUSED), ("outcome", "pool", "A16", REFUSED)),
    "error": (evolve(OURS, outcome="error:KeyError"), ("outcome", "pool", "A16", "error:KeyError")),
    "shorter row": (evolve(OURS, rows=((1, 2), (0, 4, 6))), ("columns", "full_attention", "A19", "less")),
    "longer row": (evolve(OURS, rows=((1, 2, 5), (0, 4, 6, 7))), ("columns", "sliding_window", "A19", "more")),
    "nothing removed": (evolve(OURS, rows=((1, 2, 5), (3, 4, 6))), ("nulls", "sliding_window", "A14", "less")),
    "too much removed": (evolve(OURS, rows=((1, 2, 5), (0, 0, 6))), ("nulls", "sliding_window", "A14", "more")),
    "other nulls": (evolve(OURS, rows=((1, 2, 5), (3, 0, 6))), ("nulls", "sliding_window", "A14", "other")),
    "more free": (evolve(OURS, free=11), ("free", "pool", "A2", "more")),
    "less free": (evolve(OURS, free=9), ("free", "pool", "A2", "less")),
    "other blocks": (evolve(OURS, rows=((1, 2, 9), (0, 4, 6))), ("ids", "full_attention", "A3", "other")),
    "other list of what is new": (evolve(OURS, new=((5,), ())), ("ids", "pool", "A20", "other")),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_a_difference_is_called(name):
    """Aspect, kind of the group, rule and sign."""
    theirs, expected = SEEN[name]
    found = differ(theirs)

    assert expected == (found.aspect, found.kind, found.rule, found.sign)


def test_equal_answers_do_not_differ():
    """Nothing to say."""
    assert None is differ(evolve(OURS))


@pytest.mark.parametrize("aspect", ["outcome", "columns", "nulls", "free"])
def test_the_most_robust_aspect_is_named(aspect):
    """A target that differs in everything is told by the first aspect of those that are compared."""
    order = ["outcome", "columns", "nulls", "free", "ids"]
    theirs = Observation(OURS.outcome, ((), ()), ((9,), (0, 0, 6)), 9)
    if aspect == "outcome":
        theirs = evolve(theirs, outcome=REFUSED)
    rest = frozenset(order[order.index(aspect) :])

    assert aspect == differ(theirs, rest).aspect


def test_an_aspect_that_is_not_compared_is_passed_over():
    """Other ids, with ids left out of the comparison."""
    assert None is differ(evolve(OURS, rows=((1, 2, 9), (0, 4, 6))), ALL - {"ids"})


def test_a_zero_list_is_its_own_aspect():
    """What `take_new_block_ids` lists (A60)."""
    found = differ(evolve(OURS, new=((6,), (5,))), call=None, zeroing=True)

    assert ("zeroing", "A60", "[5]", "[6]") == (found.aspect, found.rule, found.expected, found.observed)


def test_a_row_that_is_too_short_names_the_term():
    """3 columns for 8 + 4 tokens: without the new tokens they were 2."""
    found = differ(evolve(OURS, rows=((1, 2), (0, 4, 6))))

    assert "new = 0 (ours 4) would give 2" in found.detail.splitlines()


@pytest.mark.parametrize(
    ("changes", "before", "tags"),
    [
        ({}, BEFORE, ()),
        ({}, ((), ()), ("first",)),
        ({"external": 4}, ((), ()), ("first", "sync")),
        ({"external": 4, "new": 0}, ((), ()), ("first", "async")),
        ({"waiting": True}, BEFORE, ("session",)),
    ],
    ids=["going on", "first", "sync load", "async load", "session"],
)
def test_the_situation_is_part_of_the_fingerprint(changes, before, tags):
    """So that two defects of one rule are told apart."""
    allocator = Allocator(setting(FullAttention(block_size=4), SlidingWindow(block_size=4, window=4)))

    assert tags == compare.situation(evolve(CALL, **changes), allocator, before)


def test_a_fingerprint():
    """Level, aspect, kind, rule, sign, situation."""
    found = differ(evolve(OURS, rows=((1, 2), (0, 4, 6))))

    assert "manager/columns/full_attention/A19/less" == found.fingerprint


# ------------------------------------------------------------------------------------------------- audits

AUDIT = Audit({0: ((1, 2),), 1: ((3,),)}, (4, 5, 6))


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (AUDIT, None),
        (Audit({0: ((1, 2),), 1: ((3,),)}, (5, 4, 6)), ("order", "A5")),
        (Audit({0: ((1, 2),)}, (4, 5, 6)), ("ids", "A2")),
        (Audit({0: ((1, 3),), 1: ((2,),)}, (5, 4, 6)), ("ids", "A2")),
        (Audit({**AUDIT.rows, 2: ((),)}, (4, 5, 6)), None),
    ],
    ids=["equal", "another order", "a row is lost", "rows before order", "an empty row is no row"],
)
def test_two_audits(theirs, expected):
    """Rows first, then the order of the free queue."""
    found = compare.audits(AUDIT, theirs, ALL, 7)

    assert expected == (None if found is None else (found.aspect, found.rule))
