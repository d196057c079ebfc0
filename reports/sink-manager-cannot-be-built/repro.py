"""The manager cannot be built with sink_full_attention: TypeError.

Needs vLLM alone (written for 0.33.0): no GPU, weights or network. Exits 1 while the defect is there, 0 once
it is gone. Written by slotcheck 0.1.0. Fingerprint:
manager/outcome/sink_full_attention/build/error:TypeError.
"""

import os
import sys

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
os.environ["TORCH_LOGS"] = "-all"  # no warnings of torch's own
if not any(map(os.path.exists, ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128"))):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # no GPU here, and none is needed

import torch
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, SinkFullAttentionSpec


specs = [
    SinkFullAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float16, sink_len=4),
]
config = KVCacheConfig(
    num_blocks=9,
    kv_cache_tensors=[],
    kv_cache_groups=[KVCacheGroupSpec(layer_names=[f"group.{n}"], kv_cache_spec=spec) for n, spec in enumerate(specs)],
)
try:
    manager = KVCacheManager(
        kv_cache_config=config,
        max_model_len=24,
        scheduler_block_size=4,
        hash_block_size=4,
        enable_caching=False,
    )
except Exception as error:
    print("expected: a manager")
    print(f"got:      {type(error).__name__}: {error}")
    print("the defect is there")
    sys.exit(1)
print("the defect is gone")
