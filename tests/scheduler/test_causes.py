"""Differences that once came as new although their cause is known: each has its cause in its name now."""

from __future__ import annotations

import pytest

from harness.targets.scheduler import Scheduler
from harness.workloads import run_workload
from oracle.groups import FullAttention, Mamba
from oracle.scheduler_setting import PRIORITY, SchedulerSetting
from oracle.workload import SchedulerTrace, Step, Submit, Update

pytestmark = pytest.mark.usefixtures("release")


def told(trace: SchedulerTrace) -> list[str]:
    return [difference.fingerprint for difference in run_workload(trace, Scheduler).differences]


def test_a_running_request_is_asked_for_where_the_next_turn_should_begin() -> None:
    """Room for 3 of 4 tokens ends no block of the Mamba group, but one of 2: request 2 runs, instead of waiting."""
    setting = SchedulerSetting(
        groups=(FullAttention(block_size=2), Mamba(block_size=4, speculative_blocks=2)),
        num_blocks=12,
        max_model_len=9,
        max_num_batched_tokens=5,
        max_num_seqs=3,
        method="eagle",
        num_speculative_tokens=1,
        enable_caching=True,
        num_hash_lookahead_tokens=1,
        num_prefill_lookahead_tokens=1,
        policy=PRIORITY,
    )
    operations = (
        Submit(request=0, prompt=1, max_tokens=2, forks=(5,)),
        Submit(request=1, prompt=1, priority=1),
        Submit(request=2, prompt=8),
    )

    found = told(SchedulerTrace(setting=setting, operations=operations))
    assert ["scheduler/ask/scheduler/S2/request other/smallest block"] == found


def test_who_stands_still_is_looked_up_as_the_release_does() -> None:
    """Request 2 hits nothing, since its drop has no margin; so its load is tried again, and reserves for itself."""
    setting = SchedulerSetting(
        groups=(FullAttention(block_size=2),),
        num_blocks=6,
        max_model_len=5,
        max_num_batched_tokens=2,
        max_num_seqs=1,
        method="eagle",
        num_speculative_tokens=1,
        enable_caching=True,
        kv_connector=True,
        use_eagle=True,
        num_prefill_lookahead_tokens=1,
    )
    operations = (
        Submit(request=0, prompt=4, forks=(5,)),
        Submit(request=1, prompt=1, remote=1, session=True),
        *[Step()] * 2,
        Submit(request=2, prompt=4, forks=(11,), remote=1, again=True),
        Update(request=1, prompt=1),
        Step(loaded=((1, 1),)),
        Step(loaded=((2, 1),)),
        *[Step()] * 3,
    )

    where = "scheduler/law/scheduler/progress/a session does not go on beside its own blocks"
    found = told(SchedulerTrace(setting=setting, operations=operations))
    assert ["manager/hits/full_attention/P22/less/no margin", f"{where}/retry reserves for itself"] == found
