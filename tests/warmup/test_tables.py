"""Comparison 3: the worker's real block tables, by Triton's interpreter or on a CUDA device, fed with real warmups."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from attrs import frozen

from harness.report.warmup_tables import has_slots
from harness.targets import compat
from harness.targets.block_tables import WorkerTables
from harness.targets.warmup import Warmup
from harness.warmup_shrink import shrink_warmup
from harness.warmups import WarmupOptions, run_warmups
from oracle.errors import SettingError
from oracle.groups import CircularBuffer, CrossAttention, FullAttention, Mamba, SlidingWindow
from oracle.slots import PAD, drafted, gathered, position_of, slot
from oracle.warmup import Kernels, Mixed, Part, WarmupSetting, WarmupTrace
from strategies.warmups import decode, draw
from tests.warmup.cases import setting, trace

FULL = FullAttention(block_size=4)


# ---------------------------------------------------------------------------------------------- by hand, no vLLM


@pytest.mark.parametrize(
    ("position", "rank", "expected"),
    [
        (0, 0, 20),  # block 5, offset 0
        (1, 0, PAD),  # rank 1 has it
        (1, 1, 20),
        (6, 0, 23),  # the fourth of rank 0's tokens 0 2 4 6
        (8, 0, 28),  # column 1 begins at 8: block 7
        (15, 1, 31),
        (16, 0, None),  # no third block
    ],
)
def test_slots_of_two_ranks(position: int, rank: int, expected: int | None) -> None:
    assert expected == slot(setting(FULL, dcp_size=2), FULL, (5, 7), position, rank)


def test_ranks_take_turns() -> None:
    """Blocks of 4 on two ranks, turns of 2: positions 0, 1, 4, 5 fill rank 0's first block, 8 begins its second."""
    two = setting(FULL, dcp_size=2, cp_interleave=2)

    assert [20, 21, PAD, PAD, 22, 23, PAD, PAD, 28] == [slot(two, FULL, (5, 7), position, 0) for position in range(9)]
    assert [PAD, PAD, 20, 21, PAD, PAD, 22, 23, PAD] == [slot(two, FULL, (5, 7), position, 1) for position in range(9)]
    assert [0, 1, 4, 5] == [position_of(two, FULL, (5, 7), found, 0) for found in (20, 21, 22, 23)]


@pytest.mark.parametrize(
    ("fields", "blocks"), [({"dcp_size": 1}, "dcp_size 1"), ({"dcp_size": 2}, "a block_size of 4")]
)
def test_turns_that_do_not_divide(fields: dict[str, int], blocks: str) -> None:
    with pytest.raises(SettingError, match=f"must divide the blocks that ranks share, got 3 with {blocks}"):
        setting(FULL, cp_interleave=3, **fields)


def test_null_block_is_no_slot() -> None:
    assert slot(setting(FULL), FULL, (0, 7), 3, 0) is None
    assert 28 == slot(setting(FULL), FULL, (0, 7), 4, 0)


def test_drafted_positions_stop_at_max_model_len() -> None:
    of = setting(FULL, method="eagle", num_speculative_tokens=3, max_model_len=10)

    assert range(8, 10) == drafted(of, Part(0, 5, 3, 0, 5))
    assert range(5, 8) == drafted(of, Part(0, 0, 5, 0, 5))


def test_window_rows_are_masked_for_the_forward_pass() -> None:
    """W 3, b2: token 6 reads 4 .. 6, so the first two columns are null; with ranks nothing is masked."""
    window = SlidingWindow(block_size=2, window=3, dcp_sharded=False)

    assert (0, 0, 6, 7) == gathered(setting(window), window, (4, 5, 6, 7), 6)
    assert (4, 5, 6, 7) == gathered(setting(window, dcp_size=2), window, (4, 5, 6, 7), 6)
    assert (0, 0, 0, 0) == gathered(setting(window, null_block_redirect=True), window, (4, 5, 6, 7), 6)


# ------------------------------------------------------------------------------------------------------ the real


def slot_differences(of: WarmupTrace, module: Any = None) -> list[str]:
    found = run_warmups(of, Warmup, options(module)).differences
    return [f"{difference.kind}/{difference.sign}" for difference in found if difference.rule == "slots"]


def options(module: Any = None) -> WarmupOptions:
    return WarmupOptions(
        aspects=frozenset({"law"}),
        make_tables=lambda of, rank: WorkerTables(of, rank, module),
        memory=False,
        declared=lambda difference: difference.rule != "slots",
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "eagle", "num_speculative_tokens": 3},
        {"method": "dflash", "num_speculative_tokens": 5, "dcp_size": 2},
        {"method": "dflash", "num_speculative_tokens": 2, "max_model_len": 17},
        {"null_block_redirect": True},
    ],
    ids=["eagle", "dflash on two ranks", "near max_model_len", "redirect"],
)
def test_every_position_has_its_slot(tables: Any, fields: dict[str, Any]) -> None:
    drafts = fields.get("num_speculative_tokens", 0)
    of = setting(
        FULL,
        SlidingWindow(block_size=2, window=3, dcp_sharded=False),
        CrossAttention(block_size=4),
        CircularBuffer(block_size=4),
        Mamba(block_size=16, mode="align", speculative_blocks=drafts),
        **fields,
    )

    assert [] == slot_differences(trace(of, Kernels(), Mixed(num_tokens=9)))


def test_generated_warmups_have_their_slots(tables: Any) -> None:
    """A sampled share: few seats, because the interpreter takes milliseconds a request."""
    wrong, ran = Counter[str](), 0

    def visit(data: bytes) -> None:
        nonlocal ran
        of = decode(data)
        if of.setting.max_num_seqs > 3 or of.setting.max_num_batched_tokens > 2048:
            return
        ran += 1
        wrong.update(slot_differences(of))

    draw(21, 0, 50, visit)
    assert 10 <= ran
    # a row past its capacity is X-4, or a position past max_model_len in an exact row
    assert {"pool/error:RuntimeError"} >= set(wrong)


@pytest.mark.cuda
def test_native_kernels_have_the_same_slots(tables: Any) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: the tests above ran by the interpreter")
    of = setting(FULL, FullAttention(block_size=2), method="eagle", num_speculative_tokens=3)

    assert [] == slot_differences(trace(of, Kernels(), Mixed(num_tokens=9)))


# -------------------------------------------------------------------------------------------------- planted defects


@frozen
class Defect:
    name: str
    old: str
    new: str
    shows: str
    start: WarmupSetting


TWO = setting(FULL, FullAttention(block_size=2), method="eagle", num_speculative_tokens=2, max_num_seqs=2)
DEFECTS = (
    Defect(
        "slot arithmetic off past the first block",
        "slot_ids = block_numbers * kv_block_size + block_offsets",
        "slot_ids = block_numbers * kv_block_size + local_positions",
        "full_attention/target slot",
        TWO,
    ),
    Defect(
        "appended at another group's length",
        "start = self.num_blocks.np[i, req_index] if not overwrite",
        "start = self.num_blocks.np[0, req_index] if not overwrite",
        "full_attention/row",
        TWO,
    ),
    Defect(
        "last column not gathered",
        "tl.store(dst_row_ptr + offset, block_ids, mask=offset < num_blocks)",
        "tl.store(dst_row_ptr + offset, block_ids, mask=offset < num_blocks - 1)",
        "full_attention/row",
        TWO,
    ),
    Defect(
        "columns of another request",
        "block_table_ptr + req_state_idx * block_table_stride + block_indices",
        "block_table_ptr + batch_idx * 0 + block_indices",
        "full_attention/target slot",
        TWO,
    ),
    Defect(
        "redirect ignored",
        "if self.redirect_writes_to_null_block:",
        "if False:",
        "full_attention/row",
        setting(FULL, null_block_redirect=True),
    ),
    Defect(
        "rank ignored",
        "// CP_INTERLEAVE % CP_SIZE == cp_rank",
        "// CP_INTERLEAVE % CP_SIZE == 0",
        "full_attention/target slot",
        setting(FULL, dcp_size=2),
    ),
    Defect(
        "turns of one token",
        "local_offsets = rounds * CP_INTERLEAVE + remainder",
        "local_offsets = rounds + remainder",
        "full_attention/target slot",
        setting(FULL, dcp_size=2, cp_interleave=2),
    ),
    Defect(
        "window masked one block too far",
        "tl.maximum(first_pos - reach, 0) // block_size",
        "tl.maximum(first_pos - reach, 0) // block_size + 1",
        "sliding_window/row",
        setting(SlidingWindow(block_size=2, window=3), max_num_seqs=1),
    ),
)


def planted(tables: ModuleType, defect: Defect, folder: Path) -> ModuleType:
    """The release's block tables with the defect, as a file of its own: Triton reads the source of its kernels."""
    assert tables.__file__ is not None
    text = Path(tables.__file__).read_text(encoding="utf-8")
    assert defect.old in text
    path = folder / "planted_block_table.py"
    path.write_text(text.replace(defect.old, defect.new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("planted_block_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_planted_defect_is_found_and_shrunk(tables: Any, tmp_path: Path, defect: Defect) -> None:
    module = planted(tables, defect, tmp_path)
    start = trace(defect.start)
    found = run_warmups(start, Warmup, options(module)).differences
    wanted = next(d for d in found if f"{d.kind}/{d.sign}" == defect.shows)

    shrunk = shrink_warmup(start, wanted, Warmup, options(module), max_tries=40)

    assert len(shrunk.trace.setting.groups) == (2 if defect.name == "appended at another group's length" else 1)
    assert shrunk.trace.setting.num_speculative_tokens <= 1
    assert defect.shows == f"{shrunk.difference.kind}/{shrunk.difference.sign}"


def test_every_kind_but_a_ring_has_slots(tables: Any) -> None:
    groups = (
        FULL,
        SlidingWindow(block_size=2, window=3),
        CrossAttention(block_size=4),
        CircularBuffer(block_size=4),
        Mamba(block_size=16, mode="align"),
    )

    assert [has_slots(group) for group in groups] == [compat.build_spec(group).uses_slot_mapping for group in groups]
