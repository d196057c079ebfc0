"""What the project uses of a release, by name: parameters of functions, fields of classes. To compare two releases."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import fields, is_dataclass
from typing import Any

#: module (below vllm.) -> functions, and classes with the methods that are called; "" is the constructor
USED: dict[str, dict[str, tuple[str, ...]]] = {
    "v1.core.kv_cache_manager": {
        "KVCacheManager": (
            "",
            "allocate_slots",
            "get_computed_blocks",
            "free",
            "pop_blocks_for_free",
            "remove_skipped_blocks",
            "new_step_starts",
            "take_new_block_ids",
            "take_kv_cache_block_copies",
            "cache_blocks",
            "evict_blocks",
            "reset_prefix_cache",
            "take_events",
        ),
    },
    "v1.core.block_pool": {"BlockPool": ("", "free_blocks", "get_new_blocks", "touch")},
    "v1.core.kv_cache_utils": {"generate_scheduler_kv_cache_config": (), "get_request_block_hasher": ()},
    "v1.core.sched.scheduler": {"Scheduler": ("", "schedule", "update_from_output", "add_request", "finish_requests")},
    "v1.request": {"Request": ("",)},
    "v1.worker.gpu.warmup": {"warmup_kernels": (), "run_mixed_prefill_decode_warmup": (), "_reserved_block_count": ()},
}
#: dataclasses whose fields are set
RECORDS: dict[str, tuple[str, ...]] = {
    "v1.kv_cache_interface": (
        "KVCacheConfig",
        "KVCacheGroupSpec",
        "FullAttentionSpec",
        "MLAAttentionSpec",
        "HiddenStateCacheSpec",
        "SinkFullAttentionSpec",
        "SlidingWindowSpec",
        "SlidingWindowMLASpec",
        "ChunkedLocalAttentionSpec",
        "RSWASpec",
        "CircularBufferSpec",
        "CrossAttentionSpec",
        "MambaSpec",
        "UniformTypeKVCacheSpecs",
    ),
    "v1.core.sched.output": ("SchedulerOutput", "NewRequestData", "CachedRequestData"),
}


def used() -> dict[str, list[str]]:
    """Name -> its parameters or fields, with defaults; what a release lacks is left out."""
    found: dict[str, list[str]] = {}
    for module, names in USED.items():
        for name, methods in names.items():
            owner = _get(module, name)
            for method in methods or ("",):
                part = getattr(owner, method, None) if method else owner
                if part is not None:
                    found[f"{name}.{method}" if method else name] = _parameters(part)
    for module, records in RECORDS.items():
        for name in records:
            record = _get(module, name)
            if record is not None and is_dataclass(record):
                found[name] = [field.name for field in fields(record)]
    return found


def _get(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(f"vllm.{module}"), name, None)
    except ImportError:
        return None


def _parameters(part: Any) -> list[str]:
    try:
        signature = inspect.signature(part)
    except (TypeError, ValueError):
        return []
    return [_shown(parameter) for parameter in signature.parameters.values() if parameter.name != "self"]


def _shown(parameter: inspect.Parameter) -> str:
    """Name and default; of a default that is an object only that there is one."""
    default = parameter.default
    if default is not parameter.empty and not isinstance(default, (int, float, str, tuple, type(None))):
        return f"{parameter.name}=..."
    return str(parameter.replace(annotation=parameter.empty))
