"""Short names for the settings of these tests."""

from __future__ import annotations

from typing import Any

from oracle.groups import CrossAttention, Group
from oracle.warmup import Kernels, WarmupOperation, WarmupSetting, WarmupTrace


def setting(*groups: Group, **fields: Any) -> WarmupSetting:
    """A runner with an ample pool, two seats and 200 positions, unless said."""
    if any(isinstance(group, CrossAttention) for group in groups):
        fields.setdefault("max_encoder_len", 10)
    known = {"num_blocks": 1000, "max_model_len": 200, "max_num_seqs": 2, "max_num_batched_tokens": 512}
    return WarmupSetting(groups=groups, **(known | fields))


def trace(of: WarmupSetting, *operations: WarmupOperation) -> WarmupTrace:
    """`warmup_kernels` unless said."""
    return WarmupTrace(setting=of, operations=operations or (Kernels(),))
