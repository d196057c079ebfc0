"""One party after the other finds what both in lockstep find."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import HealthCheck, assume, given, settings

from harness import passes
from harness.outcome import Options
from harness.reach import Reach
from oracle.cached_allocator import CachingAllocator
from oracle.call import Drained, Observation
from oracle.trace import ASPECTS, Audit
from strategies.traces import packed
from tests.unit.mutants import EAGER_WINDOWS, CannotBeBuilt, NoGate, NoLookahead, Sound

TRACES = packed((240,))


@pytest.mark.parametrize("make", [NoLookahead, NoGate, EAGER_WINDOWS], ids=["lookahead", "gate", "windows"])
@given(data=TRACES)
@settings(max_examples=30, deadline=None)
def test_another_answer_is_a_difference_in_lockstep(make, data):
    """Where the target answers differently, lockstep finds the difference; laws that the oracle breaks aside."""
    options = Options(declared=lambda difference: difference.aspect == "law")
    step = passes.play(passes.predict(data, "scheduler", options), make)
    found = passes.lockstep(data, "scheduler", make, options).differences

    assert (step is None) is (not found)


@given(data=TRACES)
@settings(max_examples=30, deadline=None)
def test_the_sound_target_answers_as_predicted(data):
    """Two oracles give the same answers, in both profiles."""
    assert [None, None] == [
        passes.play(passes.predict(data, profile, Options()), Sound) for profile in ("scheduler", "hostile")
    ]


@given(data=TRACES)
@settings(max_examples=30, deadline=None)
def test_the_prediction_is_what_lockstep_makes(data):
    """The same trace, the same steps, the same crossings."""
    both = Reach()
    prediction = passes.predict(data, "scheduler", Options())
    predicted = prediction.outcome
    lockstep = passes.lockstep(data, "scheduler", Sound, Options(), both)

    assert (lockstep.trace, lockstep.steps, both.counts) == (predicted.trace, predicted.steps, prediction.reach.counts)


@pytest.mark.parametrize("make", [NoLookahead, NoGate, EAGER_WINDOWS], ids=["lookahead", "gate", "windows"])
@given(data=TRACES)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_a_target_that_parted_goes_on_in_lockstep(make, data):
    """With the target that parted or with a new one, lockstep finds the same."""
    options = Options(declared=lambda difference: difference.aspect == "law")
    played = passes.Played(passes.predict(data, "scheduler", options), make)
    assume(played.parted is not None)

    expected = passes.lockstep(data, "scheduler", make, options)
    assert expected == passes.lockstep(data, "scheduler", lambda setting: played.again(), options)


class TellsNothing(CachingAllocator):
    """Leaves out every event, and so what depends on none."""

    def new_step(self) -> Observation:
        drained = super().new_step()
        assert isinstance(drained, Drained)
        return evolve(drained, events=())


@given(data=TRACES)
@settings(max_examples=30, deadline=None)
def test_declared_differences_of_events_part_nobody(data):
    """Alone or in lockstep, the same is declared."""
    options = Options(declared=lambda difference: difference.aspect in ("events", "law"))
    played = passes.Played(passes.predict(data, "caching", options), TellsNothing, declared=options.declared)
    lockstep = passes.lockstep(data, "caching", TellsNothing, options)

    assert played.parted is None
    assert sorted(map(repr, lockstep.declared)) == sorted(map(repr, played.outcome().declared))


@given(data=TRACES)
@settings(max_examples=30, deadline=None)
def test_other_differences_of_events_part(data):
    """As every other answer."""
    played = passes.Played(passes.predict(data, "caching", Options()), TellsNothing)
    told = any(getattr(call[3], "events", ()) for call in played.prediction.asked)

    assert told is (played.parted is not None)


def test_what_cannot_be_built_is_looked_into():
    """No step has been made."""
    assert -1 == passes.play(passes.predict(bytes(48), "scheduler", Options()), CannotBeBuilt)


def test_an_error_of_the_oracle_is_not_swallowed():
    """Only the target's construction may fail."""
    with pytest.raises(AssertionError, match="got 'friendly'"):
        passes.predict(bytes(48), "friendly", Options())


@pytest.mark.parametrize(
    ("options", "applies"),
    [
        (Options(), True),
        (Options(aspects=frozenset(ASPECTS) - {"order"}), False),
        (Options(keep_entries=True), False),
    ],
    ids=["everything", "an aspect less", "entries are kept"],
)
def test_when_the_fast_way_is_taken(options, applies):
    """Only where equal answers are all that there is to know."""
    assert applies is passes.applies(options)


def test_every_step_that_asks_the_target_is_told():
    """What a journal is told before each call, in order."""
    told = []
    prediction = passes.predict(bytes(range(240)), "scheduler", Options())
    passes.play(prediction, Sound, told.append)

    assert sorted(told) == told
    assert isinstance(prediction.asked[-1][3], Audit)
