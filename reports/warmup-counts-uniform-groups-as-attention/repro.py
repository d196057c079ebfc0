"""The warmup's rows are not those of the scheduler: fewer blocks (mamba_none).

Needs vLLM alone (written for 0.28.0): no GPU, weights or network. Exits 1 while the defect is there, 0 once
it is gone. The release's own warmup is run with a stand-in for the model runner. Written by slotcheck 0.1.0.
Fingerprint: warmup/columns/mamba_none/W1/less/uniform as attention.
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
from vllm.v1.kv_cache_interface import MambaSpec, UniformTypeKVCacheSpecs
from vllm.v1.worker.gpu.warmup import warmup_kernels

if not torch.accelerator.is_available():
    torch.accelerator.synchronize = lambda device=None: None  # nothing to wait for


class Connector:
    """The runner's KV connector."""

    enabled = True

    def set_disabled(self, disabled: bool) -> None:
        self.enabled = not disabled


specs = [
    UniformTypeKVCacheSpecs(
        block_size=2,
        kv_cache_specs=dict.fromkeys(
            ["layer.0"],
            MambaSpec(block_size=2, shapes=((2, 8),), dtypes=(torch.float16,), num_speculative_blocks=1),
        ),
    ),
]
runner = SimpleNamespace(  # what the warmup reads of the model runner
    num_speculative_steps=0,
    decode_query_len=1,
    kv_cache_config=SimpleNamespace(
        num_blocks=2, kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec) for spec in specs]
    ),
    scheduler_config=SimpleNamespace(max_num_seqs=1, max_num_batched_tokens=2),
    max_num_reqs=1,
    max_model_len=2,
    is_pooling_model=False,
    is_last_pp_rank=True,
    is_encoder_decoder=False,
    is_encoder_only=False,
    model_config=SimpleNamespace(
        get_vocab_size=lambda: 64, get_pooling_task=lambda tasks: tasks[0], pooler_config=None
    ),
    get_supported_tasks=lambda: ("embed",),
    model_state=SimpleNamespace(),
    vllm_config=SimpleNamespace(num_lookahead_tokens=0, is_mm_encoder_only=False),
    kv_connector=Connector(),
    kv_block_zeroer=None,
    adaptive_verification=None,
    rejection_sampler=None,
    speculative_config=None,
    block_tables=SimpleNamespace(redirect_writes_to_null_block=False),
)
seen: list[dict[int, tuple[int, int, list[list[int]]]]] = []  # a step: request -> computed, scheduled, blocks
rows: dict[str, list[list[int]]] = {}  # the blocks that a request has, per group
numbers: dict[str, int] = {}  # requests in the order in which they come
handed: list[list[int]] = [[]]  # the ids handed out in each pass


def execute_model(output: Any) -> None:
    """Keep and print what the worker would run."""
    cached = output.scheduled_cached_reqs
    given = list(zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids))
    given += [(new.req_id, new.num_computed_tokens, new.block_ids) for new in output.scheduled_new_reqs]
    step = {}
    for name, computed, blocks in given:
        request, tokens = numbers.setdefault(name, len(numbers)), output.num_scheduled_tokens[name]
        for row, more in zip(rows.setdefault(name, [[] for _ in specs]), blocks or ()):
            row += more
            handed[-1].extend(more)
        step[request] = (computed, tokens, [list(row) for row in rows[name]])
        print(f"  step {len(seen)}, request {request}: computed {computed}, scheduled {tokens}, blocks {rows[name]}")
    if given or output.finished_req_ids:
        seen.append(step)
    for name in output.finished_req_ids:
        rows.pop(name, None)
        numbers.pop(name, None)
    if not rows:
        handed.append([])


def sample_tokens(grammar_output: Any) -> None:
    """Belongs to the step before."""


def run(warmup: Any, *arguments: int) -> tuple[Any, str]:
    """Run one warmup: what it returns, and the name of what it raises."""
    for kept in (seen, rows, numbers):
        kept.clear()
    handed[:] = [[]]
    print(warmup.__name__)
    try:
        return warmup(runner, execute_model, sample_tokens, *arguments), ""
    except Exception as raised:
        print(f"  {type(raised).__name__}: {raised}")
        return None, type(raised).__name__


answer, error = run(warmup_kernels)
parts = [part for step in seen for part in step.values()]

# W1: Nobody allocates for a warmup request: the warmup hands out its blocks. It must hold what the scheduler
# would for the same tokens, the target's range and the drafter's lookahead up to max_model_len: with fewer,
# drafts are written to the null block; with more, rows and pools that serving never needs are asked for.
# request 0: 0 + 2
# max(held, ceil(min(computed + new + lookahead, max_model_len) / tokens_per_column) +
#   speculative_blocks) = 2  (computed 0, new 2, lookahead 0, max_model_len 2, tokens_per_column 2,
#   speculative_blocks 1, held 0)
# new = 0 (ours 2) would give 1
# max_model_len = 0 (ours 2) would give 1
# speculative_blocks = 0 (ours 1) would give 1
got = [len(step[0][2][0]) for step in seen[0 : 1] if 0 in step]
there = got not in ([2], [])
print("expected: request 0 holds 2 in step 0, group 0")
print(f"got:      {got}")
print("the defect is there" if there else "the defect is gone")
sys.exit(1 if there else 0)
