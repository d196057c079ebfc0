"""A model-free engine of the installed release, recorded: for tests of the recorder and the bench of its cost."""

from __future__ import annotations

import importlib
import os
from typing import Any
from unittest import mock

from harness.targets import compat, recorder
from harness.targets.model_free import Engine
from oracle.scheduler_setting import SchedulerSetting


def recorded_engine(
    setting: SchedulerSetting, folder: str, seed: int = 0, manager_class: Any = None
) -> tuple[Engine, recorder.Recorder]:
    """An engine whose scheduler is recorded into `folder`; `manager_class`: in place of the release's manager."""
    compat.import_vllm()
    scheduler = importlib.import_module("vllm.v1.core.sched.scheduler")
    manager = importlib.import_module("vllm.v1.core.kv_cache_manager").KVCacheManager
    found: list[recorder.Recorder] = []

    class Kept(recorder.Recorder):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            found.append(self)

    with (
        mock.patch.dict(os.environ, {recorder.FOLDER: folder}),
        mock.patch.object(recorder, "Recorder", Kept),
        mock.patch.object(manager, "__init__", manager.__init__),
        mock.patch.object(scheduler.Scheduler, "__init__", scheduler.Scheduler.__init__),
        mock.patch.object(scheduler, "KVCacheManager", manager_class or manager),
    ):
        recorder.register()
        engine = Engine(setting, seed)
    return engine, found[0]
