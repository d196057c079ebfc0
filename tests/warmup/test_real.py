"""The release's own warmup beside the oracle and the real manager: what agrees, and what 0.33.0 is known to break."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from harness.findings import Declared, load
from harness.targets.manager import Manager
from harness.targets.warmup import Warmup, real_row_width
from harness.warmup_run import canary_caught, run_shard
from harness.warmup_shrink import shrink_warmup
from harness.warmup_table import text
from harness.warmups import WarmupOptions, run_warmups
from oracle.groups import CircularBuffer, CrossAttention, FullAttention, Group, Mamba, SlidingWindow
from oracle.methods import METHODS
from oracle.warmup import Kernels, Mixed, WarmupTrace, row_width
from strategies.warmups import decode, draw
from tests.warmup.cases import setting, trace

pytestmark = pytest.mark.usefixtures("release")

OPTIONS = WarmupOptions(make_manager=Manager)
KINDS: tuple[Group, ...] = (
    FullAttention(block_size=4),
    SlidingWindow(block_size=16, window=32),
    CrossAttention(block_size=4),
    CircularBuffer(block_size=4),
    Mamba(block_size=200, mode="none", speculative_blocks=7),
    Mamba(block_size=64, mode="align", speculative_blocks=7),
    Mamba(block_size=200, mode="none", speculative_blocks=7, uniform_layers=2),
)


def differences(of: WarmupTrace) -> list[str]:
    return [difference.fingerprint.partition("/")[2] for difference in run_warmups(of, Warmup, OPTIONS).differences]


@pytest.mark.parametrize("method", sorted(key for key, row in METHODS.items() if key[0] != "none" and row.sampled == 1))
@pytest.mark.parametrize("drafts", [1, 3, 7])
def test_all_kinds_together_agree(method: tuple[str, bool], drafts: int) -> None:
    """Seven groups, both entry points in turn, every drafter: rows, ids, laws and memory are as they must."""
    of = setting(*KINDS, method=method[0], parallel_drafting=method[1], num_speculative_tokens=drafts)

    assert [] == differences(trace(of, Mixed(num_tokens=30), Kernels(), Mixed(num_tokens=3)))


def test_skipped_mixed_step_runs_nothing() -> None:
    of = setting(FullAttention(block_size=4), num_blocks=3)
    outcome = run_warmups(trace(of, Mixed(num_tokens=9)), Warmup, OPTIONS)

    assert [] == outcome.differences
    assert (False, ()) == (outcome.ran[0].answer, outcome.ran[0].steps)


def test_redirect_and_pooling_agree() -> None:
    of = setting(FullAttention(block_size=4), num_blocks=2, null_block_redirect=True, pooling=True)

    assert [] == differences(trace(of))


@pytest.mark.parametrize("fail", range(1, 6))
def test_mixed_step_that_fails_half_way_leaves_the_runner_usable(fail: int) -> None:
    """The failed warmup, then both again on the same runner."""
    of = setting(FullAttention(block_size=4))

    assert [] == differences(trace(of, Mixed(num_tokens=9, fail=fail), Mixed(num_tokens=9), Kernels()))


def test_row_widths_are_those_of_the_release() -> None:
    """For settings whose Mamba groups have one mode, as a configuration has."""
    compared = Counter[str]()

    def visit(data: bytes) -> None:
        of = decode(data).setting
        modes = {group.mode for group in of.groups if isinstance(group, Mamba)}
        if len(modes) > 1 or "all" in modes:
            return
        for index, group in enumerate(of.groups):
            compared[group.kind] += 1
            assert real_row_width(of, index) == row_width(of, group)

    draw(3, 0, 300, visit)
    assert 10 == len(compared)
    assert min(compared.values()) >= 5


def test_generated_warmups_differ_only_as_known() -> None:
    """500 traces, and every crossing often enough; the rate is one core's."""
    known = Declared(load(), "0.33.0")
    start = time.process_time()
    found, reach, warmups = {}, Counter[str](), 0
    for shard in range(10):
        result = run_shard(11, shard, Warmup, OPTIONS)
        found |= result.found
        reach += result.reach
        warmups += result.warmups
        result.reach = reach
    rate = warmups / (time.process_time() - start) * 60

    new = [name for name, one in found.items() if not known(one.difference)]
    assert [] == new
    assert [] == result.missed()
    assert rate >= 1000


def test_two_runs_of_one_shard_give_the_same() -> None:
    first, second = (run_shard(5, 0, Warmup, OPTIONS) for _ in range(2))

    assert (first.counts, first.reach) == (second.counts, second.reach)


def test_canary_is_caught() -> None:
    caught = canary_caught(Warmup, OPTIONS)

    assert caught is not None
    assert caught < 200


def test_known_defect_is_shrunk_and_explained() -> None:
    """X-4: one group of two ranks, one token too many for a column of one rank."""
    of = setting(FullAttention(block_size=16), CircularBuffer(block_size=4), dcp_size=4, max_num_seqs=8)
    start = trace(of, Kernels(), Mixed(num_tokens=60))
    wanted = next(d for d in run_warmups(start, Warmup, OPTIONS).differences if d.aspect == "columns")

    shrunk = shrink_warmup(start, wanted, Warmup, OPTIONS)
    outcome = run_warmups(shrunk.trace, Warmup, WarmupOptions(make_manager=Manager, keep_entries=True))

    assert shrunk.minimal
    assert (FullAttention(block_size=1),) == shrunk.trace.setting.groups
    assert (2, 2) == (shrunk.trace.setting.dcp_size, shrunk.trace.setting.max_model_len)
    assert "0 + 2 + 0                         2    0 full_attention  2           1        [1 2]" in text(outcome)
    assert "tokens_per_column = 1 (ours 2) would give 2" in shrunk.difference.detail


def test_columns_that_the_scheduler_would_hold_are_those_of_the_manager(release: Any) -> None:
    """Comparison 2 is live: a manager that holds one column less is told from the oracle."""

    class Short(Manager):
        def extend(self, call: Any) -> Any:
            seen = super().extend(call)
            seen.rows = tuple(row[:-1] for row in seen.rows)
            return seen

    of = trace(setting(FullAttention(block_size=4)))
    found = run_warmups(of, Warmup, WarmupOptions(make_manager=Short)).differences

    assert [("columns", "manager")] == [(difference.aspect, difference.rule) for difference in found]
