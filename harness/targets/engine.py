"""What the release's scheduler is built from, on a CPU and without weights: its configuration and its requests' parts.

The configuration comes from the release's own constructors, on the model folders of `targets.config`.
"""

from __future__ import annotations

import copy
import importlib
import logging
from functools import cache
from types import SimpleNamespace
from typing import Any

from harness.targets import compat, config, connector
from oracle.budget import Case
from oracle.content import LONGEST_ITEM, item_length
from oracle.groups import Mamba
from oracle.methods import METHODS
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import STOP, Submit, Update


@cache
def modules() -> SimpleNamespace:
    """What of vLLM is used here, imported once; TargetError when it is missing."""
    settings = config.import_config()
    load = importlib.import_module
    logging.getLogger("vllm.v1.core.sched.scheduler").setLevel(logging.CRITICAL)  # failed loads are asked for
    load("vllm.v1.structured_output.backend_types").StructuredOutputGrammar.register(Compiling)
    return SimpleNamespace(
        config=settings,
        scheduler=load("vllm.v1.core.sched.scheduler").Scheduler,
        overlapping=load("vllm.v1.core.sched.async_scheduler").AsyncScheduler,
        request=load("vllm.v1.request").Request,
        status=load("vllm.v1.request").RequestStatus,
        sampling=load("vllm.sampling_params").SamplingParams,
        pooling=load("vllm.pooling_params").PoolingParams,
        output=load("vllm.v1.outputs").ModelRunnerOutput,
        drafts=load("vllm.v1.outputs").DraftTokenIds,
        inputs=load("vllm.multimodal.inputs"),
        encoders=load("vllm.v1.core.encoder_cache_manager"),
        transfers=load("vllm.v1.outputs").KVConnectorOutput,
        pause=load("vllm.v1.core.sched.interface").PauseState,
    )


def prepare() -> None:
    """Import vLLM and inspect the model classes (cached on disk by vLLM), before anything is forked."""
    modules()
    for name in sorted({name for name, _ in METHODS} - {"diffusion"}):
        config.target_model(name)
    config.target_model("none", pooling=True)


class Grammars:
    """In place of the structured-output manager: what a grammar accepts is the workload's affair."""

    def __init__(self) -> None:
        self.valid: dict[int, int] = {}
        self.refused: tuple[int, ...] = ()

    def accept_tokens(self, request: Any, tokens: list[int]) -> bool:
        return not request.use_structured_output or self.accepts(int(request.request_id))

    def validate_tokens(self, request: Any, tokens: list[int]) -> list[int]:
        return self.allowed(int(request.request_id), tokens) if request.use_structured_output else tokens

    def should_advance(self, request: Any, new_token_ids: Any = None) -> bool:
        """Releases before 0.30.0 ask the request's grammar itself."""
        return bool(request.use_structured_output)

    def trim_reasoning_for_advance(self, request: Any, tokens: list[int]) -> list[int]:
        return tokens

    def accepts(self, name: int) -> bool:
        """Whether a request's grammar takes what was sampled."""
        return name not in self.refused

    def allowed(self, name: int, tokens: list[int]) -> list[int]:
        """The drafts that a request's grammar takes."""
        return tokens[: self.valid.get(name, len(tokens))]


class Compiling:
    """A request's grammar, which is there after some looks; and the grammar itself."""

    def __init__(self, name: int, looks: int, grammars: Grammars) -> None:
        self.name, self.looks, self.grammars = name, looks, grammars

    @property
    def grammar(self) -> Any:
        self.looks -= 1
        return None if self.looks > 0 else self

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        return self.grammars.accepts(self.name)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return self.grammars.allowed(self.name, tokens)


@cache
def _model(name: str, max_model_len: int, pooling: bool) -> Any:
    """The real `ModelConfig` of a method's target, with another length: nothing else in it depends on it."""
    model = copy.copy(config.target_model(name, pooling))
    model.max_model_len = max_model_len
    return model


@cache
def sampling(max_tokens: int, skip: bool = False) -> Any:
    """What a request asks for: so many tokens at most, and an end at the token that stops."""
    return modules().sampling(max_tokens=max_tokens, stop_token_ids=[STOP], skip_reading_prefix_cache=skip)


@cache
def pooled(skip: bool) -> Any:
    """What a request asks for where the model pools."""
    return modules().pooling(task="embed", skip_reading_prefix_cache=skip)


def engine_config(setting: SchedulerSetting) -> Any:
    """The release's `VllmConfig` of a setting. Raises what its constructors raise."""
    settings = modules().config
    name, drafts = setting.method, setting.num_speculative_tokens
    if not drafts:
        name = "none"
    align = setting.align_size
    parallel = setting.parallel_drafting and bool(drafts)
    built = settings.VllmConfig(
        model_config=_model(name, setting.max_model_len, setting.pooling),
        scheduler_config=_scheduler_config(setting),
        cache_config=settings.CacheConfig(block_size=16, enable_prefix_caching=setting.enable_caching),
        parallel_config=settings.ParallelConfig(),
        device_config=settings.DeviceConfig("cpu"),
        kv_transfer_config=_transfer(setting),
        speculative_config=config.drafter(Case(method=name, parallel=parallel, drafts=drafts), setting.draft_counts),
    )
    built.parallel_config.decode_context_parallel_size = setting.dcp_size  # whose ranks are devices, refused without
    # the engine writes these after it has sized the cache
    built.cache_config.num_gpu_blocks = setting.num_blocks
    built.cache_config.block_size = cache_block_size(setting)
    built.cache_config.enable_mamba_shared_prefix_checkpoint = setting.enable_mamba_shared_prefix_checkpoint
    if any(isinstance(group, Mamba) for group in setting.groups):
        built.cache_config.mamba_cache_mode = "align" if align else "none"
    if bool(built.scheduler_config.async_scheduling) != (setting.in_flight_depth > 1):
        raise compat.TargetError("the release switched async scheduling off on this machine; see its platform")
    return built


def cache_block_size(setting: SchedulerSetting) -> int:
    """What the engine writes into the cache's configuration (tokens)."""
    if setting.enable_caching:
        return min(group.block_size for group in setting.groups if group.cacheable)
    return setting.align_size or setting.scheduler_block_size


def scheduler_arguments(setting: SchedulerSetting) -> dict[str, Any]:
    """The arguments of a `SchedulerConfig`, plain data."""
    return {
        "max_model_len": setting.max_model_len,
        "is_encoder_decoder": setting.max_encoder_len > 0,
        "max_num_batched_tokens": setting.max_num_batched_tokens,
        "max_num_seqs": setting.max_num_seqs,
        "max_num_scheduled_tokens": setting.max_num_scheduled_tokens,
        "max_num_active_seqs": setting.max_num_active_seqs,
        "long_prefill_token_threshold": setting.long_prefill_token_threshold,
        "long_prefill_token_threshold_adaptive": setting.long_prefill_token_threshold_adaptive,
        "enable_chunked_prefill": setting.enable_chunked_prefill,
        "policy": setting.policy,
        "prefill_schedule_interval": setting.prefill_schedule_interval,
        "scheduler_reserve_full_isl": setting.scheduler_reserve_full_isl,
        "watermark": setting.watermark,
        "async_scheduling": setting.in_flight_depth > 1,
        **({"disable_chunked_mm_input": True} if setting.disable_chunked_mm_input else {}),
    }


def _scheduler_config(setting: SchedulerSetting) -> Any:
    settings = modules().config
    return settings.SchedulerConfig(**compat.options(settings.SchedulerConfig, scheduler_arguments(setting)))


def encoders(setting: SchedulerSetting, scheduler: Any) -> None:
    """What the constructor takes from the model class of a multimodal model, which no small folder has.

    It asks the model's processor for the longest item; budget and place are then made of that by the release's own
    function. The cache of an encoder-decoder never binds: nothing is kept in it, its slots are given back every step.
    """
    made = modules().encoders
    if setting.max_encoder_len:
        scheduler.is_encoder_decoder = True
        scheduler.max_num_encoder_input_tokens = setting.encoder_budget
        scheduler.encoder_cache_manager = made.EncoderDecoderCacheManager(1 << 30)
    elif setting.encoder_cache_size:
        limits = scheduler.scheduler_config
        limits.encoder_cache_size = setting.encoder_cache_size
        if setting.max_num_encoder_input_tokens is not None:
            limits.max_num_encoder_input_tokens = setting.max_num_encoder_input_tokens
        budget, size = made.compute_mm_encoder_budget(limits, {"image": LONGEST_ITEM})
        scheduler.max_num_encoder_input_tokens = budget
        scheduler.encoder_cache_manager = made.EncoderCacheManager(cache_size=size)


def features(operation: Submit | Update) -> Any:
    """The encoder's input of a request or a piece, without data: one item at the beginning, or items in the prompt."""
    inputs = modules().inputs

    def feature(modality: str, name: str, offset: int, length: int) -> Any:
        position = inputs.PlaceholderRange(offset=offset, length=length)
        return inputs.MultiModalFeatureSpec(data=None, modality=modality, identifier=name, mm_position=position)

    if isinstance(operation, Submit) and operation.encoder:
        return [feature("audio", str(operation.request), 0, operation.encoder)]
    return [feature("image", str(item), offset, item_length(item)) for item, offset in operation.items] or None


def _transfer(setting: SchedulerSetting) -> Any:
    if not setting.kv_connector:
        return None
    return modules().config.KVTransferConfig(
        kv_connector=connector.NAME,
        kv_connector_module_path=connector.__name__,
        kv_role=setting.kv_role,
        kv_load_failure_policy=setting.kv_load_failure_policy,
        engine_id="slotcheck",
    )
