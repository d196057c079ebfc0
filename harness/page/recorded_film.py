"""The film of a recording: the recorded answers beside the oracle's, the last operations of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from attrs import define, field

from harness.outcome import Options
from harness.page.film import make_film
from harness.page.of_trace import titled
from harness.record_commands import as_trace, one_recording
from harness.recorded import Judged
from oracle.errors import TraceError
from oracle.trace import CACHING_METHODS, Audit, Call, Difference, Observation, Rows, Target

#: operations that are shown, up to the last; a page of more is slow to open
SHOWN = 10_000
NEVER = 1 << 60


@define
class Recalled:
    """A party that gives the answers of a log, whatever it is asked."""

    log: list[Any]
    rows: dict[int, Rows] = field(factory=dict)

    def target(self) -> Target:
        """The same behind the protocol."""
        methods: dict[str, Any] = dict.fromkeys(CACHING_METHODS, self._next)
        methods |= {"extend": self._extend, "release": self._release, "audit": self._audit}
        return cast("Target", SimpleNamespace(**methods))

    def _next(self, *_: object) -> Any:  # noqa: ANN401  # what was answered
        return self.log.pop(0)

    def _extend(self, call: Call) -> Observation:
        seen: Observation = self._next()
        if any(seen.rows):
            self.rows[call.request] = seen.rows
        return seen

    def _release(self, request: int, deferred: bool) -> Observation:
        self.rows.pop(request, None)
        seen: Observation = self._next()
        return seen

    def _audit(self) -> Audit:
        return Audit(dict(self.rows), ())


def recorded_film(path: Path, declared: Callable[[Difference], bool]) -> dict[str, Any]:
    """The film of the one recording at a path."""
    recording = one_recording(path)
    log: list[Any] = []
    judged = Judged(recording.head, Options(declared=declared), log)
    for line in recording.lines():
        judged.feed(line)
    if judged.began is not None:
        raise TraceError(f"the beginning of {recording.name} was dropped: shrink it, and look at what comes of that")
    options = Options(aspects=judged.aspects, declared=declared, memory=not judged.head.setting.enable_caching)
    trace = as_trace(judged)
    first = max(0, len(trace.operations) - SHOWN)
    made = make_film(trace, lambda _: Recalled(log).target(), options, "A recording", first=first, audits=False)
    when = f"{judged.head.began:%Y-%m-%d %H:%M:%S} to {judged.at:%H:%M:%S}"
    rules = judged.head.setting.release
    made["against"] = f"Recorded by {recording.name}, {when}; beside it the oracle by the rules of {rules}."
    return titled(made)
