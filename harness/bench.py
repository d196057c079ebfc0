"""How much the harness costs: checked steps per second over bare ones, on the same traces, in one run.

`tox run -e bench`. Bare is the real manager alone: built, and given the calls that the traces stand for, resolved
beforehand, nothing observed. Checked is everything that a run does: drawing, decoding, oracle, observation, comparison,
laws, memory model, audits. Both do the same steps: what a checked trace did until it ended. The third contender makes
the same check step by step in a Hypothesis state machine. In seconds of CPU, inside one run; rounds alternate, and of
each shard the least counts, because machines are shared and noise only adds.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from harness import workload_bench
from harness.findings import Declared, load
from harness.manager_bench import OFF, ON
from harness.outcome import Options
from harness.replay import Replay
from harness.targets.compat import import_vllm, installed_release
from harness.targets.loader import manager_of
from harness.targets.manager import Manager
from harness.worker import EXAMPLES
from oracle import compiled
from strategies.packed import Operations
from strategies.settings import Reader, read_setting

SHARDS = 8
ROUNDS = 5
MACHINE_EXAMPLES = 60
MACHINE_STEPS = 60


class Machine(RuleBasedStateMachine):
    """The same check, with the engine choosing every step: one rule an operation, one draw a number."""

    options = Options()
    total = 0

    @initialize(head=st.binary(min_size=40, max_size=40))
    def build(self, head: bytes) -> None:
        self.setting, self.features = read_setting(Reader(head))
        self.replay = Replay(self.setting, Manager, self.options)
        self.stream = Operations(Reader(b""), self.setting, self.features)

    def _do(self, name: str, data: bytes) -> None:
        if self.replay.over:
            return
        operation = getattr(self.stream, name)(Reader(data), self.replay.ledger)
        if operation is not None:
            self.replay.step(operation)
            Machine.total += 1

    @rule(data=st.binary(min_size=5, max_size=5))
    def go_on(self, data: bytes) -> None:
        self._do("_go_on", data)

    @rule(data=st.binary(min_size=8, max_size=8))
    def admit(self, data: bytes) -> None:
        self._do("_admit", data)

    @rule(data=st.binary(min_size=6, max_size=6))
    def settle(self, data: bytes) -> None:
        self._do("_settle", data)

    @precondition(lambda self: "preempt" in self.features)
    @rule(data=st.binary(min_size=3, max_size=3))
    def preempt(self, data: bytes) -> None:
        self._do("_preempt", data)

    @precondition(lambda self: "abort" in self.features)
    @rule(data=st.binary(min_size=3, max_size=3))
    def finish(self, data: bytes) -> None:
        self._do("_finish", data)

    @precondition(lambda self: "connector" in self.features)
    @rule(data=st.binary(min_size=6, max_size=6))
    def load(self, data: bytes) -> None:
        self._do("_load", data)

    @precondition(lambda self: "connector" in self.features)
    @rule(data=st.binary(min_size=2, max_size=2))
    def loaded(self, data: bytes) -> None:
        self._do("_loaded", data)

    def teardown(self) -> None:
        if hasattr(self, "replay") and not self.replay.over:
            self.replay.finish()


def state_machine(run_seed: int, options: Options) -> tuple[float, int]:
    """Seconds and steps of the state machine."""
    Machine.options, Machine.total = options, 0
    seed(run_seed)(Machine)
    start = time.process_time()
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=MACHINE_EXAMPLES,
            stateful_step_count=MACHINE_STEPS,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    return time.process_time() - start, Machine.total


def measure() -> dict[str, Any]:
    """All figures; of each shard the least of the rounds."""
    import_vllm()
    options = Options(declared=Declared(load(), installed_release()))
    recorded = [[row.recorded(0, shard, options) for row in (OFF, ON)] for shard in range(SHARDS)]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    steps, cached_steps = (sum(trace.steps for shard in recorded for trace in shard[row]) for row in (0, 1))
    gc.collect()
    gc.freeze()  # as a run does: vLLM's objects are here to stay, for all contenders
    least = [0.0] * 4
    for shard, (plain, cached) in enumerate(recorded):
        contenders = (
            partial(OFF.alone, plain),
            partial(OFF.checked, 0, shard, manager_of, options),
            partial(ON.alone, cached),
            partial(ON.checked, 0, shard, manager_of, options),
        )
        rounds = [[contender() for contender in contenders] for _ in range(ROUNDS)]
        least = [sum(pair) for pair in zip(least, map(min, zip(*rounds, strict=True)), strict=True)]
    machine = max(count / seconds for seconds, count in (state_machine(0, options) for _ in range(ROUNDS)))
    bare_seconds, checked_seconds, cached_bare, cached_checked = least
    return {
        "release": installed_release(),
        "compiled": compiled(),
        "traces": SHARDS * EXAMPLES,
        "steps": steps,
        "bare_steps_per_second": round(steps / bare_seconds),
        "checked_steps_per_second": round(steps / checked_seconds),
        "state_machine_steps_per_second": round(machine),
        "checked_over_bare": round(bare_seconds / checked_seconds, 3),
        "checked_over_state_machine": round(steps / checked_seconds / machine, 2),
        "caching_steps": cached_steps,
        "caching_bare_steps_per_second": round(cached_steps / cached_bare),
        "caching_checked_steps_per_second": round(cached_steps / cached_checked),
        "caching_checked_over_bare": round(cached_bare / cached_checked, 3),
        "peak_memory_mib_before_rounds": round(memory),
        "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    """Print the table, keep it as JSON."""
    figures = measure() | workload_bench.measure()
    wanted = {
        "checked_over_bare": 0.35,
        "checked_over_state_machine": 3.0,
        "caching_checked_over_bare": 0.3,
        "scheduler_checked_over_bare": 0.5,
    }
    for name, value in figures.items():
        note = f"   (at least {wanted[name]})" if name in wanted else ""
        print(f"{name:34} {value!s:>12}{note}")  # noqa: T201  # what this module is run for
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("bench.json")
    out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(f"kept in {out}")  # noqa: T201


if __name__ == "__main__":
    main()
