"""An engine's setting for these tests: 50 requests fit, or do not, by `num_blocks`."""

from __future__ import annotations

from oracle.groups import FullAttention
from oracle.scheduler_setting import SchedulerSetting

FULL = FullAttention(block_size=16)


def setting(**given):
    base = {"groups": (FULL,), "num_blocks": 300, "max_model_len": 256, "max_num_seqs": 64}
    return SchedulerSetting(**base | {"max_num_batched_tokens": 512} | given)
