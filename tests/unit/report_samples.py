"""Traces with one defect each, and targets that have it: edits of the oracle, so that no vLLM is needed."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve, frozen

from harness.outcome import Options, Outcome
from harness.report.folder import Versions
from harness.shrink import Shrunk
from harness.targets.source import Location
from harness.trace_run import run_trace
from oracle.allocator import Allocator
from oracle.call import Call, Observation
from oracle.groups import (
    ChunkedLocal,
    CircularBuffer,
    CrossAttention,
    FullAttention,
    Group,
    Mamba,
    Sink,
    SlidingWindow,
)
from oracle.setting import Setting
from oracle.trace import Difference, Extend, GiveBack, Loaded, NewStep, Operation, Release, Settle, Target, Trace, Trim

VERSIONS = Versions(slotcheck="0.1.0", vllm="0.33.0", torch="2.14.0", python="3.11.7")


def locate(file: str, name: str) -> Location:
    """A location that does not depend on what is installed."""
    return Location(file, name, 100)


class NoGate(Allocator):
    """Admits whatever its next chunk fits."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        return super().extend(call, gate=False, test=test)


class NoLookahead(Allocator):
    """Loses the lookahead of first calls."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        return super().extend(evolve(call, lookahead=0) if call.computed == 0 else call, gate, test)


class RunsDry(Allocator):
    """Raises where it should refuse."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        seen = super().extend(call, gate, test)
        return evolve(seen, outcome="error:ValueError") if seen.outcome == "refused" else seen


class ResultOfFirstGroup(Allocator):
    """Names only the first group's new blocks."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        seen = super().extend(call, gate, test)
        return evolve(seen, new=(seen.new[0], *(() for _ in seen.new[1:])))


class Unreversed(Allocator):
    """Gives deferred blocks back in the order in which they were popped."""

    def give_back(self) -> Observation:
        if self.popped:
            self.popped[0].reverse()
        return super().give_back()


class ForgetsToZero(Allocator):
    """Its zero list is always empty."""

    def new_step(self) -> Observation:
        return evolve(super().new_step(), new=((),))


class Hoards(Allocator):
    """A removal removes nothing."""

    def trim(self, request: int, processed: int, prompt: int) -> Observation:
        return super().trim(request, 0, prompt)


class Leaks(Allocator):
    """A release loses the highest block."""

    def release(self, request: int, deferred: bool) -> Observation:
        self.rows[request][0].pop()
        return super().release(request, deferred)


class Unbuildable(Allocator):
    """A manager that cannot be built."""

    def __init__(self, setting: Setting) -> None:
        raise TypeError("unexpected keyword argument 'needs_kv_cache_zeroing'")


@frozen(kw_only=True)
class Sample:
    """A trace, a target with the defect, and what the difference is of."""

    make: Callable[[Setting], Target]
    trace: Trace
    aspects: tuple[str, ...] = ("outcome", "columns", "nulls", "free", "ids", "order", "zeroing")

    def outcome(self) -> Outcome:
        """The trace run on the defect."""
        options = Options(aspects=frozenset(self.aspects), audit_every=1, keep_entries=True)
        return run_trace(self.trace, self.make, options)

    def difference(self) -> Difference:
        """What the defect shows."""
        return self.outcome().differences[0]

    def shrunk(self) -> Shrunk:
        """As if it had been shrunk."""
        return Shrunk(self.trace, self.difference(), 10, True)


def sample(
    make: Callable[[Setting], Target],
    groups: Group | tuple[Group, ...],
    *operations: Operation,
    law: bool = False,
    **setting: object,
) -> Sample:
    """A sample; `law`: only laws are looked at."""
    several = groups if isinstance(groups, tuple) else (groups,)
    built = Setting(groups=several, **{"num_blocks": 8, "max_model_len": 32, **setting})
    trace = Trace(setting=built, operations=operations)
    return Sample(make=make, trace=trace, **({"aspects": ("law",)} if law else {}))


#: rule -> a difference of it
SAMPLES: dict[str, Sample] = {
    "A13": sample(
        NoGate,
        SlidingWindow(block_size=1, window=2),
        Extend(request=0, new=0, prompt=4, external=3, full_sequence_must_fit=True),
        num_blocks=2,
        max_model_len=5,
        max_in_flight_tokens=1,
        kv_connector=True,
    ),
    "A15": sample(
        RunsDry,
        Mamba(block_size=1),
        Extend(request=0, new=1, prompt=2, external=1),
        num_blocks=2,
        max_model_len=3,
        kv_connector=True,
    ),
    "A19": sample(
        NoLookahead,
        (FullAttention(block_size=4, uniform_layers=2), CircularBuffer(block_size=8)),
        Extend(request=0, new=3, prompt=3),
        method="eagle",
        num_speculative_tokens=2,
    ),
    "A20": sample(
        ResultOfFirstGroup,
        (FullAttention(block_size=4), CrossAttention(block_size=4)),
        Extend(request=0, new=5, prompt=5, encoder=3),
        max_encoder_len=4,
    ),
    "A5": sample(
        Unreversed,
        FullAttention(block_size=2),
        Extend(request=0, new=5, prompt=5),
        Settle(),
        Release(request=0, deferred=True),
        NewStep(),
        GiveBack(),
        kv_connector=True,
    ),
    "A60": sample(
        ForgetsToZero,
        (FullAttention(block_size=4), Mamba(block_size=32, mode="none")),
        Extend(request=0, new=5, prompt=5),
        NewStep(),
    ),
    "A14": sample(
        Hoards,
        SlidingWindow(block_size=2, window=2),
        Extend(request=0, new=8, prompt=9),
        Extend(request=1, new=1, prompt=1),
        Settle(),
        Trim(request=0),
        in_flight_depth=2,
    ),
    "M12": sample(
        Allocator,
        SlidingWindow(block_size=3, window=4),
        Extend(request=0, new=0, prompt=15, external=15),
        Loaded(request=0),
        Extend(request=0, new=1),
        law=True,
        num_blocks=3,
        kv_connector=True,
    ),
    "W1": sample(
        Allocator,
        ChunkedLocal(block_size=1, chunk=1),
        Extend(request=0, new=0, prompt=1, external=1),
        Loaded(request=0),
        Extend(request=0, new=1),
        law=True,
        num_blocks=2,
        max_model_len=2,
        kv_connector=True,
    ),
    "W5": sample(
        Allocator,
        SlidingWindow(block_size=1, window=2),
        Extend(request=0, new=1, prompt=8, full_sequence_must_fit=True),
        Settle(),
        Extend(request=0, new=2),
        law=True,
        num_blocks=5,
        max_in_flight_tokens=2,
        method="eagle",
        num_speculative_tokens=3,
    ),
    "A2": sample(
        Leaks,
        FullAttention(block_size=2),
        Extend(request=0, new=5, prompt=5),
        Settle(),
        Release(request=0),
        law=True,
    ),
    "build": sample(Unbuildable, Sink(block_size=4, sink_len=4)),
}

#: a target that kills its process: nothing can be run again
KILLED = Shrunk(
    SAMPLES["A19"].trace,
    Difference(
        aspect="outcome",
        step=0,
        group=None,
        kind="pool",
        rule="process",
        sign="killed by SIGSEGV",
        expected="an answer",
        observed="killed by SIGSEGV",
    ),
    10,
    True,
)
