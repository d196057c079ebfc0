"""Deltas take one state to the next, whatever the two are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.page import deltas

ROWS = st.lists(st.integers(0, 9)).map(tuple)
QUEUES = st.permutations(range(1, 12)).flatmap(lambda order: st.integers(0, 11).map(lambda end: tuple(order[:end])))


@given(ROWS, ROWS)
def test_a_splice_makes_the_new_row(old, new):
    at, removed, added = deltas.splice(old, new)

    assert new == old[:at] + added + old[at + removed :]


def test_a_row_that_grows_is_said_by_what_grows():
    assert (2, 0, (7,)) == deltas.splice((5, 6), (5, 6, 7))


def test_a_removed_column_is_said_alone():
    assert (1, 1, (0,)) == deltas.splice((0, 5, 6, 7), (0, 0, 6, 7))


@given(QUEUES, QUEUES)
def test_a_queue_is_made_again(old, new):
    change = deltas.queue(old, new)
    made = list(old[change.get("popped", 0) :])
    made = [block for block in made if block not in change.get("out", ())]
    made = [*change.get("front", ()), *made, *change.get("back", ())]

    assert list(new) == list(change.get("all", made))


def test_taking_from_the_front_and_giving_to_the_back_is_short():
    assert {"popped": 2, "back": (9,)} == deltas.queue((1, 2, 3, 4), (3, 4, 9))


def test_rows_of_requests_that_come_change_and_go():
    old = {0: ((1, 2),), 1: ((3,),), 2: ((4,),)}
    new = {0: ((1, 2, 5),), 2: ((4,),), 3: ((6,),)}

    assert [[1], [0, 0, 2, 0, (5,)], [3, 0, 0, 0, (6,)]] == deltas.rows(old, new)
