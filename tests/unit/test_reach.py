"""Reach counters: each crossing is counted when it happens, and its absence makes a run inconclusive."""

from __future__ import annotations

import pytest

from harness.outcome import Options
from harness.reach import MINIMA, Reach, minima
from harness.trace_run import run_trace
from oracle.groups import RSWA, ChunkedLocal, CrossAttention, FullAttention, Mamba, SlidingWindow
from oracle.trace import GiveBack, Loaded, NewStep, Release, Resume, Settle, Trim
from tests.unit.examples import accept, ask, setting, trace

EAGLE = {"method": "eagle", "num_speculative_tokens": 3}
CONNECTOR = {"kv_connector": True}
PREEMPT = Release(request=0, preempt=True)
SMALL = {"num_blocks": 4}
DRAFTED = (ask(6, prompt=6), Settle(), ask(4))
LOADING = ask(0, prompt=6, external=6)
GATE = {"full_sequence_must_fit": True}
WINDOW = SlidingWindow(block_size=4, window=4)

#: crossing -> groups, fields of the setting, the shortest trace that has it
SHORTEST = {
    "hybrid": ((FullAttention(block_size=4), Mamba(block_size=4)), {}, ()),
    "speculation": ((), EAGLE, ()),
    "overlap": ((), {"in_flight_depth": 2}, ()),
    "dcp sharded": ((), {"dcp_size": 2}, ()),
    "uniform group": ((FullAttention(block_size=4, uniform_layers=2),), {}, ()),
    "granted": ((), {}, (ask(4, prompt=6),)),
    "refused by the gate": ((), SMALL, (ask(4, prompt=20, **GATE),)),
    "refused by the test": ((), SMALL, (ask(20, prompt=20),)),
    "exact fit": ((), SMALL, (ask(12, prompt=12),)),
    "watermark decides": ((), {"num_blocks": 5, "watermark": 0.25}, (ask(16, prompt=16),)),
    "reserved blocks decide": ((), {**SMALL, **CONNECTOR}, (ask(0, prompt=12, external=12, reserved_blocks=1),)),
    "cap at max_model_len": ((), {"max_model_len": 8, **EAGLE}, (ask(7, prompt=7),)),
    "window removal": ((WINDOW,), {}, (ask(8, prompt=12), Settle(), ask(4))),
    "window removal in flight": (
        (WINDOW,),
        {"in_flight_depth": 2},
        (ask(8, prompt=12), NewStep(), ask(2), NewStep(), Settle(), ask(2)),
    ),
    "gap removal": (
        (RSWA(block_size=2, window=2),),
        {},
        (ask(4, prompt=4), *[step for _ in range(5) for step in (Settle(), ask(1))]),
    ),
    "chunk border": ((ChunkedLocal(block_size=4, chunk=8),), {}, (ask(8, prompt=12), Settle(), ask(4))),
    "align jump": ((Mamba(block_size=4),), {}, (ask(4, prompt=20), Settle(), ask(8))),
    "align scratch moved": (
        (Mamba(block_size=4, speculative_blocks=3),),
        EAGLE,
        (ask(4, prompt=12), Settle(), ask(8)),
    ),
    "align checkpoint": (
        (Mamba(block_size=4, checkpoint_blocks=1, checkpoint_alignment=1), FullAttention(block_size=4)),
        {},
        (ask(12, prompt=13),),
    ),
    "draft rejected": ((), EAGLE, (*DRAFTED, accept(2))),
    "draft accepted": ((), EAGLE, (*DRAFTED, accept(2))),
    "all drafts accepted": ((), EAGLE, (*DRAFTED, accept(3))),
    "async load": ((), CONNECTOR, (LOADING,)),
    "sync load": ((), CONNECTOR, (ask(2, prompt=6, external=4),)),
    "whole-prompt load": ((), CONNECTOR, (LOADING,)),
    "failed load": ((), CONNECTOR, (LOADING, Loaded(request=0, valid=0))),
    "preempted": ((), {}, (ask(4, prompt=6), Settle(), PREEMPT)),
    "preempted with drafts": ((), EAGLE, (ask(4, prompt=6), Settle(), PREEMPT)),
    "preempted in its own step": ((), {}, (ask(4, prompt=6), Settle(), ask(2), PREEMPT)),
    "preempted in flight": ((), {}, (ask(4, prompt=6), NewStep(), PREEMPT)),
    "readmitted with output": ((), {}, (ask(6, prompt=6), Settle(), PREEMPT, ask(7))),
    "aborted in flight": ((), {}, (ask(4, prompt=6), Release(request=0))),
    "deferred release": ((), {}, (ask(4, prompt=6), Release(request=0, deferred=True))),
    "give back": ((), {}, (ask(4, prompt=6), Settle(), Release(request=0, deferred=True), GiveBack())),
    "session": ((), {}, (ask(6, prompt=6), Settle(), Resume(request=0, tokens=4))),
    "trim": ((), {}, (ask(4, prompt=6), Trim(request=0))),
    "zero list": ((FullAttention(block_size=4), Mamba(block_size=4)), {}, (ask(4, prompt=6), NewStep())),
}


def met(groups, fields, operations) -> Reach:
    """The counters after one trace on the oracle alone."""
    reach = Reach()
    run_trace(trace(setting(*groups, **fields), *operations), None, Options(), reach)
    return reach


@pytest.mark.parametrize("name", SHORTEST)
def test_a_crossing_is_counted_when_it_happens(name):
    """Once or more in its shortest trace."""
    assert met(*SHORTEST[name]).counts[name] >= 1


@pytest.mark.parametrize("name", [name for name, (*_, operations) in SHORTEST.items() if operations])
def test_a_crossing_is_not_counted_before(name):
    """Without the last operation it has not happened."""
    groups, fields, operations = SHORTEST[name]

    assert 0 == met(groups, fields, operations[:-1]).counts[name]


@pytest.mark.parametrize(
    ("accepted", "counted"), [(0, (1, 0, 0)), (2, (1, 1, 0)), (3, (0, 1, 1))], ids=["none", "some", "all"]
)
def test_what_became_of_drafts(accepted, counted):
    """Of 3 drafts: rejected, accepted, all of them accepted."""
    counts = met((), EAGLE, (*DRAFTED, accept(accepted))).counts

    assert counted == tuple(counts[name] for name in ("draft rejected", "draft accepted", "all drafts accepted"))


def test_every_crossing_has_its_shortest_trace():
    """But for the kinds, which are counted by their settings."""
    assert {name for name in MINIMA if not name.startswith("kind ")} == set(SHORTEST)


@pytest.mark.parametrize(
    ("group", "name"),
    [
        (FullAttention(block_size=4), "kind full_attention"),
        (CrossAttention(block_size=4), "kind cross_attention"),
        (Mamba(block_size=4, mode="all"), "kind mamba all"),
        (Mamba(block_size=4), "kind mamba align"),
    ],
    ids=str,
)
def test_kinds_are_counted_by_trace(group, name):
    """A Mamba group by its mode."""
    reach = Reach()
    reach.setting(setting(group, max_encoder_len=4 * (group.kind == "cross_attention")))

    assert 1 == reach.counts[name]


@pytest.mark.parametrize(
    ("release", "absent"),
    [
        (None, set()),
        ("0.33.0", set()),
        ("0.30.0", {"align checkpoint"}),
        ("0.28.0", {"kind circular_buffer", "align checkpoint"}),
    ],
)
def test_a_release_must_reach_what_it_has(release, absent):
    """A kind that came later is not asked for."""
    assert absent == set(MINIMA) - set(minima(release))


@pytest.mark.parametrize(("steps", "least"), [(0, 50), (40_000, 50), (1_000_000, 1_000)])
def test_crossings_of_caching_grow_with_the_steps(steps, least):
    """A long run that met one as often as a short one has lost it."""
    assert least == minima(None, caching_steps=steps)["hit x hybrid"]
