"""Removal nulls fewer columns than nobody reads (mamba).

Needs vLLM alone (written for 0.29.0): no GPU, weights or network. Exits 1 while the defect is there, 0 once
it is gone. Written by slotcheck 0.1.0. Fingerprint: manager/nulls/mamba/A14/less.
"""

import os
import sys
from typing import Any

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
os.environ["TORCH_LOGS"] = "-all"  # no warnings of torch's own
if not any(map(os.path.exists, ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128"))):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # no GPU here, and none is needed

import torch
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, MambaSpec
from vllm.v1.request import RequestStatus


class Request:
    """What the manager reads of a request."""

    def __init__(self, request_id: str, num_tokens: int) -> None:
        self.request_id = request_id
        self.num_prompt_tokens = self.num_tokens = num_tokens
        self.num_computed_tokens = self.num_in_flight_tokens = 0
        self.status = RequestStatus.WAITING


def rows(request_id: str) -> list[list[int]]:
    """The request's block ids per group; 0 is the null block."""
    return [list(ids) for ids in manager.get_block_ids(request_id=request_id)]


def free_blocks() -> int:
    """Blocks in the free queue."""
    return manager.block_pool.get_num_free_blocks()


def allocate_slots(request: Request, **arguments: Any) -> str:
    """Ask the manager and print its answer: granted, refused (None), or the name of the error."""
    try:
        blocks = manager.allocate_slots(request=request, **arguments)
        answer = "refused" if blocks is None else "granted"
    except Exception as error:
        print(f"  {type(error).__name__}: {error}")
        answer = type(error).__name__
    print(f"request {request.request_id}: {answer}, rows {rows(request.request_id)}, {free_blocks()} free")
    return answer


specs = [
    MambaSpec(block_size=1, shapes=((2, 8),), dtypes=(torch.float16,), mamba_cache_mode="align"),
]
config = KVCacheConfig(
    num_blocks=5,
    kv_cache_tensors=[],
    kv_cache_groups=[KVCacheGroupSpec(layer_names=[f"group.{n}"], kv_cache_spec=spec) for n, spec in enumerate(specs)],
)
manager = KVCacheManager(
    kv_cache_config=config,
    max_model_len=6,
    scheduler_block_size=1,
    hash_block_size=1,
    enable_caching=False,
)

# 0. request 0: 1 more of 3 tokens
request_0 = Request(request_id="0", num_tokens=3)
allocate_slots(request=request_0, num_new_tokens=1)

# 1. output is back: request 0

# 2. request 0: 2 more of 3 tokens, computed 1
request_0.num_computed_tokens = 1
request_0.status = RequestStatus.RUNNING
allocate_slots(request=request_0, num_new_tokens=2)

# 3. request 0: 1 more of 3 tokens, computed 3, in flight 2
request_0.num_computed_tokens = 3
request_0.num_in_flight_tokens = 2
allocate_slots(request=request_0, num_new_tokens=1)

# 4. output is back: request 0

# 5. request 0: 1 more of 4 tokens, computed 4, in flight 1
request_0.num_computed_tokens = 4
request_0.num_in_flight_tokens = 1
request_0.num_tokens = 4
allocate_slots(request=request_0, num_new_tokens=1)
got = [column for column, block in enumerate(rows("0")[0]) if block == 0]

# A14: A column is removed when no token from the processed position on reads it, and not before: steps in
# flight read from where they started, and rejected drafts move the position back, though never below the
# processed one.
expected = [0, 1]
there = got != expected
print(f"expected: {expected}")
print(f"got:      {got}")
print("the defect is there" if there else "the defect is gone")
sys.exit(1 if there else 0)
