"""What recording costs: a scheduler's steps with and without it, in turns, on a real scheduler and a model-free worker.

    python -m harness.record_bench [--requests 50]

Prints one JSON object: microseconds a step (schedule and update) and their ratio.
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
from typing import Any

from harness.targets.live_recording import recorded_engine
from oracle.groups import FullAttention
from oracle.scheduler_setting import SchedulerSetting

#: a turn is as many steps as a block has tokens: in each of them every request takes a block once
TURNS, STEPS, WARM = 90, 16, 2


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


def measure(requests: int, caching: bool) -> dict[str, Any]:
    """Decode steps of `requests` requests, some with the recorder and as many without."""
    with tempfile.TemporaryDirectory() as folder:
        engine, recorder = recorded_engine(setting(requests, caching), folder)
        coins = random.Random(0)  # no secret is made of it
        for number in range(requests):
            engine.submit(f"r{number}", [coins.randrange(2, 119) for _ in range(coins.randrange(20, 200))], 3000)
        scheduler, worker = engine.core.scheduler, engine.core.model_executor.worker
        wrapped = [(owner, name, owner.__dict__[name]) for owner, name in recorder.undo]
        took: dict[bool, list[float]] = {True: [], False: []}
        gc.disable()
        for turn in range(2 * TURNS):
            recording = turn % 2 == 0
            for owner, name, function in wrapped:
                if recording:
                    owner.__dict__[name] = function
                else:
                    owner.__dict__.pop(name, None)
            if recording and caching:  # what came meanwhile would not have been left for now
                for request in scheduler.running:
                    recorder.tell(request)
                recorder.digests.clear()
            for _ in range(STEPS):
                start = time.process_time_ns()
                out = scheduler.schedule()
                middle = time.process_time_ns()
                output = worker.answer(out)
                again = time.process_time_ns()
                scheduler.update_from_output(out, output)
                if turn >= WARM:
                    took[recording].append((time.process_time_ns() - again + middle - start) / 1000)
        gc.enable()
    # the fastest quarter: others on the machine make a step slower, never faster
    plain, recorded = (statistics.quantiles(took[side], n=4)[0] for side in (False, True))
    return {
        "requests": requests,
        "caching": caching,
        "plain_us": round(plain, 1),
        "recorded_us": round(recorded, 1),
        "ratio": round(recorded / plain, 4),
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
