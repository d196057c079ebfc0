"""Uniform-type groups: the wrapped layers are allocated as one layer of their kind (A48)."""

from __future__ import annotations

import pytest
from attrs import evolve

from oracle.groups import (
    MLA,
    RSWA,
    ChunkedLocal,
    CircularBuffer,
    CrossAttention,
    FullAttention,
    Group,
    HiddenState,
    Mamba,
    SlidingWindow,
    SlidingWindowMLA,
)
from tests.real.script import Both

#: Each kind with its row after 0:8, 8:8 and 16:1, prompt 8, of which cross-attention has 8 encoder tokens. In blocks of
#: 4 these are 2, 4 and 5 columns. W 8: at 16 live is 9, dead 2, block 2 is used again; r 3: live 6, dead 1. C 8: at 8
#: dead 2 gives 2 1 for columns 2, 3, at 16 dead 4 puts 1 in front. R 4: at 16 the gap is column 2. All, s 1: [1 2 3],
#: at 8 dead 1: [0 2 3 1 4], at 16 dead 3: 3 2 in front. Align, s 1: [0 1 2], then block 2 moves: [0 1 0 2 3], at 16
#: dead 3 frees 1 for column 5.
KINDS = [
    (FullAttention(block_size=4), [1, 2, 3, 4, 5]),
    (MLA(block_size=4), [1, 2, 3, 4, 5]),
    (HiddenState(block_size=4), [1, 2, 3, 4, 5]),
    (SlidingWindow(block_size=4, window=8), [0, 0, 3, 4, 2]),
    (SlidingWindow(block_size=4, window=8, extra_retained_tokens=3), [0, 2, 3, 4, 1]),
    (SlidingWindowMLA(block_size=4, window=8), [0, 0, 3, 4, 2]),
    (ChunkedLocal(block_size=4, chunk=8), [0, 0, 0, 0, 1]),
    (RSWA(block_size=4, window=4), [1, 2, 0, 4, 3]),
    (CircularBuffer(block_size=4), [1]),
    (CrossAttention(block_size=4), [1, 2]),
    (Mamba(block_size=64, mode="none", speculative_blocks=2), [1, 2, 3]),
    (Mamba(block_size=4, mode="all", speculative_blocks=1), [0, 0, 0, 1, 4, 3]),
    (Mamba(block_size=4, mode="align", speculative_blocks=1), [0, 0, 0, 2, 3, 1]),
]


@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize(("group", "row"), KINDS, ids=lambda value: getattr(value, "kind", ""))
def test_wrapped_layers_are_one_group(group: Group, row: list[int], layers: int) -> None:
    """17 tokens in blocks of 4 are ceil(17/4) = 5 columns; what is null among them is worked out above. A wrapper of 1
    or 2 layers changes nothing."""
    both = Both(evolve(group, uniform_layers=layers))
    encoder = 8 if isinstance(group, CrossAttention) else 0
    both.ask(0, 8, prompt=8, encoder=encoder)
    both.ask(8, 8, prompt=8)

    assert [row] == both.ask(16, 1, prompt=8)


@pytest.mark.parametrize("layers", [0, 2])
def test_wrapped_window_keeps_its_cap(layers: int) -> None:
    """W 8, F 4: ceil(11/4) + 1 = 4."""
    both = Both(SlidingWindow(block_size=4, window=8, uniform_layers=layers), max_in_flight_tokens=4)

    assert [4] == both.caps()
