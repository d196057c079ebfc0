"""The facts of the table that 0.33.0 keeps in further places, each asked of the place itself.

What can be called without a device is called: a property, a function, a constructor on torch's CPU device, a method on
a stand-in that has what the method reads. docs/facts-kept-twice.md lists these and the rest, with formula and file.
Each place gets a `VllmConfig` and needs nothing of ours: `repro.py` of a difference holds its text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from harness.targets import config
from harness.targets.resumed import make_request, make_scheduler
from oracle.budget import Case, DraftCounts


def v1_room(config: Any) -> int:
    """Positions that the V1 runner wants free behind a sequence before it drafts (`_input_fits_in_drafter`)."""
    from types import SimpleNamespace

    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    length = 1000  # equals no other number here
    runner = SimpleNamespace(
        speculative_config=config.speculative_config,
        num_spec_tokens=config.num_speculative_tokens,
        effective_drafter_max_model_len=length,
    )
    room = 0
    while not GPUModelRunner._input_fits_in_drafter(runner, SimpleNamespace(max_seq_len=length - room)):
        room += 1
    return room


def backend_query_rows(config: Any) -> int:
    """Widest request that attention backends take for a decode (`max_decode_query_len`)."""
    from vllm.v1.attention.backend import max_decode_query_len

    return int(max_decode_query_len(config))


def mamba_blocks(config: Any) -> int:
    """Speculative blocks of a Mamba layer (`MambaBase.get_kv_cache_spec`)."""
    from types import SimpleNamespace

    import torch
    from vllm.model_executor.layers.mamba.abstract import MambaBase
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum

    layer = SimpleNamespace(
        get_state_shape=lambda: ((4, 4),),
        get_state_dtype=lambda: (torch.float32,),
        mamba_type=MambaAttentionBackendEnum.MAMBA2,
        is_kv_cache_tp_replicated=False,
    )
    config.cache_config.mamba_block_size = 16
    return int(MambaBase.get_kv_cache_spec(layer, config).num_speculative_blocks)


def retained(config: Any) -> int:
    """Tokens that every windowed group keeps beyond its window (`get_global_kv_cache_groups`)."""
    import torch
    from vllm.v1.kv_cache_interface import SlidingWindowSpec

    spec = SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=16, dtype=torch.float16, sliding_window=32)
    try:
        from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups
    except ImportError:  # up to 0.32.0 the sizing of a whole cache says it
        from vllm.v1.attention.backends import utils
        from vllm.v1.core.kv_cache_utils import get_kv_cache_configs

        if hasattr(utils, "resolve_kv_cache_layout"):  # it asks for a layout that the engine chose
            utils.resolve_kv_cache_layout(config, [["NHD"]])
        groups = get_kv_cache_configs(config, [{"layer": spec}], [2**30])[0].kv_cache_groups
    else:
        groups = get_global_kv_cache_groups(config, [{"layer": spec}])
    groups = groups if isinstance(groups, list) else groups[0]
    return int(groups[0].kv_cache_spec.extra_retained_tokens)


def nixl_back_off(config: Any) -> int:
    """Trailing prompt tokens that a NIXL prefiller leaves to the decoder (`_prefill_backoff`)."""
    from types import SimpleNamespace

    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler import NixlBaseConnectorScheduler

    scheduler = SimpleNamespace(_has_mamba=False, _bounded_replay=False, vllm_config=config)
    return int(NixlBaseConnectorScheduler._prefill_backoff(scheduler))


def v2_drafter(config: Any) -> Any:
    """The V2 runner's drafter as the runner makes it, its buffers on the CPU."""
    import inspect

    import torch
    from vllm.v1.worker.gpu.spec_decode import init_speculator

    given = [config, torch.device("cpu"), None]  # the last one is new in 0.33.0
    return init_speculator(*given[: len(inspect.signature(init_speculator).parameters)])


def v2_own_rows(config: Any) -> int:
    """Query rows a request of the DFlash and DSpark pass (`num_query_per_req`)."""
    return int(v2_drafter(config).num_query_per_req)


def v2_pass_rows(config: Any) -> int:
    """Rows that the buffers of the V2 drafter's pass have."""
    return int(v2_drafter(config).input_buffers.input_ids.shape[0])


def v2_added_rows(config: Any) -> int:
    """Rows a request that the draft model's expanded pass adds (`num_extra_query_per_req`)."""
    return int(v2_drafter(config).num_extra_query_per_req)


def v2_expanded_rows(config: Any) -> int:
    """Rows that the buffers of the draft model's expanded pass have."""
    return int(v2_drafter(config).expanded_input_ids.shape[0])


def v2_rewritten(config: Any) -> int:
    """Tokens of the last step that multi-module MTP keeps to write again (`cached_draft_input_ids`)."""
    return int(v2_drafter(config).cached_draft_input_ids.shape[1])


def v1_drafter(config: Any) -> Any:
    """The V1 runner's drafter, its buffers on the CPU and not pinned (pinning needs a driver)."""
    from unittest import mock

    import torch
    from vllm.v1.spec_decode.dflash import DFlashProposer
    from vllm.v1.spec_decode.draft_model import DraftModelProposer
    from vllm.v1.spec_decode.eagle import EagleProposer
    from vllm.v1.utils import CpuGpuBuffer

    def unpinned(*size: int, **keywords: Any) -> Any:
        return CpuGpuBuffer(*size, **{**keywords, "pin_memory": False})

    others = {"dflash": DFlashProposer, "draft_model": DraftModelProposer}
    make = others.get(config.speculative_config.method, EagleProposer)
    with mock.patch("vllm.v1.spec_decode.llm_base_proposer.CpuGpuBuffer", unpinned):
        return make(config, torch.device("cpu"))


def v1_added_rows(config: Any) -> int:
    """Rows a request that the V1 proposer says it adds (`net_num_new_slots_per_request`)."""
    return int(v1_drafter(config).net_num_new_slots_per_request)


def v1_pass_rows(config: Any) -> int:
    """Rows that the V1 proposer's input buffer has."""
    return int(v1_drafter(config).input_ids.shape[0])


def warmup_blocks(config: Any) -> int:
    """Columns of block size 1 that the V2 warmup reserves for a request of one token (`_reserved_block_count`)."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec
    from vllm.v1.worker.gpu.warmup import _reserved_block_count

    spec = FullAttentionSpec(block_size=1, num_kv_heads=1, head_size=16, dtype=torch.float16)
    lookahead, longest = config.num_lookahead_tokens, config.model_config.max_model_len
    wanted = {"num_lookahead_tokens": lookahead, "max_model_len": longest, "max_encoder_len": 0}
    return int(_reserved_block_count(1, spec, **wanted))


def dspark_index_width(config: Any) -> int:
    """Columns of a sparse DSpark query: the window and what is drafted beside it (`get_dspark_swa_index_width`)."""
    from vllm.v1.attention.backends.mla.compressor_utils import get_dspark_swa_index_width

    drafts = config.num_speculative_tokens
    return int(get_dspark_swa_index_width(64 - drafts % 64, drafts))


def mamba_blocks_replayed(config: Any) -> int:
    """Speculative blocks of a Mamba layer whose states are replayed from one checkpoint."""
    for name in ("use_replayssm", "use_kda_recoverssm"):  # the second one up to 0.31.0
        if hasattr(config.cache_config, name):
            setattr(config.cache_config, name, True)
    return mamba_blocks(config)


def dispatcher_query_rows(config: Any) -> int:
    """Rows of a decode in the graphs of the V1 runner (`CudagraphDispatcher.uniform_decode_query_len`)."""
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    return int(CudagraphDispatcher(config).uniform_decode_query_len)


def v1_query_rows(config: Any) -> int:
    """Rows that the V1 DFlash proposer keeps for its queries (`max_query_tokens`)."""
    return int(v1_drafter(config).max_query_tokens)


def v2_context_rows(config: Any) -> int:
    """Rows of context that a captured draft step of two requests stores (`_num_graph_context_tokens`)."""
    return int(v2_drafter(config)._num_graph_context_tokens(2))


def scheduler_lookahead(config: Any) -> int:
    """Lookahead that the scheduler asks for (`Scheduler.num_lookahead_tokens`)."""
    return int(make_scheduler(config).num_lookahead_tokens)


def scheduler_prefill_lookahead(config: Any) -> int:
    """Prompt tokens that the scheduler leaves to the next chunk (`Scheduler.num_prefill_lookahead`)."""
    return int(make_scheduler(config).num_prefill_lookahead)


def scheduler_block_drop(config: Any) -> int:
    """1 if the scheduler's manager drops the last block of a hit (`Scheduler.use_eagle_block_drop`)."""
    scheduler = make_scheduler(config)
    return int(getattr(scheduler, "use_eagle_block_drop", scheduler.use_eagle))


def encoder_budget(config: Any) -> int:
    """Tokens of items that the encoder takes in a step (`SchedulerConfig.max_num_encoder_input_tokens`)."""
    return int(config.scheduler_config.max_num_encoder_input_tokens)


def encoder_cache_size(config: Any) -> int:
    """Tokens of items whose outputs are kept (`SchedulerConfig.encoder_cache_size`)."""
    return int(config.scheduler_config.encoder_cache_size)


def scheduler_running(config: Any) -> int:
    """Requests that the scheduler lets run (`Scheduler.max_num_active_reqs`)."""
    return int(make_scheduler(config).max_num_active_reqs)


def scheduler_step_blocks(config: Any) -> int:
    """Blocks of 16 that an async load keeps free for a decode with drafts (`Scheduler._spec_decode_step_blocks`)."""
    blocks = make_scheduler(config)._spec_decode_step_blocks
    return int(blocks() if callable(blocks) else blocks)


def scheduler_remaining_blocks(config: Any) -> int:
    """Blocks of 16 that a prompt of 17 tokens needs to be loaded and go on (`Scheduler._request_remaining_blocks`)."""
    scheduler = make_scheduler(config)
    return int(scheduler._request_remaining_blocks(make_request(scheduler, "1")))


def mamba_state_columns(config: Any) -> int:
    """States of a decode that Mamba kernels address (`BaseMambaAttentionMetadataBuilder.state_indices_tensor_d`)."""
    import torch
    from vllm.v1.attention.backends.mamba2_attn import Mamba2AttentionMetadataBuilder
    from vllm.v1.kv_cache_interface import MambaSpec

    spec = MambaSpec(block_size=16, shapes=((4, 4),), dtypes=(torch.float32,))
    made = Mamba2AttentionMetadataBuilder(spec, ["layer"], config, torch.device("cpu"))
    return int(made.state_indices_tensor_d.shape[1])


def gdn_state_columns(config: Any) -> int:
    """The same of gated delta nets (`GDNAttentionMetadataBuilder.spec_state_indices_tensor`)."""
    import torch
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadataBuilder
    from vllm.v1.kv_cache_interface import MambaSpec

    spec = MambaSpec(block_size=16, shapes=((4, 4),), dtypes=(torch.float32,))
    made = GDNAttentionMetadataBuilder(spec, ["layer"], config, torch.device("cpu"))
    return int(made.spec_state_indices_tensor.shape[1])


def manager_rewritten(config: Any) -> int:
    """Trailing computed tokens that the manager takes for not final (`num_reprefillable_tokens`)."""
    return int(make_scheduler(config).kv_cache_manager.coordinator.num_reprefillable_tokens)


def draft_counts(counts: DraftCounts) -> tuple[int, ...]:
    """Dynamic draft counts as the scheduler looks them up (`build_dynamic_sd_schedule_lookup`)."""
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    found = build_dynamic_sd_schedule_lookup([tuple(entry) for entry in counts.ranges], counts.seqs, counts.drafts)
    return tuple(found[1:])


def method_words() -> frozenset[str]:
    """What the release takes for `SpeculativeConfig.method`."""
    from typing import get_args

    from vllm.config.speculative import SpeculativeMethod

    return frozenset(get_args(SpeculativeMethod))


_ASKED: tuple[Callable[[Any], int], ...] = (
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
    mamba_blocks_replayed,
    dispatcher_query_rows,
    v1_query_rows,
    v2_context_rows,
    scheduler_lookahead,
    scheduler_prefill_lookahead,
    scheduler_block_drop,
    encoder_budget,
    encoder_cache_size,
    scheduler_running,
    scheduler_step_blocks,
    scheduler_remaining_blocks,
    mamba_state_columns,
    gdn_state_columns,
    manager_rewritten,
)

#: what places ask for
_NEEDED = (v1_drafter, v2_drafter, make_scheduler, make_request, mamba_blocks)


def _asked(place: Callable[[Any], int]) -> Callable[[Case], int]:
    return lambda case: place(config.build(case))


#: the places by name
PLACES: dict[str, Callable[[Case], int]] = {place.__name__: _asked(place) for place in _ASKED}


def text_of(name: str) -> str:
    """The text of a place, and of what it asks for, as `repro.py` holds it."""
    place = next(place for place in _ASKED if place.__name__ == name)
    asked = [needed for needed in _NEEDED if needed.__name__ in place.__code__.co_names]
    return "\n\n".join(inspect.getsource(function) for function in (*asked, place))
