"""The bench's row of traces with prefix caching on: bare lookups, allocations and frees, and the whole check."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.outcome import Options
from harness.passes import Prediction, predict
from harness.targets.cached import CachingManager
from harness.targets.loader import manager_of
from harness.worker import EXAMPLES, Journal, run_shard
from oracle.trace import Call, Query
from strategies.traces import draw


def recorded(run_seed: int, shards: int, options: Options) -> list[Prediction]:
    """The traces of some shards, with the calls that they stand for."""
    drawn: list[bytes] = []
    for shard in range(shards):
        draw(run_seed, shard, EXAMPLES, drawn.append)
    return [predict(data, "caching", options) for data in drawn]


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


def bare(traces: list[Prediction]) -> float:
    """Seconds of the real manager alone on all traces; audits are left out."""
    start = time.process_time()
    for trace in traces:
        gc.disable()  # as a run does
        manager = CachingManager(trace.setting)
        for _, method, arguments, _ in trace.asked:
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


def checked(run_seed: int, shards: int, options: Options) -> tuple[float, int]:
    """Seconds and steps of whole shards."""
    with TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal")
        start = time.process_time()
        steps = sum(
            run_shard(run_seed, shard, manager_of, options, "caching", journal).steps for shard in range(shards)
        )
        return time.process_time() - start, steps
