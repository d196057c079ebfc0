"""What the runs of the warmup and of the scheduler level have in common: shards in order, one report a defect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from harness.engine import MAX_SHRUNK
from harness.forks import in_a_fork
from oracle.trace import Difference
from oracle.warmup import WarmupTrace
from oracle.workload import SchedulerTrace

Part = TypeVar("Part")
Case = TypeVar("Case", bound="HasDifference")
Small = TypeVar("Small", bound="HasDifference")


class HasDifference(Protocol):
    """A difference with the trace that showed it, as it was found or shrunk."""

    @property
    def difference(self) -> Difference: ...


class Reduced(HasDifference, Protocol):
    """What a shrinker of these levels gives."""

    @property
    def trace(self) -> WarmupTrace | SchedulerTrace: ...

    @property
    def minimal(self) -> bool: ...


class Growing(Protocol):
    """A report while its shards come in: their number, and the seconds so far."""

    shards: int
    seconds: float


def in_order(shards: Callable[[range], list[Part]], workers: int, most: int = 1) -> Iterator[Part]:
    """The shards 0, 1, ... without an end. `shards` does some in a row, as many workers at a time as there are.

    most: shards in a row once a run is long; it begins with one, since a run may have enough soon.
    """
    with ThreadPoolExecutor(workers) as pool:
        first, size = 0, 1
        while True:
            ends = range(first + size, first + size * workers + 1, size)
            for some in pool.map(shards, [range(end - size, end) for end in ends]):
                yield from some
            first, size = ends[-1], min(2 * size, most)


def take_all(
    shards: Iterator[Part],
    report: Growing,
    merge: Callable[[Part], None],
    enough: Callable[[], bool],
    seconds: float | None,
) -> None:
    """Merge shards until there is `enough`, or `seconds` have passed."""
    start = time.monotonic()
    for shard in shards:
        merge(shard)
        report.shards += 1
        report.seconds = time.monotonic() - start
        if enough() or (seconds is not None and report.seconds >= seconds):
            break


def shrunk_apart(found: Case, plain: Small, shrink: Callable[[], Any], seconds: float) -> Small:
    """A case made small in a process of its own; `plain` where that process, or the one that found it, did not live."""
    if found.difference.rule == "process":
        return plain
    value, ended = in_a_fork(shrink, seconds)
    small: Small = plain if ended else value
    return small


def each_once(
    found: Mapping[str, Case], counts: Mapping[str, int], shrink: Callable[[Case], Small]
) -> list[tuple[str, Small, int]]:
    """The cases made small, one for each fingerprint that is left then, with how often it was met."""
    smallest: dict[str, tuple[Small, int]] = {}
    for name, case in sorted(found.items())[:MAX_SHRUNK]:
        small = shrink(case)
        final = small.difference.fingerprint
        _, before = smallest.get(final, (small, 0))
        smallest[final] = small, counts[name] + before
    return [(name, small, count) for name, (small, count) in sorted(smallest.items())]


def told(found: Sized, reported: Sized) -> int:
    """How many differences there are to tell: one each that was made small, and those that were too many for it."""
    return len(reported) + max(0, len(found) - MAX_SHRUNK)


def described(shrunk: Reduced, level: str, count: int, trace: object) -> dict[str, Any]:
    """A shrunk difference as an entry of `--json`."""
    return {
        "fingerprint": shrunk.difference.fingerprint,
        "level": level,
        "aspect": shrunk.difference.aspect,
        "step": shrunk.difference.step,
        "operations": len(shrunk.trace.operations),
        "minimal": shrunk.minimal,
        "count": count,
        "trace": str(trace),
    }
