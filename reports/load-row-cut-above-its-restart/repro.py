"""A step reads the null block (sliding_window) after a load.

Needs vLLM alone (written for 0.33.0): no GPU, weights or network. Exits 1 while the defect is there, 0 once
it is gone. Written by slotcheck 0.1.0. Fingerprint: manager/law/sliding_window/M12/null block/loaded.
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
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
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
    SlidingWindowSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float16, sliding_window=8),
]
config = KVCacheConfig(
    num_blocks=9,
    kv_cache_tensors=[],
    kv_cache_groups=[KVCacheGroupSpec(layer_names=[f"group.{n}"], kv_cache_spec=spec) for n, spec in enumerate(specs)],
)
manager = KVCacheManager(
    kv_cache_config=config,
    max_model_len=24,
    scheduler_block_size=4,
    hash_block_size=4,
    enable_caching=False,
)

# 0. request 0: async load of 19 of 19 tokens
request_0 = Request(request_id="0", num_tokens=19)
allocate_slots(request=request_0, num_new_tokens=0, num_external_computed_tokens=19, delay_cache_blocks=True)

# 1. request 0: the load has ended, computed 18

# 2. request 0: 1 more of 19 tokens, computed 18
request_0.num_computed_tokens = 18
answer = allocate_slots(request=request_0, num_new_tokens=1)
got = rows("0")[0][2:3]

# M12: Every position that a step reads was written for exactly this prefix, in a block of the request's row.
# A null block or other content at such a position means that the model attends to, or goes on from, something
# else.
# row of group 0: [0 0 0 1 2]
# column j is for positions j*4 .. j*4+3
# the step works on positions 18 .. 18
# a token at position q reads q-7 .. q
there = answer == "granted" and not any(got)
print("expected: a refusal, or a block (not the null block) in column 2 of group 0")
print(f"got:      {got}")
print("the defect is there" if there else "the defect is gone")
sys.exit(1 if there else 0)
