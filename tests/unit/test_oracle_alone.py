"""The oracle by itself: it breaks none of its own laws, and answers the same twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.outcome import Options
from harness.replay import Replay
from harness.trace_run import run_operations
from harness.worker import decode
from oracle.allocator import Allocator
from oracle.call import DONE, Call
from oracle.groups import FullAttention, Mamba, Sink
from oracle.pool import Pool
from strategies.traces import packed
from tests.unit.examples import setting

PROFILES = st.sampled_from(["scheduler", "hostile"])
CLOSELY = Options(audit_every=1, memory=False)
#: laws that the rules themselves break in a corner, which is declared under reports/
DECLARED = {"W4", "W5"}


def run(data, profile, make):
    of = decode(data, 10_000, profile)
    replay = Replay(of.setting, make, CLOSELY)
    run_operations(replay, of.operations)
    return replay


@given(data=packed((120, 240)), profile=PROFILES)
@settings(max_examples=40, deadline=None)
def test_two_oracles_agree_and_keep_the_laws_of_the_pool(data, profile):
    """Every block has one place after every operation, and two runs are one."""
    found = run(data, profile, Allocator).outcome_differences

    assert [] == [difference.fingerprint for difference in found if difference.rule not in DECLARED]


def test_the_pool_is_a_stack():
    """What was given back last is taken first; the first of a batch comes first."""
    pool = Pool(8)
    pool.take(4)
    pool.give([2, 0, 1])

    assert (2, 1, 5, 6, 7) == pool.order()


def test_blocks_are_taken_from_the_front():
    """1, 2, 3, ... in a new pool, the null block never."""
    assert [1, 2, 3] == Pool(8).take(3)


def test_taking_what_is_not_there_is_a_fault_of_the_oracle():
    """A count that is not the use."""
    with pytest.raises(AssertionError, match="the oracle took 8 blocks of 7"):
        Pool(8).take(8)


def test_a_sink_takes_its_blocks_when_it_is_built():
    """8 tokens in blocks of 4 are 2 of 31."""
    assert 29 == Allocator(setting(Sink(block_size=4, sink_len=8))).pool.free


CALL = Call(0, 0, 0, 9, 9, True, False, 9, 0, 0, 0, False, 0, True, ())


def test_what_is_new_is_told_group_by_group():
    """9 tokens in blocks of 4 and of 8: 3 blocks, then 2."""
    seen = Allocator(setting(FullAttention(block_size=4), FullAttention(block_size=8))).extend(CALL)

    assert (((1, 2, 3), (4, 5)), 26) == (seen.new, seen.free)


def test_the_zero_list_is_drained_once():
    """Beside a Mamba group the fresh blocks of attention are zeroed, in order of taking."""
    oracle = Allocator(setting(FullAttention(block_size=4), Mamba(block_size=64, mode="none")))
    oracle.extend(CALL)

    assert [((1, 2, 3),), ((),)] == [oracle.new_step().new for _ in range(2)]


def test_a_deferred_release_names_what_it_popped():
    """In the row's order; nothing is free before it is given back."""
    oracle = Allocator(setting())
    oracle.extend(CALL)
    seen = oracle.release(0, True)

    assert (DONE, ((1, 2, 3),), 28) == (seen.outcome, seen.new, seen.free)
