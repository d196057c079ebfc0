"""Why nobody runs: each declared standstill by the term that makes it, and none by a term that does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from harness import tracefile
from harness.findings import Declared, load
from harness.workload_outcome import WorkloadOptions, WorkloadOutcome
from harness.workload_standstill import TRAPS
from harness.workloads import run_workload
from oracle.allocator import Allocator
from oracle.call import REFUSED, Call, Observation
from oracle.groups import ChunkedLocal, FullAttention, Mamba
from oracle.scheduler import Scheduler
from oracle.scheduler_party import OracleScheduler
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import SchedulerTrace, Step, Submit, Update

REPORTS = Path(__file__).parents[2] / "reports"
#: releases whose rules show the findings: the first of each that has a form of its own, and the newest
RELEASES = ("0.26.0", "0.28.0", "0.30.0", "0.31.0", "0.33.0")
#: the far side of a full pool: two loads that could run one after the other
TWO_LOADS = REPORTS / "loads-lock-the-pool" / "trace-priority.json"
#: drafts that a padded newcomer has no room for, blocks that a load leaves free for them: traps that a setting may have
TRAPPED = SchedulerSetting(
    groups=(FullAttention(block_size=2),),
    num_blocks=5,
    max_model_len=8,
    max_num_batched_tokens=8,
    max_num_scheduled_tokens=1,
    max_num_seqs=2,
    method="draft_model",
    num_speculative_tokens=1,
    kv_connector=True,
)


def standstills(trace: SchedulerTrace, release: str = "0.33.0", *, predict: bool = True) -> WorkloadOutcome:
    """The workload on the rules alone, beside what is declared."""
    options = WorkloadOptions(release=release, declared=Declared(load(), release), predict=predict)
    return run_workload(trace, OracleScheduler, options)


@pytest.mark.parametrize("release", RELEASES)
def test_declared_standstills_are_told_by_their_cause(release: str) -> None:
    told: set[str] = set()
    for finding in load():
        laws = [one for one in finding.match if one.rule in ("progress", "drain") and one.tags]
        if finding.level != "scheduler" or not laws or not finding.covers(release):
            continue
        for path in sorted(finding.folder.glob("trace*.json")):
            trace = tracefile.read_any(path)
            if not isinstance(trace, SchedulerTrace):
                continue
            outcome = standstills(trace, release)

            assert [] == [(finding.name, path.name, one.sign, one.tags) for one in outcome.differences]
            told.update(tag for one in outcome.declared for tag in one.tags)
    assert len(told) > 5


@pytest.mark.parametrize("setting", [TRAPPED, evolve(TRAPPED, num_speculative_tokens=0, method="none")])
def test_another_standstill_is_not_one_of_these(monkeypatch: pytest.MonkeyPatch, setting: SchedulerSetting) -> None:
    """Whoever waits is passed over for no reason, whatever traps the setting has."""
    monkeypatch.setattr(Scheduler, "_examined", lambda *arguments: None)

    (found,) = standstills(SchedulerTrace(setting=setting, operations=(Submit(request=0, prompt=3),))).differences

    assert ("progress", "nobody runs", ()) == (found.rule, found.sign, found.tags)


@pytest.mark.parametrize("connector", [False, True])
def test_a_refusal_for_no_reason_is_not_one_of_these(monkeypatch: pytest.MonkeyPatch, connector: bool) -> None:
    """The pool is free and a block is said to be lacking; what start-up sizing leaves out is not in the setting."""

    def refused(allocator: Allocator, call: Call) -> Observation:
        allocator.short = 1
        return Observation(REFUSED, allocator.nothing, allocator.nothing, allocator.pool.free)

    monkeypatch.setattr(Allocator, "extend", refused)
    setting = evolve(TRAPPED, max_num_scheduled_tokens=None, kv_connector=connector)
    prompt = Submit(request=0, prompt=3, remote=2 * connector)

    (found,) = standstills(SchedulerTrace(setting=setting, operations=(prompt,))).differences

    assert ("progress", "nobody runs", ()) == (found.rule, found.sign, found.tags)


def test_a_session_is_refused_before_what_is_dead_of_its_row_comes_free() -> None:
    """Tokens 0 to 3 took 2 of 3 blocks, which their chunk no longer needs; 4 to 6 need 2."""
    setting = SchedulerSetting(
        groups=(ChunkedLocal(block_size=2, chunk=4),),
        num_blocks=4,
        max_model_len=8,
        max_num_batched_tokens=2,
        max_num_seqs=1,
    )
    operations = (Submit(request=0, prompt=4, session=True), Update(request=0, prompt=3))

    (found,) = standstills(SchedulerTrace(setting=setting, operations=operations)).declared

    assert ("sessions hold blocks",) == found.tags


def test_a_prompt_that_may_not_be_split_and_its_block_have_no_room_beside_draft_slots() -> None:
    """16 of 17 rows, beside the slots of 3 drafts: in one part it does not fit, nor does a part to the border at 16."""
    setting = SchedulerSetting(
        groups=(Mamba(block_size=16, speculative_blocks=3),),
        num_blocks=6,
        max_model_len=17,
        max_num_batched_tokens=17,
        max_num_seqs=1,
        method="mtp",
        parallel_drafting=True,
        num_speculative_tokens=3,
        enable_chunked_prefill=False,
    )

    (found,) = standstills(SchedulerTrace(setting=setting, operations=(Submit(request=0, prompt=16),))).declared

    assert ("prompt beside draft slots",) == found.tags


def test_a_newcomer_is_waited_for() -> None:
    """Three empty steps are a standstill (operation 4 here), of those after the last arrival (6)."""
    setting = evolve(TRAPPED, max_model_len=16, num_blocks=9)
    loads = [Submit(request=number, prompt=15, remote=15) for number in range(2)]
    operations = (loads[0], Step(), Step(), loads[1], Step(), Step(), Step())

    (found,) = standstills(SchedulerTrace(setting=setting, operations=operations)).declared

    assert (6, ("reserve beside a load",)) == (found.step, found.tags)


def test_without_a_prediction_no_cause_is_known() -> None:
    trace = tracefile.read_any(TWO_LOADS)
    assert isinstance(trace, SchedulerTrace)

    (found,) = standstills(trace, predict=False).differences

    assert ("progress", ()) == (found.rule, found.tags)


def test_every_trap_names_a_declared_one() -> None:
    tags = {tag for finding in load() for one in finding.match for tag in one.tags}

    assert {tag for tag, _ in TRAPS} <= tags
