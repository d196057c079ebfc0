"""What the ledger makes of an Extend: a call in absolute numbers, or nothing where no scheduler would ask."""

from __future__ import annotations

import pytest

from oracle.call import Call
from oracle.groups import CrossAttention, FullAttention, Mamba
from oracle.ledger import Ledger
from oracle.trace import Loaded, NewStep, Release, Settle
from tests.unit.examples import ask, feed, setting

EAGLE = {"method": "eagle", "num_speculative_tokens": 3}
ALIGN = (Mamba(block_size=4, mode="align"), FullAttention(block_size=4))
CROSS = (CrossAttention(block_size=4), FullAttention(block_size=4))


def test_a_first_call_in_absolute_numbers():
    """4 of a prompt of 6 tokens: nothing computed, waiting, K 3 slots of lookahead."""
    call = feed(Ledger(setting(**EAGLE)), ask(4, prompt=6, full_sequence_must_fit=True))

    assert Call(0, 0, 0, 6, 6, True, False, 4, 3, 0, 0, True, 0, True, ()) == call


def test_the_next_call_goes_on_from_what_is_computed():
    """4 of 6 tokens are computed, all of them in flight until their output is back."""
    call = feed(Ledger(setting(in_flight_depth=2)), ask(4, prompt=6), ask(2))

    assert (4, 4, False) == (call.computed, call.in_flight, call.waiting)


@pytest.mark.parametrize(
    ("profile", "operation", "lookahead"),
    [
        ("scheduler", ask(4, prompt=6), 3),
        ("scheduler", ask(4, prompt=6, lookahead=7), 3),
        ("scheduler", ask(0, prompt=6, external=4), 0),
        ("hostile", ask(4, prompt=6, lookahead=7), 7),
        ("hostile", ask(4, prompt=6), 3),
    ],
    ids=["own", "a scheduler has no other", "async load", "hostile has any", "hostile has its own"],
)
def test_lookahead_of_a_call(profile, operation, lookahead):
    """The method's lookahead, but 0 for an async load (S43); only the hostile profile asks for another."""
    call = feed(Ledger(setting(profile=profile, kv_connector=True, **EAGLE)), operation)

    assert lookahead == call.lookahead


#: name -> (groups, fields of the setting, operations before, the operation that is void)
VOID = {
    "unknown request without a prompt": ((), {}, (), ask(4)),
    "prompt of max_model_len": ((), {}, (), ask(4, prompt=64)),
    "nothing to do": ((), {}, (), ask(0, prompt=6)),
    "more than the step's budget": ((), {"max_num_batched_tokens": 3}, (), ask(4, prompt=6)),
    "more than is known at admission": ((), {}, (), ask(7, prompt=6)),
    "more than is known when it goes on": ((), {"in_flight_depth": 2}, (ask(4, prompt=6),), ask(3)),
    "the last position": ((), {"max_model_len": 8}, (ask(7, prompt=7), Settle()), ask(1)),
    "a step too many in flight": ((), {}, (ask(4, prompt=6), NewStep()), ask(2)),
    "no seat in the step": ((), {"max_num_seqs": 1}, (ask(4, prompt=4),), ask(4, request=1, prompt=4)),
    "no tokens left in the step": ((), {"max_num_batched_tokens": 6}, (ask(4, prompt=4),), ask(4, request=1, prompt=4)),
    "a load without a connector": ((), {}, (), ask(2, prompt=6, external=4)),
    "a load into a row": ((), {"kv_connector": True}, (ask(4, prompt=6), Settle()), ask(2, external=2)),
    "a load of more than is known": ((), {"kv_connector": True}, (), ask(0, prompt=6, external=7)),
    "a call while it loads": ((), {"kv_connector": True}, (ask(0, prompt=6, external=4),), ask(2)),
    "encoder tokens without cross-attention": ((), {}, (), ask(4, prompt=6, encoder=4)),
    "cross-attention without encoder tokens": (CROSS, {"max_encoder_len": 8}, (), ask(4, prompt=6)),
    "more encoder tokens than there can be": (CROSS, {"max_encoder_len": 8}, (), ask(4, prompt=6, encoder=9)),
    "the gate for a running request": ((), {}, (ask(4, prompt=6), Settle()), ask(2, full_sequence_must_fit=True)),
    "reserved blocks for a running request": ((), {}, (ask(4, prompt=6), Settle()), ask(2, reserved_blocks=1)),
    "drafts before a sampled token": ((), EAGLE, (ask(4, prompt=6), Settle()), ask(3)),
    "more drafts than K": ((), EAGLE, (ask(6, prompt=6), Settle()), ask(5)),
    "a chunk that ends inside a column": (ALIGN, {}, (), ask(5, prompt=20)),
    "readmission before its output is back": (
        (),
        {},
        (ask(4, prompt=6), Settle(), ask(2), NewStep(), Release(request=0, preempt=True)),
        ask(4),
    ),
}


@pytest.mark.parametrize("name", VOID)
def test_no_scheduler_would_ask(name):
    """In the scheduler's profile the call is void."""
    groups, fields, before, operation = VOID[name]

    assert None is feed(Ledger(setting(*groups, **fields)), *before, operation)


def test_a_void_first_call_leaves_no_request():
    """What is void changes nothing: the request is not there."""
    ledger = Ledger(setting())
    feed(ledger, ask(0, prompt=6))

    assert {} == ledger.requests


@pytest.mark.parametrize("name", [name for name in VOID if not name.startswith("unknown")])
def test_the_hostile_profile_asks(name):
    """The same calls are made in the hostile profile, which a manager must survive."""
    groups, fields, before, operation = VOID[name]
    call = feed(Ledger(setting(*groups, profile="hostile", **fields)), *before, operation)

    assert (operation.request, operation.new) == (call.request, call.new)


def test_nobody_has_a_place_past_max_model_len():
    """62 computed and 3 loaded tokens are more than 64: void in every profile."""
    ledger = Ledger(setting(profile="hostile"))

    assert None is feed(ledger, ask(62, prompt=62), ask(1, external=3))


@pytest.mark.parametrize("end", [4, 8, 19, 20], ids=["a border", "another", "all but the sampled token", "the end"])
def test_where_a_chunk_of_an_align_group_may_end(end):
    """On a multiple of its block size, or at the prompt's end, the last token's place included when output exists."""
    ledger = Ledger(setting(*ALIGN))
    operations = (ask(20, prompt=20), Settle(), Release(request=0, preempt=True)) if end == 20 else ()
    call = feed(ledger, *operations, ask(end, prompt=20 if end != 19 else 19))

    assert end == call.new


def test_the_budget_is_a_steps_not_a_requests():
    """A request that joins twice is in the next step: 4 + 4 tokens with a budget of 6."""
    ledger = Ledger(setting(max_num_batched_tokens=6, in_flight_depth=2))

    assert 4 == feed(ledger, ask(4, prompt=8), ask(4)).computed


def test_an_idle_request_is_padded_with_drafts_at_readmission():
    """Loaded up to its last token, a request may bring 1 + K tokens (S21)."""
    ledger = Ledger(setting(kv_connector=True, **EAGLE))
    call = feed(ledger, ask(0, prompt=6, external=6), Loaded(request=0), ask(4))

    assert (5, 4) == (call.computed, call.new)
