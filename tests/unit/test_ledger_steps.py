"""Steps in flight and their output: drafts, rollback, stale outcomes."""

from __future__ import annotations

import pytest

from oracle.ledger import PREEMPTED, WAITING, Ledger
from oracle.trace import NewStep, Release, Settle
from tests.unit.examples import accept, ask, feed, setting

DRAFTING = setting(method="eagle", num_speculative_tokens=3)
OVERLAP = setting(method="eagle", num_speculative_tokens=3, in_flight_depth=2)
PREEMPT = Release(request=0, preempt=True)


def counts(ledger, request=0):
    """Known, computed, in flight, and outputs that are awaited."""
    found = ledger.requests[request]
    return found.tokens, found.computed, found.in_flight, found.placeholders


def test_a_chunk_inside_the_prompt_samples_nothing():
    """4 of 6 tokens: no output is awaited, none comes."""
    ledger = Ledger(DRAFTING)
    feed(ledger, ask(4, prompt=6), Settle())

    assert (6, 4, 0, 0) == counts(ledger)


def test_the_end_of_the_prompt_samples_a_token():
    """The 7th token is known when the output is back, and is not computed."""
    ledger = Ledger(DRAFTING)
    feed(ledger, ask(6, prompt=6), Settle())

    assert (7, 6, 0, 0) == counts(ledger)


def test_drafts_are_computed_before_their_outcome():
    """1 sampled token and 3 drafts: computed is optimistic, 4 outputs are awaited."""
    ledger = Ledger(DRAFTING)
    feed(ledger, ask(6, prompt=6), Settle(), ask(4))

    assert (7, 10, 4, 4) == counts(ledger)


@pytest.mark.parametrize(
    ("accepted", "after"),
    [(0, (8, 7, 0, 0)), (1, (9, 8, 0, 0)), (3, (11, 10, 0, 0)), (9, (11, 10, 0, 0))],
    ids=["none", "one", "all", "more than there are"],
)
def test_rejected_drafts_are_taken_back(accepted, after):
    """Of 3 drafts 3 - a fall from computed, 1 + a tokens are known."""
    ledger = Ledger(DRAFTING)
    feed(ledger, ask(6, prompt=6), Settle(), ask(4), accept(accepted))

    assert after == counts(ledger)


def test_accepted_drafts_are_told_a_step():
    """What came back says the steps of the batch and the accepted drafts of each, 0 where nothing is said."""
    batch = (ask(6, prompt=6), ask(6, request=1, prompt=6), Settle(), ask(4), ask(3, request=1))
    settled = feed(Ledger(DRAFTING), *batch, accept(2))

    assert [2, 0] == settled.accepted


def test_the_next_step_is_scheduled_before_the_output_is_back():
    """Overlap: after 6 of 6 tokens the awaited one is already scheduled, with drafts."""
    ledger = Ledger(OVERLAP)
    feed(ledger, ask(6, prompt=6), NewStep(), ask(4))

    assert (6, 10, 10, 5) == counts(ledger)


def test_processed_is_what_no_outcome_can_take_back():
    """10 computed, 4 of them in flight: 6 are certain."""
    ledger = Ledger(OVERLAP)
    feed(ledger, ask(6, prompt=6), NewStep(), ask(4), Settle())

    assert 6 == ledger.requests[0].processed


def test_outputs_come_back_oldest_first():
    """The first Settle is that of the first step, whatever was scheduled since."""
    ledger = Ledger(OVERLAP)
    settled = feed(ledger, ask(6, prompt=6), NewStep(), ask(5, request=1, prompt=5), NewStep(), Settle())

    assert [(0, 6)] == [(step.request.id, step.new) for step in settled.batch.steps]


def test_without_a_step_nothing_comes_back():
    """A Settle with nothing in flight is void."""
    assert None is feed(Ledger(DRAFTING), Settle())


def test_a_stale_step_brings_a_token_and_moves_no_count():
    """Preempted in flight (S33): the token of the step is known when it is back, computed stays 0."""
    ledger = Ledger(DRAFTING)
    feed(ledger, ask(6, prompt=6), NewStep(), PREEMPT, Settle())

    assert (7, 0, 0, 0) == counts(ledger)


def test_a_stale_step_keeps_its_accepted_drafts():
    """The drafts that the target accepted are tokens of the output, though their slots are gone."""
    ledger = Ledger(DRAFTING)
    feed(ledger, ask(6, prompt=6), Settle(), ask(4), NewStep(), PREEMPT, accept(2))

    assert (10, 0, 0, 0) == counts(ledger)


def test_preempted_in_its_own_step_it_is_taken_out():
    """S28: the step is empty, nothing is in flight, no token will come."""
    ledger = Ledger(DRAFTING)
    feed(ledger, ask(6, prompt=6), Settle(), ask(4), PREEMPT)

    assert ((7, 0, 0, 0), [], 0) == (counts(ledger), ledger.open.steps, ledger.open.new)


def test_its_place_in_the_step_can_be_used_again():
    """S28: the tokens go back to the step's budget; 4 + 4 with a budget of 4."""
    tight = setting(method="eagle", num_speculative_tokens=3, max_num_batched_tokens=4)
    ledger = Ledger(tight)
    call = feed(ledger, ask(4, prompt=4), Settle(), ask(4), PREEMPT, ask(4, request=1, prompt=6))

    assert 4 == call.new


def test_nobody_preempts_what_was_just_admitted():
    """An admission is the last thing that a step does for a request."""
    assert None is feed(Ledger(DRAFTING), ask(6, prompt=6), PREEMPT)


@pytest.mark.parametrize(("operation", "status"), [(PREEMPT, PREEMPTED), (Settle(), "running")])
def test_status_after_preemption(operation, status):
    """Preempted is a status of its own: its next call is its first again, and waits."""
    ledger = Ledger(DRAFTING)
    feed(ledger, ask(6, prompt=6), NewStep(), operation)

    assert status == ledger.requests[0].status


def test_readmission_brings_the_output_along():
    """6 prompt tokens and 1 of output: the call after preemption computes them from 0, preempted and waiting."""
    call = feed(Ledger(DRAFTING), ask(6, prompt=6), NewStep(), PREEMPT, Settle(), ask(7))

    assert (0, 6, 7, True, True) == (call.computed, call.prompt, call.tokens, call.waiting, call.preempted)


def test_a_new_request_waits():
    """Before its first grant a request is waiting."""
    ledger = Ledger(DRAFTING)
    ledger.extend(ask(4, prompt=6))

    assert WAITING == ledger.requests[0].status


def test_a_refused_call_accounts_for_nothing():
    """Without a grant nothing is computed and nothing in flight."""
    ledger = Ledger(DRAFTING)
    ledger.extend(ask(4, prompt=6))

    assert ((6, 0, 0, 0), []) == (counts(ledger), ledger.open.steps)
