"""The arguments of vLLM's specs, without vLLM."""

from __future__ import annotations

import pytest

from harness.targets.specs import spec_arguments
from oracle.groups import KINDS, ChunkedLocal, FullAttention, Mamba, Sink, SlidingWindow

HEADS = {"num_kv_heads": 2, "head_size": 8, "dtype": "float16"}


def test_arguments_that_equal_the_default_are_left_out():
    assert ("FullAttentionSpec", {"block_size": 4, **HEADS}) == spec_arguments(FullAttention(block_size=4))


@pytest.mark.parametrize(
    ("group", "own"),
    [
        (FullAttention(block_size=4, dcp_sharded=False), {"dcp_sharded": False}),
        (FullAttention(block_size=4, precision="single"), {"dtype": "float32"}),
        (SlidingWindow(block_size=4, window=8), {"sliding_window": 8}),
        (
            SlidingWindow(block_size=4, window=8, extra_retained_tokens=3),
            {"sliding_window": 8, "extra_retained_tokens": 3},
        ),
        (ChunkedLocal(block_size=4, chunk=8), {"attention_chunk_size": 8}),
        (Sink(block_size=4, sink_len=4), {"sink_len": 4}),
    ],
    ids=str,
)
def test_attention(group, own):
    assert {"block_size": 4, **HEADS, **own} == spec_arguments(group)[1]


def test_mamba_has_states_instead_of_heads():
    group = Mamba(block_size=4, mode="align", speculative_blocks=2, checkpoint_blocks=1, checkpoint_alignment=8)

    assert {
        "block_size": 4,
        "shapes": ((2, 8),),
        "dtypes": ("float16",),
        "mamba_cache_mode": "align",
        "num_speculative_blocks": 2,
        "num_prefill_checkpoint_blocks": 1,
        "prefill_checkpoint_alignment": 8,
    } == spec_arguments(group)[1]


def test_every_kind_has_a_class():
    own = {"window": 2, "chunk": 4, "sink_len": 4}
    names = set()
    for kind in KINDS:
        fields = {name: value for name, value in own.items() if hasattr(kind, name)}
        names.add(spec_arguments(kind(block_size=4, **fields))[0])

    assert len(KINDS) == len(names)
