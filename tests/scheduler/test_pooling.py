"""Pooled requests at the scheduler level: each example beside the real scheduler, with its arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from harness.targets.scheduler import Scheduler
from harness.workload_outcome import WorkloadOptions, WorkloadOutcome
from harness.workloads import run_workload
from oracle.errors import SettingError
from oracle.groups import FullAttention
from oracle.scheduled import STOPPED
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import SchedulerOperation, SchedulerTrace, Step, Submit
from oracle.workload_checks import check_workload

pytestmark = pytest.mark.usefixtures("release")


def setting(**changes: Any) -> SchedulerSetting:
    plain: dict[str, Any] = {
        "groups": (FullAttention(block_size=4),),
        "num_blocks": 9,
        "max_model_len": 12,
        "max_num_batched_tokens": 8,
        "max_num_seqs": 2,
        "pooling": True,
    }
    return SchedulerSetting(**plain | changes)


def run(*operations: SchedulerOperation, **changes: Any) -> WorkloadOutcome:
    """The real scheduler, the laws and the prediction on a workload; nothing may differ."""
    trace = SchedulerTrace(setting=setting(**changes), operations=operations)
    outcome = run_workload(trace, Scheduler, WorkloadOptions(keep_entries=True))
    assert [] == outcome.differences
    return outcome


def parts(outcome: WorkloadOutcome) -> list[list[tuple[int, int]]]:
    return [entry.planned.tokens for entry in outcome.entries if entry.planned.tokens]


def test_a_prompt_of_max_model_len_ends_with_its_last_chunk() -> None:
    """12 of 12 tokens in chunks of 8 and 4: no position is kept, and the second output ends it without a token."""
    outcome = run(Submit(request=0, prompt=12))

    assert [[(0, 8)], [(0, 4)]] == parts(outcome)
    assert [(), ((0, (), STOPPED),)] == [entry.delivered for entry in outcome.entries]


def test_nothing_is_planned_for_an_output_in_flight() -> None:
    """Overlap: the whole prompt is in flight, no placeholder stands for it, and the next step is empty."""
    outcome = run(Submit(request=0, prompt=8), Step(), Step(), in_flight_depth=2)

    assert [[(0, 8)]] == parts(outcome)
    assert [[(0, 8)], []] == [entry.planned.tokens for entry in outcome.entries[:2]]


def test_who_reads_no_cache_computes_all_of_a_prompt_seen_before() -> None:
    """Two prompts of 8 say the same, the third too: a hit of one block for who reads, none for who does not."""
    outcome = run(
        Submit(request=0, prompt=8),
        Step(),
        Submit(request=1, prompt=8),
        Step(),
        Submit(request=2, prompt=8, skip=True),
        enable_caching=True,
    )

    assert [[(0, 8)], [(1, 4)], [(2, 8)]] == parts(outcome)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_speculative_tokens": 2, "method": "ngram"}, "num_speculative_tokens must be 0 with pooling true, got 2"),
        ({"max_encoder_len": 4}, "a cross-attention group"),
    ],
)
def test_what_a_pooling_engine_does_not_have_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        setting(**changes)


@pytest.mark.parametrize("asked", [{"max_tokens": 2}, {"session": True}, {"grammar": 1}, {"prompt": 13}])
def test_what_a_pooled_request_cannot_ask_for_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=f"{next(iter(asked))} must be"):
        check_workload(setting(), Submit(**{"request": 0, "prompt": 4} | asked))
