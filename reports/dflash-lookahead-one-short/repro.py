"""num_lookahead_tokens of dflash: writes 2 positions past the target's, 1 reserved.

Needs vLLM alone (written for 0.22.1): no GPU, weights or network. Exits 1 while the defect is there, 0 once
it is gone. Written by slotcheck 0.1.0. Fingerprint: rules/law/dflash/D-L1/broken.
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
        "Qwen3ForCausalLM"
    ],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
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

DRAFTER = {
    "architectures": [
        "DFlashDraftModel"
    ],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "dflash_config": {
        "mask_token_id": 127,
        "target_layer_ids": [
            1,
            2
        ]
    }
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


# D-L1: The drafter runs in the same step as the target, before anybody can hand out a block: every position
# that it writes past the target's must lie in a slot that the request already holds.
target = ModelConfig(
    model=folder("target", TARGET),
    skip_tokenizer_init=True,
    dtype="float16",
    max_model_len=256,
)
drafter = SpeculativeConfig(
    method="dflash",
    num_speculative_tokens=1,
    model=folder("drafter", DRAFTER),
    target_model_config=target,
    target_parallel_config=ParallelConfig(),
)
config = VllmConfig(
    model_config=target,
    scheduler_config=SchedulerConfig(
        max_model_len=256,
        is_encoder_decoder=False,
        max_num_batched_tokens=4,
        max_num_seqs=1,
        async_scheduling=False,
    ),
    device_config=DeviceConfig("cpu"),
    cache_config=CacheConfig(block_size=16, enable_prefix_caching=True),
    speculative_config=drafter,
)
got = make_scheduler(config).num_lookahead_tokens
print("expected: at least 2")
print(f"got:      {got}")
print("the defect is gone" if got >= 2 else "the defect is there")
sys.exit(0 if got >= 2 else 1)
