"""Stands in for vLLM where a repro.py is run: the module names that it imports, and a manager on top of any Target."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from oracle.call import GRANTED, REFUSED, Call, Observation, Rows
from oracle.setting import Setting
from oracle.trace import Target

SPECS = (
    "FullAttentionSpec",
    "SlidingWindowSpec",
    "ChunkedLocalAttentionSpec",
    "MambaSpec",
    "CircularBufferSpec",
    "CrossAttentionSpec",
    "SinkFullAttentionSpec",
    "UniformTypeKVCacheSpecs",
    "KVCacheGroupSpec",
    "KVCacheConfig",
)
RequestStatus = enum.Enum("RequestStatus", ["WAITING", "RUNNING", "PREEMPTED"])


class Spec:
    """A spec of any class: its name and arguments."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self.name = name
        self.arguments = arguments


class Manager:
    """A Target with the methods of a KVCacheManager. `built` keeps the constructor's arguments."""

    def __init__(self, target: Target, arguments: dict[str, Any]) -> None:
        self.target = target
        self.arguments = arguments
        self.shown: dict[str, Rows] = {}
        self.free_count = len(target.audit().free_order)
        self.block_pool = SimpleNamespace(
            get_num_free_blocks=lambda: self.free_count,
            free_block_queue=SimpleNamespace(get_all_free_blocks=self._queue),
            free_blocks=lambda ordered_blocks: self._see(None, target.give_back()),
        )

    def _queue(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(block_id=block) for block in self.target.audit().free_order]

    def _see(self, request: str | None, seen: Observation) -> Observation:
        self.free_count = seen.free
        if request is not None:
            self.shown[request] = seen.rows
        return seen

    def allocate_slots(self, request: Any, num_new_tokens: int, **arguments: Any) -> Any:
        external = arguments.get("num_external_computed_tokens", 0)
        assert arguments.get("delay_cache_blocks", False) == (num_new_tokens == 0)
        call = Call(
            int(request.request_id),
            request.num_computed_tokens,
            request.num_in_flight_tokens,
            request.num_prompt_tokens,
            request.num_tokens,
            request.status is not RequestStatus.RUNNING,
            request.status is RequestStatus.PREEMPTED,
            num_new_tokens,
            arguments.get("num_lookahead_tokens", 0),
            external,
            arguments.get("num_encoder_tokens", 0),
            arguments.get("full_sequence_must_fit", False),
            arguments.get("reserved_blocks", 0),
            arguments.get("has_scheduled_reqs", True),
            arguments.get("skip_zeroing_group_ids", ()),
        )
        seen = self._see(request.request_id, self.target.extend(call))
        if seen.outcome == REFUSED:
            return None
        if seen.outcome != GRANTED:
            raise {"error:ValueError": ValueError, "error:AssertionError": AssertionError}[seen.outcome]("no blocks")
        return SimpleNamespace(get_block_ids=lambda: seen.new)

    def get_block_ids(self, request_id: str) -> Rows:
        return self.shown.get(request_id, ())

    def free(self, request: Any) -> None:
        self._see(request.request_id, self.target.release(int(request.request_id), deferred=False))

    def pop_blocks_for_free(self, request: Any) -> list[SimpleNamespace]:
        seen = self._see(request.request_id, self.target.release(int(request.request_id), deferred=True))
        return [SimpleNamespace(block_id=block) for block in seen.new[0]]

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int) -> None:
        self._see(request_id, self.target.trim(int(request_id), processed_computed_tokens, num_prompt_tokens))

    def new_step_starts(self) -> None:
        pass

    def take_new_block_ids(self) -> list[int]:
        return list(self._see(None, self.target.new_step()).new[0])


def modules(make: Callable[[Setting], Target], setting: Setting, built: list[Manager]) -> dict[str, ModuleType]:
    """The modules that a repro.py imports; the managers that it builds are added to `built`."""

    def manager(**arguments: Any) -> Manager:
        built.append(Manager(make(setting), arguments))
        return built[-1]

    def spec_class(name: str) -> Callable[..., Spec]:
        return lambda **arguments: Spec(name, arguments)

    def unwrapped(kv_cache_configs: list[Spec]) -> Spec:
        for group in kv_cache_configs[0].arguments["kv_cache_groups"]:
            spec = group.arguments["kv_cache_spec"]
            if spec.name == "UniformTypeKVCacheSpecs":
                group.arguments["kv_cache_spec"] = next(iter(spec.arguments["kv_cache_specs"].values()))
        return kv_cache_configs[0]

    contents: dict[str, dict[str, Any]] = {
        "torch": {"float16": "float16", "float32": "float32"},
        "vllm": {},
        "vllm.v1": {},
        "vllm.v1.core": {},
        "vllm.v1.core.kv_cache_manager": {"KVCacheManager": manager},
        "vllm.v1.core.kv_cache_utils": {"generate_scheduler_kv_cache_config": unwrapped},
        "vllm.v1.kv_cache_interface": {name: spec_class(name) for name in SPECS},
        "vllm.v1.request": {"RequestStatus": RequestStatus},
    }
    found: dict[str, ModuleType] = {}
    for name, names in contents.items():
        module = ModuleType(name)
        module.__path__ = []  # type: ignore[attr-defined]
        vars(module).update(names)
        found[name] = module
    return found


def loaded() -> bool:
    """Whether this process has imported the real vLLM or torch."""
    return any(name in sys.modules for name in ("vllm", "torch"))
