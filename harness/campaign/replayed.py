"""A stored trace judged again, at whatever level it is: what a test asks, and the corpus."""

from __future__ import annotations

from functools import cache

from attrs import frozen

from harness.campaign.levels import Levels
from harness.campaign.storage import Stored
from harness.forks import HANG_SECONDS, in_a_fork
from harness.tracefile import AnyTrace


@cache
def levels(target: str | None = None) -> Levels:
    """The levels of the installed release, built once a process."""
    return Levels(target)


def judged(trace: AnyTrace, target: str | None = None) -> list[str]:
    """What a trace shows today that no finding declares: fingerprints with what was expected and seen.

    In a fork: a target that kills or blocks its process has shown it. TargetError when it cannot be loaded.
    """
    level = levels(target)[trace.level]

    def work() -> list[str]:
        shown, _ = level.differences(trace)
        return [f"{one.fingerprint}: expected {one.expected}, got {one.observed}" for one in shown]

    said, ended = in_a_fork(work, HANG_SECONDS)
    return [f"{trace.level}: the target ended its process: {ended}"] if ended else list(said)


@frozen
class Finding:
    """A difference of a store, as a test takes it."""

    stored: Stored

    def check(self, target: str | None = None) -> None:
        """Fail while the installed release, or `target`, shows it. target: module:Class."""
        said = judged(self.stored.trace, target)
        assert not said, "\n".join(said)
