"""The greedy cover."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.campaign.cover import cover


def test_the_one_that_covers_most_comes_first():
    """And what it covers is wanted of nobody else."""
    assert {"b": {1, 2, 3}, "c": {4}} == cover({"a": {1, 2}, "b": {1, 2, 3}, "c": {3, 4}})


def test_what_later_ones_cover_too_is_left_out():
    """Greed alone would take three."""
    assert {"x", "y"} == set(cover({"big": {1, 2, 3, 4}, "x": {1, 2, 5}, "y": {3, 4, 6}}))


def test_nothing_wanted():
    """Is covered by nothing."""
    assert ({}, {}) == (cover({}), cover({"a": set()}))


@given(st.dictionaries(st.integers(), st.sets(st.integers(0, 9))))
def test_everything_is_covered_and_nothing_is_spare(covers):
    """Whatever is given."""
    chosen = cover(covers)
    everything = set().union(*covers.values())

    assert everything == set().union(*(covers[one] for one in chosen))
    for one in chosen:
        assert everything != set().union(*(covers[other] for other in chosen if other != one))
