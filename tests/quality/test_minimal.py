"""The exact minimum of some defects: whatever trace a seed finds first, the shrinker ends at the same one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import frozen

from oracle.groups import CrossAttention, FullAttention, Group, Mamba, SlidingWindow
from oracle.setting import Setting
from oracle.trace import Extend, Operation, Settle, Trace
from tests.quality.defects import DEFECTS, Defect
from tests.quality.hunt import RARE, Hunt

SEEDS = (0, 1, 2)


@frozen
class Minimum:
    """The shortest trace of one fingerprint of a defect."""

    defect: str
    fingerprint: str
    trace: Trace

    def __str__(self) -> str:
        return self.defect


def trace(group: Group, *operations: Operation, **fields: object) -> Trace:
    """A trace on one group; every field of the setting that is not named has its default."""
    return Trace(setting=Setting(groups=(group,), **fields), operations=operations)


MINIMA = (
    # 1 token and 1 draft: 2 columns of 1, the defect takes 1
    Minimum(
        "lookahead_lost_on_first_calls",
        "manager/columns/full_attention/A19/less/first",
        trace(
            FullAttention(block_size=1),
            Extend(request=0, prompt=1, new=1),
            num_blocks=3,
            max_model_len=2,
            method="eagle",
            num_speculative_tokens=1,
        ),
    ),
    # 1 token is loaded: 1 column, the defect takes one more for a draft
    Minimum(
        "lookahead_added_to_async_loads",
        "manager/columns/full_attention/A19/more/first/async",
        trace(
            FullAttention(block_size=1),
            Extend(request=0, prompt=1, new=0, external=1),
            num_blocks=3,
            max_model_len=2,
            method="eagle",
            num_speculative_tokens=1,
            kv_connector=True,
        ),
    ),
    # window 2 (the least that is realistic): token 1 reads 0 and 1; the defect nulls column 0
    Minimum(
        "window_one_token_narrow",
        "manager/nulls/sliding_window/A14/more",
        trace(
            SlidingWindow(block_size=1, window=2),
            Extend(request=0, prompt=1, new=1),
            Settle(),
            Extend(request=0, new=1),
            num_blocks=3,
            max_model_len=3,
        ),
    ),
    # 1 encoder token of at most 2: 1 column, the defect takes 2
    Minimum(
        "cross_attention_sized_by_the_budget",
        "manager/columns/cross_attention/A39/more/first",
        trace(
            CrossAttention(block_size=1),
            Extend(request=0, prompt=1, new=1, encoder=1),
            num_blocks=3,
            max_model_len=2,
            max_encoder_len=2,
        ),
    ),
    # 2 tokens, one on each rank: 1 column, the defect takes 2
    Minimum(
        "dcp_factor_ignored_by_the_first_group",
        "manager/columns/full_attention/A19/more/first",
        trace(
            FullAttention(block_size=1),
            Extend(request=0, prompt=2, new=2),
            num_blocks=3,
            max_model_len=3,
            dcp_size=2,
        ),
    ),
    # 1 state and 1 scratch: 2 columns, the defect takes 1
    Minimum(
        "align_without_speculative_blocks",
        "manager/columns/mamba/A42/less/first",
        trace(
            Mamba(block_size=1, mode="align", speculative_blocks=1),
            Extend(request=0, prompt=1, new=1),
            num_blocks=3,
            max_model_len=2,
        ),
    ),
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("minimum", MINIMA, ids=str)
def test_minimum(minimum: Minimum, seed: int, plant: Callable[[Defect], Defect]) -> None:
    defect = plant(DEFECTS[minimum.defect])

    assert minimum.trace == Hunt(defect, seed, RARE).until(minimum.fingerprint).minimum(minimum.fingerprint).trace
