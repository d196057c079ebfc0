"""The facts of the table that 0.33.0 keeps in further places, each asked of the place itself.

What can be called without a device is called: a property, a function, a constructor on torch's CPU device, a method on
a stand-in that has what the method reads. docs/facts-kept-twice.md lists these and the rest, with formula and file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

from harness.targets import config
from oracle.budget import Case

#: a length of the drafter that no other number here equals
_DRAFTER_LEN = 1000
_WINDOW = 32


def _module(name: str) -> Any:
    return importlib.import_module(f"vllm.{name}")


def _cpu() -> Any:
    return importlib.import_module("torch").device("cpu")


def v1_room(case: Case) -> int:
    """Positions that the V1 runner wants free behind a sequence before it drafts (`_input_fits_in_drafter`)."""
    built = config.build(case)
    fits = _module("v1.worker.gpu_model_runner").GPUModelRunner._input_fits_in_drafter
    runner = SimpleNamespace(
        speculative_config=built.speculative_config,
        num_spec_tokens=built.num_speculative_tokens,
        effective_drafter_max_model_len=_DRAFTER_LEN,
    )
    room = 0
    while not fits(runner, SimpleNamespace(max_seq_len=_DRAFTER_LEN - room)):
        room += 1
    return room


def backend_query_rows(case: Case) -> int:
    """Widest request that attention backends take for a decode (`max_decode_query_len`)."""
    return int(_module("v1.attention.backend").max_decode_query_len(config.build(case)))


def mamba_blocks(case: Case) -> int:
    """Speculative blocks of a Mamba layer (`MambaBase.get_kv_cache_spec`)."""
    built = config.build(case)
    torch = importlib.import_module("torch")
    base = _module("model_executor.layers.mamba.abstract").MambaBase
    layer = SimpleNamespace(
        get_state_shape=lambda: ((4, 4),),
        get_state_dtype=lambda: (torch.float32,),
        mamba_type=_module("v1.attention.backends.registry").MambaAttentionBackendEnum.MAMBA2,
        is_kv_cache_tp_replicated=False,
    )
    built.cache_config.mamba_block_size = 16
    return int(base.get_kv_cache_spec(layer, built).num_speculative_blocks)


def retained(case: Case) -> int:
    """Tokens that every windowed group keeps beyond its window (`get_global_kv_cache_groups`)."""
    torch = importlib.import_module("torch")
    spec = _module("v1.kv_cache_interface").SlidingWindowSpec(
        block_size=16, num_kv_heads=1, head_size=16, dtype=torch.float16, sliding_window=_WINDOW
    )
    built = config.build(case)
    groups = _module("v1.core.kv_cache_planning").get_global_kv_cache_groups(built, [{"layer": spec}])
    groups = groups if isinstance(groups, list) else groups[0]
    return int(groups[0].kv_cache_spec.extra_retained_tokens)


def nixl_back_off(case: Case) -> int:
    """Trailing prompt tokens that a NIXL prefiller leaves to the decoder (`_prefill_backoff`)."""
    scheduler = _module("distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler").NixlBaseConnectorScheduler
    stand_in = SimpleNamespace(_has_mamba=False, _bounded_replay=False, vllm_config=config.build(case))
    return int(scheduler._prefill_backoff(stand_in))


_V2 = {
    "dflash": ("dflash", "DFlashSpeculator"),
    "dspark": ("dspark", "DSparkSpeculator"),
    "dspark_fill_in": ("dspark", "DSparkSpeculator"),
    "draft_model": ("standalone_ar", "StandaloneARSpeculator"),
    "mtp_modules": ("multi_module_mtp", "MultiModuleMTPSpeculator"),
}


def _speculator(case: Case) -> Any:
    """The V2 runner's drafter, its buffers on the CPU."""
    module, name = _V2[case.method]
    found = getattr(_module(f"v1.worker.gpu.spec_decode.{module}.speculator"), name)
    return found(config.build(case), _cpu())


def v2_own_rows(case: Case) -> int:
    """Query rows a request of the DFlash and DSpark pass (`num_query_per_req`)."""
    return int(_speculator(case).num_query_per_req)


def v2_pass_rows(case: Case) -> int:
    """Rows that the buffers of the DFlash and DSpark pass have."""
    return int(_speculator(case).input_buffers.input_ids.shape[0])


def v2_added_rows(case: Case) -> int:
    """Rows a request that the draft model's expanded pass adds (`num_extra_query_per_req`)."""
    return int(_speculator(case).num_extra_query_per_req)


def v2_expanded_rows(case: Case) -> int:
    """Rows that the buffers of the draft model's expanded pass have."""
    return int(_speculator(case).expanded_input_ids.shape[0])


def v2_rewritten(case: Case) -> int:
    """Tokens of the last step that multi-module MTP keeps to write again (`cached_draft_input_ids`)."""
    return int(_speculator(case).cached_draft_input_ids.shape[1])


_V1 = {
    "eagle": ("eagle", "EagleProposer"),
    "eagle3": ("eagle", "EagleProposer"),
    "mtp": ("eagle", "EagleProposer"),
    "mtp_modules": ("eagle", "EagleProposer"),
    "draft_model": ("draft_model", "DraftModelProposer"),
    "dflash": ("dflash", "DFlashProposer"),
}


def _proposer(case: Case) -> Any:
    """The V1 runner's drafter, its buffers on the CPU and not pinned (pinning needs a driver)."""
    module, name = _V1[case.method]
    found = getattr(_module(f"v1.spec_decode.{module}"), name)
    buffers = _module("v1.spec_decode.llm_base_proposer")
    plain = _module("v1.utils").CpuGpuBuffer

    def unpinned(*size: int, **keywords: Any) -> Any:
        return plain(*size, **{**keywords, "pin_memory": False})

    with mock.patch.object(buffers, "CpuGpuBuffer", unpinned):
        return found(config.build(case), _cpu())


def v1_added_rows(case: Case) -> int:
    """Rows a request that the V1 proposer says it adds (`net_num_new_slots_per_request`)."""
    return int(_proposer(case).net_num_new_slots_per_request)


def v1_pass_rows(case: Case) -> int:
    """Rows that the V1 proposer's input buffer has."""
    return int(_proposer(case).input_ids.shape[0])


def warmup_blocks(case: Case) -> int:
    """Columns of block size 1 that the V2 warmup reserves for a request of one token (`_reserved_block_count`)."""
    torch = importlib.import_module("torch")
    spec = _module("v1.kv_cache_interface").FullAttentionSpec(
        block_size=1, num_kv_heads=1, head_size=16, dtype=torch.float16
    )
    count = _module("v1.worker.gpu.warmup")._reserved_block_count
    lookahead = config.build(case).num_lookahead_tokens
    wanted = {"num_lookahead_tokens": lookahead, "max_model_len": config.MAX_MODEL_LEN, "max_encoder_len": 0}
    return int(count(1, spec, **wanted))


def dspark_index_width(case: Case) -> int:
    """Columns of a sparse DSpark query: the window and what is drafted beside it (`get_dspark_swa_index_width`)."""
    width = _module("v1.attention.backends.mla.compressor_utils").get_dspark_swa_index_width
    return int(width(64 - case.drafts % 64, config.build(case).num_speculative_tokens))


def draft_counts(ranges: tuple[tuple[int, int, int], ...], drafts: int, max_num_seqs: int) -> tuple[int, ...]:
    """Dynamic draft counts as the scheduler looks them up (`build_dynamic_sd_schedule_lookup`)."""
    lookup = _module("v1.spec_decode.dynamic.utils").build_dynamic_sd_schedule_lookup
    return tuple(lookup([tuple(entry) for entry in ranges], max_num_seqs, drafts)[1:])


#: the places by name
PLACES: dict[str, Callable[[Case], int]] = {
    place.__name__: place
    for place in (
        v1_room,
        backend_query_rows,
        mamba_blocks,
        retained,
        nixl_back_off,
        v2_own_rows,
        v2_pass_rows,
        v2_added_rows,
        v2_expanded_rows,
        v2_rewritten,
        v1_added_rows,
        v1_pass_rows,
        warmup_blocks,
        dspark_index_width,
    )
}
