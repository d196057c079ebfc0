"""What recording costs: a scheduler's steps with and without it, in turns, on a real scheduler and a model-free worker.

    python -m harness.record_bench [--requests 50] [--caching]

Prints one JSON object: microseconds a step (schedule and update) and their ratio. The two sides are processes, forked
from one, so that each is what an engine is: the interpreter adapts to a scheduler that is recorded or to one that is
not, and in one process that is now this and now that it would adapt to neither.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from harness.targets.live_recording import recorded_engine
from harness.targets.model_free import Engine
from harness.targets.recorder import Recorder
from oracle.groups import FullAttention
from oracle.scheduler_setting import SchedulerSetting

#: a turn is as many steps as a block has tokens: in each of them every request takes a block once
TURNS, STEPS, WARM = 90, 16, 20


def setting(requests: int, caching: bool) -> SchedulerSetting:
    """Room for everybody: nobody waits, so that a step is as cheap as it can be."""
    return SchedulerSetting(
        groups=(FullAttention(block_size=16),),
        num_blocks=requests * 260,
        max_model_len=4096,
        max_num_batched_tokens=8192,
        max_num_seqs=max(requests, 1),
        enable_caching=caching,
    )


def steps(engine: Engine, count: int) -> list[float]:
    """Microseconds of CPU that the scheduler takes in each of the next steps."""
    scheduler, worker = engine.core.scheduler, engine.core.model_executor.worker
    took = []
    for _ in range(count):
        start = time.process_time_ns()
        out = scheduler.schedule()
        middle = time.process_time_ns()
        output = worker.answer(out)
        again = time.process_time_ns()
        scheduler.update_from_output(out, output)
        took.append((time.process_time_ns() - again + middle - start) / 1000)
    return took


def without(engine: Engine, recorder: Recorder, turns: Connection) -> None:
    """The side that is not recorded: a turn when it is asked for one, all that it took at the end."""
    for owner, name in recorder.undo:
        owner.__dict__.pop(name, None)
    took: list[float] = []
    while turns.recv():
        took += steps(engine, STEPS)
        turns.send(None)
    turns.send(took)


def measure(requests: int, caching: bool) -> dict[str, Any]:
    """Decode steps of `requests` requests with the recorder, and as many without."""
    with tempfile.TemporaryDirectory() as folder:
        engine, recorder = recorded_engine(setting(requests, caching), folder)
        coins = random.Random(0)  # no secret is made of it
        for number in range(requests):
            engine.submit(f"r{number}", [coins.randrange(2, 119) for _ in range(coins.randrange(20, 200))], 3000)
        gc.collect()
        gc.disable()
        ours, theirs = get_context("fork").Pipe()
        other = get_context("fork").Process(target=without, args=(engine, recorder, theirs), daemon=True)
        other.start()
        recorded: list[float] = []
        for turn in range(TURNS):
            recorded += steps(engine, STEPS)
            ours.send(turn + 1)
            ours.recv()
        ours.send(0)
        sides = (ours.recv(), recorded)
        other.join()
        gc.enable()
    # the fastest quarter: others on the machine make a step slower, never faster
    plain_us, recorded_us = (statistics.quantiles(took[WARM * STEPS :], n=4)[0] for took in sides)
    return {
        "requests": requests,
        "caching": caching,
        "plain_us": round(plain_us, 1),
        "recorded_us": round(recorded_us, 1),
        "ratio": round(recorded_us / plain_us, 4),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--caching", action="store_true")
    given = parser.parse_args()
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    print(json.dumps(measure(given.requests, given.caching)))  # noqa: T201  # what it is for


if __name__ == "__main__":
    main()
