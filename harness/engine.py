"""The main job: shards of generated traces, run by forked workers, merged in order.

A run is the sequence of shards 0, 1, 2, ... of its seed. Which worker runs a shard does not matter: the merged result
is that of the shortest prefix of shards that reaches the wanted steps (or that was finished when the time was up). vLLM
is imported once, before the fork. A worker that dies or hangs costs its shard's rest, and the trace it was running is a
difference of its own.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from harness.replay import MakeTarget, Options, run_trace
from harness.shrink import Shrunk, shrink
from harness.worker import Found, Journal, Progress, ShardResult, read_journal, run_shard
from oracle.trace import Difference, Trace

#: every fifth shard does what no scheduler does
HOSTILE_EVERY = 5
#: seconds without a step before a worker counts as hung
HANG_SECONDS = 60.0
#: workers that may be lost before the run ends: a target that kills its process in every shard has been understood
MAX_LOST = 10
#: a hang takes a minute where a crash takes none: three of them are enough
HANG_COSTS = 4
#: differences that are shrunk; more distinct ones are reported as found
MAX_SHRUNK = 12
_FORK = mp.get_context("fork")


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


def profile_of(shard: int) -> str:
    """Which traces a shard has."""
    return "hostile" if shard % HOSTILE_EVERY == HOSTILE_EVERY - 1 else "scheduler"


@define(eq=False)
class _Worker:
    """A forked process and what the parent knows of it."""

    process: Any
    pipe: Connection
    journal: Path
    shard: int = -1
    seen: tuple[int, int] = (0, 0)
    since: float = 0.0


def _plain_signals() -> None:
    """In a forked process: Ctrl-C is the parent's, and a crash kills at once instead of printing stacks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL):
        signal.signal(number, signal.SIG_DFL)


def _serve(plan: Plan, pipe: Connection, journal_path: Path) -> None:
    """A worker's life: a shard number comes in, its result goes out."""
    _plain_signals()
    journal = Journal(journal_path)
    while True:
        try:
            shard = pipe.recv()
        except EOFError:
            return
        if shard is None:
            return
        result = run_shard(
            plan.seed, shard, plan.make_target, plan.options, profile_of(shard), journal, name_of=plan.name_of
        )
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
        self.lost = 0

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
        plan = self.plan
        if self.lost >= MAX_LOST:
            return True
        if plan.steps is not None and self.result.steps >= plan.steps:
            return True
        return plan.seconds is not None and seconds >= plan.seconds

    def _start(self, index: int) -> _Worker:
        ours, theirs = _FORK.Pipe()
        journal = self.plan.inflight / f"worker-{index}.journal"
        process = _FORK.Process(target=_serve, args=(self.plan, theirs, journal), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours, journal)
        self._give(worker)
        return worker

    def _give(self, worker: _Worker) -> None:
        worker.shard = self.next_shard
        worker.seen, worker.since = (0, 0), time.monotonic()
        self.next_shard += 1
        worker.pipe.send(worker.shard)

    def _turn(self) -> None:
        """Wait a little for results; look after the workers."""
        for pipe in wait([worker.pipe for worker in self.workers], timeout=0.2):
            worker = next(worker for worker in self.workers if worker.pipe is pipe)
            try:
                self.done[worker.shard] = worker.pipe.recv()
            except (EOFError, ConnectionError):
                worker.process.join()
                self._lost(worker, _death(worker.process.exitcode))
                continue
            self._give(worker)
        for worker in list(self.workers):
            if self._hangs(worker):
                worker.process.kill()
                worker.process.join()
                self._lost(worker, "hang")
        while self.result.shards in self.done:
            if self.plan.steps is not None and self.result.steps >= self.plan.steps:
                break
            self.result.merge(self.done.pop(self.result.shards))

    def _hangs(self, worker: _Worker) -> bool:
        progress = _progress(worker)
        now = (progress.traces, progress.step)
        if now != worker.seen:
            worker.seen, worker.since = now, time.monotonic()
        return time.monotonic() - worker.since > self.plan.hang_seconds

    def _lost(self, worker: _Worker, sign: str) -> None:
        """A worker is gone: its trace is a difference, its shard ends there, another takes its place."""
        progress = _progress(worker)
        trace = progress.trace()
        difference = Difference(
            aspect="outcome",
            step=len(trace.operations) - 1,
            group=None,
            kind="pool",
            rule="process",
            sign=sign,
            expected="an answer",
            observed=sign,
        )
        result = ShardResult(worker.shard, steps=progress.step, traces=progress.traces)
        result.add(difference, trace)
        self.done[worker.shard] = result
        self.lost += HANG_COSTS if sign == "hang" else 1
        index = self.workers.index(worker)
        self.workers[index] = self._start(index)


def _progress(worker: _Worker) -> Progress:
    try:
        return read_journal(worker.journal)
    except (OSError, ValueError):
        return Progress(0, 0, b"", "scheduler")


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit {code}"


# ---------------------------------------------------------------------------------------------- after the run


def in_a_fork(work: Callable[[], Any], seconds: float) -> tuple[Any, str]:
    """`work()` in a process of its own: its value and "", or None and how the process ended."""
    ours, theirs = _FORK.Pipe(duplex=False)

    def body() -> None:
        _plain_signals()
        theirs.send(work())
        theirs.close()
        os._exit(0)

    process = _FORK.Process(target=body, daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            process.kill()
            process.join()
            return None, "hang"
        value = ours.recv()
    except EOFError:
        process.join()
        return None, _death(process.exitcode)
    process.join()
    return value, ""


def shrink_found(found: Found, plan: Plan, seconds: float = 10.0) -> Shrunk:
    """The smallest trace of a difference. One that kills or hangs the process is shrunk with a process a try."""
    if found.difference.rule == "process":
        evaluate = _isolated(found.difference, plan, seconds)
        return shrink(found.trace, found.difference, plan.make_target, plan.options, max_tries=200, evaluate=evaluate)
    value, ended = in_a_fork(
        lambda: shrink(found.trace, found.difference, plan.make_target, plan.options), plan.hang_seconds * 5
    )
    if ended or value is None:
        return Shrunk(found.trace, found.difference, 0, False)
    shrunk: Shrunk = value
    return shrunk


def _isolated(difference: Difference, plan: Plan, seconds: float) -> Callable[[Trace], list[Difference]]:
    """Runs a candidate in a process of its own; its death is the difference."""
    limit = min(seconds, plan.hang_seconds)

    def evaluate(trace: Trace) -> list[Difference]:
        value, ended = in_a_fork(lambda: run_trace(trace, plan.make_target, plan.options).differences, limit)
        if not ended:
            return list(value)
        return [evolve(difference, sign=ended, observed=ended, step=len(trace.operations) - 1)]

    return evaluate
