"""The walk through a replay's entries resolves every operation as the replay did."""

from __future__ import annotations

import random

import pytest
from attrs import evolve

from harness.outcome import Options, Outcome
from harness.replay import Replay
from harness.report.calls import Calls
from harness.report.judge import PROCESS, Judge
from harness.report.table import lines_of
from harness.report.walk import moments_of, oracle_after
from strategies.packed import open_trace

SEEDS = range(40)


def played(seed: int) -> tuple[Replay, Outcome]:
    """A random trace on the oracle alone, its entries kept."""
    generator = random.Random(seed)
    setting, stream = open_trace(generator.randbytes(400), "hostile" if seed % 4 == 0 else "scheduler")
    replay = Replay(setting, None, Options(keep_entries=True))
    while not replay.over and (operation := stream.next(replay.ledger)) is not None:
        replay.step(operation)
    return replay, replay.result()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_call_is_resolved_alike(seed):
    _, outcome = played(seed)
    moments = moments_of(outcome)

    assert [entry.call for entry in outcome.entries] == [moment.call for moment in moments]
    assert [] == [m.index for m in moments if m.void and m.expected is not None]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_oracle_ends_in_the_same_state(seed):
    replay, outcome = played(seed)
    oracle = oracle_after(outcome, moments_of(outcome), len(outcome.entries))

    assert replay.oracle.audit() == oracle.audit()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_trace_becomes_a_script_that_compiles(seed):
    _, outcome = played(seed)
    calls = Calls(Judge(kind=PROCESS))
    for moment in moments_of(outcome):
        calls.write(moment)

    compile("\n".join(calls.lines), "repro.py", "exec")


@pytest.mark.parametrize("seed", SEEDS)
def test_every_operation_has_words_and_no_answer_is_empty_but_of_the_accounting(seed):
    _, outcome = played(seed)
    lines = lines_of(evolve(outcome, differences=[]))

    assert [] == [line.index for line in lines if not line.operation]
    assert [] == [line.index for line in lines if not line.expected and line.free]
