"""vLLM's own engine core without a model: an executor that answers each step with tokens from a seed, drafts included.

The loop, the scheduler, the manager and the loading of plugins are the release's; nothing is computed and no device is
needed. A draft is accepted by a coin of the seed, up to the first that is not.
"""

from __future__ import annotations

import importlib
import random
from typing import Any
from unittest import mock

from harness.targets import compat
from harness.targets.engine import engine_config, modules
from oracle.scheduler_setting import SchedulerSetting

#: tokens that are answered; the models of `config` know 128
FIRST, LAST = 2, 119


class Worker:
    """What a worker knows of each request: how many tokens it has; and what it samples."""

    def __init__(self, setting: SchedulerSetting, coins: random.Random) -> None:
        self.setting, self.coins = setting, coins
        self.known: dict[str, int] = {}
        self.sampled: list[str] = []

    def answer(self, scheduled: Any) -> Any:
        """The `ModelRunnerOutput` of a step: nothing for a chunk of a prompt, else a token and the drafts before it."""
        for name in scheduled.finished_req_ids:
            self.known.pop(name, None)
        computed = {}
        for new in scheduled.scheduled_new_reqs:
            computed[new.req_id] = new.num_computed_tokens
            self.known.setdefault(new.req_id, len(new.prompt_token_ids))
        cached = scheduled.scheduled_cached_reqs
        computed |= zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        names = list(scheduled.num_scheduled_tokens)
        sampled = [self._sample(scheduled, name, computed[name]) for name in names]
        self.sampled = [name for name, tokens in zip(names, sampled, strict=True) if tokens]
        places = {name: place for place, name in enumerate(names)}
        return modules().output(req_ids=names, req_id_to_index=places, sampled_token_ids=sampled)

    def _sample(self, scheduled: Any, name: str, computed: int) -> list[int]:
        drafts = len(scheduled.scheduled_spec_decode_tokens.get(name, ()))
        end = computed + scheduled.num_scheduled_tokens[name] - drafts
        if end < self.known[name]:
            return []
        accepted = 0
        while accepted < drafts and self.coins.random() < 0.6:
            accepted += 1
        self.known[name] += 1 + accepted
        return [self.coins.randrange(FIRST, LAST) for _ in range(1 + accepted)]

    def drafts(self) -> Any:
        """Proposals for whoever sampled."""
        count = self.setting.num_speculative_tokens
        made = [[self.coins.randrange(FIRST, LAST) for _ in range(count)] for _ in self.sampled]
        return modules().drafts(self.sampled, made) if count and self.sampled else None


def engine_of(setting: SchedulerSetting, seed: int) -> tuple[Any, Any]:
    """What an engine core is built from: the release's `VllmConfig`, and a class of executors."""
    built = engine_config(setting)
    built.cache_config.num_gpu_blocks_override = setting.num_blocks
    return built, executor_class(setting, seed)


class Engine:
    """The release's `EngineCore` in this process, on a model-free executor."""

    def __init__(self, setting: SchedulerSetting, seed: int = 0) -> None:
        built, executor = engine_of(setting, seed)
        core = importlib.import_module("vllm.v1.engine.core")
        cache = [compat.build_config(setting)]  # a model's layers have pages of one size; these groups need not
        with mock.patch.object(core, "get_kv_cache_configs", return_value=cache):
            self.core = core.EngineCore(built, executor, False)

    def submit(self, name: str, prompt: list[int], max_tokens: int, **more: Any) -> None:
        """A request; `more`: cache_salt, priority, lora_request."""
        sampling = modules().sampling(max_tokens=max_tokens, ignore_eos=True)
        hasher = self.core.request_block_hasher
        self.core.scheduler.add_request(modules().request(name, prompt, sampling, None, block_hasher=hasher, **more))

    def step(self) -> None:
        """One turn of the engine's loop."""
        self.core.step_fn()
        self.core.post_step(True)

    @property
    def busy(self) -> bool:
        """Whether requests have not finished."""
        return bool(self.core.scheduler.has_requests())


def executor_class(setting: SchedulerSetting, seed: int) -> Any:
    """A class of executors of this setting's cache, as `EngineCore` takes it."""
    compat.import_vllm()
    abstract = importlib.import_module("vllm.v1.executor.abstract").Executor
    built = compat.build_config(setting)

    class ModelFree(abstract):  # type: ignore[misc, valid-type]
        """Answers as a worker would that has sampled."""

        supports_pp = True

        @classmethod
        def supports_async_scheduling(cls) -> bool:
            return True

        def _init_executor(self) -> None:
            self.worker = Worker(setting, random.Random(seed))
            self.output: Any = None

        def get_kv_cache_specs(self) -> list[dict[str, Any]]:
            specs = {name: group.kv_cache_spec for group in built.kv_cache_groups for name in group.layer_names}
            positional = {name: spec for name, spec in specs.items() if type(spec).__name__ != "MambaSpec"}
            return [positional or specs]  # states have pages of another size; `Engine` says what the cache is

        def get_supported_kv_cache_layouts(self) -> list[list[str]]:
            return [["NHD"]]

        def determine_available_memory(self) -> list[int]:
            return [1 << 34]

        def collective_rpc(self, method: Any, *_: Any, **__: Any) -> list[Any]:
            return [("generate",) if method == "get_supported_tasks" else None]

        def initialize_from_config(self, configs: Any) -> None:
            return None

        def compile_or_warm_up_model(self) -> None:
            return None

        def check_health(self) -> None:
            return None

        def execute_model(self, scheduled: Any, non_block: bool = False) -> Any:
            self.output = self.worker.answer(scheduled)
            return self._given(None if scheduled.num_scheduled_tokens else self.output, non_block)

        def sample_tokens(self, grammar: Any, non_block: bool = False) -> Any:
            return self._given(self.output, non_block)

        def take_draft_token_ids(self) -> Any:
            return self.worker.drafts()

        def _given(self, value: Any, non_block: bool) -> Any:
            if not non_block:
                return value
            future: Any = importlib.import_module("concurrent.futures").Future()
            future.set_result(value)
            return future

    return ModelFree
