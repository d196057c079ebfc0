"""Why the rules and laws of the warmup level must hold, in which code, and one sentence for each difference."""

from __future__ import annotations

from attrs import frozen

from oracle.trace import Difference

_WARMUP = "vllm/v1/worker/gpu/warmup.py"
_TABLES = "vllm/v1/worker/gpu/block_table.py"
_RUNNER = "vllm/v1/worker/gpu/model_runner.py"
_DRAFTERS = "vllm/v1/worker/gpu/spec_decode"
KERNELS, COUNT = (_WARMUP, "_warmup_kernels"), (_WARMUP, "_reserved_block_count")
MIXED = (_WARMUP, "run_mixed_prefill_decode_warmup")
GATHER, APPEND = (_TABLES, "BlockTables.gather_block_tables"), (_TABLES, "BlockTables.append_block_ids")
MANAGER = ("vllm/v1/core/kv_cache_manager.py", "KVCacheManager.allocate_slots")
#: where each drafter makes its positions and slots
DRAFTERS = {
    "draft_model": (f"{_DRAFTERS}/standalone_ar/speculator.py", "_prepare_prefill_inputs_kernel"),
    "dflash": (f"{_DRAFTERS}/dflash/speculator.py", "_prepare_dflash_inputs_kernel"),
    "dspark": (f"{_DRAFTERS}/dflash/speculator.py", "_prepare_dflash_inputs_kernel"),
    "dspark_fill_in": (f"{_DRAFTERS}/dflash/speculator.py", "_prepare_dflash_inputs_kernel"),
}
AUTOREGRESSIVE = (f"{_DRAFTERS}/target_dependent_ar/speculator.py", "_update_draft_inputs_kernel")


@frozen
class WarmupReason:
    """`claim`: what the release does, for a title. `why` it must not; `law`: in any release. places: where it does."""

    claim: str
    law: bool
    why: str
    places: tuple[tuple[str, str], ...]


_W1 = (
    "Nobody allocates for a warmup request: the warmup hands out its blocks. It must hold what the scheduler would for "
    "the same tokens, the target's range and the drafter's lookahead up to max_model_len: with fewer, drafts are "
    "written to the null block; with more, rows and pools that serving never needs are asked for."
)
_W2 = "Block ids are upwards from 1, each once over all groups and requests: two rows with one block overwrite it."
_STATE = (
    "The runner goes on to serve: what a warmup switched off (the KV connector, adaptive verification) must be on "
    "again, whatever happened, and the null block clean."
)

REASONS: dict[tuple[str, str], WarmupReason] = {
    ("columns", "W1"): WarmupReason("the warmup's rows are not those of the scheduler", True, _W1, (COUNT, KERNELS)),
    ("nulls", "W1"): WarmupReason(
        "the warmup keeps blocks where the scheduler has none",
        False,
        _W1 + " The scheduler takes blocks back that no later token reads; the warmup counts by position.",
        (COUNT, MANAGER),
    ),
    ("columns", "manager"): WarmupReason("KVCacheManager does not hold what it must", True, _W1, (MANAGER,)),
    ("outcome", "A16"): WarmupReason("KVCacheManager refuses a call that fits", True, _W1, (MANAGER,)),
    ("ids", "W2"): WarmupReason("the warmup hands out blocks in another order", False, _W2, (KERNELS,)),
    ("outcome", "W3"): WarmupReason(
        "warmup_kernels runs other steps than it must",
        False,
        "A prompt longer than a decode, then each shape of decode batch: as many requests as max_num_seqs, the token "
        "budget and the pool hold, at least one; with speculation all of it a second time, greedily.",
        (KERNELS,),
    ),
    ("outcome", "W4"): WarmupReason(
        "the mixed warmup runs or skips where it must not",
        False,
        "A mixed step needs two seats, three tokens, a model that decodes and a pool that holds both requests beside "
        "the null block; where it fits it runs, where it does not nothing runs.",
        (MIXED,),
    ),
    ("law", "positions"): WarmupReason(
        "the warmup schedules positions at or past max_model_len",
        True,
        "No position at or past max_model_len is ever scheduled: rows, positions and rotary embeddings end there.",
        (KERNELS, MIXED),
    ),
    ("law", "rows"): WarmupReason(
        "the warmup gives a request more blocks than its row has columns",
        True,
        "The worker's block table has as many columns as the longest request needs on a rank. A longer row is refused "
        "by append_block_ids, at engine start.",
        (COUNT, APPEND, (_RUNNER, "GPUModelRunner.initialize_kv_cache")),
    ),
    ("law", "ids"): WarmupReason(
        "the warmup hands out blocks that are not its own", True, _W2 + " They lie inside the pool.", (KERNELS, MIXED)
    ),
    ("law", "state"): WarmupReason("the warmup does not restore the runner", True, _STATE, (KERNELS, MIXED)),
    ("law", "budget"): WarmupReason(
        "a warmup step does not fit the token budget",
        True,
        "The rows that the target or the drafter puts into one pass fit max_num_batched_tokens: its buffers end there.",
        (KERNELS, MIXED),
    ),
    ("law", "quiet"): WarmupReason(
        "the warmup runs steps and says that it skipped", True, "Skipped means that nothing ran.", (MIXED,)
    ),
    ("law", "finish"): WarmupReason(
        "the warmup's last step does not finish its requests",
        True,
        "A request that is not finished keeps its slot in the runner for ever.",
        (KERNELS, MIXED),
    ),
    ("law", "slots"): WarmupReason(
        "the block tables turn rows into other slots",
        True,
        "The slot of a position is its block's id times the block size plus the offset in the block: anything else is "
        "another request's memory, or the null block.",
        (GATHER, (_TABLES, "_compute_slot_mappings_kernel")),
    ),
    ("law", "M12"): WarmupReason(
        "a warmup step reads what was not written for it",
        True,
        "Every position that a step reads was written for this prefix, in a block of the request's row.",
        (COUNT, KERNELS),
    ),
    ("law", "W1"): WarmupReason(
        "a warmup step has no block to write to",
        True,
        "Every position, state or ring that a step or its drafter writes lies in a block of the request's row.",
        (COUNT, KERNELS),
    ),
    ("law", "D-L1"): WarmupReason(
        "the drafter writes a position that has no block",
        True,
        "The drafter runs in the target's step, before anybody can give it a block: each of its positions lies in a "
        "block that the request holds.",
        (),
    ),
    ("law", "D-L2"): WarmupReason(
        "near max_model_len the drafter writes over valid context",
        True,
        "No draft is kept at or past max_model_len. What has no place there is written nowhere, and never to the place "
        "of a position that is valid.",
        (),
    ),
    ("outcome", "D"): WarmupReason(
        "the drafter works on other positions than it must",
        True,
        "A draft is predicted for the position that it is verified at: v + 1 onwards, v the last valid position after "
        "verification.",
        (),
    ),
    ("outcome", "process"): WarmupReason(
        "a warmup does not answer", True, "A warmup ends or raises; it never ends or blocks its process.", (KERNELS,)
    ),
}


def reason_of(difference: Difference, method: str = "") -> WarmupReason:
    """The reason of a difference; `method`: the drafter whose code is to be named."""
    found = REASONS.get((difference.aspect, difference.rule))
    if found is None:
        text = f"rule {difference.rule} of the warmup specification"
        return WarmupReason(f"the warmup breaks {text}", False, text.capitalize() + ".", (KERNELS, MIXED))
    if found.places:
        return found
    return WarmupReason(found.claim, found.law, found.why, (DRAFTERS.get(method, AUTOREGRESSIVE),))


def title(difference: Difference, method: str = "") -> str:
    """A sentence without its full stop."""
    claim = reason_of(difference, method).claim
    said = [claim]
    if difference.kind != "pool":
        said.append(f"({difference.kind})")
    if difference.aspect in ("columns", "nulls"):
        said[0] += {"more": ": more blocks", "less": ": fewer blocks"}.get(difference.sign, "")
    elif difference.sign:
        said[0] += f": {difference.sign.removeprefix('error:')}"
    text = " ".join(said)
    return text if "_" in text.split()[0] else text[0].upper() + text[1:]
