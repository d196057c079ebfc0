"""The engine: whoever runs the shards, the run is the shortest prefix of them that makes the steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engine import IDLE_SHARDS, Engine, Plan, profile_of
from harness.forks import HarnessError
from harness.outcome import Options
from harness.targets.compat import TargetError
from harness.worker import run_shard
from oracle.errors import SlotcheckError
from tests.unit.conftest import FEW
from tests.unit.mutants import CannotBeBuilt, ChangesItsMind, Refuses, Sound

COLUMNS = Options(aspects=frozenset({"outcome", "columns"}))


@pytest.fixture
def run(tmp_path, small_shards):
    """Runs a plan, one worker and seed 0 unless said."""

    def make(target, progress=lambda result: None, **fields):
        known = {"seed": 0, "steps": 1, "seconds": None, "workers": 1, "options": COLUMNS, "inflight": Path(tmp_path)}
        return Engine(Plan(make_target=target, **{**known, **fields}), progress).run()

    return make


def shard(number: int, target):
    """One shard, run here."""
    return run_shard(0, number, target, COLUMNS, profile_of(number), examples=FEW)


def shown(result):
    """All of a result but the time that it took."""
    return (
        result.shards,
        result.steps,
        result.traces,
        dict(result.reach),
        dict(result.counts),
        {name: found.trace for name, found in result.found.items()},
    )


@pytest.mark.parametrize("workers", [2, 3])
def test_the_worker_count_changes_nothing(run, workers):
    """Shards are merged in order, the same ones however many are run at once."""
    assert shown(run(Refuses, steps=60)) == shown(run(Refuses, steps=60, workers=workers))


def test_a_run_is_made_of_shards(run):
    """The first one is enough for a step: its steps, its traces, what it found."""
    first = shard(0, Refuses)
    result = run(Refuses)

    assert (1, first.steps, FEW, first.counts) == (result.shards, result.steps, result.traces, result.counts)


@pytest.mark.parametrize(("more", "shards"), [(0, 1), (1, 2)], ids=["as many as one makes", "one more"])
def test_the_shortest_prefix_that_makes_the_steps(run, more, shards):
    """Not a shard more than is needed, though a second worker has begun it."""
    first = shard(0, Sound)

    assert shards == run(Sound, steps=first.steps + more, workers=2).shards


def test_another_seed_is_another_run(run):
    """Other traces, other numbers."""
    assert run(Sound, seed=0).steps != run(Sound, seed=1).steps


def test_of_each_difference_the_shortest_trace_is_kept(run):
    """That of all shards together."""
    parts = [shard(number, Refuses) for number in range(2)]
    found = run(Refuses, steps=parts[0].steps + 1).found
    lengths = {
        name: min(len(part.found[name].trace.operations) for part in parts if name in part.found) for name in found
    }

    assert lengths == {name: len(one.trace.operations) for name, one in found.items()}


def test_every_fifth_shard_is_hostile():
    """What no scheduler does has a share of each run."""
    assert [4, 9] == [shard for shard in range(10) if profile_of(shard) == "hostile"]


def test_a_budget_of_time_ends_a_run(run):
    """What was finished when the time was up."""
    assert 0 < run(Sound, steps=None, seconds=0.8).steps


def test_progress_is_told(run):
    """After each turn, with what there is."""
    told = []
    run(Sound, told.append)

    assert told[-1].shards == 1


def test_ctrl_c_keeps_what_was_found(run):
    """The shards that were merged stay."""

    def interrupt(result):
        if result.shards:
            raise KeyboardInterrupt

    result = run(Refuses, interrupt, steps=10**9)

    assert (True, True) == (result.interrupted, bool(result.found))


def test_a_target_that_cannot_be_built_makes_no_steps(run):
    """The run ends though the wanted steps are never made; each kind that was tried is a difference."""
    result = run(CannotBeBuilt, steps=10_000)

    assert (IDLE_SHARDS, 0, {"build"}) == (
        result.shards,
        result.steps,
        {found.difference.rule for found in result.found.values()},
    )


def test_two_runs_that_differ_are_a_difference(run):
    """W6: a target that changes its mind is told apart from one that is wrong."""
    ChangesItsMind.built = 0

    assert "manager/law/pool/W6/two runs differ" in run(ChangesItsMind, options=Options()).found


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (TargetError("no such kind in this release"), TargetError),
        (SlotcheckError("mend this"), SlotcheckError),
        (ZeroDivisionError("ours"), HarnessError),
    ],
    ids=["what cannot be loaded", "what a person can mend", "a fault of ours"],
)
def test_what_is_not_the_targets_doing_ends_the_run(run, monkeypatch, raised, seen):
    """It is raised in the parent, not reported as a difference."""

    def fail(*arguments, **named):
        raise raised

    monkeypatch.setattr("harness.engine.run_shard", fail)
    with pytest.raises(seen, match=str(raised)):
        run(Sound)
