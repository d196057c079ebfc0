"""Does a resumed decode ever run? The real scheduler, alone with a request whose prompt is cached but for one token.

The proof of `oracle.budget.stuck` on the release: an accepted budget in which the scheduler plans empty steps for ever.
The functions get a `VllmConfig` and need nothing of ours: `repro.py` of a difference holds their text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def make_scheduler(config: Any, blocks: int = 64) -> Any:
    """The real scheduler on one full-attention group; the pool holds the prompt many times over."""
    import torch
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    init_none_hash(sha256)
    config.cache_config.num_gpu_blocks = blocks
    size = config.cache_config.block_size
    spec = FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=16, dtype=torch.float16)
    groups = [KVCacheGroupSpec(layer_names=["layer"], kv_cache_spec=spec)]
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(config),
        block_size=size,
        hash_block_size=size,
    )


def make_request(scheduler: Any, name: str) -> Any:
    """A request whose prompt is one block and one token; it may sample two tokens."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request

    size = scheduler.cache_config.block_size
    ahead = getattr(scheduler.vllm_config, "num_hash_lookahead_tokens", 0)
    hasher = get_request_block_hasher(size, sha256, *([ahead] if ahead else []))
    return Request(
        request_id=name,
        prompt_token_ids=list(range(1, size + 2)),
        sampling_params=SamplingParams(max_tokens=2),
        pooling_params=None,
        arrival_time=float(name),
        block_hasher=hasher,
    )


def run_step(scheduler: Any) -> int:
    """One step with its output; every request past its known tokens samples token 5. Answers: tokens scheduled.

    ValueError for a request with more drafts than its rows hold.
    """
    from vllm.v1.outputs import ModelRunnerOutput

    planned = scheduler.schedule()
    for name, drafts in planned.scheduled_spec_decode_tokens.items():
        if planned.num_scheduled_tokens[name] < 1 + len(drafts):
            raise ValueError("a padded decode was cut")
    names = list(planned.num_scheduled_tokens)
    done = [scheduler.requests[name].num_computed_tokens >= scheduler.requests[name].num_tokens for name in names]
    output = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[5] if sampled else [] for sampled in done],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )
    scheduler.update_from_output(planned, output)
    return sum(planned.num_scheduled_tokens.values())


def empty_steps(config: Any, steps: int = 100) -> int:
    """Steps without a token while one request waits alone: 0, or `steps` when it never runs.

    First a request computes the prompt and ends, so that its whole block is cached; then the same prompt comes again.
    If not even the first ends within `steps`, it is the one that waits.
    """
    scheduler = make_scheduler(config)
    empty = 0
    for name in ("0", "1"):
        scheduler.add_request(make_request(scheduler, name))
        empty = 0
        for _ in range(steps):
            if not scheduler.requests:
                break
            empty += run_step(scheduler) == 0
        if scheduler.requests:
            break
    return empty


def two_resumed(config: Any) -> str:
    """What becomes of a request whose prompt is cached but for one token beside a decode: "both end", or what not.

    The first one computes the prompt and ends; the third one comes one step behind the second.
    """
    scheduler = make_scheduler(config)
    try:
        for name, steps in (("0", 100), ("1", 1), ("2", 100)):
            scheduler.add_request(make_request(scheduler, name))
            for _ in range(steps):
                if scheduler.requests:
                    run_step(scheduler)
    except AssertionError:
        return "AssertionError out of schedule()"
    except ValueError as error:
        return str(error)
    return "both end" if not scheduler.requests else "they wait"


def text_of(asked: Callable[[Any], object]) -> str:
    """The text of one of the questions, and of what it asks for, as `repro.py` holds it."""
    return "\n\n".join(inspect.getsource(part) for part in (make_scheduler, make_request, run_step, asked))
