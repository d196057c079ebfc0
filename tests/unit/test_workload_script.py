"""repro.py of a workload uses what the release has that it is written for. Needs no vLLM."""

from __future__ import annotations

import pytest

from harness.report.workload_script import script
from harness.workload_outcome import WorkloadOptions
from harness.workloads import run_workload
from oracle.groups import FullAttention
from oracle.releases import NEWEST
from oracle.scheduler_party import OracleScheduler
from oracle.scheduler_setting import SchedulerSetting
from oracle.trace import Difference
from oracle.workload import SchedulerTrace, Step, Submit

DIFFERENCE = Difference(
    aspect="law",
    step=1,
    group=None,
    kind="scheduler",
    rule="progress",
    sign="nobody runs",
    expected="the law holds",
    observed="nobody runs",
)
#: what came later, and what 0.29.0 still asked
LATER = ("max_num_active_seqs", "long_prefill_token_threshold_adaptive", "skip_drafts", "sha256, 0")
EARLIER = ("def should_advance",)


@pytest.mark.parametrize(("release", "there", "gone"), [("0.29.0", EARLIER, LATER), (NEWEST, LATER, EARLIER)])
def test_a_script_has_what_its_release_has(release: str, there: tuple[str, ...], gone: tuple[str, ...]) -> None:
    """Options, hashes, skipped drafts and grammars."""
    setting = SchedulerSetting(
        groups=(FullAttention(block_size=4),),
        num_blocks=9,
        max_model_len=16,
        max_num_batched_tokens=8,
        max_num_seqs=1,
        enable_caching=True,
        release=release,
    )
    trace = SchedulerTrace(setting=setting, operations=(Submit(request=0, prompt=4), Step()))
    outcome = run_workload(trace, OracleScheduler, WorkloadOptions(keep_entries=True, release=release))

    text = script(trace, DIFFERENCE, outcome, "nobody runs", release)

    assert [] == [word for word in there if word not in text]
    assert [] == [word for word in gone if word in text]
