"""A whole trace on the replay that its setting needs, with caching off or on."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from harness.cached_replay import CachedReplay
from harness.outcome import MakeTarget, Options, Outcome
from harness.reach import Reach
from harness.replay import Replay
from oracle.allocator import Allocator
from oracle.setting import Setting
from oracle.trace import Operation, Trace


def new_replay(
    setting: Setting,
    make_target: MakeTarget | None,
    options: Options,
    reach: Reach | None = None,
    oracle: Allocator | None = None,
) -> Replay:
    """The replay that a setting needs."""
    kind = CachedReplay if setting.enable_caching else Replay
    return kind(setting, make_target, options, reach, oracle)


def run_trace(trace: Trace, make_target: MakeTarget | None, options: Options, reach: Reach | None = None) -> Outcome:
    """Run a whole trace. A difference that an audit found is looked up again with an audit at each step."""
    if options.release is not None:
        trace = evolve(trace, setting=evolve(trace.setting, release=options.release))
    replay = new_replay(trace.setting, make_target, options, reach)
    run_operations(replay, trace.operations)
    outcome = replay.result()
    found = outcome.differences
    if found and found[0].aspect in ("order", "ids", "law") and options.audit_every > 1:
        closer = evolve(options, audit_every=1)
        replay = new_replay(trace.setting, make_target, closer)
        run_operations(replay, trace.operations)
        if replay.outcome_differences:
            outcome = replay.result()
    if options.keep_entries and len(outcome.entries) < outcome.steps:  # the last step raised: what the oracle says
        alone = new_replay(trace.setting, None, Options(frozenset(), keep_entries=True))
        run_operations(alone, outcome.trace.operations)
        outcome.entries += alone.entries[len(outcome.entries) :]
    return outcome


def run_operations(replay: Replay, operations: Iterable[Operation]) -> None:
    """Feed operations until the trace is over."""
    for operation in operations:
        if replay.over:
            break
        replay.step(operation)
    if not replay.over:
        replay.finish()
