"""Rules that the oracle keeps and vLLM 0.33.0 does not: the target's suspected defects (A13, A15, A18, A49).

Each test asks one party alone. The real one is expected to fail, strictly: a release that mends it fails the test.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.targets.manager import Manager
from oracle.allocator import Allocator
from oracle.call import REFUSED
from oracle.groups import ChunkedLocal, CircularBuffer, CrossAttention, Group, Mamba, Sink, SlidingWindow
from oracle.setting import Setting
from tests.real.script import Both, call


def real_differs(reason: str, raises: type[Exception] = AssertionError) -> Any:
    """Runs the test for the oracle, and for the real manager as an expected failure."""
    known = pytest.mark.xfail(strict=True, raises=raises, reason=reason)
    return pytest.mark.parametrize("party", ["oracle", pytest.param("real", marks=known)])


def window() -> SlidingWindow:
    """W 8 in blocks of 4; its cap at F 4 is ceil(11/4) + 1 = 4."""
    return SlidingWindow(block_size=4, window=8)


# ------------------------------------------------------------------------------- A13, gate of capped groups


@real_differs("real figure min(6, 4) - 3 = 1: the cap is applied before the dead columns are taken off")
def test_dead_columns_do_not_pay_for_others(party: str) -> None:
    """SW W 8, F 4, T 24, e 20: 6 columns, 3 dead: min(4, 6 - 3) = 3 blocks at the peak, 2 free: refused."""
    both = Both(window(), blocks=3, max_in_flight_tokens=4)

    assert REFUSED == both.alone(party, 0, 0, prompt=24, external=20, gate=True)


@real_differs("real figure min(16, 4) - 3 = 1, as above")
def test_a_load_with_a_long_rest_counts_the_whole_cap(party: str) -> None:
    """SW W 8, F 4, T 64, e 20: min(4, 16 - 3) = 4 blocks at the peak, 3 free: refused."""
    both = Both(window(), blocks=4, max_in_flight_tokens=4)

    assert REFUSED == both.alone(party, 0, 0, prompt=64, external=20, gate=True)


@real_differs("real figure min(6, 3) - 4 < 0, so 0; the load of [0 0 0 0] takes nothing and is granted")
def test_dead_columns_of_a_chunk_do_not_pay_for_others(party: str) -> None:
    """CH C 8, F 4, cap 3, T 24, e 16: 6 columns, 4 dead: min(3, 6 - 4) = 2 blocks, 1 free: refused."""
    both = Both(ChunkedLocal(block_size=4, chunk=8), blocks=2, max_in_flight_tokens=4)

    assert REFUSED == both.alone(party, 0, 0, prompt=24, external=16, gate=True)


@real_differs("real figure min(16, 4) - 5 < 0, so 0: the three nulls of the row are counted as held")
def test_nulls_of_a_loaded_row_do_not_count_as_held(party: str) -> None:
    """SW W 8, F 4: [0 0 0 1 2] after e 20. T 64: a = 3, min(4, 16 - 3) - 2 held = 2 blocks, 1 free: refused."""
    both = Both(window(), blocks=4, max_in_flight_tokens=4)
    both.ask(0, 0, prompt=64, external=20)

    assert REFUSED == both.alone(party, 20, 4, prompt=64, gate=True, waiting=True)


@real_differs("real figure min(15, 4) - 4 = 0: dead and null columns are counted as held")
def test_dead_columns_of_a_session_do_not_count_as_held(party: str) -> None:
    """SW W 8, F 4, N 6: 4 tokens a call leave [0 2 3 1] at 16 (t 12: dead 5 // 4 = 1, block 1 is used again). T 60:
    a = dead(16) = 2, min(4, 15 - 2) - 2 held = 2 blocks; of 5 - 3 = 2 free another request takes 1: 1 free, refused."""
    both = Both(window(), blocks=6, max_in_flight_tokens=4)
    for computed in range(0, 16, 4):
        both.ask(computed, 4, prompt=16)
    both.ask(0, 4, request=1)

    assert REFUSED == both.alone(party, 16, 4, prompt=60, gate=True, waiting=True)


# -------------------------------------------------------------------------------- A15, count of align groups


@real_differs("count 1, the pool then raises ValueError (upstream issue 46892)")
def test_align_sync_load_counts_the_loaded_and_the_running_state(party: str) -> None:
    """e 8, n 4: column 1 holds the loaded state, column 2 (q 3) the running one: 2 blocks, 1 free: refused."""
    both = Both(Mamba(block_size=4, mode="align"), blocks=2)

    assert REFUSED == both.alone(party, 0, 4, external=8)


@real_differs("count 1 + 1 scratch = 2, it takes 3: the reserved block is given away")
def test_align_sync_load_leaves_reserved_blocks(party: str) -> None:
    """s 1, e 8, n 4: loaded state, running state and scratch are 3 blocks, 4 free - 2 reserved: refused."""
    both = Both(Mamba(block_size=4, mode="align", speculative_blocks=1), blocks=5)

    assert REFUSED == both.alone(party, 0, 4, external=8, reserved=2)


@real_differs("the align group counts 2 - 3 = -1, so 2 encoder blocks count as 1, and the pool raises ValueError")
def test_align_count_is_never_below_zero(party: str) -> None:
    """9 tokens: align [0 0 1], q 3. Rolled back, `5:1` has q 2 and needs 0, x 8 needs 2 blocks, 1 free: refused."""
    both = Both(Mamba(block_size=4, mode="align"), CrossAttention(block_size=4), blocks=3)
    both.ask(0, 9)

    assert REFUSED == both.alone(party, 5, 1, encoder=8)


# ------------------------------------------------------------------------------------------ A18, wrong use


@pytest.mark.parametrize("group", [CircularBuffer(block_size=8), CrossAttention(block_size=4)], ids=["ring", "cross"])
def test_ring_and_cross_alone_neither_adopt_nor_mind(group: Group) -> None:
    """e > 0 with a row that wasn't adopted is wrong use, but neither kind loads anything: 1 block stays 1."""
    both = Both(group)
    both.ask(0, 4, external=4, encoder=4 if isinstance(group, CrossAttention) else 0)
    both.ask(8, 4, external=4)

    assert [[1]] == both.rows()


# ---------------------------------------------------------------------------------------------- A49, sinks


@real_differs("its constructor does not take needs_kv_cache_zeroing", raises=TypeError)
def test_sink_is_full_attention(party: str) -> None:
    """9 tokens take ceil(9/4) = 3 blocks. The sink of 4 tokens had set 4/4 = 1 block aside: 2, 3 and 4."""
    setting = Setting(groups=(Sink(block_size=4, sink_len=4),), num_blocks=32, max_model_len=64)
    built = Allocator(setting) if party == "oracle" else Manager(setting)

    assert ((2, 3, 4),) == built.extend(call(0, 9)).rows
