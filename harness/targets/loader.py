"""From a name on the command line to something that makes a target."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from harness.outcome import MakeTarget
from harness.targets.cached import CachingManager
from harness.targets.compat import TargetError, import_vllm
from harness.targets.manager import Manager
from harness.workload_outcome import MakeScheduler
from oracle.scheduler_setting import SchedulerSetting
from oracle.setting import Setting
from oracle.trace import Target
from oracle.workload import SchedulerTarget

#: what a Target can do
METHODS = ("extend", "release", "give_back", "trim", "new_step", "audit")
#: what a SchedulerTarget can do
SCHEDULER_METHODS = ("submit", "schedule", "samples", "output", "abort", "reset", "pause", "situation")


def load_target(spec: str | None) -> MakeTarget:
    """The installed release's manager, or `module:Class`: a Target, or a class with `KVCacheManager`'s methods.

    TargetError when it cannot be loaded. vLLM is imported here, once, before anything is forked.
    """
    import_vllm()
    if spec is None:
        return manager_of
    found = _import(spec)
    if all(callable(getattr(found, name, None)) for name in METHODS):
        return found  # type: ignore[no-any-return]
    if not callable(getattr(found, "allocate_slots", None)):
        raise TargetError(
            f"--target {spec} is neither a Target ({', '.join(METHODS)}) nor a KVCacheManager (allocate_slots, ...)"
        )

    def make(setting: Setting) -> Target:
        return manager_of(setting, found)

    return make


def load_scheduler(spec: str | None) -> MakeScheduler:
    """The installed release's schedulers, or `module:Class`: a SchedulerTarget, or a class with `Scheduler`'s methods.

    A subclass of `Scheduler` gets the methods of `AsyncScheduler` in front of its own where steps overlap; one of
    `AsyncScheduler` is run where they do, and upstream's scheduler elsewhere. TargetError when it cannot be loaded.
    """
    from harness.targets.engine import modules, prepare
    from harness.targets.scheduler import Scheduler

    prepare()
    if spec is None:
        return Scheduler
    found = _import(spec)
    if all(callable(getattr(found, name, None)) for name in SCHEDULER_METHODS):
        return found  # type: ignore[no-any-return]
    if not callable(getattr(found, "update_from_output", None)) or not callable(getattr(found, "schedule", None)):
        raise TargetError(
            f"--target {spec} is neither a SchedulerTarget ({', '.join(SCHEDULER_METHODS)}) nor a Scheduler (schedule, "
            "update_from_output, ...)"
        )
    vllm = modules()
    plain, overlapping = found, found
    if isinstance(found, type) and issubclass(found, vllm.overlapping):
        plain = None
    elif isinstance(found, type) and issubclass(found, vllm.scheduler):
        overlapping = type(f"Async{found.__name__}", (vllm.overlapping, found), {})

    def make(setting: SchedulerSetting) -> SchedulerTarget:
        return Scheduler(setting, overlapping if setting.in_flight_depth > 1 else plain)

    return make


def manager_of(setting: Setting, manager_class: Any = None) -> Target:
    """The party that a setting needs, around the installed release's manager or another class."""
    kind = CachingManager if setting.enable_caching else Manager
    return kind(setting, manager_class)


def upstream(make_target: MakeTarget) -> MakeTarget | None:
    """The installed release's manager as a control, where the target is another one."""
    return None if make_target is manager_of or "vllm" not in sys.modules else manager_of


def _import(spec: str) -> Any:
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise TargetError(f"--target must be module:Class, got {spec!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise TargetError(f"--target {spec} does not import: {type(error).__name__}: {error}") from None
    if not hasattr(imported, name):
        raise TargetError(f"--target {spec}: module {module} has no {name}")
    return getattr(imported, name)
