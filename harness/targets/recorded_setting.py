"""The setting of a live engine: what its `KVCacheManager` and scheduler were built with, as a trace says it."""

from __future__ import annotations

import inspect
from typing import Any

from attrs import NOTHING, fields

from harness.targets.specs import _CLASSES as CLASSES
from oracle import groups as kinds
from oracle.errors import SettingError
from oracle.methods import METHODS, lookahead_tokens
from oracle.releases import NEWEST
from oracle.setting import Setting

#: names of a spec's attributes, where they are not those of the group
_NAMES = {
    "window": ("sliding_window", "rswa_window"),
    "chunk": ("attention_chunk_size",),
    "mode": ("mamba_cache_mode",),
    "speculative_blocks": ("num_speculative_blocks",),
    "checkpoint_blocks": ("num_prefill_checkpoint_blocks",),
    "checkpoint_alignment": ("prefill_checkpoint_alignment",),
}
_SKIPPED = ("precision", "uniform_layers", "eagle")


def group_of(spec: Any, eagle: bool = False) -> kinds.Group:
    """The group of a spec of the release; SettingError for a kind that the oracle does not have."""
    layers = getattr(spec, "kv_cache_specs", None)
    if layers is not None:  # a uniform-type wrapper
        spec = next(iter(layers.values()))
    named = {name: kind for kind, name in CLASSES.items()}
    kind = next((named[base.__name__] for base in type(spec).__mro__ if base.__name__ in named), None)
    if kind is None:
        raise SettingError(f"the oracle knows no {type(spec).__name__}")
    given: dict[str, Any] = {"eagle": eagle, "precision": _precision(spec)}
    for attribute in fields(kind):
        if attribute.name in _SKIPPED:
            continue
        for name in _NAMES.get(attribute.name, (attribute.name,)):
            value = getattr(spec, name, NOTHING)
            if value is not NOTHING and not (value is None and attribute.default is NOTHING):
                given[attribute.name] = value
                break
    return kind(**given)


def _precision(spec: Any) -> str:
    dtypes = getattr(spec, "dtypes", None) or (getattr(spec, "dtype", None),)
    return "single" if str(dtypes[0]).endswith("float32") else "half"


def setting_of(init: Any, arguments: dict[str, Any], scheduler: Any) -> Setting:
    """The setting of a manager from its constructor's arguments; `scheduler`: the VllmConfig around it, if known.

    SettingError for what a recording cannot hold.
    """
    if getattr(getattr(scheduler, "model_config", None), "runner_type", "") == "pooling":
        raise SettingError("a model that pools is not recorded: a recording's requests end with a sampled token")
    bound = inspect.signature(init).bind_partial(None, **arguments)
    bound.apply_defaults()
    given = bound.arguments
    config = given["kv_cache_config"]
    said: dict[str, Any] = {
        "groups": tuple(
            group_of(group.kv_cache_spec, bool(getattr(group, "is_eagle_group", False)))
            for group in config.kv_cache_groups
        ),
        "num_blocks": config.num_blocks,
        "max_model_len": given["max_model_len"],
        "enable_caching": bool(given.get("enable_caching", True)),
        "dcp_size": given.get("dcp_world_size", 1) or 1,
        "watermark": float(given.get("watermark", 0.0) or 0.0),
        "use_eagle": bool(given.get("use_eagle", False)),
        "num_hash_lookahead_tokens": given.get("num_hash_lookahead_tokens", 0) or 0,
        "num_prefill_lookahead_tokens": given.get("num_prefill_lookahead", 0) or 0,
        "max_in_flight_tokens": given.get("max_in_flight_tokens"),
        "prefix_cache_retention_interval": getattr(config, "prefix_cache_retention_interval", None),
        "enable_mamba_shared_prefix_checkpoint": bool(given.get("enable_mamba_shared_prefix_checkpoint", False)),
        "profile": "hostile",
    }
    if said["enable_caching"]:
        said["hash_block_size"] = given.get("hash_block_size")
    if scheduler is not None:
        said |= _of_the_engine(scheduler)
        if any(isinstance(group, kinds.CrossAttention) for group in said["groups"]):
            said["max_encoder_len"] = scheduler.scheduler_config.max_num_encoder_input_tokens
        states = any(isinstance(group, kinds.Mamba) for group in said["groups"])
        said["divergent_hits"] = bool(said["kv_connector"] and said["enable_caching"] and states)
    from harness.targets.compat import installed_release

    return Setting(**said, release=installed_release() or NEWEST)


def _of_the_engine(engine: Any) -> dict[str, Any]:
    """What the scheduler adds: budgets, steps in flight, the speculative method."""
    options, drafting = engine.scheduler_config, engine.speculative_config
    depth = getattr(engine, "max_concurrent_batches", 1) or 1
    said: dict[str, Any] = {
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "max_num_seqs": options.max_num_seqs,
        "in_flight_depth": max(depth, 2) if options.async_scheduling else depth,
        "kv_connector": getattr(engine, "kv_transfer_config", None) is not None,
        "profile": "scheduler",
    }
    drafts = getattr(drafting, "num_speculative_tokens", 0) or 0
    if drafts:
        parallel = bool(getattr(drafting, "parallel_drafting", False))
        lookahead = getattr(engine, "num_lookahead_tokens", None)
        said["num_speculative_tokens"] = drafts
        said["method"], said["parallel_drafting"] = _method(str(drafting.method), parallel, drafts, lookahead)
    return said


def _method(word: str, parallel: bool, drafts: int, lookahead: int | None) -> tuple[str, bool]:
    """Our name of a release's method and its side: the same word, and as many tokens of lookahead where that is known.

    Methods that always draft in parallel are told so by the release and have one side here.
    """
    for wanted in (parallel, not parallel):
        for (name, side), method in METHODS.items():
            if method.release_word != word or side != wanted:
                continue
            if lookahead is None or lookahead_tokens(name, side, drafts) == lookahead:
                return name, side
    raise SettingError(f"the oracle knows no speculative method {word!r} with parallel drafting {parallel}")
