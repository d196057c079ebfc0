"""Near max_model_len the drafter writes over valid context: over context (full_attention).

Needs vLLM alone (written for 0.33.0): no GPU, weights or network. Exits 1 while the defect is there, 0 once
it is gone. The drafter's own code is run on one decode step, with nothing in the model's place. Written by
slotcheck 0.1.0. Fingerprint: warmup/law/full_attention/D-L2/over context/dflash.
"""

import importlib
import importlib.util
import inspect
import os
import sys
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
os.environ["TORCH_LOGS"] = "-all"  # no warnings of torch's own
if not any(map(os.path.exists, ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128"))):
    os.environ.update(CUDA_VISIBLE_DEVICES="", TRITON_INTERPRET="1")  # no GPU here: the kernels run on the CPU

DECODERS = "vllm.v1.worker.gpu.spec_decode."
#: packages of the drafters there, the newest name first
HOMES = {
    "autoregressive": ("target_dependent_ar", "autoregressive"),
    "draft_model": ("standalone_ar", "draft_model"),
    "query_pass": ("dflash",),
}
#: a pass of a request: what it is, its positions, the slots of each group
Pass = tuple[str, list[int], list[list[int]]]


def home(drafter: str) -> Any:
    """The release's module of a function below; None when its V2 runner has no such drafter."""
    for name in HOMES[drafter]:
        if importlib.util.find_spec(DECODERS + name) is not None:
            return importlib.import_module(f"{DECODERS}{name}.speculator")
    return None


def sharded(drafter: str) -> bool:
    """Whether the drafter's code knows of ranks that share the cache."""
    if drafter != "query_pass":
        return True
    return "cp_size" in inspect.signature(home(drafter).prepare_dflash_inputs).parameters


def given(function: Any, **wanted: Any) -> Any:
    """Call a function with those of `wanted` that this release's takes."""
    accepted = inspect.signature(function).parameters
    return function(**{name: value for name, value in wanted.items() if name in accepted})


def prepare() -> None:
    """Make the worker's buffers work where there is no CUDA device."""
    if not importlib.import_module("torch").cuda.is_available():
        buffers: Any = importlib.import_module("vllm.v1.worker.gpu.buffer_utils")
        buffers.is_uva_available = lambda: True
        buffers.UvaBuffer = importlib.import_module("vllm.v1.worker.cpu.buffer_utils").UvaBuffer
        memory: Any = importlib.import_module("vllm.utils.torch_utils")
        memory.PIN_MEMORY, memory.is_pin_memory_available = False, lambda: False


class Batch:
    """A decode step of `new` tokens from `computed` on; request i is `states[i]` in the worker and refuses rejected[i].

    rows: per request and group the block ids. widths: columns of the worker's rows.
    """

    def __init__(
        self,
        *,
        computed: int,
        new: int,
        drafts: int,
        rejected: list[int],
        rows: list[list[list[int]]],
        block_sizes: list[int],
        widths: list[int],
        sharded: list[bool],
        max_model_len: int,
        ranks: int = 1,
        rank: int = 0,
        interleave: int = 1,
    ) -> None:
        prepare()
        self.torch: Any = importlib.import_module("torch")
        self.device = self.torch.device("cuda" if self.torch.cuda.is_available() else "cpu")
        self.computed, self.new, self.drafts, self.max_model_len = computed, new, drafts, max_model_len
        self.requests, self.room = len(rejected), len(rejected) * (max(new, drafts + 1) + 2)
        self.block_sizes, self.sharded, self.ranks, self.rank = block_sizes, sharded, ranks, rank
        self.interleave = interleave
        states = list(range(self.requests))[::-1]  # a request's place in the batch is not its place in the worker
        tables = given(
            importlib.import_module("vllm.v1.worker.gpu.block_table").BlockTables,
            block_sizes=block_sizes,
            kernel_block_sizes=block_sizes,
            max_num_reqs=self.requests,
            max_num_batched_tokens=self.room,
            max_num_blocks_per_group=widths,
            device=self.device,
            dcp_sharded=sharded,
            cp_size=ranks,
            cp_rank=rank,
            cp_interleave=interleave,
        )
        for state, row in zip(states, rows, strict=True):
            tables.append_block_ids(state, tuple(row), overwrite=True)
        tables.apply_staged_writes()
        self.tables, self.idx_mapping = tables, self.ints(states)
        tables.gather_block_tables(self.idx_mapping, self.requests)
        self.num_rejected = self.ints(rejected)
        self.num_sampled = self.ints([new - refused for refused in rejected])
        starts = [index * new for index in range(self.requests + 1)]
        self.query_start_loc = self.ints(starts)
        positions = [computed + offset for _ in rejected for offset in range(new)]
        numpy: Any = importlib.import_module("numpy")
        self.input = SimpleNamespace(
            num_reqs=self.requests,
            num_tokens=self.requests * new,
            num_scheduled_tokens=numpy.full(self.requests, new, dtype=numpy.int32),
            input_ids=self.zeros(self.room),
            positions=self.ints(positions + [0] * (self.room - len(positions)), self.torch.int64),
            idx_mapping=self.idx_mapping,
            query_start_loc=self.query_start_loc,
            query_start_loc_np=numpy.array(starts),
            seq_lens=self.ints([computed + new] * self.requests),
            seq_lens_cpu_upper_bound=self.torch.full((self.requests,), computed + new, dtype=self.torch.int32),
        )
        self.passes: list[list[Pass]] = [[] for _ in rejected]

    def ints(self, values: list[int], dtype: Any = None) -> Any:
        """A tensor on the device."""
        return self.torch.tensor(values, dtype=dtype or self.torch.int32, device=self.device)

    def zeros(self, *shape: int, dtype: Any = None) -> Any:
        """A tensor of zeros on the device."""
        return self.torch.zeros(shape, dtype=dtype or self.torch.int32, device=self.device)

    def buffers(self) -> SimpleNamespace:
        """The drafter's input buffers."""
        return SimpleNamespace(
            input_ids=self.zeros(self.room),
            positions=self.ints([-7] * self.room, self.torch.int64),
            is_padding=self.zeros(self.room, dtype=self.torch.bool),
            query_start_loc=self.zeros(self.requests + 1),
            seq_lens=self.zeros(self.requests),
        )

    def keep(self, what: str, starts: list[int], positions: Any, slots: list[Any]) -> None:
        """Keep a pass; `starts`: where each request's part begins."""
        shown, places = positions.tolist(), [group.tolist() for group in slots]
        for request, (first, last) in enumerate(pairwise(starts)):
            self.passes[request].append((what, shown[first:last], [group[first:last] for group in places]))


def autoregressive(batch: Batch, module: Any = None, advance: bool = True) -> list[list[Pass]]:
    """EAGLE, EAGLE3 and MTP: a first pass at the target's positions, then single steps. advance: not for Gemma4."""
    found = module or home("autoregressive")
    cls, drafter = _looping(found), _stand_in(batch)
    drafter.advance_draft_positions = advance
    last = found.prepare_prefill_inputs(
        drafter.last_token_indices, drafter.current_draft_step, drafter.input_buffers, batch.input, batch.num_sampled,
        batch.num_rejected, batch.zeros(batch.requests), batch.zeros(batch.requests), batch.requests,
    )  # fmt: skip
    valid = [int(end) + 1 - index * batch.new for index, end in enumerate(last.tolist())]
    positions = drafter.input_buffers.positions.tolist()
    for request, count in enumerate(valid):
        first = request * batch.new
        batch.passes[request].append(("first pass", positions[first : first + count], []))
    step = drafter.input_buffers.positions[last].clone()
    drafter.input_buffers.positions[: batch.requests] = step
    drafter.sample_src_positions[: batch.requests] = step + 1
    if batch.drafts > 1:
        given(
            found.prepare_decode_inputs, draft_tokens=drafter.draft_tokens[:, 0], target_seq_lens=batch.input.seq_lens,
            num_rejected=batch.num_rejected, input_buffers=drafter.input_buffers,
            sample_src_positions=drafter.sample_src_positions, max_model_len=batch.max_model_len,
            max_num_reqs=batch.requests, advance_draft_positions=advance,
        )  # fmt: skip
        drafter._generate_draft = partial(cls._generate_draft, drafter)
        drafter._run_model = partial(_keeps_step, batch, drafter, True)
        upper = batch.input.seq_lens_cpu_upper_bound
        mode = importlib.import_module("vllm.config.compilation").CUDAGraphMode.NONE
        description = SimpleNamespace(cg_mode=mode, num_tokens=batch.requests, num_reqs=batch.requests)
        given(
            partial(cls._multi_step_decode, drafter), num_reqs=batch.requests, skip_attn=False, batch_desc=description,
            num_tokens_across_dp=None, seq_lens_cpu_upper_bound=upper, num_speculative_steps=batch.drafts,
        )  # fmt: skip
    return batch.passes


def draft_model(batch: Batch, module: Any = None) -> list[list[Pass]]:
    """A draft model of its own: one position more than the target, then single steps."""
    found = module or home("draft_model")
    drafter = _stand_in(batch)
    expanded = batch.ints([-7] * batch.room, batch.torch.int64)
    total = found.prepare_prefill_inputs(
        drafter.input_buffers, batch.input, batch.zeros(batch.requests), batch.num_rejected, batch.zeros(batch.room),
        expanded, drafter.last_token_indices, batch.requests, batch.max_model_len,
    )  # fmt: skip
    starts = drafter.input_buffers.query_start_loc
    slots = batch.tables.compute_slot_mappings(batch.idx_mapping, starts, expanded[:total], total)
    batch.keep("expanded pass", starts.tolist(), expanded[:total], list(slots))
    drafter.expanded_positions = expanded
    drafter._run_model = partial(_keeps_step, batch, drafter, False)
    _looping(found)._multi_step_decode(drafter, batch.input, batch.num_rejected, batch.requests, False, None)
    return batch.passes


def query_pass(batch: Batch, module: Any = None, anchor: bool = False) -> list[list[Pass]]:
    """DFlash and DSpark: slots of the target's positions, and queries past the last valid one. anchor: DSpark's own."""
    found = module or home("query_pass")
    queries = batch.drafts + (not anchor)
    contexts, places, positions = [], [], None
    for group, size in enumerate(batch.block_sizes):
        buffers, long = batch.buffers(), partial(batch.zeros, batch.room, dtype=batch.torch.int64)
        slots, context, floats = long(), long(), batch.zeros(batch.requests, dtype=batch.torch.float32)
        seeds = batch.zeros(batch.requests, dtype=batch.torch.int64)
        given(
            found.prepare_dflash_inputs, input_buffers=buffers, query_slot_mapping=slots, context_positions=long(),
            context_slot_mapping=context, sample_indices=long(), sample_pos=long(),
            sample_idx_mapping=batch.zeros(batch.room), temperature=floats.clone(), seeds=seeds.clone(),
            input_batch=batch.input, num_sampled=batch.num_sampled, num_rejected=batch.num_rejected,
            last_sampled=seeds.clone(), next_prefill_tokens=batch.zeros(batch.requests), input_temperature=floats,
            input_seeds=seeds, block_table=batch.tables.input_block_tables[group], block_size=size, cp_rank=batch.rank,
            cp_size=batch.ranks if batch.sharded[group] else 1, cp_interleave=batch.interleave,
            parallel_drafting_token_id=0, num_query_per_req=queries, num_speculative_steps=batch.drafts,
            max_num_reqs=batch.requests, max_num_tokens=batch.room, max_model_len=batch.max_model_len,
            sample_from_anchor=anchor,
        )  # fmt: skip
        contexts.append(context)
        places.append(slots)
        positions = buffers.positions
    batch.keep("context", batch.query_start_loc.tolist(), batch.input.positions, contexts)
    batch.keep("queries", [index * queries for index in range(batch.requests + 1)], positions, places)
    return batch.passes


def _looping(module: Any) -> Any:
    """The module's class that drafts in a loop of single steps."""
    return next(found for found in vars(module).values() if "_multi_step_decode" in getattr(found, "__dict__", {}))


def _stand_in(batch: Batch) -> SimpleNamespace:
    """What the drafting loops read of a speculator; the model and the sampler do nothing."""
    groups = [SimpleNamespace(layer_names=[str(index)]) for index in range(len(batch.block_sizes))]
    hidden = batch.zeros(batch.room, 1, dtype=batch.torch.float32)
    return SimpleNamespace(
        input_buffers=batch.buffers(),
        block_tables=batch.tables,
        kv_cache_config=SimpleNamespace(kv_cache_groups=groups),
        idx_mapping=batch.idx_mapping,
        last_token_indices=batch.zeros(batch.requests, dtype=batch.torch.int64),
        current_draft_step=batch.torch.tensor(0, dtype=batch.torch.int64, device=batch.device),
        sample_src_positions=batch.zeros(batch.requests, dtype=batch.torch.int64),
        draft_tokens=batch.zeros(batch.requests, batch.drafts, dtype=batch.torch.int64),
        arange_gpu=batch.torch.arange(batch.requests + 1, dtype=batch.torch.int32, device=batch.device),
        hidden_states=hidden,
        temperature=None,
        seeds=None,
        draft_logits=None,
        pcp_manager=None,
        num_speculative_steps=batch.drafts,
        max_model_len=batch.max_model_len,
        _prepare_eplb_forward=lambda tokens: None,
        _build_uniform_attn_metadata=lambda **_: None,
        _build_draft_attn_metadata=lambda **_: None,
        sample_draft=lambda *given: batch.zeros(batch.requests, dtype=batch.torch.int64),
    )


def _keeps_step(batch: Batch, drafter: SimpleNamespace, pair: bool, *arguments: Any) -> Any:
    """Stands for the forward pass of a single step, keeps its positions and its slots by layer."""
    slots = next(value for value in arguments if isinstance(value, dict))
    positions = drafter.input_buffers.positions[: batch.requests].clone()
    placed = [slots[str(index)][: batch.requests].clone() for index in range(len(batch.block_sizes))]
    batch.keep("step", list(range(batch.requests + 1)), positions, placed)
    hidden = drafter.hidden_states[: batch.requests]
    return (hidden, hidden) if pair else hidden

rows = [[[32, 31, 30, 29, 28, 27, 26, 25]], [[24, 23, 22, 21, 20, 19, 18, 17]], [[16, 15, 14, 13, 12, 11, 10, 9]], [[8, 7, 6, 5, 4, 3, 2, 1]]]  # per request and group; request i refuses i drafts
batch = Batch(
    computed=123,
    new=4,
    drafts=3,
    rejected=[0, 1, 2, 3],
    rows=rows,
    block_sizes=[16],
    widths=[8],
    sharded=[True],
    max_model_len=128,
    ranks=1,
    rank=0,
    interleave=1,
)
found = query_pass(batch, anchor=False)
for refused, passes in enumerate(found):
    print(f"{refused} drafts refused")
    for what, positions, slots in passes:
        print(f"  {what}: positions {positions}, slots {slots}")

# D-L2: No draft is kept at or past max_model_len. What has no place there is written nowhere, and never to
# the place of a position that is valid.
# request 0: 123 + 4 (3 drafts), 0 refused: the last valid position is 126
# queries, positions 127 .. 130, slots [415, 400, 401, 402]
# row of group 0: [32 31 30 29 28 27 26 25], block size 16
got = found[0][1][2][0][1]
row = rows[0][0]
context = [block * 16 + offset for block in row for offset in range(16)][:128]
there = got in context  # the place of a position below max_model_len
print("expected: position 128: written nowhere")
print(f"got:      {got}")
print("the defect is there" if there else "the defect is gone")
sys.exit(1 if there else 0)
