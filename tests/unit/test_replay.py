"""One trace on two parties: where it ends, what is followed, which step is named."""

from __future__ import annotations

import pytest

from harness.outcome import AUDIT_EVERY, Options
from harness.replay import Replay
from harness.targets.compat import TargetError
from harness.trace_run import run_operations, run_trace
from oracle.allocator import Allocator
from oracle.call import DONE, Observation
from oracle.groups import Sink, SlidingWindow
from oracle.trace import NewStep, Release, Settle, Trim
from tests.unit.examples import ask, setting, trace
from tests.unit.mutants import CannotBeBuilt, NoGate, NoLookahead, Sound

EAGLE = {"method": "eagle", "num_speculative_tokens": 3}
TWO = (ask(8, prompt=8), Settle(), ask(1), Settle())
GATED = trace(setting(num_blocks=4), ask(4, prompt=60, full_sequence_must_fit=True), Settle(), ask(4), Settle(), ask(4))


class OtherOrder(Allocator):
    """Gives the blocks of a released row back lowest first."""

    def release(self, request: int, deferred: bool) -> Observation:
        rows = self.rows.get(request, [])
        self.rows[request] = [row[::-1] for row in rows]
        return super().release(request, deferred)


def test_a_trace_ends_at_its_first_difference():
    """From there on the two states have nothing to do with each other."""
    outcome = run_trace(trace(setting(**EAGLE), ask(4, prompt=6), *TWO), NoLookahead, Options())

    assert (1, 0) == (len(outcome.trace.operations), outcome.differences[0].step)


def test_the_first_wrong_step_is_named():
    """What an audit finds later is looked up again with an audit at each step."""
    many = [NewStep() for _ in range(AUDIT_EVERY)]
    of = trace(setting(), ask(8, prompt=9), Settle(), Release(request=0), *many)

    assert [("order", 2)] == [(found.aspect, found.step) for found in run_trace(of, OtherOrder, Options()).differences]


def test_the_end_of_a_trace_is_audited():
    """However short it is."""
    of = trace(setting(), ask(8, prompt=9), Settle(), Release(request=0))

    assert ["order"] == [found.aspect for found in run_trace(of, OtherOrder, Options()).differences]


def test_a_declared_decision_is_followed():
    """The oracle goes on from the target's state: two chunks fit, the third is refused by both."""
    outcome = run_trace(GATED, NoGate, Options(declared=lambda found: found.rule == "A13", audit_every=1))

    assert (["A13"], [], 5) == ([found.rule for found in outcome.declared], outcome.differences, outcome.steps)


def test_what_is_not_declared_is_not_followed():
    """The same trace without the declaration."""
    assert (["A13"], 1) == (
        [found.rule for found in run_trace(GATED, NoGate, Options()).differences],
        run_trace(GATED, NoGate, Options()).steps,
    )


def test_a_target_that_cannot_be_built_is_a_difference():
    """Before the first operation; kinds are named, a sink alone where there is one."""
    of = trace(setting(Sink(block_size=4, sink_len=4), SlidingWindow(block_size=4, window=8)), *TWO)
    (found,) = run_trace(of, CannotBeBuilt, Options()).differences

    assert (-1, "build", "sink_full_attention", "error:ValueError") == (found.step, found.rule, found.kind, found.sign)


def test_a_target_that_cannot_be_loaded_is_no_difference():
    """It is the caller's affair."""

    def make(of):
        raise TargetError("no such kind")

    with pytest.raises(TargetError):
        run_trace(trace(setting()), make, Options())


def test_what_is_in_flight_at_the_end_settles():
    """The memory sees the last step too."""
    replay = Replay(setting(**EAGLE), Sound, Options())
    run_operations(replay, (ask(4, prompt=6), NewStep()))

    assert (0, 0) == (len(replay.ledger.launched), replay.ledger.requests[0].in_flight)


def test_entries_are_kept_when_they_are_wanted():
    """One an operation, void ones too; none otherwise."""
    of = trace(setting(), ask(4, prompt=6), Settle(), Trim(request=7), Release(request=0))

    assert ([0, 1, 2, 3], []) == (
        [entry.index for entry in run_trace(of, Sound, Options(keep_entries=True)).entries],
        run_trace(of, Sound, Options()).entries,
    )


def test_the_oracle_alone_has_nothing_to_differ_from():
    """`explain` runs a trace without a target."""
    outcome = run_trace(trace(setting(), *TWO, Release(request=0)), None, Options(keep_entries=True))

    assert ([], DONE, None) == (outcome.differences, outcome.entries[-1].expected.outcome, outcome.entries[-1].observed)


@pytest.mark.parametrize("aspect", ["columns", "nulls", "free"])
def test_another_decision_that_is_not_compared_ends_the_trace(aspect):
    """The target grants what the oracle refuses: without `outcome` nobody says so, but the states have parted."""
    of = trace(
        setting(SlidingWindow(block_size=4, window=4), num_blocks=4, **EAGLE), ask(12, prompt=13), Settle(), ask(1)
    )

    assert [] == run_trace(of, NoLookahead, Options(aspects=frozenset({aspect}))).differences
