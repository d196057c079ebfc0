"""The rules level in words: what each fact is, why it must be so, and where 0.33.0 keeps it."""

from __future__ import annotations

from attrs import frozen

_CONFIG, _SPECULATIVE = "vllm/config/vllm.py", "vllm/config/speculative.py"

_LOOKAHEAD = (
    "The drafter runs in the same step as the target, before anybody can hand out a block: every position that it "
    "writes past the target's must lie in a slot that the request already holds."
)
_ROWS = (
    "Rows that a drafter adds to the target's batch lie in the same buffers of max_num_batched_tokens rows, so each "
    "must be charged to the step's budget; a row that is not added must not be, for it costs tokens of other requests."
)
_AHEAD = (
    "A drafter that reads the target's hidden states needs the token behind each position. At the end of a chunk that "
    "is a prompt token which the target has not been given yet."
)
_REWRITTEN = (
    "The last tokens of a chunk are written again once the tokens that the further modules read ahead are known; until "
    "then they are not final, and must neither be dropped nor handed on."
)


@frozen
class Reason:
    """what: the fact in words. why: the reason. where: (file, "Class.method")."""

    what: str
    why: str
    where: tuple[tuple[str, str], ...]


#: by aspect; a law has its rule for an aspect
REASONS: dict[str, Reason] = {
    "refusal": Reason(
        "the configuration",
        "A budget in which no request can run with its drafts must be refused at the start, and no other.",
        ((_CONFIG, "VllmConfig.__post_init__"), (_SPECULATIVE, "SpeculativeConfig.__post_init__")),
    ),
    "drafts": Reason(
        "num_speculative_tokens",
        "K is what was asked for; each further number counts from it.",
        ((_CONFIG, "VllmConfig.num_speculative_tokens"),),
    ),
    "lookahead": Reason("num_lookahead_tokens", _LOOKAHEAD, ((_CONFIG, "VllmConfig.num_lookahead_tokens"),)),
    "D-L1": Reason("num_lookahead_tokens", _LOOKAHEAD, ((_CONFIG, "VllmConfig.num_lookahead_tokens"),)),
    "prefill_lookahead": Reason(
        "num_prefill_lookahead_tokens", _AHEAD, ((_CONFIG, "VllmConfig.num_prefill_lookahead_tokens"),)
    ),
    "hash_lookahead": Reason(
        "num_hash_lookahead_tokens",
        "A block whose hash covers the tokens read ahead can be reused whole; where the hash is shared with others (a "
        "connector), or the EAGLE drop or caching is off, it must not cover them.",
        ((_CONFIG, "VllmConfig.num_hash_lookahead_tokens"),),
    ),
    "charged": Reason(
        "max_num_new_slots_for_drafting", _ROWS, ((_SPECULATIVE, "SpeculativeConfig.max_num_new_slots_for_drafting"),)
    ),
    "B-L1": Reason(
        "the rows of a full batch",
        f"{_ROWS} A draft pass of its own has the same rows for all requests, so no more may run than fit.",
        (
            (_SPECULATIVE, "SpeculativeConfig.max_num_new_slots_for_drafting"),
            (_CONFIG, "VllmConfig._set_max_num_scheduled_tokens"),
        ),
    ),
    "scheduled": Reason(
        "max_num_scheduled_tokens",
        "Drafting rows are charged for each scheduled request, so nothing is taken off the budget up front.",
        ((_CONFIG, "VllmConfig._set_max_num_scheduled_tokens"),),
    ),
    "active": Reason(
        "max_num_active_seqs",
        "A draft pass of its own has max_num_batched_tokens rows for all requests: no more may run than fit.",
        ((_CONFIG, "VllmConfig._set_max_num_scheduled_tokens"),),
    ),
    "in_flight": Reason(
        "max_in_flight_tokens",
        "Start-up sizing keeps blocks for all tokens scheduled but not settled: the steps in flight times the budget.",
        ((_CONFIG, "VllmConfig.max_in_flight_tokens"),),
    ),
    "query_rows": Reason(
        "uniform_decode_query_len",
        "A decode step verifies its drafts and computes the token sampled before, where there is one.",
        ((_CONFIG, "VllmConfig.uniform_decode_query_len"),),
    ),
    "eagle": Reason("use_eagle()", _AHEAD, ((_SPECULATIVE, "SpeculativeConfig.use_eagle"),)),
    "block_drop": Reason(
        "use_eagle_block_drop()",
        "A cached block's last token was drafted without the token behind it: a hit must give up the last block, for "
        "the drafters that read ahead alone.",
        ((_SPECULATIVE, "SpeculativeConfig.use_eagle_block_drop"),),
    ),
    "runner": Reason(
        "use_v2_model_runner",
        "A method that the V2 runner lacks must be given to V1.",
        ((_CONFIG, "VllmConfig.use_v2_model_runner"),),
    ),
    "overlap": Reason(
        "async_scheduling",
        "A step may be scheduled before the last one's output only if its drafts are known on the worker.",
        ((_CONFIG, "VllmConfig.__post_init__"),),
    ),
    "progress": Reason(
        "a request that could run alone",
        "An accepted configuration must schedule it. A newcomer with one token left is padded to the rows of a decode "
        "with drafts; where these do not fit the step, admission ends, and the next step is the same: the request "
        "waits for ever in an idle engine.",
        (
            (_CONFIG, "VllmConfig._set_max_num_scheduled_tokens"),
            ("vllm/v1/core/sched/scheduler.py", "Scheduler.schedule"),
        ),
    ),
    "padding": Reason(
        "a resumed decode beside another request",
        "A newcomer with one token left is padded to the rows of a decode with drafts, so that all requests of the "
        "batch have one query length. A cap that cuts the padding must take it away whole, as the Mamba split does.",
        (("vllm/v1/core/sched/scheduler.py", "Scheduler.schedule"),),
    ),
    "draft_counts": Reason(
        "the draft count of each batch size",
        "A gap between two ranges keeps the count before it, and no count exceeds K, for which slots are reserved.",
        (("vllm/v1/spec_decode/dynamic/utils.py", "build_dynamic_sd_schedule_lookup"),),
    ),
    "methods": Reason(
        "the methods that SpeculativeConfig takes",
        "A method that the table does not know has no rule here.",
        ((_SPECULATIVE, "SpeculativeConfig"),),
    ),
    "v1_room": Reason(
        "the room that the V1 runner wants before it drafts",
        "A drafter that has less room than it writes would write past max_model_len.",
        (("vllm/v1/worker/gpu_model_runner.py", "GPUModelRunner._input_fits_in_drafter"),),
    ),
    "backend_query_rows": Reason(
        "max_decode_query_len",
        "A kernel that takes fewer rows for a decode than one has takes it for a prompt, or overruns its buffers.",
        (("vllm/v1/attention/backend.py", "max_decode_query_len"),),
    ),
    "mamba_blocks": Reason(
        "num_speculative_blocks of a Mamba layer",
        "Each draft may be the last accepted one, so the state after each is kept.",
        (("vllm/model_executor/layers/mamba/abstract.py", "MambaBase.get_kv_cache_spec"),),
    ),
    "retained": Reason(
        "extra_retained_tokens of windowed groups",
        _REWRITTEN,
        (("vllm/v1/core/kv_cache_planning.py", "get_global_kv_cache_groups"),),
    ),
    "nixl_back_off": Reason(
        "the prompt tokens that a NIXL prefiller leaves to the decoder",
        _REWRITTEN,
        (
            (
                "vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_scheduler.py",
                "NixlBaseConnectorScheduler._prefill_backoff",
            ),
        ),
    ),
    "v2_rewritten": Reason(
        "the tokens that multi-module MTP keeps to write again",
        _REWRITTEN,
        (("vllm/v1/worker/gpu/spec_decode/multi_module_mtp/speculator.py", "MultiModuleMTPSpeculator.__init__"),),
    ),
    "v2_own_rows": Reason(
        "num_query_per_req of the V2 drafter",
        "The rows of one request in the draft pass say how many requests fit it.",
        (
            ("vllm/v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator.__init__"),
            ("vllm/v1/worker/gpu/spec_decode/dspark/speculator.py", "DSparkSpeculator.__init__"),
        ),
    ),
    "v2_pass_rows": Reason(
        "the rows of the V2 drafter's buffers",
        "The widest pass must lie in them.",
        (("vllm/v1/worker/gpu/spec_decode/speculator.py", "DraftModelSpeculator.__init__"),),
    ),
    "v2_added_rows": Reason(
        "num_extra_query_per_req of the V2 draft model",
        _ROWS,
        (("vllm/v1/worker/gpu/spec_decode/standalone_ar/speculator.py", "StandaloneARSpeculator.__init__"),),
    ),
    "v2_expanded_rows": Reason(
        "the rows of the V2 draft model's expanded pass",
        "The target's tokens and the rows added to them must lie in them.",
        (("vllm/v1/worker/gpu/spec_decode/standalone_ar/speculator.py", "StandaloneARSpeculator.__init__"),),
    ),
    "v1_added_rows": Reason(
        "net_num_new_slots_per_request of the V1 drafter",
        _ROWS,
        (("vllm/v1/spec_decode/llm_base_proposer.py", "SpecDecodeBaseProposer.__init__"),),
    ),
    "v1_pass_rows": Reason(
        "the rows of the V1 drafter's buffer",
        "The widest pass must lie in them.",
        (("vllm/v1/spec_decode/llm_base_proposer.py", "SpecDecodeBaseProposer.__init__"),),
    ),
    "warmup_blocks": Reason(
        "the blocks that the V2 warmup reserves",
        _LOOKAHEAD,
        (("vllm/v1/worker/gpu/warmup.py", "_reserved_block_count"),),
    ),
    "dspark_index_width": Reason(
        "the columns of a sparse DSpark query",
        "A query reads its window and what is drafted beside it.",
        (("vllm/v1/attention/backends/mla/compressor_utils.py", "get_dspark_swa_index_width"),),
    ),
}

_SCHEDULER, _BACKENDS = "vllm/v1/core/sched/scheduler.py", "vllm/v1/attention/backends"
_MAMBA_BUILDER = "BaseMambaAttentionMetadataBuilder.__init__"
_STATES = "The state before the step is read and one behind each draft is written: a row has that many columns."
REASONS |= {
    "mamba_blocks_replayed": Reason(
        "num_speculative_blocks of a Mamba layer with replayed states",
        "The states between are computed again from one checkpoint: no block of theirs exists.",
        (("vllm/model_executor/layers/mamba/abstract.py", "MambaBase.get_kv_cache_spec"),),
    ),
    "dispatcher_query_rows": Reason(
        "uniform_decode_query_len of the graph dispatcher",
        "A graph of uniform decodes is taken for steps of that many rows a request, so it must be what decodes have.",
        (("vllm/v1/cudagraph_dispatcher.py", "CudagraphDispatcher.__init__"),),
    ),
    "v1_query_rows": Reason(
        "max_query_tokens of the V1 DFlash drafter",
        "The widest draft pass must lie in it.",
        (("vllm/v1/spec_decode/dflash.py", "DFlashProposer.__init__"),),
    ),
    "v2_context_rows": Reason(
        "the context rows of a captured draft step",
        "A decode step leaves one row of context for each position that it verified.",
        (("vllm/v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator._num_graph_context_tokens"),),
    ),
    "scheduler_lookahead": Reason(
        "the lookahead that the scheduler asks for", _LOOKAHEAD, ((_SCHEDULER, "Scheduler.__init__"),)
    ),
    "scheduler_prefill_lookahead": Reason(
        "the prompt tokens that the scheduler leaves to the next chunk", _AHEAD, ((_SCHEDULER, "Scheduler.__init__"),)
    ),
    "scheduler_block_drop": Reason(
        "the scheduler's block drop",
        "A hash that covers the tokens read ahead proves the whole block, so nothing of a hit is given up; without it "
        "the last block is.",
        ((_SCHEDULER, "Scheduler.__init__"),),
    ),
    "encoder_budget": Reason(
        "the encoder's budget of a step",
        "An item is encoded whole, and where parts may not end inside one it is computed in one pass: the encoder must "
        "take what a pass takes.",
        (("vllm/config/scheduler.py", "SchedulerConfig.__post_init__"),),
    ),
    "encoder_cache_size": Reason(
        "the place of the encoder's outputs",
        "The outputs of a pass must have place together: an item as long as a pass is kept until it is computed.",
        (("vllm/config/scheduler.py", "SchedulerConfig.__post_init__"),),
    ),
    "scheduler_running": Reason(
        "the requests that the scheduler lets run",
        "The limit for a draft pass of its own must be the one that the scheduler keeps.",
        ((_SCHEDULER, "Scheduler.__init__"),),
    ),
    "scheduler_step_blocks": Reason(
        "the blocks that an async load keeps free for a decode",
        "A request that was loaded decodes with drafts in its first step: its rows and the lookahead must have room, "
        "or loads fill the pool and none can go on.",
        ((_SCHEDULER, "Scheduler.__init__"),),
    ),
    "scheduler_remaining_blocks": Reason(
        "the blocks that a request being loaded still needs",
        "What is kept free for it must do for the decode that follows the load, with its drafts and the lookahead.",
        ((_SCHEDULER, "Scheduler._request_remaining_blocks"),),
    ),
    "mamba_state_columns": Reason(
        "the states of a decode that Mamba kernels address", _STATES, ((f"{_BACKENDS}/mamba_attn.py", _MAMBA_BUILDER),)
    ),
    "gdn_state_columns": Reason(
        "the states of a decode that gated delta nets address",
        _STATES,
        ((f"{_BACKENDS}/gdn_attn.py", "GDNAttentionMetadataBuilder.__init__"),),
    ),
    "manager_rewritten": Reason(
        "num_reprefillable_tokens of the manager",
        _REWRITTEN,
        (("vllm/v1/core/kv_cache_coordinator.py", "KVCacheCoordinator.__init__"),),
    ),
}

#: terms of the formulas that do not explain themselves
GLOSSARY = {
    "K": "draft tokens a step",
    "per_draft": "rows or positions for each draft token",
    "more": "rows or positions beside them",
    "sampled": "rows of a decode step that are no drafts",
    "wanted": "max_num_active_seqs if it is given, else max_num_seqs",
    "budget": "max_num_batched_tokens",
    "rows": "rows of one request in the draft pass",
    "steps": "steps in flight",
}
