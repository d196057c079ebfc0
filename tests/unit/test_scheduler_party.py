"""The oracle's scheduler as a party: generated workloads on the rules alone, beside laws, memory and themselves."""

from __future__ import annotations

import pytest

from harness.findings import Declared, load
from harness.workload_outcome import WorkloadOptions
from harness.workload_table import terms
from harness.workloads import run_workload
from oracle.groups import FullAttention
from oracle.scheduler_party import OracleScheduler
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import SchedulerTarget, SchedulerTrace, Step, Submit
from strategies.workloads import decode, draw


@pytest.mark.parametrize("seed", [1, 2])
def test_rules_keep_the_laws_on_generated_workloads(seed: int) -> None:
    """But for the settings in which nobody can run, which the release accepts."""
    drawn: list[bytes] = []
    draw(seed, 0, 20, drawn.append)
    options = WorkloadOptions(declared=Declared(load(), "0.33.0"))

    outcomes = [run_workload(decode(data), OracleScheduler, options) for data in drawn]

    assert [] == [difference for outcome in outcomes for difference in outcome.differences]
    assert 1000 < sum(outcome.steps for outcome in outcomes)


def test_every_ask_is_explained_by_its_terms() -> None:
    """A prompt of 6 in a room of 4: parts of 4 and 2, and the second one's row has 2 columns."""
    setting = SchedulerSetting(
        groups=(FullAttention(block_size=4),),
        num_blocks=4,
        max_model_len=12,
        max_num_batched_tokens=4,
        max_num_seqs=1,
    )
    parties: list[OracleScheduler] = []

    def make(given: SchedulerSetting) -> SchedulerTarget:
        parties.append(OracleScheduler(given))
        return parties[-1]

    run_workload(SchedulerTrace(setting=setting, operations=(Submit(request=0, prompt=6), Step())), make)

    lines = terms(setting, parties[0].reasons)
    assert ["step 0, request 0", "step 1, request 0"] == [line for line in lines if line.startswith("step")]
    assert [4, 2] == [reasons[0][2][0].value for reasons in parties[0].reasons]
    assert [1, 2] == [reasons[0][2][1].value for reasons in parties[0].reasons]


def test_a_scheduler_that_cannot_be_built_is_a_difference() -> None:
    """What it raises is its answer; the shrinker passes such a setting over."""

    def make(given: SchedulerSetting) -> SchedulerTarget:
        raise AssertionError("two kinds of group at least")

    setting = SchedulerSetting(groups=(FullAttention(block_size=4),), num_blocks=4, max_model_len=12)
    [difference] = run_workload(SchedulerTrace(setting=setting, operations=(Step(),)), make).differences

    assert ("raised", "error:AssertionError") == (difference.rule, difference.sign)
    assert "AssertionError: two kinds of group at least" == difference.observed
