"""The release's scheduler beside the three oracles: agreement, refusals, and a run from options to verdict."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from harness.findings import Declared, load
from harness.targets.compat import TargetError, installed_release
from harness.targets.engine import engine_config
from harness.targets.loader import load_scheduler
from harness.targets.scheduler import Scheduler
from harness.verdict import DIFFERENCES, INCONCLUSIVE
from harness.workload_job import WorkloadJob, _shard, _shards, run
from harness.workload_outcome import WorkloadOptions
from harness.workload_run import Canary, run_shard
from harness.workload_table import text
from harness.workloads import run_in_passes, run_workload
from oracle.groups import RSWA, FullAttention, Mamba, SlidingWindow
from oracle.scheduled import Planned
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import Abort, Pause, Reset, SchedulerTrace, Step, Submit
from strategies.workloads import decode, draw

pytestmark = pytest.mark.usefixtures("release")

SETTING = SchedulerSetting(
    groups=(FullAttention(block_size=4),),
    num_blocks=12,
    max_model_len=40,
    max_num_batched_tokens=16,
    max_num_seqs=4,
    in_flight_depth=2,
    method="eagle",
    num_speculative_tokens=3,
)
WORKLOAD = SchedulerTrace(
    setting=SETTING,
    operations=(
        Submit(request=0, prompt=10, max_tokens=9),
        Submit(request=1, prompt=20, max_tokens=9),
        Step(),
        Submit(request=2, prompt=3, max_tokens=9),
        Step(),
        Step(accepted=((0, 2), (1, 1))),
        Abort(request=2),
        Step(accepted=((0, 3),), stops=((0, 1),)),
        Reset(),
        Pause(state="paused_all"),
        Step(),
        Pause(),
        Step(early=True),
    ),
)


def declared() -> Declared:
    return Declared(load(), installed_release())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_agrees_on_generated_workloads(seed: int) -> None:
    shard = run_shard(seed, 0, Scheduler, WorkloadOptions(declared=declared()), examples=20)

    assert {} == {name: found.difference.observed for name, found in shard.found.items()}
    assert shard.steps > 1000


@pytest.mark.parametrize("make", [Scheduler, lambda setting: Canary(Scheduler(setting))], ids=["release", "canary"])
def test_passes_say_what_lockstep_says(make: Any) -> None:
    drawn: list[bytes] = []
    draw(5, 0, 20, drawn.append)
    for data in drawn:
        trace = decode(data)
        options = WorkloadOptions(declared=declared(), predict=make is Scheduler)

        lockstep, passes = run_workload(trace, make, options), run_in_passes(trace, make, options)

        for name in ("steps", "differences", "declared", "reach", "shown"):
            assert getattr(lockstep, name) == getattr(passes, name)


def test_chunk_past_a_border_is_read_by_a_later_hit() -> None:
    """Blocks of 2 and 4: chunks 0..6 and 6..12 pass 8, and block 4 with the state after 6 tokens gets the name of 8."""
    setting = SchedulerSetting(
        groups=(FullAttention(block_size=2), Mamba(block_size=4)),
        num_blocks=24,
        max_model_len=16,
        max_num_batched_tokens=6,
        max_num_seqs=1,
        enable_caching=True,
    )
    first, second = Submit(request=0, prompt=13), Submit(request=1, prompt=10, forks=(9,))
    trace = SchedulerTrace(setting=setting, operations=(first, Step(), Step(), Step(), second))

    (difference,) = run_workload(trace, Scheduler, WorkloadOptions(predict=False)).differences

    assert ("M12", "state", "mamba_align") == (difference.rule, difference.sign, difference.kind)


def test_stop_token_ends_a_request_whose_content_is_cached() -> None:
    trace = SchedulerTrace(
        setting=evolve(
            SETTING, enable_caching=True, num_hash_lookahead_tokens=1, num_prefill_lookahead_tokens=1, in_flight_depth=1
        ),
        operations=(
            Submit(request=0, prompt=10, max_tokens=20),
            Step(),
            Step(accepted=((0, 3),), stops=((0, 1),)),
            Submit(request=1, prompt=12, max_tokens=2),
        ),
    )

    outcome = run_workload(trace, Scheduler, WorkloadOptions(keep_entries=True))

    assert [] == outcome.differences
    (stopped,) = [one for entry in outcome.entries for one in entry.delivered if one[2] == "stop"]
    assert (0, 120) == (stopped[0], stopped[1][-1])


@pytest.mark.parametrize("depth", [1, 2])
def test_fork_differs_where_upstream_agrees(depth: int) -> None:
    """Ten usable blocks of 4: one request is preempted, and queues behind those that wait instead of before them."""
    setting = evolve(SETTING, num_blocks=11, in_flight_depth=depth, method="none", num_speculative_tokens=0)
    submits = [Submit(request=name, prompt=15, max_tokens=20) for name in range(3)]
    trace = SchedulerTrace(setting=setting, operations=tuple(submits))

    ours, theirs = (run_workload(trace, load_scheduler(spec)).differences for spec in (None, "tests.real.fork:Hasty"))

    assert ([], ["S11"]) == (ours, [difference.rule for difference in theirs])


def test_target_that_schedules_nothing_is_refused_with_a_sentence() -> None:
    with pytest.raises(TargetError, match=r"neither a SchedulerTarget .* nor a Scheduler"):
        load_scheduler("tests.real.fork:Pool")


def test_workload_with_everything_agrees_and_drains() -> None:
    outcome = run_workload(WORKLOAD, Scheduler, WorkloadOptions(keep_entries=True))

    assert [] == outcome.differences
    assert {"length"} <= {one[2] for entry in outcome.entries for one in entry.delivered}
    assert "nobody" in text(outcome)


def test_operation_that_fits_no_request_is_void() -> None:
    trace = evolve(WORKLOAD, operations=(Abort(request=7), Submit(request=0, prompt=5), Submit(request=0, prompt=9)))

    outcome = run_workload(trace, Scheduler, WorkloadOptions())

    assert ([], 2) == (outcome.differences, outcome.steps)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_num_seqs": 20},
        {"max_num_active_seqs": 5},
        {"long_prefill_token_threshold": 41},
        {"method": "dflash", "num_speculative_tokens": 16},
        {"method": "suffix"},
    ],
)
def test_configuration_refuses_what_the_setting_refuses(fields: dict[str, Any]) -> None:
    """The setting's own check is stepped over, so that the release has its say."""
    setting = evolve(SETTING)
    for name, value in fields.items():
        object.__setattr__(setting, name, value)

    with pytest.raises(ValueError, match=r".+"):
        engine_config(setting)


def job(out: Path, **fields: Any) -> WorkloadJob:
    base = WorkloadJob(
        seed=4,
        steps=1500,
        seconds=None,
        workers=1,
        out=out,
        release="0.33.0",
        make=Scheduler,
        options=WorkloadOptions(declared=declared()),
        name_of=lambda difference: difference.rule,
        hang_seconds=60.0,
    )
    return evolve(base, **fields)


def test_short_run_is_inconclusive(tmp_path: Path) -> None:
    report = run(job(tmp_path, steps=1))

    assert INCONCLUSIVE == report.verdict
    assert report.reasons[0].startswith("not reached often enough: ")
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) == report.data()


def test_scheduler_that_is_never_built_ends_the_run(tmp_path: Path) -> None:
    """It makes no steps; a workload counts as one."""

    class Unbuilt(Scheduler):
        def __init__(self, setting: SchedulerSetting) -> None:
            raise RuntimeError("no")

    report = run(job(tmp_path, make=Unbuilt, steps=12))

    assert (DIFFERENCES, 0, 20) == (report.verdict, report.total.steps, report.total.traces)
    assert ["error:RuntimeError"] == [shrunk.difference.sign for shrunk, _, _ in report.differences]


def test_shards_of_a_process_that_dies_are_run_again_one_by_one(tmp_path: Path) -> None:
    """The same answers as in processes of their own, and the workload that killed it."""

    class Dies(Scheduler):
        def __init__(self, setting: SchedulerSetting) -> None:
            if setting.num_blocks % 7 == 3:
                os._exit(9)
            super().__init__(setting)

    together = _shards(job(tmp_path, make=Dies), range(2))
    apart = [_shard(job(tmp_path, make=Dies), number) for number in range(2)]

    assert together == apart
    assert {"exit 9"} == {one.difference.sign for shard in together for one in shard.found.values()}


def test_undeclared_difference_is_shrunk_and_reported(tmp_path: Path) -> None:
    class Forgets(Scheduler):
        def schedule(self) -> Planned:
            planned = super().schedule()
            planned.finished = []
            return planned

    report = run(job(tmp_path, make=Forgets, steps=1))

    assert DIFFERENCES == report.verdict
    (shrunk, _, folder) = report.differences[0]
    assert (1, 2) == (shrunk.requests, shrunk.steps)  # who has finished is told with the next step
    assert "scheduler/output/scheduler/S12/finished" in (folder / "report.md").read_text(encoding="utf-8")
    assert (folder / "repro.py").exists()


def test_a_stop_in_a_step_that_accepted_more() -> None:
    """Depth 2: the first step samples a stop and 4 tokens more; the one in flight goes on behind all 5, for nobody."""
    stopped = SchedulerTrace(
        setting=SchedulerSetting(
            groups=(
                Mamba(block_size=12, speculative_blocks=5, checkpoint_blocks=1, checkpoint_alignment=2),
                SlidingWindow(block_size=12, window=5),
            ),
            num_blocks=22,
            max_model_len=43,
            max_num_batched_tokens=66,
            max_num_seqs=3,
            in_flight_depth=2,
            method="eagle",
            num_speculative_tokens=5,
            enable_caching=True,
            hash_block_size=3,
            prefix_cache_retention_interval=24,
            num_hash_lookahead_tokens=1,
            num_prefill_lookahead_tokens=1,
        ),
        operations=(
            Submit(request=0, prompt=4, max_tokens=42, forks=(9,)),
            Step(),
            Submit(request=2, prompt=21, max_tokens=42),
            Step(accepted=((0, 5), (2, 2))),
            Step(accepted=((0, 4), (2, 3)), stops=((0, 0),)),
            Step(accepted=((0, 1), (2, 2))),
        ),
    )

    assert () == tuple(run_workload(stopped, Scheduler, WorkloadOptions()).differences)


def test_a_longer_row_lowers_what_a_load_leaves_free() -> None:
    """Request 3, 2 + 1 tokens known, drafts behind: 6 columns where 1 + 4 are needed, so S44 counts one block less."""
    loads = SchedulerTrace(
        setting=SchedulerSetting(
            groups=(Mamba(block_size=6, speculative_blocks=4), RSWA(block_size=6, window=2)),
            num_blocks=17,
            max_model_len=19,
            max_num_batched_tokens=10,
            max_num_seqs=2,
            method="eagle",
            num_speculative_tokens=4,
            kv_connector=True,
            policy="priority",
        ),
        operations=(
            Submit(request=0, prompt=9, max_tokens=7),
            Step(),
            Step(),
            Submit(request=1, prompt=3, max_tokens=14),
            Submit(request=2, prompt=2, max_tokens=1, priority=1, remote=1),
            Step(accepted=((0, 1),)),
            Step(accepted=((0, 1),)),
            Step(),
            Submit(request=3, prompt=2, max_tokens=2, remote=2, again=True),
            Step(accepted=((1, 3),), loaded=((3, 0),)),
            Step(accepted=((1, 4),)),
            Step(accepted=((1, 1),)),
        ),
    )
    (difference,) = run_workload(loads, Scheduler, WorkloadOptions()).differences
    finding = Declared(load(), "0.33.0").explain(difference)

    assert ("S44", "align-count-below-zero") == (difference.rule, finding and finding.name)


def test_a_junction_that_is_missed_alone_is_told_by_its_cause() -> None:
    """P27: blocks of 1 and 3 tokens, the drop. Of 4 known tokens the small window has a hit of 3, the other group none:
    junction 3. The release cuts the run of 4 to the unit before the drop: 3 - 1, cut to 0."""
    missed = SchedulerTrace(
        setting=SchedulerSetting(
            groups=(SlidingWindow(block_size=1, window=9), SlidingWindow(block_size=3, window=2)),
            num_blocks=10,
            max_model_len=5,
            max_num_batched_tokens=5,
            max_num_seqs=2,
            method="eagle",
            num_speculative_tokens=1,
            enable_caching=True,
            kv_connector=True,
            use_eagle=True,
            num_prefill_lookahead_tokens=1,
        ),
        operations=(Submit(request=0, prompt=4, forks=(18,)), Submit(request=1, prompt=4)),
    )
    (difference,) = run_workload(missed, Scheduler, WorkloadOptions()).differences
    finding = Declared(load(), "0.33.0").explain(difference)

    assert ("P27", "window-run-aligned-before-the-drop") == (difference.rule, finding and finding.name)
