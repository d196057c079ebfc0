"""Which trap explains a standstill, by the rules of the release."""

from __future__ import annotations

import pytest
from attrs import evolve

from harness.workload_suspects import begun_by, kept_place_by, stuck_again_by, stuck_by
from oracle.groups import FullAttention, Mamba
from oracle.scheduler_setting import SchedulerSetting
from oracle.violation import Waiting


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
    ("held", "failed", "trap"),
    [(0, (8,), ""), (1, (8,), "retry reserves for itself"), (0, (8, 8), "retry reserves for itself"), (0, (4, 4), "")],
)
def test_a_retry_reserves_for_itself(held, failed, trap):
    """S44: 8 tokens are 4 blocks; a retry needs them twice, and once more for each other retry. 8 are there."""
    load = evolve(narrow("0.33.0"), num_blocks=9, method="none", num_speculative_tokens=0)
    waits = (Waiting(8, held, (0, 9), False), *(Waiting(tokens, 0, (0, 0), True) for tokens in failed))
    assert trap == stuck_again_by(load, waits=waits)


@pytest.mark.parametrize(
    ("policy", "gate", "urgent", "trap"),
    [
        ("priority", False, (0, 2), "load without the rest of its prompt"),
        ("priority", False, (1, 2), ""),
        ("priority", True, (0, 2), ""),
        ("fcfs", False, (0, 2), ""),
    ],
)
def test_a_later_load_stands_in_front_of_one_that_could_run(policy, gate, urgent, trap):
    """S44: of two that hold blocks the later one must be the more urgent, and no gate have asked for its whole need."""
    loads = evolve(narrow("0.33.0"), policy=policy, scheduler_reserve_full_isl=gate)
    assert trap == begun_by(loads, (Waiting(4, 2, (1, 1), False), Waiting(4, 1, urgent, False)))
    assert not begun_by(loads, (Waiting(4, 2, (1, 1), False), Waiting(4, 0, urgent, False)))


@pytest.mark.parametrize(
    ("release", "tokens", "trap"), [("0.31.0", 8, "place for no token"), ("0.31.0", 7, ""), ("0.32.0", 8, "")]
)
def test_a_pooled_prompt_of_the_longest_length(release, tokens, trap):
    """S56: up to 0.31.0 a position is kept behind it, and there is none."""
    pools = evolve(narrow(release), method="none", num_speculative_tokens=0, pooling=True)
    assert trap == kept_place_by(pools, (Waiting(tokens, 1, (0, 0), False),))
