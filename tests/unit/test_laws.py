"""Laws that need no prediction: what breaks each of them, and what does not."""

from __future__ import annotations

import pytest

from harness.outcome import Options
from harness.trace_run import run_trace
from oracle.call import GRANTED, REFUSED, Call, Observation
from oracle.groups import ChunkedLocal, CircularBuffer, CrossAttention, FullAttention, Mamba, SlidingWindow
from oracle.laws import Laws, blocks_for_one
from oracle.pool import Pool
from oracle.reservation import Positional, Work
from oracle.trace import Audit, GiveBack, NewStep, Release, Resume, Settle
from tests.unit.examples import ask, setting, trace
from tests.unit.mutants import KeepsRow, Leaks, NoGate, Sound, with_rules

LAWS = Options(aspects=frozenset({"law"}), audit_every=1, memory=False)


class Keeps(Positional):
    """Removes nothing."""

    def remove(self, work: Work, row: list[int], pool: Pool) -> None:
        """Leave the row as it is."""


KEEPS = with_rules(Positional, Keeps)
#: 3 usable blocks of 4: a prompt of 24 tokens cannot finish
SMALL = setting(num_blocks=4)
GATED = {"prompt": 24, "full_sequence_must_fit": True}
#: window 8 in blocks of 4, 4 tokens in flight: the cap is ceil(11 / 4) + 1 = 4
WINDOW = setting(SlidingWindow(block_size=4, window=8), max_in_flight_tokens=4)
CHUNKS = [step for _ in range(4) for step in (ask(4), Settle())]


def broken(of, make):
    """Law, sign and step of the first one that breaks."""
    return [(found.rule, found.sign, found.step) for found in run_trace(of, make, LAWS).differences]


PLANTED = {
    "more blocks than the cap": (
        trace(WINDOW, ask(4, prompt=60), Settle(), *CHUNKS),
        KEEPS,
        ("W4", "cap", 8),
    ),
    "admitted, then refused though alone": (
        trace(SMALL, ask(8, **GATED), Settle(), ask(8)),
        NoGate,
        ("W5", "gate", 2),
    ),
    "a block is lost": (trace(SMALL, ask(8, prompt=8), Release(request=0)), Leaks, ("A2", "conservation", 1)),
    "a block is held and free": (trace(SMALL, ask(4, prompt=8)), KeepsRow, ("A2", "owner", 0)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name):
    """Which law, what broke, at which operation."""
    of, make, violation = PLANTED[name]

    assert [violation] == broken(of, make)


@pytest.mark.parametrize("name", PLANTED)
def test_the_sound_side_is_clean(name):
    """The same trace on the oracle as it is."""
    assert [] == broken(PLANTED[name][0], Sound)


@pytest.mark.parametrize(
    "operations",
    [
        (ask(8, **GATED), ask(4, request=1, prompt=4), Settle(), ask(8)),
        (ask(4, request=1, prompt=4), Settle(), ask(8, **GATED), Settle(), ask(8)),
        (ask(4, request=1, prompt=4), Release(request=1, deferred=True), ask(8, **GATED), Settle(), ask(8)),
        (ask(8, prompt=8, full_sequence_must_fit=True), Settle(), Resume(request=0, tokens=8), ask(9)),
        (ask(8, prompt=24), Settle(), ask(8)),
    ],
    ids=["somebody came", "somebody was there", "blocks are not back", "a session went on", "the gate was not asked"],
)
def test_the_gate_promises_only_to_one_that_is_alone(operations):
    """W5 speaks of a request that the gate admitted to an idle pool, up to the tokens that it saw."""
    assert [] == broken(trace(SMALL, *operations), NoGate)


def test_a_deferred_release_is_not_lost():
    """Popped blocks are neither held nor free until they are given back."""
    of = trace(setting(kv_connector=True), ask(4, prompt=6), NewStep(), Release(request=0, deferred=True), Settle())

    assert [] == broken(trace(of.setting, *of.operations, GiveBack()), Sound)


# --------------------------------------------------------------------------------- answers made up by hand


def reported(of, *audits):
    """What an audit breaks, in a pool of SMALL's size unless said."""
    found = []
    laws = Laws(of, found.append)
    for audit in audits:
        laws.audited(0, audit)
    return [(violation.law, violation.text) for violation in found]


@pytest.mark.parametrize(
    ("audit", "found"),
    [
        (Audit({0: ((1, 0),)}, (3, 2)), []),
        (Audit({0: ((1,),)}, (2,)), [("A2", "2 blocks are held, free or popped, of 3")]),
        (Audit({0: ((1,),)}, (1, 2, 3)), [("A2", "blocks [1] have two owners, or are held and free")]),
        (Audit({0: ((1,),), 1: ((1,),)}, (2,)), [("A2", "blocks [1] have two owners, or are held and free")]),
        (Audit({0: ((4,),)}, (1, 2)), [("A1", "ids 1..4 in a pool of 1..3")]),
        (Audit({}, (0, 1, 2)), [("A1", "ids 0..2 in a pool of 1..3")]),
    ],
    ids=["each once", "one lost", "held and free", "held twice", "past the pool", "the null block is free"],
)
def test_each_block_has_one_place(audit, found):
    """A1, A2: free once, held once or popped; the null block is none of these."""
    assert found == reported(SMALL, audit)


CALL = Call(0, 8, 0, 24, 24, False, False, 4, 0, 0, 0, False, 0, True, ())


@pytest.mark.parametrize(
    ("rows", "laws"),
    [(((1, 2),), []), (((0, 2),), []), (((1,),), ["A22"]), (((1, 2, 3),), ["A22"]), (((2, 1),), ["A22"])],
    ids=["nothing", "removal", "shorter", "longer", "other blocks"],
)
def test_a_refusal_changes_nothing_but_dead_columns(rows, laws):
    """A22: removal comes before the test and stays."""
    found = []
    Laws(SMALL, found.append).extended(0, CALL, Observation(REFUSED, ((),), rows, 1), ((1, 2),))

    assert laws == [violation.law for violation in found]


def test_a_cap_that_is_passed_is_told_once():
    """Every later call of the request would break it again."""
    found = []
    laws = Laws(WINDOW, found.append)
    for _ in range(2):
        laws.extended(0, CALL, Observation(GRANTED, ((),), ((1, 2, 3, 4, 5),), 1), ((1, 2, 3, 4),))

    assert ["holds 5 blocks, its cap is 4"] == [violation.text for violation in found]


@pytest.mark.parametrize(
    ("of", "blocks"),
    [
        (setting(), 16),
        (setting(FullAttention(block_size=5)), 13),
        (WINDOW, 4),
        (setting(ChunkedLocal(block_size=4, chunk=8), max_in_flight_tokens=4), 3),
        (setting(CircularBuffer(block_size=4), FullAttention(block_size=4)), 17),
        (setting(CrossAttention(block_size=4), max_encoder_len=9), 3),
        (setting(Mamba(block_size=64, mode="none", speculative_blocks=2)), 3),
        (setting(Mamba(block_size=4, mode="all", speculative_blocks=2)), 18),
        (setting(Mamba(block_size=4, mode="align", speculative_blocks=2, checkpoint_blocks=1)), 5),
    ],
    ids=["full", "rounded up", "window", "chunk", "ring and full", "cross", "mamba none", "mamba all", "mamba align"],
)
def test_what_start_up_sizing_grants_one_request(of, blocks):
    """64 tokens in blocks of 4 are 16 columns; a capped group holds its cap, a state 1 + s."""
    assert blocks == blocks_for_one(of)
