"""A group's vLLM spec as plain data: the class's name and its keyword arguments. Needs no vLLM.

`compat.build_spec` builds the spec from this and a report's repro.py prints it, so that both are the same. Arguments
that equal vLLM's default are left out. An element type is its name ("float16"); heads are two of size 8, so that pages
have bytes but no meaning.
"""

from __future__ import annotations

from typing import Any

from oracle import groups as kinds

#: arguments whose value is an element type, or a tuple of them, by name
DTYPE_ARGUMENTS = ("dtype", "dtypes")

_DTYPES = {"half": "float16", "single": "float32"}
_CLASSES: dict[type[kinds.Group], str] = {
    kinds.FullAttention: "FullAttentionSpec",
    kinds.MLA: "MLAAttentionSpec",
    kinds.HiddenState: "HiddenStateCacheSpec",
    kinds.Sink: "SinkFullAttentionSpec",
    kinds.SlidingWindow: "SlidingWindowSpec",
    kinds.SlidingWindowMLA: "SlidingWindowMLASpec",
    kinds.ChunkedLocal: "ChunkedLocalAttentionSpec",
    kinds.RSWA: "RSWASpec",
    kinds.CircularBuffer: "CircularBufferSpec",
    kinds.KpoolTail: "KpoolTailSpec",
    kinds.CrossAttention: "CrossAttentionSpec",
    kinds.Mamba: "MambaSpec",
}


def spec_arguments(group: kinds.Group) -> tuple[str, dict[str, Any]]:
    """Class name and keyword arguments of the spec of one layer of `group` (not of its uniform-type wrapper)."""
    dtype = _DTYPES[group.precision]
    arguments: dict[str, Any] = {"block_size": group.block_size}
    if isinstance(group, kinds.Mamba):
        arguments |= {"shapes": ((2, 8),), "dtypes": (dtype,), **_mamba(group)}
    else:
        arguments |= {"num_kv_heads": 2, "head_size": 8, "dtype": dtype, **_own(group)}
        if not group.dcp_sharded:
            arguments["dcp_sharded"] = False
    return _CLASSES[type(group)], arguments


def _mamba(group: kinds.Mamba) -> dict[str, Any]:
    wanted = {
        "mamba_cache_mode": (group.mode, "none"),
        "num_speculative_blocks": (group.speculative_blocks, 0),
        "num_prefill_checkpoint_blocks": (group.checkpoint_blocks, 0),
        "prefill_checkpoint_alignment": (group.checkpoint_alignment, None),
    }
    return {name: value for name, (value, default) in wanted.items() if value != default}


def _own(group: kinds.Group) -> dict[str, Any]:
    """What an attention kind has beyond its heads."""
    if isinstance(group, kinds.SlidingWindow):
        retained = group.extra_retained_tokens
        return {"sliding_window": group.window, **({"extra_retained_tokens": retained} if retained else {})}
    if isinstance(group, kinds.ChunkedLocal):
        return {"attention_chunk_size": group.chunk}
    if isinstance(group, kinds.RSWA):
        return {"rswa_window": group.window}
    if isinstance(group, kinds.KpoolTail):
        return {"sliding_window": group.block_size}
    if isinstance(group, kinds.Sink):
        return {"sink_len": group.sink_len}
    return {}
