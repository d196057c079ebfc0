"""What shards give: counters and, of each fingerprint, one trace. Merged in order they are the same on any cluster."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from attrs import define, field

from harness import tracefile
from harness.tracefile import AnyTrace

_COUNTERS = ("reach", "counts", "declared")


@define
class Result:
    """Counters of one shard or of many. found: the shortest trace of each difference that no finding declares."""

    steps: int = 0
    traces: int = 0
    reach: Counter[str] = field(factory=Counter)
    counts: Counter[str] = field(factory=Counter)
    """How often each difference that no finding declares was met, by fingerprint."""
    declared: Counter[str] = field(factory=Counter)
    found: dict[str, AnyTrace] = field(factory=dict)

    def add(self, fingerprint: str, trace: AnyTrace, times: int = 1) -> None:
        """A difference; the shortest trace is kept, of equal ones the first."""
        self.counts[fingerprint] += times
        kept = self.found.get(fingerprint)
        if kept is None or size_of(trace) < size_of(kept):
            self.found[fingerprint] = trace

    def merge(self, other: Result) -> None:
        """Take in the next one in order."""
        self.steps += other.steps
        self.traces += other.traces
        self.reach.update(other.reach)
        self.declared.update(other.declared)
        for fingerprint, trace in other.found.items():
            self.add(fingerprint, trace, other.counts[fingerprint])

    def text(self) -> str:
        """As JSON, the same for the same result."""
        data: dict[str, Any] = {"steps": self.steps, "traces": self.traces}
        data |= {name: dict(sorted(getattr(self, name).items())) for name in _COUNTERS}
        data["found"] = {name: json.loads(tracefile.dumps(trace)) for name, trace in sorted(self.found.items())}
        return json.dumps(data) + "\n"


def read_result(text: str) -> Result | None:
    """Read what `text` wrote; None where it is cut off or something else: the shard is run again."""
    try:
        data = json.loads(text)
        found = {name: tracefile.loads(json.dumps(trace), name) for name, trace in data["found"].items()}
        counters = {name: Counter(data[name]) for name in _COUNTERS}
        return Result(int(data["steps"]), int(data["traces"]), **counters, found=found)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def size_of(trace: AnyTrace) -> int:
    """Operations; a case of the rules has none."""
    return len(getattr(trace, "operations", ()))
