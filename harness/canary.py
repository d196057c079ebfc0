"""The canary: a target with a planted defect. A run that does not catch it proves nothing.

It is the target under test with the lookahead taken away from a request's first call: the historic defect that crashed
DFlash. So the canary goes the whole way of a real difference, through the same target, comparison and verdict. With
prefix caching on there is a second one, whose lookups find nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from attrs import evolve

from harness.outcome import MakeTarget, Options
from harness.reach import with_caching
from harness.worker import Journal, run_shard
from oracle.call import Call, Hit, Observation, Query
from oracle.setting import Setting
from oracle.trace import Audit, CachingTarget, Target

#: shards that the canary may take to be caught
SHARDS = 5


class Canary:
    """A target that loses the lookahead of first calls."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def extend(self, call: Call) -> Observation:
        return self.target.extend(evolve(call, lookahead=0) if call.computed == 0 else call)

    def release(self, request: int, deferred: bool) -> Observation:
        return self.target.release(request, deferred)

    def give_back(self) -> Observation:
        return self.target.give_back()

    def trim(self, request: int, processed: int, prompt: int) -> Observation:
        return self.target.trim(request, processed, prompt)

    def new_step(self) -> Observation:
        return self.target.new_step()

    def audit(self) -> Audit:
        return self.target.audit()


class ForgetfulCanary:
    """A target whose lookups find nothing."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __getattr__(self, name: str) -> object:
        return getattr(self.target, name)

    def lookup(self, query: Query) -> Hit:
        hit = cast("CachingTarget", self.target).lookup(query)
        return Hit(0, 0, tuple(() for _ in hit.rows))


def caught(make_target: MakeTarget, options: Options, seed: int = 0, journal: Path | None = None) -> int | None:
    """Steps until the canary was caught; None if it was not. `journal`: where to write which step runs."""

    def make(setting: Setting) -> Target:
        return Canary(make_target(setting))

    # what the canary does shows in the row's length first: it is compared whatever the run compares
    options = evolve(options, aspects=options.aspects | {"columns"})
    written = None if journal is None else Journal(journal)
    steps = 0
    for shard in range(SHARDS):
        result = run_shard(seed, shard, make, options, journal=written, examples=40)
        steps += result.steps
        if any("/A19/less" in name for name in result.found):
            return steps if _caught_with_caching(make_target, options, seed) else None
    return None


def _caught_with_caching(make_target: MakeTarget, options: Options, seed: int) -> bool:
    """Whether lost hits are seen, where a run has traces with caching on."""
    if not with_caching(make_target, options.release):
        return True

    def make(setting: Setting) -> Target:
        return cast("Target", ForgetfulCanary(make_target(setting)))

    options = evolve(options, aspects=options.aspects | {"hits"})
    for shard in range(SHARDS):
        result = run_shard(seed, shard, make, options, "caching", examples=8)
        if any("/hits/" in name for name in result.found):
            return True
    return False
