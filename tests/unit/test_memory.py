"""The model of the physical cache finds what was planted, and nothing in the sound oracle. It is asked alone: no rule
is compared, no other law is audited on the way."""

from __future__ import annotations

import pytest
from attrs import evolve

from harness.outcome import Options
from harness.replay import Replay
from harness.trace_run import run_operations
from oracle.groups import RSWA, ChunkedLocal, CircularBuffer, CrossAttention, FullAttention, Mamba, SlidingWindow
from oracle.trace import Loaded, NewStep, Release, Settle, Trim
from tests.unit.examples import accept, ask, setting, trace
from tests.unit.mutants import (
    EAGER_GAPS,
    EAGER_STATES,
    EAGER_WINDOWS,
    NO_SCRATCH,
    ForgetsFlight,
    FreesAtOnce,
    NoLookahead,
    Shares,
    Sound,
)

EAGLE = {"method": "eagle", "num_speculative_tokens": 3}
NEVER = 10**9


def seen(of, make, profile="scheduler"):
    """Law, sign and step of what the memory reports first."""
    options = Options(aspects=frozenset({"law"}), audit_every=NEVER)
    replay = Replay(evolve(of.setting, profile=profile), make, options)
    run_operations(replay, of.operations)
    return [(found.rule, found.sign, found.step) for found in replay.outcome_differences][:1]


def steps(*chunks: int, prompt: int = 60):
    """One request, alone, its outputs back before it goes on."""
    first, *rest = chunks
    operations = [ask(first, prompt=prompt), Settle()]
    for chunk in rest:
        operations += [ask(chunk), Settle()]
    return operations


def three(**fields):
    """Three requests of 4 of 6 tokens in one step, then the first goes on."""
    return [ask(4, request=request, prompt=6, **fields) for request in range(3)] + [Settle(), ask(2)]


#: what is planted -> trace, target, the violation
PLANTED = {
    "null column inside a window": (
        trace(setting(SlidingWindow(block_size=4, window=8)), *steps(8, 4)),
        EAGER_WINDOWS,
        ("M12", "null block", 2),
    ),
    "null column inside a chunk": (
        trace(setting(ChunkedLocal(block_size=4, chunk=8)), *steps(8, 4, 4)),
        EAGER_WINDOWS,
        ("M12", "null block", 4),
    ),
    "gap that begins inside the window": (
        trace(setting(RSWA(block_size=2, window=4)), *steps(4, *[1] * 6, prompt=4)),
        EAGER_GAPS,
        ("M12", "null block", 10),
    ),
    "block of two requests": (trace(setting(), *three()), Shares, ("M12", "other content", 0)),
    "block of two groups": (
        trace(setting(FullAttention(block_size=4), FullAttention(block_size=4)), *steps(8)),
        Shares,
        ("M12", "other content", 0),
    ),
    "ring of two requests": (
        trace(setting(CircularBuffer(block_size=4)), *three()),
        Shares,
        ("M12", "other content", 4),
    ),
    "encoder output of two requests": (
        trace(setting(CrossAttention(block_size=4), max_encoder_len=8), *three(encoder=4)),
        Shares,
        ("M12", "other content", 4),
    ),
    "state of two requests": (trace(setting(Mamba(block_size=64, mode="none")), *three()), Shares, ("M12", "state", 4)),
    "drafter outside the row": (
        trace(setting(**EAGLE), ask(4, prompt=4)),
        NoLookahead,
        ("W1", "drafter outside the row", 0),
    ),
    "no states for the drafts": (
        trace(setting(Mamba(block_size=4, mode="align", speculative_blocks=3), **EAGLE), *steps(6, prompt=6)),
        NO_SCRATCH,
        ("W1", "state null block", 0),
    ),
    "window removed before the drafts' outcome": (
        trace(
            setting(SlidingWindow(block_size=2, window=4), in_flight_depth=2, **EAGLE),
            *(ask(8, prompt=8), Settle(), ask(4), NewStep(), ask(1), accept(0)),
        ),
        ForgetsFlight,
        ("M12", "null block", 4),
    ),
    "block loaded while a step in flight still writes it": (
        trace(
            setting(kv_connector=True),
            *(ask(4, prompt=6), NewStep(), Release(request=0, deferred=True)),
            *(ask(0, request=1, prompt=6, external=4), Settle(), Loaded(request=1), ask(2, request=1)),
        ),
        FreesAtOnce,
        ("M12", "other content", 6),
    ),
    "live state removed": (
        trace(
            setting(Mamba(block_size=4, mode="align")),
            *(ask(4, prompt=12), Settle(), Trim(request=0), ask(4, request=1, prompt=8), Settle(), ask(4)),
        ),
        EAGER_STATES,
        ("M12", "state", 5),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name):
    """Law, what was read or written, and the operation that scheduled the step."""
    of, make, violation = PLANTED[name]

    assert [violation] == seen(of, make)


@pytest.mark.parametrize("name", PLANTED)
def test_the_sound_side_is_clean(name):
    """The same trace on the oracle as it is."""
    assert [] == seen(PLANTED[name][0], Sound)


def test_the_hostile_profile_has_no_memory():
    """Steps that no worker runs have no content to look at."""
    of, make, _ = PLANTED["drafter outside the row"]

    assert [] == seen(of, make, "hostile")


@pytest.mark.parametrize(
    ("longest", "prompt", "found"),
    [(10, 8, [("W1", "drafter outside the row", 0)]), (9, 8, [("W1", "drafter outside the row", 0)]), (8, 7, [])],
    ids=["two positions", "one position", "the row's own block"],
)
def test_the_drafter_stops_at_max_model_len(longest, prompt, found):
    """Blocks of 4: after 8 tokens the positions 8 and 9 below a max_model_len of 10 need a third one."""
    assert found == seen(trace(setting(max_model_len=longest, **EAGLE), ask(prompt, prompt=prompt)), NoLookahead)


def test_what_follows_from_a_violation_is_not_reported():
    """One wrong read makes every later one wrong: the request is told once."""
    of = trace(setting(SlidingWindow(block_size=4, window=8)), *steps(8, 4, 4, 4))
    options = Options(aspects=frozenset({"law"}), audit_every=NEVER, declared=lambda difference: True)
    replay = Replay(of.setting, EAGER_WINDOWS, options)
    run_operations(replay, of.operations)

    assert 1 == len(replay.declared)


@pytest.mark.parametrize(("external", "tags"), [(4, ("loaded",)), (0, ())], ids=["loaded", "computed"])
def test_a_violation_says_whether_its_row_was_loaded(external, tags):
    """The situation of a read, part of its fingerprint."""
    first = ask(8 - external, prompt=8, external=external)
    of = trace(setting(kv_connector=True), first, ask(4, request=1, prompt=8), Settle())
    replay = Replay(of.setting, Shares, Options(aspects=frozenset({"law"}), audit_every=NEVER))
    run_operations(replay, of.operations)

    assert tags == replay.outcome_differences[0].tags


def test_the_last_token_of_a_loaded_prompt_is_computed_again():
    """Its write changes nothing, its read finds the loaded prefix."""
    of = trace(
        setting(kv_connector=True),
        *(ask(0, prompt=8, external=8), Loaded(request=0), ask(1), Settle(), ask(1)),
    )

    assert [] == seen(of, Sound)
