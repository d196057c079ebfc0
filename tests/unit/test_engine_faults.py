"""Targets that raise, exit, crash or hang: a difference with its trace, the rest of the run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.engine import HANG_COSTS, MAX_LOST, Engine, Plan, shrink_found
from harness.forks import HarnessError, in_a_fork, replay_in_a_fork
from harness.outcome import Options
from harness.worker import Found
from oracle.trace import Extend, Loaded, Release
from tests.unit.examples import ask, setting, trace
from tests.unit.mutants import Crashes, Exits, Hangs, NoLookahead, Raises, RaisesOnRelease, Sound

FAULTS = {
    Raises: "raised/error:RuntimeError",
    RaisesOnRelease: "raised/error:LookupError",
    Crashes: "process/killed by SIGSEGV",
    Exits: "process/exit 9",
}
DEADLY = trace(setting(), ask(4, prompt=6), Release(request=0))
pytestmark = pytest.mark.usefixtures("small_shards")
OUTCOME = Options(aspects=frozenset({"outcome"}))


def plan(target, folder, **fields):
    known = {"seed": 0, "steps": 1500, "seconds": None, "workers": 1, "options": OUTCOME, "hang_seconds": 30.0}
    return Plan(make_target=target, inflight=Path(folder), **{**known, **fields})


@pytest.mark.parametrize(("target", "sign"), FAULTS.items(), ids=lambda value: getattr(value, "__name__", value))
def test_a_fault_is_a_difference(tmp_path, target, sign):
    """Its sign is what was raised, or how the process ended."""
    found = Engine(plan(target, tmp_path)).run().found

    assert [f"manager/outcome/pool/{sign}"] == list(found)


@pytest.mark.parametrize("target", [Crashes, Exits, RaisesOnRelease], ids=lambda target: target.__name__)
def test_the_trace_ends_at_the_step_that_did_it(tmp_path, target):
    """It was on disk before the step ran: a release, or the end of a load that failed."""
    (found,) = Engine(plan(target, tmp_path)).run().found.values()
    last = found.trace.operations[-1]

    assert (True, len(found.trace.operations) - 1) == (isinstance(last, Release | Loaded), found.difference.step)


@pytest.mark.parametrize("target", [Crashes, Raises], ids=lambda target: target.__name__)
def test_the_worker_count_does_not_change_what_is_found(tmp_path, target):
    """Lost shards count in their order."""
    one, two = (Engine(plan(target, tmp_path, workers=workers)).run() for workers in (1, 2))

    assert (one.shards, one.counts, one.found) == (two.shards, two.counts, two.found)


def test_a_target_that_always_crashes_is_understood(tmp_path):
    """The run ends long before its steps are made."""
    assert MAX_LOST == Engine(plan(Crashes, tmp_path, steps=10**9)).run().shards


def test_a_hang_is_a_difference(tmp_path):
    """A worker that makes no step for as long as the watchdog waits."""
    result = Engine(plan(Hangs, tmp_path, steps=10**9, hang_seconds=1.0, workers=2)).run()

    assert (-(-MAX_LOST // HANG_COSTS), ["manager/outcome/pool/process/hang"]) == (result.shards, list(result.found))


@pytest.mark.parametrize("target", [Crashes, RaisesOnRelease], ids=lambda target: target.__name__)
def test_a_fault_is_shrunk(tmp_path, target):
    """What ends its process with a process a try: one call, one release."""
    found = Found(replay_in_a_fork(DEADLY, target, Options()).differences[0], DEADLY)
    operations = shrink_found(found, plan(target, tmp_path)).trace.operations

    assert (Extend(request=0, new=1, prompt=1), Release(request=0)) == operations


def test_a_difference_is_shrunk_in_a_fork(tmp_path):
    """What a wrong answer leads to in its own process does not hurt the parent."""
    of = trace(setting(method="eagle", num_speculative_tokens=3), ask(4, prompt=6), ask(4, request=1, prompt=4))
    options = Options(aspects=frozenset({"columns"}), audit_every=1)
    found = Found(replay_in_a_fork(of, NoLookahead, options).differences[0], of)

    assert 1 == len(shrink_found(found, plan(NoLookahead, tmp_path, options=options)).trace.operations)


# --------------------------------------------------------------------------------------- one trace, one process


@pytest.mark.parametrize("target", [Crashes, Exits, RaisesOnRelease], ids=lambda target: target.__name__)
def test_a_replay_survives_its_target(target):
    """The oracle alone says what came before, the last operation got no answer."""
    outcome = replay_in_a_fork(DEADLY, target, Options(keep_entries=True))

    assert (2, [(FAULTS[target], 1)]) == (
        len(outcome.entries),
        [(f"{found.rule}/{found.sign}", found.step) for found in outcome.differences],
    )


def test_work_in_a_fork_gives_its_value():
    """And nothing to say about its end."""
    assert (os.getpid() != 0, "") == in_a_fork(lambda: True, 10)


def test_work_that_never_ends():
    """It is killed."""
    assert (None, "hang") == in_a_fork(lambda: time.sleep(3600), 0.5)


def test_a_fault_of_ours_in_a_fork_is_told_with_its_traceback():
    """It is not taken for the target's."""
    with pytest.raises(HarnessError, match=r"ZeroDivisionError: .* by zero\nTraceback"):
        in_a_fork(lambda: 1 // 0, 10)


# ------------------------------------------------------------------------------------------------- Ctrl-C

# a shell's background job ignores SIGINT, and so would its children
SCRIPT = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from harness.engine import Engine, Plan
from harness.outcome import Options
from tests.unit.mutants import Refuses

def told(result):
    if result.found:
        print("running", flush=True)

plan = Plan(seed=0, steps=10**9, seconds=60, workers=2, make_target=Refuses,
            options=Options(aspects=frozenset({"outcome", "columns"})), inflight=Path(sys.argv[1]))
result = Engine(plan, told).run()
print(result.interrupted, bool(result.found), flush=True)
"""


def test_ctrl_c_of_a_terminal(tmp_path):
    """The signal goes to the whole group: the workers leave it to the parent, which keeps what was found."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (["True", "True"], "", 0) == (out.split()[-2:], err, process.returncode)


def test_a_sound_target_has_no_faults(tmp_path):
    """The other side of all of these."""
    assert {} == Engine(plan(Sound, tmp_path)).run().found
