"""The table of rules by release: whole, ordered, and of one voice about each release."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from packaging.version import Version

from oracle.release_table import RULES
from oracle.releases import CONFIRMED, Choices, choices_of, confirmed, in_force, same_release

NAMES = sorted({rule.name for rule in RULES})


def values(name):
    return sorted((rule for rule in RULES if rule.name == name), key=lambda rule: Version(rule.since))


@pytest.mark.parametrize("name", NAMES)
def test_the_values_of_a_rule_do_not_overlap(name):
    """One value ends before the next begins."""
    found = values(name)

    assert all(Version(one.until) < Version(two.since) for one, two in pairwise(found))


@pytest.mark.parametrize("name", NAMES)
def test_the_newest_value_has_no_end(name):
    """Only the last value still holds."""
    assert [True] == [rule.until is None for rule in values(name)][-1:]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("release", CONFIRMED["manager"])
def test_a_confirmed_release_has_one_value(name, release):
    """Which value holds for the release that is specified is never open."""
    here = Version(release)
    holds = [r for r in values(name) if Version(r.since) <= here and (r.until is None or here <= Version(r.until))]

    assert 1 == len(holds)


def test_rules_stand_together():
    """A reader finds the values of a rule in neighbouring rows."""
    assert len(NAMES) == len([name for name, _ in groupby(RULES, key=lambda rule: rule.name)])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name} {rule.since}")
def test_every_row_says_where_it_stands(rule):
    """The rule of the spec, and upstream's number or "in code"."""
    assert (rule.spec[:1] in "ABDPSW", bool(rule.value), bool(rule.reference)) == (True, True, True)


@pytest.mark.parametrize(
    ("release", "known"),
    [
        ("0.33.0", True),
        ("0.33.0+cpu", True),
        ("0.33.0rc1", False),
        ("0.34.0", False),
        ("0.32.0", True),
        ("0.25.1", False),
        ("", False),
        (None, False),
    ],
)
def test_only_what_was_compared_is_confirmed(release, known):
    """An unknown release is never green; a build of a known one is known."""
    assert known is confirmed(release)


@pytest.mark.parametrize(
    ("asked", "installed", "same"),
    [
        ("0.33.0", "0.33.0", True),
        ("0.33.0", "0.33.0+cpu", True),
        ("0.33.0+cpu", "0.33.0", False),
        ("0.33.0", None, False),
    ],
)
def test_a_build_is_its_release(asked, installed, same):
    """Who asks for a build wants that one; who asks for a release takes any."""
    assert same is same_release(asked, installed)


def test_the_newest_release_is_the_default():
    """What the rows decide for it is what the oracle does where nobody says anything."""
    assert Choices() == choices_of("0.33.0") == choices_of("0.33.0+cpu") == choices_of("0.40.0")


@pytest.mark.parametrize(
    ("release", "field", "value"),
    [
        ("0.26.0", "freed_to_front", True),
        ("0.27.1", "freed_to_front", False),
        ("0.28.0", "freed_to_front", True),
        ("0.28.0", "sharded", "all"),
        ("0.30.0", "sharded", "full"),
        ("0.31.0", "sharded", "each"),
        ("0.31.0", "load_zeroing", True),
        ("0.32.0", "load_zeroing", False),
        ("0.32.0", "popped_whole", True),
    ],
)
def test_rows_decide(release, field, value):
    """By the first release that has the value."""
    assert value == getattr(choices_of(release), field)


def test_a_release_between_two_of_the_table_has_the_older_rows():
    """A patch release that nobody read is taken for the one before it."""
    assert in_force("0.28.0") == in_force("0.28.7")
