"""Decode context parallelism: a column of a sharded group covers block size times ranks (A32, A62)."""

from __future__ import annotations

import pytest

from oracle.call import REFUSED
from oracle.errors import SettingError
from oracle.groups import MLA, CrossAttention, FullAttention, Group, HiddenState, Mamba, SlidingWindow
from tests.real.script import Both


def test_sharded_replicated_and_mamba_side_by_side() -> None:
    """D 2, 9 tokens: sharded ceil(9/8) = 2, replicated ceil(9/4) = 3, Mamba none ceil(9/64) = 1."""
    both = Both(
        FullAttention(block_size=4),
        FullAttention(block_size=4, dcp_sharded=False),
        Mamba(block_size=64, mode="none"),
        dcp_size=2,
    )

    assert [[1, 2], [3, 4, 5], [6]] == both.ask(0, 9)


@pytest.mark.parametrize("kind", [FullAttention, MLA, HiddenState])
@pytest.mark.parametrize(("ranks", "row"), [(1, [1, 2, 3, 4, 5]), (2, [1, 2, 3]), (4, [1, 2])])
def test_ranks_divide_the_columns(kind: type[Group], ranks: int, row: list[int]) -> None:
    """17 tokens: ceil(17/4) = 5, ceil(17/8) = 3, ceil(17/16) = 2."""
    both = Both(kind(block_size=4), dcp_size=ranks)

    assert [row] == both.ask(0, 17)


def test_sharded_column_fills_up_before_the_next() -> None:
    """D 2: 8 tokens fill column 0, so 1 new token needs a second."""
    both = Both(FullAttention(block_size=4), dcp_size=2)
    both.ask(0, 8)

    assert [[1, 2]] == both.ask(8, 1)


@pytest.mark.parametrize(("tokens", "answer"), [(24, [[1]]), (25, REFUSED)])
def test_gate_counts_sharded_columns(tokens: int, answer: list[list[int]] | str) -> None:
    """D 2, N 4: T 24 needs 24/8 = 3 of 3, T 25 needs 4."""
    both = Both(FullAttention(block_size=4), blocks=4, dcp_size=2)

    assert answer == both.ask(0, 4, prompt=tokens, gate=True)


def test_load_fills_sharded_columns() -> None:
    """D 2, e 10: ceil(10/8) = 2."""
    both = Both(FullAttention(block_size=4), dcp_size=2)

    assert [[1, 2]] == both.ask(0, 0, external=10)


def test_cross_attention_is_sharded_too() -> None:
    """D 2, x 10: ceil(10/8) = 2."""
    both = Both(CrossAttention(block_size=4), dcp_size=2)

    assert [[1, 2]] == both.ask(0, 4, encoder=10)


def test_replicated_window_is_not_scaled() -> None:
    """D 2, W 8: at 16 live is 9, dead 9 // 4 = 2 columns of 4 tokens; 20 tokens need 5."""
    both = Both(SlidingWindow(block_size=4, window=8, dcp_sharded=False), dcp_size=2)
    both.ask(0, 16)

    assert [[0, 0, 3, 4, 2]] == both.ask(16, 4)


def test_replicated_window_has_the_cap_of_its_own_block_size() -> None:
    """F 4: ceil(11/4) + 1 = 4, with 2 ranks as with 1."""
    both = Both(SlidingWindow(block_size=4, window=8, dcp_sharded=False), dcp_size=2, max_in_flight_tokens=4)

    assert [4] == both.caps()


def test_align_is_not_scaled() -> None:
    """D 2, 12 tokens: q = ceil(12/4) = 3, the state in column 2."""
    both = Both(Mamba(block_size=4, mode="align"), dcp_size=2)

    assert [[0, 0, 1]] == both.ask(0, 12)


def test_a_sharded_window_is_no_setting() -> None:
    """The engine refuses it at start-up, because the cap isn't scaled."""
    with pytest.raises(SettingError, match="cannot be sharded over 2 DCP ranks"):
        Both(SlidingWindow(block_size=4, window=8), dcp_size=2)
