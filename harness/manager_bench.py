"""The bench's rows of the manager level: the bare calls of the traces of a shard, and the whole check of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from attrs import frozen

from harness.outcome import MakeTarget, Options
from harness.passes import lockstep
from harness.targets.cached import CachingManager
from harness.targets.manager import Manager
from harness.worker import EXAMPLES, Journal, run_shard
from oracle.call import Call, Query
from oracle.setting import Setting
from oracle.trace import Target, methods_of
from strategies.traces import draw

#: what a manager raises at a declared finding, which ends the trace
RAISED = (ValueError, AssertionError, IndexError)


@frozen
class Calls:
    """One trace as the bare manager gets it: methods with their arguments, up to where the checked run ended."""

    setting: Setting
    calls: list[tuple[str, tuple[Any, ...]]]
    steps: int


def _allocate(manager: Manager, call: Call) -> None:
    manager.allocate(call)


def _free(manager: Manager, request: int, deferred: bool) -> None:
    stub = manager.stubs.pop(request, None)
    if deferred:
        manager.popped.append([] if stub is None else list(manager.manager.pop_blocks_for_free(stub)))
    elif stub is not None:
        manager.manager.free(stub)


def _give_back(manager: Manager) -> None:
    if manager.popped:
        manager.pool.free_blocks(reversed(manager.popped.pop(0)))


def _trim(manager: Manager, request: int, processed: int, prompt: int) -> None:
    manager.manager.remove_skipped_blocks(str(request), processed, prompt)


def _new_step(manager: Manager) -> None:
    manager.manager.new_step_starts()
    manager.manager.take_new_block_ids()


def _audit(manager: Manager) -> None:
    """Nothing: it only looks."""


def _look_up(manager: CachingManager, query: Query) -> None:
    manager.look_up(query)


def _publish(manager: CachingManager, call: Call, tokens: int) -> None:
    manager.name(call, tokens)


def _drain(manager: CachingManager) -> None:
    manager.manager.take_new_block_ids()
    _, retained = manager.manager.take_kv_cache_block_copies()
    if not manager.defers:
        manager.pool.free_blocks(retained)
    elif retained:
        manager.retained.append(retained)
    manager.manager.new_step_starts()
    manager.manager.take_events()


Bare = Mapping[str, Callable[..., None]]
#: what stands for a method of the target without observing anything; the rest is made as it is
PLAIN: Bare = {
    "extend": _allocate,
    "release": _free,
    "give_back": _give_back,
    "trim": _trim,
    "new_step": _new_step,
    "audit": _audit,
}
CACHING: Bare = {**PLAIN, "lookup": _look_up, "publish": _publish, "new_step": _drain}


@frozen
class Row:
    """One row of the bench: a profile, the manager of its traces, and its bare calls."""

    profile: str
    manager: type[Manager]
    bare: Bare

    def recorded(self, run_seed: int, shard: int, options: Options) -> list[Calls]:
        """The traces of a shard."""
        drawn: list[bytes] = []
        draw(run_seed, shard, EXAMPLES, drawn.append)
        return [self._record(data, options) for data in drawn]

    def _record(self, data: bytes, options: Options) -> Calls:
        """Run packed bytes checked once, and keep what the manager was asked."""
        asked: list[tuple[str, tuple[Any, ...]]] = []

        def make(setting: Setting) -> Target:
            target = self.manager(setting)

            def ask(name: str, *arguments: object) -> object:
                asked.append((name, arguments))
                return getattr(target, name)(*arguments)

            return cast(Target, SimpleNamespace(**{name: partial(ask, name) for name in methods_of(setting)}))

        outcome = lockstep(data, self.profile, make, options)
        return Calls(outcome.trace.setting, asked, outcome.steps)

    def alone(self, traces: list[Calls]) -> float:
        """Seconds of CPU of the manager alone on all traces; audits are left out."""
        start = time.process_time()
        for trace in traces:
            if not trace.steps:
                continue  # a declared finding: no manager can be built
            gc.disable()  # as a run does
            manager = self.manager(trace.setting)
            try:
                for method, arguments in trace.calls:
                    call = self.bare.get(method)
                    if call is None:
                        getattr(manager, method)(*arguments)
                    else:
                        call(manager, *arguments)
            except RAISED:
                pass  # where the checked run ended, too
            gc.enable()
        return time.process_time() - start

    def checked(self, run_seed: int, shard: int, make: MakeTarget, options: Options) -> float:
        """Seconds of CPU of a whole shard, as `slotcheck run` does it in one process."""
        with TemporaryDirectory() as folder:
            journal = Journal(Path(folder) / "journal")
            start = time.process_time()
            run_shard(run_seed, shard, make, options, self.profile, journal)
            gc.collect(0)  # what it leaves is its own
            return time.process_time() - start


OFF, ON = Row("scheduler", Manager, PLAIN), Row("caching", CachingManager, CACHING)
