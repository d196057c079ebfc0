"""Work on a target in forks of this process: whatever the target does to them, this process knows and goes on."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve

from harness.campaign.levels import Level, Shrunk
from harness.campaign.results import Result
from harness.campaign.storage import Stored
from harness.forks import HANG_SECONDS, Watch, in_a_fork

#: shards of a range that may be lost; the rest is left out, as a target that dies in every shard has been understood
MAX_LOST = 4
#: a shrink may take so often the seconds of a step that hangs
SHRINK_COSTS = 5


def run_range(
    level: Level[Any], profile: str, seed: int, numbers: Sequence[int], hang_seconds: float = HANG_SECONDS
) -> Result:
    """Some of a level's own shards, in one fork; where that does not live, a fork each. The same result either way."""
    with tempfile.TemporaryDirectory(prefix="slotcheck-", ignore_cleanup_errors=True) as folder:
        journal = Path(folder) / "shard.journal"
        watched = journal if level.journals else None

        def merged() -> Result:
            whole = Result()
            for number in numbers:
                whole.merge(level.run(profile, seed, number, journal))
            return whole

        result, ended = in_a_fork(merged, hang_seconds * (1 if watched else len(numbers)), watched)
        if not ended:
            done: Result = result
            return done
        whole, lost = Result(), 0
        for number in numbers:
            one, ended = in_a_fork(partial(level.run, profile, seed, number, journal), hang_seconds, watched)
            if ended:
                one = level.lost(seed, number, Watch(watched, hang_seconds).progress(), ended)
                lost += 1
            whole.merge(one)
            if lost == MAX_LOST:
                break
        return whole


def shrink_stored(level: Level[Any], met: Stored, hang_seconds: float = HANG_SECONDS) -> Stored:
    """A difference with its smallest trace; as it is where it does not show again, or the shrinker does not live."""
    _, process, sign = met.found.rpartition("/process/")

    def work() -> Shrunk | None:
        if process:
            return level.shrunk_apart(met.trace, sign)
        shown, _ = level.differences(met.trace)
        same = [one for one in shown if one.fingerprint == met.found] or shown
        return level.shrunk(met.trace, same[0]) if same else None

    small, ended = in_a_fork(work, hang_seconds * SHRINK_COSTS)
    if ended or small is None:
        return evolve(met, shrunk=True)
    trace, difference, tries, minimal = small
    return evolve(met, trace=trace, fingerprint=difference.fingerprint, shrunk=True, minimal=minimal, tries=tries)
