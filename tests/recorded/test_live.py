"""The release's engine core with a model-free worker, recorded: what is sound agrees, what is planted is found."""

from __future__ import annotations

import logging
import os
import random
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from harness.outcome import Options
from harness.recorded import Judged
from harness.recorded_shrink import shrink_recording
from harness.recording import recordings
from harness.targets import compat
from oracle.groups import Mamba, SlidingWindow
from tests.recorded.settings import FULL, setting

if compat.installed_release() is None:
    pytest.skip("vLLM is not installed: nothing to record", allow_module_level=True)

from harness.targets.live_recording import recorded_engine
from harness.targets.loader import load_target

ROOT = Path(__file__).parents[2]
WINDOW = SlidingWindow(block_size=16, window=64)
STATE = Mamba(block_size=256, mode="none")
ALIGNED = Mamba(block_size=16, mode="align")


def run(engine, requests, limit=60, longest=120, shared=0, steps=4000):
    """Submit and step to the end; the number of steps."""
    coins = random.Random(1)
    common = [coins.randrange(2, 119) for _ in range(shared)]
    for number in range(requests):
        own = [coins.randrange(2, 119) for _ in range(coins.randrange(5, longest))]
        engine.submit(f"r{number}", common[: coins.randrange(shared + 1)] + own, limit)
    done = 0
    while engine.busy and done < steps:
        engine.step()
        done += 1
    return done


def judge(folder):
    [found] = recordings(Path(folder))
    judged = Judged(found.head, Options())
    for line in found.lines():
        judged.feed(line)
    return judged


SETTINGS = {
    "plain": {},
    "preemption": {"num_blocks": 120},
    "drafts": {"method": "ngram", "num_speculative_tokens": 3, "num_blocks": 120},
    "lookahead": {"method": "draft_model", "num_speculative_tokens": 3, "num_blocks": 150},
    "window": {"groups": (FULL, WINDOW), "num_blocks": 250},
    "overlap": {"in_flight_depth": 2, "num_blocks": 120},
    "overlap and drafts": {"in_flight_depth": 2, "method": "draft_model", "num_speculative_tokens": 2},
    "caching": {"enable_caching": True, "num_blocks": 120},
    "caching and window": {"enable_caching": True, "groups": (FULL, WINDOW), "num_blocks": 250},
    "caching and overlap": {"enable_caching": True, "in_flight_depth": 2, "num_blocks": 120},
    "states": {"groups": (FULL, STATE), "num_blocks": 200},
    "states in align mode": {"groups": (FULL, ALIGNED), "num_blocks": 200},
    "states in align mode and drafts": {
        "groups": (FULL, Mamba(block_size=16, mode="align", speculative_blocks=2)),
        "num_blocks": 300,
        "method": "ngram",
        "num_speculative_tokens": 2,
    },
    "states in align mode and caching": {"groups": (FULL, ALIGNED), "num_blocks": 250, "enable_caching": True},
    "states in all mode": {"groups": (FULL, Mamba(block_size=16, mode="all")), "num_blocks": 300},
    "states, a window and overlap": {"groups": (FULL, WINDOW, ALIGNED), "num_blocks": 300, "in_flight_depth": 2},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_sound_engine_agrees(tmp_path, name):
    given = setting(**SETTINGS[name])
    engine, _ = recorded_engine(given, str(tmp_path))
    steps = run(engine, 50, shared=100 if given.enable_caching else 0)
    judged = judge(tmp_path)
    reach = judged.replay.reach.counts

    assert ("", None) == (judged.parted, judged.difference)
    assert steps == judged.steps
    assert reach["granted"] > 1000
    if name == "preemption":
        assert reach["preempted"] > 5
    if given.enable_caching:
        assert reach["hit"] > 20
    if given.num_speculative_tokens:
        assert reach["draft accepted"] > 100


def test_names_that_go_agree(tmp_path):
    """The cache is reset with requests running, then without; blocks lose their names by id."""
    engine, _ = recorded_engine(setting(enable_caching=True, num_blocks=120), str(tmp_path))
    scheduler, coins = engine.core.scheduler, random.Random(2)
    for number in range(40):
        engine.submit(f"r{number}", [7] * coins.randrange(20, 90), 30)
        engine.step()
        if number == 20:
            scheduler.kv_cache_manager.evict_blocks({1, 2, 3, 40})
        if number == 30:
            assert not scheduler.reset_prefix_cache()
            assert scheduler.reset_prefix_cache(reset_running_requests=True)
    while engine.busy:
        engine.step()
    judged = judge(tmp_path)
    counts = judged.replay.reach.counts

    assert ("", None) == (judged.parted, judged.difference)
    assert 1 == counts["evicted by id"] == counts["reset True"] == counts["reset False"]


def test_no_prompt_is_in_it(tmp_path):
    """Token ids as no other number is, a salt, names of requests."""
    engine, _ = recorded_engine(setting(enable_caching=True), str(tmp_path))
    tokens = [700_000_000 + number * 7919 for number in range(120)]
    for number in range(4):
        engine.submit(f"chat-of-alice-{number}", tokens[: 100 + number], 20, cache_salt="pepper")
    while engine.busy:
        engine.step()
    text = "".join(path.read_text() for path in tmp_path.glob("*.jsonl"))
    hashes = [request for request in ("alice", "pepper", str(tmp_path)) if request in text]

    assert not hashes
    assert not {str(token) for token in tokens} & set(re.findall(r"\d+", text))


def test_a_planted_defect_is_found_and_shrunk(tmp_path):
    """2,000 steps of 50 requests; the defect shows once a request has 200 computed tokens, in a few operations."""
    from tests.recorded.planted import ForgetsLookahead

    given = setting(method="draft_model", num_speculative_tokens=3, max_num_seqs=2)
    engine, _ = recorded_engine(given, str(tmp_path), manager_class=ForgetsLookahead)
    coins = random.Random(1)
    for number in range(50):
        limit = 180 if number < 48 else 240
        engine.submit(f"r{number}", [coins.randrange(2, 119) for _ in range(coins.randrange(5, 12))], limit)
    steps = 0
    while engine.busy:
        engine.step()
        steps += 1
    judged = judge(tmp_path)
    start = time.monotonic()
    target = load_target("tests.recorded.planted:ForgetsLookahead")
    small = shrink_recording(judged, target, Options(audit_every=1), 3000)

    assert steps >= 2000
    assert "A19" == judged.difference.rule
    assert small is not None
    assert len(small.trace.operations) <= 6
    assert "A19" == small.difference.rule
    assert time.monotonic() - start < 300


def test_a_sound_target_does_not_show_it(tmp_path):
    """What only the recorded process had is not made up."""
    from tests.recorded.planted import ForgetsLookahead

    given = setting(method="draft_model", num_speculative_tokens=3, max_num_seqs=2)
    engine, _ = recorded_engine(given, str(tmp_path), manager_class=ForgetsLookahead)
    engine.submit("r0", [5] * 10, 240)
    while engine.busy:
        engine.step()
    judged = judge(tmp_path)

    assert judged.difference is not None
    assert shrink_recording(judged, load_target(None), Options(audit_every=1), 100) is None


def test_a_fault_of_the_recorder_is_logged_once(tmp_path, caplog):
    engine, recorder = recorded_engine(setting(), str(tmp_path))
    recorder.parts = None
    with caplog.at_level(logging.WARNING, logger="slotcheck"):
        steps = run(engine, 5, limit=20)

    assert steps >= 20
    assert 1 == sum("stops recording" in one.message for one in caplog.records)


def test_nothing_is_recorded_unless_asked_for(monkeypatch):
    from vllm.v1.core.sched.scheduler import Scheduler

    from harness.targets import recorder

    monkeypatch.delenv("SLOTCHECK_RECORD", raising=False)
    before = Scheduler.__init__
    recorder.register()

    assert Scheduler.__init__ is before


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setenv("SLOTCHECK_RECORD_MB", "0.004")
    monkeypatch.setenv("SLOTCHECK_RECORD_PARTS", "3")


@pytest.mark.parametrize("name", ["plain", "preemption", "lookahead", "window", "overlap and drafts", "caching"])
def test_without_its_beginning_it_is_judged_from_where_it_begins(tmp_path, small_parts, name):
    given = setting(**SETTINGS[name])
    engine, _ = recorded_engine(given, str(tmp_path))
    steps = run(engine, 50, shared=100 if given.enable_caching else 0)
    judged = judge(tmp_path)

    assert 3 == len(list(tmp_path.glob("*.jsonl")))
    assert ("", None) == (judged.parted, judged.difference)
    assert judged.began is not None
    assert 0 < judged.steps < steps
    assert judged.since > judged.head.began


def test_a_defect_behind_a_dropped_beginning_is_found_and_shrunk(tmp_path, small_parts):
    from tests.recorded.planted import ForgetsLookahead

    given = setting(method="draft_model", num_speculative_tokens=3, max_num_seqs=2)
    engine, _ = recorded_engine(given, str(tmp_path), manager_class=ForgetsLookahead)
    run(engine, 4, limit=230, longest=10)
    judged = judge(tmp_path)
    target = load_target("tests.recorded.planted:ForgetsLookahead")
    small = shrink_recording(judged, target, Options(audit_every=1), 3000)

    assert judged.began is not None
    assert "A19" == judged.difference.rule
    assert small is not None
    assert len(small.trace.operations) <= 6


def test_a_reader_that_is_too_slow_goes_on_with_what_is_there(tmp_path, small_parts):
    engine, _ = recorded_engine(setting(), str(tmp_path))
    engine.submit("first", [5] * 20, 40)
    engine.step()
    [found] = recordings(tmp_path)
    judged = Judged(found.head, Options())
    for line in found.lines():
        judged.feed(line)
    run(engine, 50)
    for line in found.lines():
        judged.feed(line)

    assert ("", None) == (judged.parted, judged.difference)
    assert judged.began is not None


@pytest.mark.parametrize("caching", [False, True])
def test_a_session_that_goes_on_is_judged(tmp_path, caching):
    """Three turns of two sessions; the last token of a turn is thrown away and others come."""
    engine, _ = recorded_engine(setting(enable_caching=caching), str(tmp_path))
    for turn in range(3):
        for name in ("a", "b"):
            engine.submit(name, [7 + turn] * (30 + turn), 20, resumable=True)
        for _ in range(40):
            engine.step()
    judged = judge(tmp_path)

    assert ("", None) == (judged.parted, judged.difference)
    assert 4 == judged.replay.reach.counts["session"]


def test_parts_that_are_all_there_are_judged(tmp_path, monkeypatch):
    monkeypatch.setenv("SLOTCHECK_RECORD_MB", "0.01")
    engine, _ = recorded_engine(setting(), str(tmp_path))
    steps = run(engine, 50)
    judged = judge(tmp_path)

    assert len(list(tmp_path.glob("*.jsonl"))) > 1
    assert (steps, "", None) == (judged.steps, judged.parted, judged.difference)


def test_a_recording_of_a_process_that_died_is_read(tmp_path):
    """The manager raises in the middle of a step: its asks are in the file."""

    def dies(**named):
        raise RuntimeError("out of luck")

    engine, _ = recorded_engine(setting(), str(tmp_path))
    engine.submit("r0", [5] * 20, 50)
    for _ in range(5):
        engine.step()
    engine.core.scheduler.kv_cache_manager.coordinator.get_num_blocks_to_allocate = dies
    with pytest.raises(RuntimeError, match="out of luck"):
        engine.step()
    judged = judge(tmp_path)

    assert "error:RuntimeError" == judged.difference.observed
    assert 5 == judged.steps


@pytest.mark.slow
def test_the_plugin_is_found_in_a_process_of_its_own(tmp_path):
    """The engine core is started by vLLM's client and loads the plugin by its entry point."""
    (tmp_path / "slotcheck-0.dist-info").mkdir()
    (tmp_path / "slotcheck-0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: slotcheck\nVersion: 0\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [(group, plugins)] = [(name, found) for name, found in project["entry-points"].items() if name.startswith("vllm")]
    lines = [f"[{group}]", *[f"{name} = {place}" for name, place in plugins.items()]]
    (tmp_path / "slotcheck-0.dist-info" / "entry_points.txt").write_text("\n".join(lines))
    folder = tmp_path / "recorded"
    given = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "SLOTCHECK_RECORD": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", "tests.recorded.own_process"],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    judged = judge(folder)

    assert done.stdout.endswith("done\n"), done.stderr[-2000:]
    assert ("", None) == (judged.parted, judged.difference)
    assert judged.replay.reach.counts["granted"] > 1000
    assert judged.head.process != os.getpid()
