"""Which trap explains a standstill, by the rules of the release."""

from __future__ import annotations

import pytest
from attrs import evolve

from harness.workload_suspects import stuck_again_by, stuck_by
from oracle.groups import FullAttention, Mamba
from oracle.scheduler_setting import SchedulerSetting


def narrow(release: str, *groups: Mamba) -> SchedulerSetting:
    """Steps of one token, drafts, and a connector that can load a prompt but for a token."""
    return SchedulerSetting(
        groups=groups or (FullAttention(block_size=2),),
        num_blocks=40,
        max_model_len=8,
        max_num_batched_tokens=8,
        max_num_scheduled_tokens=1,
        max_num_seqs=2,
        method="draft_model",
        num_speculative_tokens=1,
        kv_connector=True,
        release=release,
    )


@pytest.mark.parametrize(
    ("release", "trap"),
    [("0.26.0", ""), ("0.29.0", ""), ("0.30.0", "padding beyond the room"), ("0.33.0", "padding beyond the room")],
)
def test_a_lone_newcomer_is_padded_since(release, trap):
    """S21: before, somebody else had to run, so that padding kept nobody from beginning."""
    assert trap == stuck_by(narrow(release))


def test_a_block_beyond_a_chunk_is_told_by_itself():
    """The same setting on 0.26.0: a Mamba block of two tokens does not fit a step of one."""
    states = Mamba(block_size=2, mode="align", speculative_blocks=1)

    assert "block beyond a chunk" == stuck_by(narrow("0.26.0", states))


@pytest.mark.parametrize(
    ("held", "retries", "trap"),
    [(0, 1, ""), (1, 1, "retry reserves for itself"), (0, 2, "retry reserves for itself")],
)
def test_a_retry_reserves_for_itself_beside_what_others_hold(held, retries, trap):
    """S44: 8 tokens are 4 blocks; a retry needs them twice, and once more for each other retry. 8 are there."""
    load = evolve(
        narrow("0.33.0"), num_blocks=9, method="none", num_speculative_tokens=0, max_num_scheduled_tokens=None
    )
    assert trap == stuck_again_by(load, held=held, retries=retries)
