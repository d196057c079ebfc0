"""Suspects name the known miscount behind a wrong decision; what none of them explains keeps its situation."""

from __future__ import annotations

import pytest

from harness import suspects
from harness.findings import load
from harness.outcome import Options
from harness.trace_run import run_trace
from oracle.allocator import Allocator
from oracle.cached_allocator import CachingAllocator
from oracle.call import REFUSED, Call, Observation
from oracle.groups import CrossAttention, FullAttention, Mamba, SlidingWindow
from oracle.trace import Extend, Settle, Trace
from tests.unit.examples import setting

#: window 8 in blocks of 4, 4 tokens in flight: cap 4
WINDOW = SlidingWindow(block_size=4, window=8)
ALIGN = Mamba(block_size=4)
CROSS = CrossAttention(block_size=4)


def call(computed, new, external=0, tokens=60, **fields):
    numbers = {"in_flight": 0, "prompt": tokens, "tokens": tokens, "waiting": True, "preempted": False}
    flags = {"full_sequence_must_fit": False, "reserved_blocks": 0, "has_scheduled_reqs": True, "skip_zeroing": ()}
    more = {"request": 0, "computed": computed, "new": new, "lookahead": 0, "external": external, "encoder": 0}
    return Call(**{**numbers, **flags, **more, **fields})


#: name -> setting, calls before, the call that the oracle refuses, its suspect
CASES = {
    "dead columns of a load": (
        setting(WINDOW, num_blocks=3, max_in_flight_tokens=4),
        (),
        call(0, 0, external=20, tokens=24, full_sequence_must_fit=True),
        ("dead columns", "sliding_window"),
    ),
    "the gate counted right": (
        setting(WINDOW, num_blocks=3, max_in_flight_tokens=4),
        (),
        call(0, 4, tokens=24, full_sequence_must_fit=True),
        None,
    ),
    "no cap, no suspect": (
        setting(FullAttention(block_size=4), num_blocks=3),
        (),
        call(0, 0, external=20, tokens=24, full_sequence_must_fit=True),
        None,
    ),
    "adopted state": (setting(ALIGN, num_blocks=2), (), call(0, 4, external=8), ("adopted state", "mamba_align")),
    "too much is missing": (
        setting(ALIGN, FullAttention(block_size=4), num_blocks=2),
        (),
        call(0, 4, external=8),
        None,
    ),
    "longer row": (
        setting(ALIGN, CROSS, num_blocks=3, max_encoder_len=8),
        (call(0, 9),),
        call(5, 1, encoder=8),
        ("longer row", "mamba_align"),
    ),
    "attention does not count below zero": (
        setting(FullAttention(block_size=4), CROSS, num_blocks=5, max_encoder_len=8),
        (call(0, 9),),
        call(5, 1, encoder=8),
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cause_of_a_wrong_decision(name):
    """Its name and kinds, if it would have counted too little by what was missing."""
    of, before, refused, suspect = CASES[name]
    oracle = Allocator(of)
    for earlier in before:
        oracle.extend(earlier)
    held = tuple(tuple(row) for row in oracle.rows.get(0, oracle.nothing))

    assert (REFUSED, suspect) == (oracle.extend(refused).outcome, suspects.cause(oracle, refused, held))


#: the row before the call, blocks that the count leaves, whether dead states behind nulls explain a refusal
KEPT = {
    "one state behind a null, none to spare": ((1, 0, 2, 3), 0, True),
    "one to spare": ((1, 0, 2, 3), 1, False),
    "the walk reaches it": ((0, 1, 2, 3), 0, False),
    "it is still read": ((0, 0, 0, 3), 0, False),
}


@pytest.mark.parametrize(("row", "left", "explains"), KEPT.values(), ids=KEPT)
def test_the_cause_of_a_wrong_refusal(row, left, explains):
    """At c 4 with nothing in flight, b 1: columns 0 .. 2 are dead; a walk back from column 2 ends at the first null."""
    oracle = Allocator(setting(Mamba(block_size=1), num_blocks=9))
    oracle.short = -left

    assert explains is (suspects.refusal(oracle, call(4, 1, waiting=False), (row,)) == ("behind nulls", "mamba_align"))


def test_what_the_count_leaves():
    """8 usable blocks: a call of 3 leaves 5; one more leaves 4, which are not to spare where they are reserved."""
    oracle = Allocator(setting(FullAttention(block_size=4), num_blocks=9))
    oracle.extend(call(0, 12, waiting=False))
    assert -5 == oracle.short
    oracle.extend(call(12, 4, waiting=False, reserved_blocks=4))
    assert 0 == oracle.short


@pytest.mark.parametrize(("num_blocks", "explained"), [(8, True), (9, False)])
def test_a_refusal_beside_a_copy_that_is_owed(num_blocks, explained):
    """Of 7 usable blocks 3 hold tokens, 3 states: 1 is left, and 2 with the loaded state, which is dead behind a null.

    0.29.0 counts 2 for the copy of the prompt's last state, and takes 1 (A15).
    """
    groups = (FullAttention(block_size=6), Mamba(block_size=6))
    caches = {"enable_caching": True, "hash_block_size": 2, "dcp_size": 2, "kv_connector": True}
    of = setting(*groups, num_blocks=num_blocks, max_model_len=34, in_flight_depth=2, release="0.29.0", **caches)
    first = Extend(request=0, new=12, prompt=32, external=18)
    loaded = Trace(setting=of, operations=(first, Extend(request=0, new=2), Settle(), Extend(request=0, new=0)))

    class Refuses(CachingAllocator):
        asked = 0

        def extend(self, call, gate=True, test=True):
            self.asked += 1
            if self.asked == 3:
                return Observation(REFUSED, self.nothing, self.rows[call.request], self.pool.free)
            return super().extend(call, gate, test)

    [difference] = run_trace(loaded, Refuses, Options(release="0.29.0")).differences

    assert ("A16", "refused") == (difference.rule, difference.sign)
    assert explained is ("behind nulls" in difference.tags)


#: the state at a prompt's end is named a second time, and has left the row when its second copy is due
NAMED_AGAIN = next(one for one in load() if one.name == "state-named-at-the-end-of-a-prompt").traces()[1]


@pytest.mark.parametrize(
    ("fails_at", "tags"), [(2, ()), (3, ("copy owed", "tail of a prompt"))], ids=["first copy", "second copy"]
)
def test_a_copy_is_late_where_its_state_has_left_the_row(fails_at, tags):
    """An error of a call that copies a state which is still there has no known cause."""

    class Fails(CachingAllocator):
        asked = -1

        def extend(self, call, gate=True, test=True):
            self.asked += 1
            seen = super().extend(call, gate, test)
            fails = Observation("error:AssertionError", seen.new, seen.rows, seen.free)
            return fails if self.asked == fails_at else seen

    [difference] = run_trace(NAMED_AGAIN, Fails, Options(release="0.29.0")).differences

    assert ("A16", "error:AssertionError") == (difference.rule, difference.sign)
    assert tags == difference.tags
