"""One shard of a run, in a process of its own: draw, replay, collect.

The trace is on disk before its first step runs: the packed bytes and a step counter lie in a file that the worker maps
into memory. When the worker is killed, by a segmentation fault or by the watchdog, the parent decodes from that file
how far it came.
"""

from __future__ import annotations

import gc
import mmap
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from attrs import define, field, frozen

from harness import passes
from harness.outcome import MakeTarget, Options, Outcome
from harness.reach import CACHING_STEPS, Reach
from harness.trace_run import new_replay, run_trace
from oracle.errors import TraceError
from oracle.trace import Difference, Trace
from strategies.profiles import PROFILES
from strategies.traces import draw

#: examples a shard; a run is a sequence of shards, whoever runs them
EXAMPLES = 46
#: every so many examples one is run twice
TWICE_EVERY = 25
MAGIC = b"slotcheck-1\n"
_HEAD = struct.Struct("<12sQQQQ")
_COUNTER = struct.Struct("<Q")
CAPACITY = 4096


@frozen
class Found:
    """A difference with the trace that showed it."""

    difference: Difference
    trace: Trace


@define
class ShardResult:
    """What one shard gave. Differences once a fingerprint, with their number."""

    shard: int
    steps: int = 0
    traces: int = 0
    reach: Counter[str] = field(factory=Counter)
    found: dict[str, Found] = field(factory=dict)
    counts: Counter[str] = field(factory=Counter)
    declared: Counter[str] = field(factory=Counter)

    def add(self, difference: Difference, trace: Trace) -> None:
        """One more difference; of each fingerprint the shortest trace is kept."""
        name = difference.fingerprint
        self.counts[name] += 1
        kept = self.found.get(name)
        if kept is None or len(trace.operations) < len(kept.trace.operations):
            self.found[name] = Found(difference, trace)


class Journal:
    """The file that says which trace a worker is running and at which step it is."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_HEAD.pack(MAGIC, 0, 0, 0, 0) + bytes(CAPACITY))
        with path.open("r+b") as stream:
            self.map = mmap.mmap(stream.fileno(), 0)
        #: told the step that runs next, before each call of the target
        self.at: Callable[[int], None] = partial(_COUNTER.pack_into, self.map, 20)

    def begin(self, examples: int, data: bytes, profile: str) -> None:
        """A new trace: its bytes are written before its first step."""
        head = _HEAD.pack(MAGIC, examples, 0, len(data), PROFILES.index(profile))
        self.map[: _HEAD.size + len(data)] = head + data


@frozen
class Progress:
    """What a journal says: traces begun, the step that runs, the packed bytes and their profile."""

    traces: int
    step: int
    data: bytes
    profile: str

    def trace(self) -> Trace:
        """The operations up to the step that runs."""
        return decode(self.data, self.step, self.profile)


def is_journal(path: Path) -> bool:
    """Whether a file is the journal of a worker."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_journal(path: Path) -> Progress:
    """Read a journal, also one of a process that is gone."""
    raw = path.read_bytes()
    if len(raw) < _HEAD.size or not raw.startswith(MAGIC):
        raise TraceError(f"{path} is not a journal of a run")
    _, traces, step, length, profile = _HEAD.unpack_from(raw)
    return Progress(traces, step, raw[_HEAD.size : _HEAD.size + length], PROFILES[profile])


def decode(data: bytes, steps: int, profile: str, release: str | None = None) -> Trace:
    """The first `steps` + 1 operations of packed bytes, with the oracle alone: needs no target."""
    options = Options(aspects=frozenset(), release=release)  # a law that the oracle breaks too ends no trace here
    setting, stream = options.open(data, profile)
    replay = new_replay(setting, None, options)
    while not replay.over and len(replay.operations) <= steps:
        operation = stream.next(replay.ledger)
        if operation is None:
            break
        replay.step(operation)
    return replay.result().trace


class Shard:
    """One shard being run: all its traces on the oracle, then all on targets.

    Two code bases in turns cost a tenth more than one after the other, even a trace at a time.

    `name_of` names the finding behind a declared difference.
    """

    def __init__(
        self,
        shard: int,
        make_target: MakeTarget,
        options: Options,
        profile: str = "scheduler",
        journal: Journal | None = None,
        name_of: Callable[[Difference], str] = lambda difference: difference.fingerprint,
    ) -> None:
        self.result = ShardResult(shard)
        self.make_target = make_target
        self.options = options
        self.profile = profile
        self.journal = journal
        self.name_of = name_of
        self.at: passes.At = (lambda step: None) if journal is None else journal.at
        self.ahead = passes.applies(options)

    def run(self, traces: Sequence[bytes]) -> None:
        """Replay traces. No collection inside: what a trace leaves is freed without one."""
        gc.disable()
        try:
            predictions = [passes.predict(data, self.profile, self.options) for data in traces] if self.ahead else []
            for index, data in enumerate(traces):
                self.result.traces += 1
                if self.journal is not None:
                    self.journal.begin(self.result.traces, data, self.profile)
                self._take(self._compared(data, predictions[index]) if self.ahead else self._stepwise(data))
        finally:
            gc.enable()

    def _compared(self, data: bytes, prediction: passes.Prediction) -> Outcome:
        """What a target makes of a predicted trace; where it answers otherwise the trace is run in lockstep."""
        played = passes.Played(prediction, self.make_target, self.at, self.options.declared)
        if played.parted is None:
            self.result.reach.update(prediction.reach.counts)
            if self._twice():
                again = passes.Played(prediction, self.make_target, self.at, self.options.declared)
                if again.parted is not None or again.declared != played.declared:
                    self._two_runs(again.parted or 0, "second", prediction.outcome.trace)
            return played.outcome()
        outcome = self._lockstep(data, (lambda setting: played.again()) if played.others else self.make_target)
        if all(difference.aspect == "law" for difference in (*outcome.declared, *outcome.differences)):
            self._two_runs(played.parted, "first", prediction.outcome.trace)
        return outcome

    def _stepwise(self, data: bytes) -> Outcome:
        outcome = self._lockstep(data, self.make_target)
        if not outcome.differences and self._twice():
            for difference in run_trace(outcome.trace, self.make_target, self.options).differences:
                self.result.add(_flaky(difference), outcome.trace)
        return outcome

    def _lockstep(self, data: bytes, make_target: MakeTarget) -> Outcome:
        reach = Reach()
        outcome = passes.lockstep(data, self.profile, make_target, self.options, reach, self.at)
        self.result.reach.update(reach.counts)
        return outcome

    def _twice(self) -> bool:
        return self.result.traces % TWICE_EVERY == 0

    def _two_runs(self, step: int, which: str, trace: Trace) -> None:
        self.result.add(_two_runs(step, f"the {which} run alone is not as the oracle says"), trace)

    def _take(self, outcome: Outcome) -> None:
        """Count a trace. A difference is noted after a look whether a second run shows it too."""
        self.result.steps += outcome.steps
        if outcome.trace.setting.enable_caching:
            self.result.reach[CACHING_STEPS] += outcome.steps
        for difference in outcome.declared:
            self.result.declared[self.name_of(difference)] += 1
        if outcome.differences:
            again = run_trace(outcome.trace, self.make_target, self.options).differences
            self.result.add(again[0] if again else _flaky(outcome.differences[0]), outcome.trace)


def run_shard(
    run_seed: int,
    number: int,
    make_target: MakeTarget,
    options: Options,
    profile: str = "scheduler",
    journal: Journal | None = None,
    examples: int = EXAMPLES,
    name_of: Callable[[Difference], str] = lambda difference: difference.fingerprint,
) -> ShardResult:
    """Draw the examples of one shard and replay each."""
    shard = Shard(number, make_target, options, profile, journal, name_of)
    gc.freeze()  # vLLM and torch are a million objects, which are here to stay
    drawn: list[bytes] = []
    draw(run_seed, number, examples, drawn.append)
    shard.run(drawn)
    return shard.result


def _flaky(difference: Difference) -> Difference:
    """Two runs of one trace disagree."""
    said = f"one run only: {difference.fingerprint}: expected {difference.expected}, got {difference.observed}"
    return _two_runs(difference.step, said, difference.group, difference.kind)


def _two_runs(step: int, said: str, group: int | None = None, kind: str = "pool") -> Difference:
    """A difference of its own (W6)."""
    return Difference(
        aspect="law",
        step=step,
        group=group,
        kind=kind,
        rule="W6",
        sign="two runs differ",
        expected="two runs of one trace give the same observations",
        observed=said,
    )
