"""Blocks that are given back, at once or later, and requests that end."""

from __future__ import annotations

import pytest

from oracle.ledger import Ledger
from oracle.trace import GiveBack, Loaded, NewStep, Release, Resume, Settle, Trim
from tests.unit.examples import ask, feed, setting

ABORT = Release(request=0)
LATER = Release(request=0, deferred=True)
PREEMPT = Release(request=0, preempt=True)
CONNECTOR = {"kv_connector": True}
LOADING = (ask(0, prompt=6, external=4),)
RUNNING = (ask(4, prompt=6), Settle())
IN_FLIGHT = (ask(4, prompt=6), NewStep())


def test_an_aborted_request_is_forgotten():
    """The same number is then a new request."""
    ledger = Ledger(setting())
    call = feed(ledger, *RUNNING, ABORT, ask(5, prompt=5))

    assert (0, 5, 5) == (call.computed, call.new, call.tokens)


@pytest.mark.parametrize(
    ("fields", "before", "release"),
    [
        ({}, (), ABORT),
        ({}, (*RUNNING, PREEMPT), PREEMPT),
        (CONNECTOR, LOADING, ABORT),
        (CONNECTOR, LOADING, PREEMPT),
        (CONNECTOR, IN_FLIGHT, ABORT),
        (CONNECTOR, (*RUNNING, ask(2), NewStep()), PREEMPT),
    ],
    ids=["unknown", "preempted", "loading", "preemption while loading", "in flight", "preemption in flight"],
)
def test_releases_that_no_scheduler_does(fields, before, release):
    """Void: nothing is there, or a connector or a step in flight still writes the blocks (S49)."""
    assert None is feed(Ledger(setting(**fields)), *before, release)


@pytest.mark.parametrize(
    ("fields", "before", "release"),
    [
        (CONNECTOR, LOADING, LATER),
        (CONNECTOR, IN_FLIGHT, LATER),
        (CONNECTOR, (*RUNNING, ask(2)), PREEMPT),
        ({}, IN_FLIGHT, ABORT),
    ],
    ids=["loading, later", "in flight, later", "preempted in its own step", "in flight without a connector"],
)
def test_releases_that_a_scheduler_does(fields, before, release):
    """The request whose blocks are given back."""
    assert 0 == feed(Ledger(setting(**fields)), *before, release).id


def test_a_released_request_has_no_row():
    """Nothing is removed of it any more."""
    assert None is feed(Ledger(setting()), *RUNNING, PREEMPT, Trim(request=0))


def test_a_step_that_was_scheduled_is_launched_by_an_abort():
    """The worker has it: what comes back next is this step."""
    settled = feed(Ledger(setting()), ask(4, prompt=6), ABORT, Settle())

    assert [4] == [step.new for step in settled.batch.steps]


@pytest.mark.parametrize(
    ("before", "given"),
    [
        ((), False),
        ((*IN_FLIGHT, LATER), False),
        ((*IN_FLIGHT, LATER, Settle()), True),
        ((*RUNNING, LATER), True),
        ((*RUNNING, LATER, GiveBack()), False),
    ],
    ids=["nothing deferred", "its step is in flight", "its step is back", "nothing was in flight", "twice"],
)
def test_deferred_blocks_wait_for_their_step(before, given):
    """They are given back when the newest step that uses them is back, once."""
    assert given is feed(Ledger(setting(kv_connector=True)), *before, GiveBack())


def test_the_newest_step_counts():
    """Two steps of the request in flight: the first one's output is not enough."""
    ledger = Ledger(setting(in_flight_depth=2))

    assert False is feed(ledger, ask(4, prompt=6), NewStep(), ask(2), NewStep(), LATER, Settle(), GiveBack())


def test_deferred_blocks_are_given_back_in_order():
    """Request 1 has nothing in flight, but waits behind request 0."""
    ledger = Ledger(setting(in_flight_depth=2))
    feed(ledger, ask(4, request=1, prompt=6), Settle(), *IN_FLIGHT, LATER, Release(request=1, deferred=True))

    assert (False, [0, 1]) == (feed(ledger, GiveBack()), [waits.request.id for waits in ledger.deferred])


def test_the_hostile_profile_gives_back_too_early():
    """A manager must survive it, whatever the step then overwrites."""
    assert True is feed(Ledger(setting(profile="hostile")), *IN_FLIGHT, LATER, GiveBack())


# -------------------------------------------------------------------------------------- loads and sessions


@pytest.mark.parametrize(
    ("external", "valid", "answer", "computed"),
    [
        (4, None, "kept", 4),
        (6, None, "kept", 5),
        (4, 0, "failed", 0),
        (6, 4, "kept", 4),
        (6, 3, None, 0),
        (4, 5, None, 0),
    ],
    ids=["all of it", "the whole prompt", "nothing", "a whole block", "a part of a block", "more than was loaded"],
)
def test_the_end_of_a_load(external, valid, answer, computed):
    """What is good of it is computed, but for the last known token, which is computed again to sample from."""
    ledger = Ledger(setting(**CONNECTOR))
    said = feed(ledger, ask(0, prompt=6, external=external), Loaded(request=0, valid=valid))

    assert (answer, computed) == (said, ledger.requests[0].computed)


def test_a_load_ends_once():
    """A second end of it is void."""
    assert None is feed(Ledger(setting(**CONNECTOR)), *LOADING, Loaded(request=0), Loaded(request=0))


def test_after_a_failed_load_a_request_begins_anew():
    """It has no row and may load again."""
    call = feed(Ledger(setting(**CONNECTOR)), *LOADING, Loaded(request=0, valid=0), *LOADING)

    assert (0, 4) == (call.computed, call.external)


SPOKEN = (ask(6, prompt=6), Settle())
VOID_RESUMES = {
    "unknown": (),
    "prompt not done": RUNNING,
    "in flight": (ask(6, prompt=6),),
    "no row": (*SPOKEN, PREEMPT),
    "too long": (*SPOKEN, Resume(request=0, tokens=56), ask(57), Settle()),
}


@pytest.mark.parametrize("name", VOID_RESUMES)
def test_sessions_that_do_not_go_on(name):
    """A session goes on when its answer is complete and its row is there, below max_model_len."""
    assert not feed(Ledger(setting()), *VOID_RESUMES[name], Resume(request=0, tokens=4))


def test_a_session_goes_on():
    """Its next call waits like a first one, keeps its row, and its prompt is all that is known: 6 + 1 + 4."""
    call = feed(Ledger(setting()), *SPOKEN, Resume(request=0, tokens=4), ask(5, full_sequence_must_fit=True))

    assert (6, 11, 11, True, False) == (call.computed, call.prompt, call.tokens, call.waiting, call.preempted)
