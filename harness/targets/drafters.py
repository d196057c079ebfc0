"""The input kernel of the release's DFlash and DSpark drafters: which positions and slots it makes of a step."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

from attrs import frozen

from oracle.groups import Group
from oracle.slots import queries
from oracle.warmup import Part, WarmupSetting, row_width


@frozen
class Drafted:
    """What the kernel made. context: slots of the target's positions; positions, slots: of the queries."""

    context: tuple[int, ...]
    positions: tuple[int, ...]
    slots: tuple[int, ...]


def dflash_module() -> Any:
    """The release's DFlash module; `block_tables.table_class` must have made Triton runnable before."""
    return importlib.import_module("vllm.v1.worker.gpu.spec_decode.dflash.speculator")


def dflash_inputs(
    setting: WarmupSetting, group: Group, row: tuple[int, ...], part: Part, rejected: int, rank: int, module: Any = None
) -> Drafted:
    """Run the kernel for one request whose step was `part`, of which `rejected` drafts were refused."""
    torch = importlib.import_module("torch")
    found = module or dflash_module()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def ints(values: list[int], dtype: Any = torch.int32) -> Any:
        return torch.tensor(values, dtype=dtype, device=device)

    count = len(queries(setting, 0))
    room = max(part.new, count) + 1
    table = torch.zeros((1, row_width(setting, group)), dtype=torch.int32, device=device)
    table[0, : len(row)] = ints(list(row))
    longs = [torch.full((room,), -7, dtype=torch.int64, device=device) for _ in range(6)]
    query_slots, context_positions, context_slots, positions, indices, sampled_positions = longs
    buffers = SimpleNamespace(
        input_ids=torch.zeros(room, dtype=torch.int32, device=device),
        positions=positions,
        is_padding=torch.zeros(room, dtype=torch.bool, device=device),
        query_start_loc=torch.zeros(2, dtype=torch.int32, device=device),
        seq_lens=torch.zeros(1, dtype=torch.int32, device=device),
    )
    batch = SimpleNamespace(
        num_reqs=1,
        num_scheduled_tokens=importlib.import_module("numpy").array([part.new]),
        positions=ints(list(range(part.computed, part.end)), torch.int64),
        query_start_loc=ints([0, part.new]),
        idx_mapping=ints([0]),
    )
    floats = torch.zeros(1, dtype=torch.float32, device=device)
    found.prepare_dflash_inputs(
        buffers,
        query_slots,
        context_positions,
        context_slots,
        indices,
        sampled_positions,
        torch.zeros(room, dtype=torch.int32, device=device),
        floats.clone(),
        ints([0], torch.int64),
        batch,
        ints([1 + part.drafts - rejected]),
        ints([rejected]),
        ints([1], torch.int64),
        ints([1]),
        floats,
        ints([0], torch.int64),
        table,
        group.block_size,
        rank,
        setting.dcp_size if group.dcp_sharded else 1,
        1,
        0,
        count,
        setting.num_speculative_tokens,
        1,
        room,
        setting.max_model_len,
        sample_from_anchor=setting.method == "dspark",
    )
    return Drafted(
        tuple(context_slots[: part.new].tolist()),
        tuple(positions[:count].tolist()),
        tuple(query_slots[:count].tolist()),
    )


@frozen
class Expanded:
    """What the draft model's first pass is given. last: index of the row that the first draft is sampled from."""

    positions: tuple[int, ...]
    last: int
    seq_len: int


def draft_model_inputs(setting: WarmupSetting, part: Part, rejected: int) -> Expanded:
    """Run the kernel that adds one token to a step for a draft model (D3)."""
    torch = importlib.import_module("torch")
    numpy = importlib.import_module("numpy")
    found = importlib.import_module("vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    room = part.new + 1

    def ints(values: list[int], dtype: Any = torch.int32) -> Any:
        return torch.tensor(values, dtype=dtype, device=device)

    buffers = SimpleNamespace(query_start_loc=ints([0, 0]), seq_lens=ints([0]))
    batch = SimpleNamespace(
        num_reqs=1,
        num_tokens=part.new,
        query_start_loc_np=numpy.array([0, part.new]),
        input_ids=ints([0] * part.new),
        positions=ints(list(range(part.computed, part.end)), torch.int64),
        idx_mapping=ints([0]),
        query_start_loc=ints([0, part.new]),
        seq_lens=ints([part.end]),
    )
    positions = torch.full((room + 1,), -7, dtype=torch.int64, device=device)
    last = ints([0], torch.int64)
    total = found.prepare_prefill_inputs(
        buffers,
        batch,
        ints([1], torch.int64),
        ints([rejected], torch.int64),
        torch.zeros(room + 1, dtype=torch.int32, device=device),
        positions,
        last,
        1,
        setting.max_model_len,
    )
    return Expanded(tuple(positions[:total].tolist()), int(last[0]), int(buffers.seq_lens[0]))
