"""A call does not answer: AssertionError: : the hit is that of full attention by itself, and a group that is no
Mamba group has less.

Needs vLLM alone (written for 0.27.1): no GPU, weights or network. Exits 1 while the defect is there, 0 once
it is gone. Written by slotcheck 0.1.0. Fingerprint: manager/outcome/pool/raised/error:AssertionError/diverged
hit.
"""

import os
import sys
from types import SimpleNamespace
from typing import Any

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
os.environ["TORCH_LOGS"] = "-all"  # no warnings of torch's own
if not any(map(os.path.exists, ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128"))):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # no GPU here, and none is needed

import torch
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
)
from vllm.v1.request import RequestStatus

register_all_kvcache_specs(None)
init_none_hash(sha256)
hash_blocks = get_request_block_hasher(1, sha256)


class Request:
    """What the manager and the hasher read of a request."""

    num_in_flight_tokens = num_computed_tokens = num_preemptions = shared_prefix_boundary = 0
    prompt_embeds = session_id = lora_request = cache_salt = None
    skip_reading_prefix_cache = False

    def __init__(self, request_id: str, tokens: list[int], **more: Any) -> None:
        self.request_id, self.all_token_ids, self.mm_features = request_id, tokens, []
        self.block_hashes: list[bytes] = []
        self.status = RequestStatus.WAITING
        vars(self).update(more)

    def has(self, prompt: int, tokens: int, computed: int, in_flight: int = 0, junction: int = 0) -> "Request":
        """So many tokens are known, computed, in flight; their blocks are hashed."""
        self.num_prompt_tokens, self.num_tokens, self.num_computed_tokens = prompt, tokens, computed
        self.num_in_flight_tokens, self.shared_prefix_boundary = in_flight, junction
        self.block_hashes.extend(hash_blocks(self))
        return self


def item(identifier: str, offset: int, length: int) -> Any:
    """A multimodal item of a request."""
    return SimpleNamespace(identifier=identifier, mm_position=SimpleNamespace(offset=offset, length=length))


def rows(request: Request) -> list[list[int]]:
    """The request's block ids per group; 0 is the null block."""
    return [list(ids) for ids in manager.get_block_ids(request_id=request.request_id)]


def look_up(request: Request, *bound: int) -> tuple[Any, int]:
    """The hit of a request: its blocks and its length in tokens."""
    blocks, hit, junction = manager.get_computed_blocks(request, *bound)
    print(f"request {request.request_id}: hit {hit}, blocks {[list(ids) for ids in blocks.get_block_ids()]}")
    return blocks, hit


def look_up_for_connector(request: Request) -> tuple[Any, int]:
    """The hit of a request whose connector brings what a Mamba group lacks."""
    blocks, hit, junction, diverged = manager.get_computed_blocks_for_connector(request)
    print(f"request {request.request_id}: hit {hit}, diverged {diverged}, {[[*ids] for ids in blocks.get_block_ids()]}")
    return blocks, hit


def allocate_slots(request: Request, *found: Any, **arguments: Any) -> str:
    """Ask the manager, with the hit `found`, and print its answer: granted, refused, or the name of the error."""
    blocks, hit = found or (None, 0)
    try:
        granted = manager.allocate_slots(
            request=request, num_new_computed_tokens=hit, new_computed_blocks=blocks if hit else None, **arguments
        )
        answer = "refused" if granted is None else "granted"
    except Exception as error:
        print(f"  {type(error).__name__}: {error}")
        answer = type(error).__name__
    print(f"request {request.request_id}: {answer}, rows {rows(request)}")
    return answer


def next_step() -> list[tuple[int, int]]:
    """The step is launched and the next one begins; the copies (source, target) that the worker makes first."""
    manager.take_new_block_ids()
    copies, blocks = manager.take_kv_cache_block_copies()
    manager.block_pool.free_blocks(blocks)
    manager.new_step_starts()
    return [(copy.src_block_id, copy.dst_block_id) for copy in copies]


specs = [
    FullAttentionSpec(block_size=1, num_kv_heads=2, head_size=8, dtype=torch.float16),
    MambaSpec(block_size=3, shapes=((2, 8),), dtypes=(torch.float16,), mamba_cache_mode="align"),
]
eagle = []
config = KVCacheConfig(
    num_blocks=53,
    kv_cache_tensors=[],
    kv_cache_groups=[
        KVCacheGroupSpec(layer_names=[f"group.{n}"], kv_cache_spec=spec, is_eagle_group=n in eagle)
        for n, spec in enumerate(specs)
    ],
)
manager = KVCacheManager(kv_cache_config=config, max_model_len=53, scheduler_block_size=3, hash_block_size=1)

request_0 = Request("0", tokens=[0, 1, 0, 2, 0, 0, 0])
request_0.has(7, 7, 0)

found = look_up_for_connector(request_0)

request_0.has(7, 7, 0)
request_0.status = RequestStatus.WAITING
answer = allocate_slots(request_0, num_new_tokens=6)
next_step()

request_1 = Request(
    "1",
    tokens=[0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1],
)
request_1.has(48, 48, 0)

found = look_up_for_connector(request_1)

request_1.has(48, 48, 0)
request_1.status = RequestStatus.WAITING
answer = allocate_slots(request_1, *found, num_new_tokens=1, num_external_computed_tokens=41)
next_step()

request_1.has(48, 49, 48)
request_1.status = RequestStatus.RUNNING
answer = allocate_slots(request_1, num_new_tokens=1)
next_step()

request_1.has(48, 50, 49)
request_1.status = RequestStatus.RUNNING
answer = allocate_slots(request_1, num_new_tokens=1)

request_2 = Request(
    "2",
    tokens=[0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2],
)
request_2.has(52, 52, 0)

found = look_up_for_connector(request_2)
try:
    manager.truncate_computed_blocks(found[0], 48)
    got, there = 'an answer', False
except Exception as error:
    got, there = f"{type(error).__name__}: {error}", True

# raised: What gives blocks back, removes or lists them decides nothing and always answers. An exception there
# leaves the pool half changed and ends the engine.
print('expected: an answer')
print(f"got:      {got}")
print("the defect is there" if there else "the defect is gone")
sys.exit(1 if there else 0)
