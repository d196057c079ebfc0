"""The bench's row of traces with prefix caching on: bare lookups, allocations and frees, and the whole check."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from attrs import frozen

from harness.outcome import Options
from harness.passes import lockstep
from harness.targets.cached import CachingManager
from harness.targets.loader import manager_of
from harness.worker import EXAMPLES, Journal, run_shard
from oracle.setting import Setting
from oracle.trace import Call, Query, Target, methods_of
from strategies.traces import draw


@frozen
class Calls:
    """One trace as the bare manager gets it: methods with their arguments, up to where the checked run ended."""

    setting: Setting
    calls: list[tuple[str, tuple[Any, ...]]]
    steps: int


def record(data: bytes, options: Options) -> Calls:
    """Run packed bytes checked once, and keep what the manager was asked."""
    asked: list[tuple[str, tuple[Any, ...]]] = []

    def make(setting: Setting) -> Target:
        target = CachingManager(setting)

        def ask(name: str, *arguments: object) -> object:
            asked.append((name, arguments))
            return getattr(target, name)(*arguments)

        return cast(Target, SimpleNamespace(**{name: partial(ask, name) for name in methods_of(setting)}))

    outcome = lockstep(data, "caching", make, options)
    return Calls(outcome.trace.setting, asked, outcome.steps)


def recorded(run_seed: int, shard: int, options: Options) -> list[Calls]:
    """The traces of a shard."""
    drawn: list[bytes] = []
    draw(run_seed, shard, EXAMPLES, drawn.append)
    return [record(data, options) for data in drawn]


def _look_up(manager: CachingManager, query: Query) -> None:
    manager.look_up(query)


def _publish(manager: CachingManager, call: Call, tokens: int) -> None:
    manager.name(call, tokens)


def _new_step(manager: CachingManager) -> None:
    manager.manager.take_new_block_ids()
    _, retained = manager.manager.take_kv_cache_block_copies()
    if not manager.defers:
        manager.pool.free_blocks(retained)
    elif retained:
        manager.retained.append(retained)
    manager.manager.new_step_starts()
    manager.manager.take_events()


def _allocate(manager: CachingManager, call: Call) -> None:
    try:
        manager.allocate(call)
    except (ValueError, AssertionError, IndexError):
        return  # a declared finding


def _free(manager: CachingManager, request: int, deferred: bool) -> None:
    stub = manager.stubs.pop(request, None)
    if deferred:
        manager.popped.append([] if stub is None else list(manager.manager.pop_blocks_for_free(stub)))
    elif stub is not None:
        manager.manager.free(stub)


#: the calls that are made bare; the rest observes little and is made as it is
BARE: dict[str, Callable[..., None]] = {
    "lookup": _look_up,
    "extend": _allocate,
    "release": _free,
    "publish": _publish,
    "new_step": _new_step,
}


def bare(traces: list[Calls]) -> float:
    """Seconds of the real manager alone on all traces; audits are left out."""
    start = time.process_time()
    for trace in traces:
        gc.disable()  # as a run does
        manager = CachingManager(trace.setting)
        for method, arguments in trace.calls:
            call = BARE.get(method)
            try:
                if call is not None:
                    call(manager, *arguments)
                elif method != "audit":
                    getattr(manager, method)(*arguments)
            except (AssertionError, IndexError):
                break  # a declared finding ends the trace
        gc.enable()
    return time.process_time() - start


def checked(run_seed: int, shard: int, options: Options) -> float:
    """Seconds of a whole shard."""
    with TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal")
        start = time.process_time()
        run_shard(run_seed, shard, manager_of, options, "caching", journal)
        gc.collect(0)  # what it leaves is its own
        return time.process_time() - start
