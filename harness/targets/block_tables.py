"""The worker's real `BlockTables`, fed with recorded scheduler outputs; its Triton kernels run where they can.

On a CUDA device natively. On a CPU by Triton's interpreter, which must be chosen before Triton is imported: call
`choose_interpreter` before anything imports vLLM. Some 50 ms a step.
"""

from __future__ import annotations

import importlib
import os
import sys
from itertools import pairwise
from typing import Any

from attrs import frozen

from harness.targets import compat, drafter_kernels
from oracle.call import Rows
from oracle.groups import SlidingWindow
from oracle.slots import drafted
from oracle.warmup import Part, Recorded, WarmupSetting, row_width


@frozen
class Written:
    """One part of one step on one rank. rows: what the forward pass sees. slots: per group, of the part's positions.

    drafts: per group, of the positions that the drafter may write.
    """

    part: Part
    rows: Rows
    slots: tuple[tuple[int, ...], ...]
    drafts: tuple[tuple[int, ...], ...]


def choose_interpreter() -> None:
    """Run Triton kernels on the CPU; TargetError when Triton was imported without it."""
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise compat.TargetError("Triton is imported already: set TRITON_INTERPRET=1 before vLLM is imported")
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def table_class(module: Any = None) -> Any:
    """The release's `BlockTables` (or `module`'s), ready for the device at hand; TargetError without a device."""
    compat.import_vllm()
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        raise compat.TargetError("no CUDA device: set TRITON_INTERPRET=1 before vLLM is imported")
    drafter_kernels.prepare()
    return (module or importlib.import_module("vllm.v1.worker.gpu.block_table")).BlockTables


class WorkerTables:
    """The block tables of one rank, built as the model runner builds them."""

    def __init__(self, setting: WarmupSetting, rank: int = 0, module: Any = None) -> None:
        self.setting = setting
        self.torch = importlib.import_module("torch")
        self.device = self.torch.device("cuda" if self.torch.cuda.is_available() else "cpu")
        specs = [compat.build_spec(group) for group in setting.groups]
        layers = [getattr(spec, "first_spec", spec) for spec in specs]
        reach = [
            getattr(layer, "num_retained_tokens", 0) if isinstance(group, SlidingWindow) else 0
            for group, layer in zip(setting.groups, layers, strict=True)
        ]
        sizes = [group.block_size for group in setting.groups]
        wanted = {
            "block_sizes": sizes,
            "kernel_block_sizes": sizes,
            "max_num_reqs": setting.max_num_seqs,
            "max_num_batched_tokens": max(setting.max_num_batched_tokens, setting.max_num_seqs * setting.lookahead),
            "max_num_blocks_per_group": [row_width(setting, group) for group in setting.groups],
            "device": self.device,
            "slot_mapping_enabled": [getattr(layer, "uses_slot_mapping", True) for layer in layers],
            "dcp_sharded": [getattr(spec, "dcp_sharded", True) for spec in specs],
            "sliding_window_reach": reach,
            "cp_size": setting.dcp_size,
            "cp_rank": rank,
            "cp_interleave": setting.cp_interleave,
        }
        made = table_class(module)
        self.tables = made(**compat.keywords(made, wanted))
        self.tables.redirect_writes_to_null_block = setting.null_block_redirect
        self.computed = self.torch.zeros(setting.max_num_seqs, dtype=self.torch.int32, device=self.device)

    def step(self, step: Recorded) -> list[Written]:
        """Take a step's new blocks, then give rows and slots. A row past its capacity raises, as in the worker."""
        nothing: Rows = tuple(() for _ in self.setting.groups)
        for part, blocks in zip(step.parts, step.blocks, strict=True):
            first = part.computed == 0
            if first or blocks is not None:
                new = tuple(list(ids) for ids in blocks or nothing)
                self.tables.append_block_ids(part.request, new, overwrite=first)
            self.computed[part.request] = part.computed
        if not step.parts:
            return []
        self.tables.apply_staged_writes()
        requests = [part.request for part in step.parts]
        index = self._tensor(requests, self.torch.int32)
        begins = compat.keywords(type(self.tables).gather_block_tables, {"num_computed_tokens": self.computed})
        tables = self.tables.gather_block_tables(index, len(requests), **begins)
        rows = [table.cpu().tolist() for table in tables]
        lengths = self.tables.num_blocks.np
        targets = [range(part.computed, part.end) for part in step.parts]
        drafts = [drafted(self.setting, part) for part in step.parts]
        slots, guesses = self._slots(index, targets), self._slots(index, drafts)
        written = []
        for at, part in enumerate(step.parts):
            held = tuple(
                tuple(rows[group][at][: int(lengths[group, part.request])]) for group in range(len(self.setting.groups))
            )
            written.append(Written(part, held, slots[at], guesses[at]))
        return written

    def _tensor(self, values: list[int], dtype: Any) -> Any:
        return self.torch.tensor(values, dtype=dtype, device=self.device)

    def _slots(self, index: Any, positions: list[range]) -> list[tuple[tuple[int, ...], ...]]:
        """Per request and group the slots of its positions."""
        starts = [0]
        for these in positions:
            starts.append(starts[-1] + len(these))
        groups = range(len(self.setting.groups))
        if not starts[-1]:
            return [tuple(() for _ in groups) for _ in positions]
        flat = self._tensor([position for these in positions for position in these], self.torch.int64)
        found = self.tables.compute_slot_mappings(index, self._tensor(starts, self.torch.int32), flat, starts[-1])
        table = found.cpu().tolist()
        return [tuple(tuple(table[group][first:last]) for group in groups) for first, last in pairwise(starts)]
