"""The oracle as a party of the warmup level agrees with its own judge; needs no vLLM."""

from __future__ import annotations

import pytest

from harness.warmups import run_warmups
from oracle.groups import CrossAttention, FullAttention, Mamba
from oracle.warmup import Kernels, Mixed, WarmupOperation, WarmupSetting, WarmupTrace
from oracle.warmup_party import OracleWarmup
from strategies.warmups import decode, draw

#: laws that the steps themselves break, whoever takes them: tiny pools, budgets and models
OF_THE_PLAN = {
    ("positions", "past max_model_len"),
    ("ids", "outside the pool"),
    ("budget", "draft rows"),
    ("rows", "past the row, past max_model_len"),
}


def test_generated_warmups_break_only_what_the_plan_breaks():
    found = set()

    def visit(data: bytes) -> None:
        for difference in run_warmups(decode(data), OracleWarmup).differences:
            found.add((difference.rule, difference.sign))

    draw(7, 0, 400, visit)
    assert OF_THE_PLAN >= found - {("W1", "less")}  # rows are counted by position: what is nulled stays


@pytest.mark.parametrize("fail", [1, 2, 5])
@pytest.mark.parametrize("operation", [Kernels(), Mixed(num_tokens=9)])
def test_a_worker_that_fails_ends_the_warmup_there(operation: WarmupOperation, fail: int):
    from attrs import evolve

    groups = (FullAttention(block_size=4), CrossAttention(block_size=4), Mamba(block_size=16, mode="align"))
    setting = WarmupSetting(
        groups=groups, num_blocks=99, max_model_len=200, max_encoder_len=9, max_num_seqs=2, max_num_batched_tokens=64
    )
    outcome = run_warmups(
        WarmupTrace(setting=setting, operations=(evolve(operation, fail=fail), operation)), OracleWarmup
    )

    assert [] == outcome.differences
    assert ("WorkerFailure", (fail) // 2) == (outcome.ran[0].error, len(outcome.ran[0].steps))
    assert "" == outcome.ran[1].error
