"""The rows of a full batch of dspark_fill_in: a draft pass of 4 requests x 2 rows exceeds 4.

Needs vLLM alone (written for 0.32.0): no GPU, weights or network. Exits 1 while the defect is there, 0 once
it is gone. Written by slotcheck 0.1.0. Fingerprint: rules/law/dspark_fill_in/B-L1/broken.
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
        "Qwen3DSparkModel"
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
    },
    "markov_rank": 8,
    "markov_head_type": "vanilla",
    "block_size": 8,
    "sample_from_anchor": False,
    "dspark_bonus_anchor": True
}
folders = tempfile.TemporaryDirectory()  # each folder holds a config.json alone: no weights, no tokenizer


def folder(name: str, config: dict[str, Any]) -> str:
    path = Path(folders.name, name)
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return str(path)

# B-L1: Rows that a drafter adds to the target's batch lie in the same buffers of max_num_batched_tokens rows,
# so each must be charged to the step's budget; a row that is not added must not be, for it costs tokens of
# other requests. A draft pass of its own has the same rows for all requests, so no more may run than fit.
target = ModelConfig(
    model=folder("target", TARGET),
    skip_tokenizer_init=True,
    dtype="float16",
    max_model_len=256,
)
drafter = SpeculativeConfig(
    method="dspark",
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
        max_num_seqs=4,
        async_scheduling=False,
    ),
    device_config=DeviceConfig("cpu"),
    cache_config=CacheConfig(block_size=16, enable_prefix_caching=True),
    speculative_config=drafter,
)
requests = min(getattr(config.scheduler_config, "max_num_active_seqs", None) or 4, config.scheduler_config.max_num_scheduled_tokens, 4 // (1 + getattr(config.speculative_config, "max_num_new_slots_for_drafting", 0)))
got = requests * 2  # rows of a full draft pass
print("expected: at most 4")
print(f"got:      {got}")
print("the defect is gone" if got <= 4 else "the defect is there")
sys.exit(0 if got <= 4 else 1)
