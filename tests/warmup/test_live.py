"""The recorder of a real engine start, tried on the stand-in runner with the real block tables; no device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attrs import evolve

from harness.targets.block_tables import WorkerTables
from harness.targets.live import _Kept
from harness.targets.manager import Manager
from harness.targets.warmup import Warmup, _without_accelerator
from harness.warmups import WarmupOptions, run_warmups
from oracle.groups import FullAttention
from oracle.warmup import Kernels, WarmupTrace
from tests.warmup.cases import setting

OF = setting(FullAttention(block_size=4), method="draft_model", num_speculative_tokens=2)


def recorded(module: Any) -> Any:
    """What is kept of a warmup whose worker appends the blocks that it is given."""
    runner = Warmup(OF).runner
    runner.block_tables = tables = WorkerTables(OF).tables
    runner.req_states = SimpleNamespace(req_id_to_index={})

    def execute(output: Any) -> None:
        indices = runner.req_states.req_id_to_index
        for new in output.scheduled_new_reqs:
            indices[new.req_id] = len(indices)
            tables.append_block_ids(indices[new.req_id], new.block_ids, overwrite=True)
        cached = output.scheduled_cached_reqs
        for name, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if blocks is not None:
                tables.append_block_ids(indices[name], blocks, overwrite=False)
        tables.apply_staged_writes()
        for name in output.finished_req_ids:
            del indices[name]

    kept = _Kept(2, "draft_model")
    with _without_accelerator():
        kept.warm(module.warmup_kernels, runner, execute, lambda grammar: None)
    return kept.live


def test_recording_is_judged_as_the_stand_in_is(release: Any, tables: Any) -> None:
    live = recorded(release)

    assert evolve(OF, max_in_flight_tokens=None) == live.setting
    trace = WarmupTrace(setting=live.setting, operations=(Kernels(),))
    assert [] == run_warmups(trace, lambda given: live, WarmupOptions(make_manager=Manager)).differences


def test_rows_of_the_worker_are_kept_step_by_step(release: Any, tables: Any) -> None:
    """Prompt 4 with lookahead 2 is two blocks of 4 for each; the drafts' step ends at 7, with lookahead at 9."""
    live = recorded(release)

    assert [{0: ((1, 2),), 1: ((3, 4),)}, {0: ((1, 2, 5),), 1: ((3, 4, 6),)}] == live.held[:2]
    assert {} == live.held[-1]
