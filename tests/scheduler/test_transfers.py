"""The scheduler with a KV connector: both sides of a pair hold equally many blocks; what moves comes back."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from harness.findings import Declared, load
from harness.targets.compat import installed_release
from harness.targets.scheduler import Scheduler
from harness.workload_outcome import WorkloadOptions
from harness.workloads import run_workload
from oracle.errors import SettingError
from oracle.groups import FullAttention
from oracle.scheduled import ENDED, START, Event
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import NOTHING_MOVED, Abort, SchedulerTrace, Step, Submit
from oracle.workload_checks import check_workload

pytestmark = pytest.mark.usefixtures("release")

SETTING = SchedulerSetting(
    groups=(FullAttention(block_size=4),),
    num_blocks=40,
    max_model_len=40,
    max_num_batched_tokens=16,
    max_num_seqs=4,
    kv_connector=True,
)


def step_until(target: Scheduler, what: str) -> Event:
    """Plain steps until the scheduler does `what`."""
    for _ in range(20):
        target.schedule()
        found = [event for event in target.events if event.what == what]
        if not found:
            target.output({name: [2] for name, samples in target.samples().items() if samples}, None, NOTHING_MOVED)
            found = [event for event in target.events if event.what == what]
        if found:
            return found[0]
    raise AssertionError(what)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("method", ["none", "draft_model", "eagle"])
@pytest.mark.parametrize("prompt", [1, 3, 4, 5, 31, 32, 33])
def test_both_sides_of_a_pair_hold_equally_many_blocks(prompt: int, method: str, depth: int) -> None:
    drafts = 0 if method == "none" else 3
    both = evolve(SETTING, method=method, num_speculative_tokens=drafts, in_flight_depth=depth)

    sender = Scheduler(evolve(both, kv_role="kv_producer"))
    sender.submit(Submit(request=0, prompt=prompt, keeps=True), 0, None)
    handed = step_until(sender, ENDED)
    receiver = Scheduler(evolve(both, kv_role="kv_consumer"))
    receiver.submit(Submit(request=0, prompt=prompt, remote=prompt), 0, None)
    step_until(receiver, START)

    assert handed.seen is not None
    assert len(handed.seen.rows[0]) == len(receiver.rows(0)[0]) == -(-prompt // 4)


def test_everything_that_moves_comes_back() -> None:
    trace = SchedulerTrace(
        setting=evolve(SETTING, in_flight_depth=2, method="draft_model", num_speculative_tokens=2),
        operations=(
            Submit(request=0, prompt=33, max_tokens=5, remote=33),
            Submit(request=1, prompt=9, max_tokens=3, keeps=True),
            Submit(request=2, prompt=20, max_tokens=3, remote=12, load="sync", unknown=2),
            Submit(request=3, prompt=12, max_tokens=3, remote=12, again=True),
            Submit(request=4, prompt=12, remote=8),
            Step(),
            Step(loaded=((3, 1),)),
            Abort(request=4),
            Step(loaded=((0, 3), (4, 0))),
            Step(),
        ),
    )

    outcome = run_workload(trace, Scheduler, WorkloadOptions(declared=Declared(load(), installed_release())))

    assert [] == outcome.differences
    assert {"async load": 4, "sync load": 1, "failed load": 2, "blocks kept until sent": 1} == {
        name: outcome.reach[name] for name in ("async load", "sync load", "failed load", "blocks kept until sent")
    }


@pytest.mark.parametrize(
    ("fields", "operation", "words"),
    [
        ({"kv_connector": False}, Submit(request=0, prompt=9, remote=9), "need a KV connector"),
        ({"kv_role": "kv_producer"}, Submit(request=0, prompt=9, remote=9), "need a KV connector that consumes"),
        ({}, Submit(request=0, prompt=9, remote=10), "remote must be 0 to the prompt's 9 tokens, got 10"),
        ({"kv_connector": False}, Submit(request=0, prompt=9, keeps=True), "keeps its blocks"),
    ],
)
def test_workload_that_no_connector_has_is_refused(fields: dict[str, Any], operation: Submit, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        check_workload(evolve(SETTING, **fields), operation)


def test_role_without_a_connector_is_refused() -> None:
    with pytest.raises(SettingError, match="need kv_connector true"):
        evolve(SETTING, kv_connector=False, kv_role="kv_consumer")
