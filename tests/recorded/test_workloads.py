"""Recordings of generated workloads agree: connectors, hybrid models, preemption, drafts, overlap."""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from pathlib import Path

import pytest

from harness import findings, tracefile
from harness.outcome import Options
from harness.page.recorded_film import recorded_film
from harness.recorded import Judged
from harness.recording import recordings
from harness.targets import compat, recorder
from harness.workload_outcome import WorkloadOptions
from harness.workloads import run_in_passes
from oracle.errors import SettingError
from strategies.workloads import decode, draw

if compat.installed_release() is None:
    pytest.skip("vLLM is not installed: nothing to record", allow_module_level=True)

#: of seed 1 those that reach all that is asked for below
SEED, SHARDS, EXAMPLES = 1, range(4, 12), 10
#: a scheduler that raised is for the findings of its own level
RAISED = "the scheduler raised"
#: what is not recorded
POOLS = "not recorded: a model that pools"
#: why a recording is not judged from a state on
NO_STATES = "which Mamba states"
#: what the recordings must reach
REACHED = ("hit", "preempted", "trim", "async load", "sync load", "failed load")
#: what must have been told: sessions that go on, loads that fail, blocks that are given back later
TOLD = ("paused", "session", "spoilt", "valid", "deferred", "gave", "trim")


@pytest.fixture
def built(monkeypatch):
    """Managers remember what they were built from, as the plugin makes them."""
    compat.import_vllm()
    manager = importlib.import_module("vllm.v1.core.kv_cache_manager").KVCacheManager
    build = manager.__init__

    @functools.wraps(build)
    def remembered(self, *positional, **named):
        build(self, *positional, **named)
        self._slotcheck_built = (build, positional, named)

    monkeypatch.setattr(manager, "__init__", remembered)


def judged_workloads(folder, traces):
    """How many recordings came to what, and what they reached."""
    from harness.targets.scheduler import Scheduler

    came, reach, seen = Counter(), Counter(), []
    declared = findings.Declared(findings.load(), compat.installed_release())

    def visit(trace):
        place = folder / str(len(seen))

        def make(setting):
            target = Scheduler(setting)
            try:
                recorder.Recorder(target.scheduler, place)
            except SettingError as error:
                came[f"not recorded: {error}"] += 1
            return target

        run_in_passes(trace, make, WorkloadOptions(predict=False, memory=False))
        seen.append(place)
        for recording in recordings(place) if place.exists() else ():
            judged = Judged(recording.head, Options(declared=declared))
            for line in recording.lines():
                judged.feed(line)
                reach.update(key for _, said in line.get("e", ()) for key in said)
            assert judged.difference is None, (trace.setting, judged.difference)
            came[judged.parted or "agreed"] += 1
            reach.update(judged.replay.reach.counts)
            reach["begun in the middle"] += judged.began is not None

    for trace in traces:
        visit(trace)
    return came, reach


def drawn(shards=SHARDS):
    """Generated workloads."""
    data = []
    for shard in shards:
        draw(SEED, shard, EXAMPLES, data.append)
    return map(decode, data)


def parted(came):
    """Why recordings were not judged to their end, but for a scheduler that raised."""
    return sorted(reason for reason in came if reason != "agreed" and not reason.startswith((RAISED, POOLS)))


def test_whole_recordings_agree(tmp_path, built):
    """None of them parts from its accounting."""
    came, reach = judged_workloads(tmp_path, drawn())

    assert [] == parted(came)
    assert came["agreed"] > 40
    assert [] == [name for name in REACHED if not reach[name]]
    assert [] == [name for name in TOLD if not reach[name]]


def test_names_of_a_session_that_come_late(tmp_path, built):
    """With hash lookahead the kept tokens of a session may have had no name yet when its next piece comes."""
    trace = tracefile.read_any(Path(__file__).parent / "data" / "session-whose-names-come-late.json")

    assert {"agreed": 1} == judged_workloads(tmp_path, [trace])[0]


def test_recordings_without_their_beginning_agree(tmp_path, built, monkeypatch):
    """Parts of two kilobytes, of which two are kept."""
    monkeypatch.setenv("SLOTCHECK_RECORD_MB", "0.002")
    monkeypatch.setenv("SLOTCHECK_RECORD_PARTS", "2")
    came, reach = judged_workloads(tmp_path, drawn(range(8)))
    states = sum(count for reason, count in came.items() if NO_STATES in reason)

    assert [] == [reason for reason in parted(came) if NO_STATES not in reason]
    assert reach["begun in the middle"] > 20
    assert came["agreed"] > 40
    assert 0 < states < 15


def test_pages_of_whole_recordings_show_no_difference(tmp_path, built):
    """A page shows what the judging saw, in the recording's own accounting."""
    judged_workloads(tmp_path, drawn(SHARDS[:2]))
    declared = findings.Declared(findings.load(), compat.installed_release())
    films = [recorded_film(place, declared) for place in sorted(tmp_path.iterdir())]

    assert [] == [mark for film in films for mark in film["marks"] if not mark["declared"]]
    assert max(len(film["frames"]) for film in films) > 100
