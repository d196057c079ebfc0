"""The long-prefill cap cuts a padded decode, and the scheduler asserts that it was not cut.

Needs vLLM alone (written for 0.33.0): no GPU, weights or network. Exits 1 while the defect is there, 0 once
it is gone. Written by slotcheck 0.1.0. Fingerprint: rules/law/resumed decode/padding/broken.
"""

import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
os.environ["TORCH_LOGS"] = "-all"  # no warnings of torch's own
logging.getLogger("vllm").setLevel(logging.ERROR)
no_gpu = not any(map(os.path.exists, ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128")))
if no_gpu:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # no GPU here, and none is needed
    os.environ["TRITON_INTERPRET"] = "1"

from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.model_executor.models import registry

if no_gpu:  # model classes are inspected in this process, not in a new one each
    registry._run_in_subprocess = lambda inspect: inspect()

TARGET = {
    "architectures": [
        "LlamaForCausalLM"
    ],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float16"
}
folders = tempfile.TemporaryDirectory()  # each folder holds a config.json alone: no weights, no tokenizer


def folder(name: str, config: dict[str, Any]) -> str:
    path = Path(folders.name, name)
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


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


# padding: A newcomer with one token left is padded to the rows of a decode with drafts, so that all requests
# of the batch have one query length. A cap that cuts the padding must take it away whole, as the Mamba split
# does.
target = ModelConfig(
    model=folder("target", TARGET),
    skip_tokenizer_init=True,
    dtype="float16",
    max_model_len=256,
)
drafter = SpeculativeConfig(
    method="ngram",
    num_speculative_tokens=1,
    target_model_config=target,
    target_parallel_config=ParallelConfig(),
)
config = VllmConfig(
    model_config=target,
    scheduler_config=SchedulerConfig(
        max_model_len=256,
        is_encoder_decoder=False,
        max_num_batched_tokens=2048,
        max_num_seqs=256,
        long_prefill_token_threshold=1,
        async_scheduling=False,
    ),
    device_config=DeviceConfig("cpu"),
    cache_config=CacheConfig(block_size=16, enable_prefix_caching=True),
    speculative_config=drafter,
)
got = two_resumed(config)
print("expected: both end")
print(f"got:      {got}")
print("the defect is gone" if got == "both end" else "the defect is there")
sys.exit(0 if got == "both end" else 1)
