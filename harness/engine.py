"""The main job: shards of generated traces, run by forked workers, merged in order.

A run is the sequence of shards 0, 1, 2, ... of its seed. Which worker runs a shard does not matter: the merged result
is that of the shortest prefix of shards that reaches the wanted steps (or that was finished when the time was up). vLLM
is imported once, before the fork. A worker that dies or hangs costs its shard's rest, and the trace it was running is a
difference of its own.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from harness.forks import (
    FORK,
    HANG_SECONDS,
    TRY_SECONDS,
    Raised,
    Watch,
    death,
    in_a_fork,
    plain_signals,
    process_difference,
    raised,
    shrink_isolated,
)
from harness.outcome import MakeTarget, Options
from harness.reach import with_caching
from harness.shrink import Shrunk, shrink
from harness.worker import Found, Journal, ShardResult, run_shard
from oracle.trace import Difference

#: what the shards of a run have, in turn: one in five does what no scheduler does, two in five have caching on
TURNS = ("scheduler", "caching", "scheduler", "caching", "hostile")
#: workers that may be lost before the run ends: a target that kills its process in every shard has been understood
MAX_LOST = 10
#: a hang takes a minute where a crash takes none: three of them are enough
HANG_COSTS = 4
#: shards after which a target that makes no step at all, because it cannot be built, makes none
IDLE_SHARDS = 5
#: differences that are shrunk; more distinct ones are reported as found
MAX_SHRUNK = 12


@frozen(kw_only=True)
class Plan:
    """What to run. `steps` or `seconds` ends it; `inflight`: folder of the workers' journals."""

    seed: int
    steps: int | None
    seconds: float | None
    workers: int
    make_target: MakeTarget
    options: Options
    inflight: Path
    name_of: Callable[[Difference], str] = lambda difference: difference.fingerprint
    hang_seconds: float = HANG_SECONDS


@define
class RunResult:
    """What a run gave, merged."""

    steps: int = 0
    traces: int = 0
    shards: int = 0
    seconds: float = 0.0
    reach: Counter[str] = field(factory=Counter)
    found: dict[str, Found] = field(factory=dict)
    counts: Counter[str] = field(factory=Counter)
    declared: Counter[str] = field(factory=Counter)
    interrupted: bool = False

    def merge(self, shard: ShardResult) -> None:
        """The next shard in order."""
        self.shards += 1
        self.steps += shard.steps
        self.traces += shard.traces
        self.reach.update(shard.reach)
        self.counts.update(shard.counts)
        self.declared.update(shard.declared)
        for name, found in shard.found.items():
            kept = self.found.get(name)
            if kept is None or len(found.trace.operations) < len(kept.trace.operations):
                self.found[name] = found


def profile_of(shard: int, make_target: object = None, release: str | None = None) -> str:
    """Which traces a shard has. Those with caching on become others where nothing can be said of them."""
    turn = TURNS[shard % len(TURNS)]
    return turn if turn != "caching" or with_caching(make_target, release) else "scheduler"


@define(eq=False)
class _Worker:
    """A forked process and what the parent knows of it."""

    process: Any
    pipe: Connection
    watch: Watch
    shard: int = -1


def _serve(plan: Plan, pipe: Connection, journal_path: Path) -> None:
    """A worker's life: a shard number comes in, its result goes out."""
    plain_signals()
    journal = Journal(journal_path)
    while True:
        try:
            shard = pipe.recv()
        except EOFError:
            return
        if shard is None:
            return
        try:
            profile = profile_of(shard, plan.make_target, plan.options.release)
            result = run_shard(plan.seed, shard, plan.make_target, plan.options, profile, journal, name_of=plan.name_of)
        except Exception as error:
            pipe.send(raised(error))
            return
        pipe.send(result)


class Engine:
    """Runs a plan."""

    def __init__(self, plan: Plan, progress: Callable[[RunResult], None] = lambda result: None) -> None:
        self.plan = plan
        self.progress = progress
        self.result = RunResult()
        self.done: dict[int, ShardResult] = {}
        self.next_shard = 0
        self.workers: list[_Worker] = []
        #: what a lost shard counts towards `MAX_LOST`
        self.lost: dict[int, int] = {}

    def run(self) -> RunResult:
        """Until the steps are made, the time is up, or Ctrl-C: what was found is kept."""
        start = time.monotonic()
        try:
            for index in range(self.plan.workers):
                self.workers.append(self._start(index))
            while not self._finished(time.monotonic() - start):
                self._turn()
                self.progress(self.result)
        except KeyboardInterrupt:
            self.result.interrupted = True
        finally:
            for worker in self.workers:
                worker.process.kill()
                worker.process.join()
        self.result.seconds = time.monotonic() - start
        return self.result

    def _finished(self, seconds: float) -> bool:
        return self._complete() or (self.plan.seconds is not None and seconds >= self.plan.seconds)

    def _complete(self) -> bool:
        """Whether the shards merged so far are the run: as many steps as wanted, or as many as will ever be made."""
        result, wanted = self.result, self.plan.steps
        if sum(cost for shard, cost in self.lost.items() if shard < result.shards) >= MAX_LOST:
            return True
        if wanted is None:
            return False
        return result.steps >= wanted or (result.shards >= IDLE_SHARDS and not result.steps)

    def _start(self, index: int) -> _Worker:
        ours, theirs = FORK.Pipe()
        journal = self.plan.inflight / f"worker-{index}.journal"
        process = FORK.Process(target=_serve, args=(self.plan, theirs, journal), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours, Watch(journal, self.plan.hang_seconds))
        self._give(worker)
        return worker

    def _give(self, worker: _Worker) -> None:
        worker.shard = self.next_shard
        worker.watch.begin()
        self.next_shard += 1
        worker.pipe.send(worker.shard)

    def _turn(self) -> None:
        """Wait a little for results; look after the workers."""
        for pipe in wait([worker.pipe for worker in self.workers], timeout=0.2):
            worker = next(worker for worker in self.workers if worker.pipe is pipe)
            try:
                answer = worker.pipe.recv()
            except (EOFError, OSError):
                worker.process.join()
                self._lost(worker, death(worker.process.exitcode))
                continue
            if isinstance(answer, Raised):
                self._lost(worker, answer.sign())
                continue
            self.done[worker.shard] = answer
            self._give(worker)
        for worker in list(self.workers):
            if worker.watch.hangs():
                self._lost(worker, "hang")
        while self.result.shards in self.done and not self._complete():
            self.result.merge(self.done.pop(self.result.shards))

    def _lost(self, worker: _Worker, sign: str) -> None:
        """A worker is gone: its trace is a difference, its shard ends there, another takes its place."""
        worker.process.kill()
        worker.process.join()
        progress = worker.watch.progress()
        trace = progress.trace()
        difference = process_difference(trace, sign)
        result = ShardResult(worker.shard, steps=progress.step, traces=progress.traces)
        result.add(difference, trace)
        self.done[worker.shard] = result
        self.lost[worker.shard] = HANG_COSTS if sign == "hang" else 1
        index = self.workers.index(worker)
        self.workers[index] = self._start(index)


def shrink_found(found: Found, plan: Plan) -> Shrunk:
    """The smallest trace of a difference. One that kills or hangs the process is shrunk with a process a try."""
    if found.difference.rule == "process":
        seconds = min(TRY_SECONDS, plan.hang_seconds)
        return shrink_isolated(found.trace, found.difference, plan.make_target, plan.options, seconds=seconds)
    value, ended = in_a_fork(
        lambda: shrink(found.trace, found.difference, plan.make_target, plan.options), plan.hang_seconds * 5
    )
    if ended or value is None:
        return Shrunk(found.trace, found.difference, 0, False)
    shrunk: Shrunk = value
    return shrunk
