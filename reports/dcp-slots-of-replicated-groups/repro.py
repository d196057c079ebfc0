"""The block tables turn rows into other slots: target slot (sliding_window).

Needs vLLM alone (written for 0.30.0): no GPU, weights or network. Exits 1 while the defect is there, 0 once
it is gone. The worker's block tables are given the blocks of a recorded warmup. Written by slotcheck 0.1.0.
Fingerprint: warmup/law/sliding_window/slots/target slot.
"""

import inspect
import os
import sys

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
os.environ["TORCH_LOGS"] = "-all"  # no warnings of torch's own
if not any(map(os.path.exists, ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128"))):
    os.environ.update(CUDA_VISIBLE_DEVICES="", TRITON_INTERPRET="1")  # no GPU here: the kernels run on the CPU

import torch
import vllm.utils.torch_utils
from vllm.v1.worker.gpu import buffer_utils
from vllm.v1.worker.gpu.block_table import BlockTables

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if device.type == "cpu":
    import vllm.v1.worker.cpu.buffer_utils

    buffer_utils.is_uva_available = lambda: True
    buffer_utils.UvaBuffer = vllm.v1.worker.cpu.buffer_utils.UvaBuffer
    vllm.utils.torch_utils.PIN_MEMORY = False
    vllm.utils.torch_utils.is_pin_memory_available = lambda: False

arguments = dict(
    block_sizes=[4],
    kernel_block_sizes=[4],
    max_num_reqs=1,
    max_num_batched_tokens=8,
    max_num_blocks_per_group=[32],
    slot_mapping_enabled=[True],
    dcp_sharded=[False],
    sliding_window_reach=[7],
    cp_size=2,
    cp_rank=0,
    cp_interleave=1,
    device=device,
)
accepted = inspect.signature(BlockTables).parameters  # an older release takes fewer
tables = BlockTables(**{name: value for name, value in arguments.items() if name in accepted})
tables.redirect_writes_to_null_block = False
computed_tokens = torch.zeros(1, dtype=torch.int32, device=device)
steps = [  # request, computed, scheduled, its new blocks per group
    [(0, 0, 2, [[1]])],
]
try:
    for step in steps:
        for request, computed, _, blocks in step:
            if computed == 0 or blocks is not None:
                new = blocks or [[] for _ in tables.block_sizes]
                tables.append_block_ids(request, tuple(new), overwrite=computed == 0)
            computed_tokens[request] = computed
        tables.apply_staged_writes()
    requests = torch.tensor([request for request, *_ in steps[-1]], dtype=torch.int32, device=device)
    masks = "num_computed_tokens" in inspect.signature(tables.gather_block_tables).parameters
    begins = {"num_computed_tokens": computed_tokens} if masks else {}
    gathered = tables.gather_block_tables(requests, len(steps[-1]), **begins)
    one = torch.tensor([0], dtype=torch.int32, device=device)
    positions = torch.tensor([1], dtype=torch.int64, device=device)
    bounds = torch.tensor([0, 1], dtype=torch.int32, device=device)
    got = tables.compute_slot_mappings(one, bounds, positions, 1)[0][0].item()
except Exception as error:
    print(f"{type(error).__name__}: {error}")
    got = type(error).__name__

# slots: The slot of a position is its block's id times the block size plus the offset in the block: anything
# else is another request's memory, or the null block.
# request 0: 0 + 2, target position 1 of row [1]
there = got != 5
print("expected: slot 5")
print(f"got:      {got}")
print("the defect is there" if there else "the defect is gone")
sys.exit(1 if there else 0)
