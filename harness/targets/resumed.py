"""Does a resumed decode ever run? The real scheduler, alone with a request whose prompt is cached but for one token.

The proof of `oracle.budget.stuck` on the release: an accepted budget in which the scheduler plans empty steps for ever.
"""

from __future__ import annotations

import importlib
from typing import Any

from harness.targets import config
from oracle.budget import Case

#: blocks of the pool: the prompt of 17 tokens and its drafts many times over
_BLOCKS = 64


def _scheduler(case: Case) -> Any:
    torch = importlib.import_module("torch")
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    output = importlib.import_module("vllm.v1.structured_output")
    built = config.build(case)
    built.cache_config.num_gpu_blocks = _BLOCKS
    size = built.cache_config.block_size
    spec = interface.FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=16, dtype=torch.float16)
    caches = interface.KVCacheConfig(
        num_blocks=_BLOCKS,
        kv_cache_tensors=[],
        kv_cache_groups=[interface.KVCacheGroupSpec(layer_names=["layer"], kv_cache_spec=spec)],
    )
    return importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler(
        vllm_config=built,
        kv_cache_config=caches,
        structured_output_manager=output.StructuredOutputManager(built),
        block_size=size,
        hash_block_size=size,
    )


def _request(scheduler: Any, name: str) -> Any:
    utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    hashing = importlib.import_module("vllm.utils.hashing")
    size = scheduler.cache_config.block_size
    return importlib.import_module("vllm.v1.request").Request(
        request_id=name,
        prompt_token_ids=list(range(1, size + 2)),
        sampling_params=importlib.import_module("vllm.sampling_params").SamplingParams(max_tokens=2),
        pooling_params=None,
        arrival_time=float(name),
        block_hasher=utils.get_request_block_hasher(
            size, hashing.sha256, scheduler.vllm_config.num_hash_lookahead_tokens
        ),
    )


def _step(scheduler: Any) -> int:
    """One step with its output; every request past its known tokens samples token 5. Answers: tokens scheduled."""
    outputs = importlib.import_module("vllm.v1.outputs")
    planned = scheduler.schedule()
    names = list(planned.num_scheduled_tokens)
    done = [scheduler.requests[name].num_computed_tokens >= scheduler.requests[name].num_tokens for name in names]
    scheduler.update_from_output(
        planned,
        outputs.ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[[5] if sampled else [] for sampled in done],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        ),
    )
    return sum(planned.num_scheduled_tokens.values())


def empty_steps(case: Case, steps: int = 100) -> int:
    """Steps without a token while one request waits alone: 0, or `steps` when it never runs.

    First a request computes the prompt and ends, so that its whole block is cached; then the same prompt comes again.
    If not even the first ends within `steps`, it is the one that waits.
    """
    scheduler = _scheduler(case)
    empty = 0
    for name in ("0", "1"):
        scheduler.add_request(_request(scheduler, name))
        empty = 0
        for _ in range(steps):
            if not scheduler.requests:
                break
            empty += _step(scheduler) == 0
        if scheduler.requests:
            break
    return empty
