"""Draft steps: positions and slots of the drafters' own code, for every number of refused drafts (D1 to D8)."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from attrs import frozen

from harness.targets.drafters import draft
from harness.targets.warmup import Warmup
from harness.warmup_shrink import shrink_warmup
from harness.warmups import WarmupOptions, run_warmups
from oracle.errors import SettingError
from oracle.groups import FullAttention, SlidingWindow
from oracle.warmup import DRAFTERS, Draft, WarmupSetting
from tests.warmup.cases import setting, trace

QUERIES = ("dflash", "dspark", "dspark_fill_in")
FULL = FullAttention(block_size=4)


def options(module: Any = None) -> WarmupOptions:
    return WarmupOptions(draft=draft if module is None else partial(draft, module=module))


def signs(of: WarmupSetting, computed: int, module: Any = None) -> list[str]:
    """What is wrong with the drafter behind the step at `computed`."""
    found = run_warmups(trace(of, Draft(computed=computed)), Warmup, options(module)).differences
    return [f"{difference.rule} {difference.sign}" for difference in found]


def with_drafts(method: str, **fields: Any) -> WarmupSetting:
    groups = fields.pop("groups", (FULL,))
    return setting(*groups, **{"method": method, "num_speculative_tokens": 3} | fields)


@pytest.mark.parametrize("method", DRAFTERS)
@pytest.mark.parametrize("computed", [4, 7])
def test_drafts_are_where_they_must_be(tables: Any, method: str, computed: int) -> None:
    """Far from max_model_len: K 3 with b4, in two groups."""
    of = with_drafts(method, groups=(FULL, SlidingWindow(block_size=2, window=9, dcp_sharded=False)))

    assert [] == signs(of, computed)


@pytest.mark.parametrize("method", ["eagle", "draft_model", "dflash"])
def test_drafts_of_two_ranks(tables: Any, method: str) -> None:
    assert [] == signs(with_drafts(method, dcp_size=2), 5)


@pytest.mark.parametrize("method", [method for method in DRAFTERS if method not in QUERIES])
@pytest.mark.parametrize("left", [2, 3, 5])
def test_autoregressive_drafts_stay_below_max_model_len(tables: Any, method: str, left: int) -> None:
    """M 128: the worker's row ends with the model; `left` positions are free before the step."""
    assert [] == signs(with_drafts(method, max_model_len=128), 128 - left)


@pytest.mark.parametrize("method", QUERIES)
def test_queries_past_an_open_row_write_nothing_valid(tables: Any, method: str) -> None:
    """M 16 with b4: the worker's row goes on to 128 tokens, so that a query past M finds no block."""
    of = with_drafts(method, max_model_len=16)

    assert [] == [sign for computed in (8, 11, 14) for sign in signs(of, computed)]


@pytest.mark.parametrize("method", QUERIES)
def test_queries_past_a_full_row_overwrite_context(tables: Any, method: str) -> None:
    """A defect of 0.33.0: with M 128 and b4 the column past the row is cut to the last one, a block of the request.

    The step ends at 127, the last one that a scheduler makes; its queries at 128 and beyond go to the block of 124.
    """
    assert ["D-L2 over context"] == signs(with_drafts(method, max_model_len=128), 123)


def test_step_needs_a_drafter_with_code_of_its_own() -> None:
    with pytest.raises(SettingError, match="got 'ngram'"):
        trace(with_drafts("ngram"), Draft(computed=4))
    with pytest.raises(SettingError, match="computed must be at most max_model_len - 2 = 198"):
        trace(with_drafts("eagle"), Draft(computed=199))


# -------------------------------------------------------------------------------------------------- planted defects


@frozen
class Defect:
    """`old` becomes `new` in the module of a method's drafter; sign: what tells it."""

    name: str
    method: str
    file: str
    old: str
    new: str
    sign: str


AR, ALONE, QUERY = "target_dependent_ar", "standalone_ar", "dflash"
DEFECTS = (
    Defect(
        "position past the end", "eagle", AR, "position = tl.minimum(position + 1, max_model_len - 1)",
        "position = position + 1", "D positions",
    ),
    Defect("rejection forgotten", "eagle", AR, "query_len -= num_rejected", "pass", "D positions"),
    Defect(
        "expanded pass one short", "draft_model", ALONE, "total_out = q_next - q_start + 1",
        "total_out = q_next - q_start", "D positions",
    ),
    Defect(
        "correction token of the target's length", "draft_model", ALONE, "num_valid = q_next - q_start - num_rejected",
        "num_valid = q_next - q_start", "D positions",
    ),
    Defect(
        "refused context kept", "dflash", QUERY, "num_valid_ctx = valid_ctx_end - ctx_start", "num_valid_ctx = num_ctx",
        "D-L1 a refused token is context",
    ),
    Defect(
        "queries one early", "dspark", QUERY, "query_pos = last_valid_pos + 1 + query_off",
        "query_pos = last_valid_pos + query_off", "D positions",
    ),
    Defect(
        "slot of the first row", "dflash", QUERY, "block_table_ptr + req_idx * block_table_stride + q_block_num",
        "block_table_ptr + 0 * req_idx + q_block_num", "D-L1 another slot",
    ),
)  # fmt: skip


def planted(defect: Defect, folder: Path) -> ModuleType:
    """The release's module with the defect, as a file of its own: Triton reads the source of its kernels."""
    found = importlib.util.find_spec(f"vllm.v1.worker.gpu.spec_decode.{defect.file}.speculator")
    assert found is not None
    assert found.origin is not None
    text = Path(found.origin).read_text(encoding="utf-8")
    assert defect.old in text
    path = folder / "planted_speculator.py"
    path.write_text(text.replace(defect.old, defect.new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("planted_speculator", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_planted_defect_is_found(tables: Any, tmp_path: Path, defect: Defect) -> None:
    module = planted(defect, tmp_path)
    computed = 123 if defect.name == "position past the end" else 5

    assert defect.sign in signs(with_drafts(defect.method, max_model_len=128), computed, module)


def test_defect_of_a_draft_step_is_shrunk(tables: Any) -> None:
    """F-10: the least step that shows it has two drafts, one query past the end."""
    start = trace(with_drafts("dflash", max_model_len=256, num_speculative_tokens=2), Draft(computed=251))
    (found,) = run_warmups(start, Warmup, options()).differences

    small = shrink_warmup(start, found, Warmup, options(), max_tries=60)

    assert small.trace.setting.max_model_len <= 128
    assert "over context" == small.difference.sign
