"""External tokens: loaded before a step or beside it, whole prompts, wrong use (A18, A50, A51)."""

from __future__ import annotations

from oracle.call import REFUSED
from oracle.groups import ChunkedLocal, CircularBuffer, CrossAttention, FullAttention, Mamba, SlidingWindow
from tests.real.script import Both, call


def full() -> FullAttention:
    """Full attention in blocks of 4."""
    return FullAttention(block_size=4)


def window(size: int = 4) -> SlidingWindow:
    """A window in blocks of 4."""
    return SlidingWindow(block_size=4, window=size)


# ------------------------------------------------------------------------------------------------- async


def test_async_load_takes_what_is_live_in_each_group() -> None:
    """e 10: FA ceil(10/4) = 3; SW W 4 live 7, dead 1 null, columns 1 and 2."""
    both = Both(full(), window())

    assert [[1, 2, 3], [0, 4, 5]] == both.ask(0, 0, external=10)


def test_async_load_adds_nothing_by_extension() -> None:
    """n 0, k 0: need is 10, all columns are there by adoption."""
    both = Both(full(), window())
    both.ask(0, 0, external=10)

    assert [[], []] == both.added


def test_empty_result_is_the_managers_shared_object() -> None:
    """All groups empty: no new KVCacheBlocks is made."""
    both = Both(full(), window())
    result = both.real.allocate(call(0, 0, external=10))

    assert both.real.manager.empty_kv_cache_blocks is result


def test_nulls_come_first_in_all_groups() -> None:
    """CH C 8, e 16: 4 nulls, nothing to load; FA still takes blocks 1 to 4."""
    both = Both(ChunkedLocal(block_size=4, chunk=8), full())

    assert [[0, 0, 0, 0], [1, 2, 3, 4]] == both.ask(0, 0, external=16)


def test_async_load_of_a_whole_prompt() -> None:
    """e 8 = T: ceil(8/4) = 2."""
    both = Both(full())

    assert [[1, 2]] == both.ask(0, 0, external=8, prompt=8)


def test_whole_prompt_computes_its_last_token_again() -> None:
    """c is T - 1 = 7; 7 + 1 + k 2 = 10 slots need 3 columns."""
    both = Both(full())
    both.ask(0, 0, external=8, prompt=8)

    assert [[1, 2, 3]] == both.ask(7, 1, prompt=8, lookahead=2, waiting=True)


def test_whole_prompt_reads_its_window_again() -> None:
    """SW W 4, e 8: dead 5 // 4 = 1: [0 1]. At c 7 live is 4: column 1 is still there, 8 slots need no more."""
    both = Both(window())
    both.ask(0, 0, external=8, prompt=8)

    assert [[0, 1]] == both.ask(7, 1, prompt=8, waiting=True)


def test_whole_prompt_fits_with_its_leading_null() -> None:
    """SW W 8, e 11 = T: dead 4 // 4 = 1, [0 1 2], N 3. At c 10 dead is 0, but the null counts: 3 - 1 - 2 held = 0."""
    both = Both(window(8), blocks=3)
    both.ask(0, 0, external=11, prompt=11)

    assert [[0, 1, 2]] == both.ask(10, 1, prompt=11, waiting=True, gate=True)


def test_whole_prompt_starts_from_its_align_state_again() -> None:
    """Align b4, e 12 = T: [0 0 1]. At c 11, m 12: q 3 columns are there."""
    both = Both(Mamba(block_size=4, mode="align"))
    both.ask(0, 0, external=12, prompt=12)

    assert [[0, 0, 1]] == both.ask(11, 1, prompt=12, waiting=True)


def test_async_load_beside_ring_and_cross() -> None:
    """e 10, x 7: FA 3 blocks and the ring 1 by adoption, then cross ceil(7/4) = 2 by extension."""
    both = Both(full(), CircularBuffer(block_size=8), CrossAttention(block_size=4))

    assert [[1, 2, 3], [4], [5, 6]] == both.ask(0, 0, external=10, encoder=7)


def test_only_cross_is_in_the_result_of_a_load() -> None:
    """FA and ring were adopted, cross-attention is not loaded by connectors."""
    both = Both(full(), CircularBuffer(block_size=8), CrossAttention(block_size=4))
    both.ask(0, 0, external=10, encoder=7)

    assert [[], [], [5, 6]] == both.added


def test_adoption_goes_before_extension_in_all_groups() -> None:
    """FA b4 and FA b4, e 4, n 4: both take their loaded column first (1, 2), then their new one (3, 4)."""
    both = Both(full(), full())

    assert [[1, 3], [2, 4]] == both.ask(0, 4, external=4)


def test_blocks_of_a_load_are_held_at_once() -> None:
    """N 6: e 12 holds 3 of 5; another's 12 tokens need 3 of 2."""
    both = Both(full(), blocks=6)
    both.ask(0, 0, external=12)

    assert REFUSED == both.ask(0, 12, request=1)


def test_a_load_that_does_not_fit_is_refused() -> None:
    """N 3: e 12 needs 3 of 2 blocks."""
    both = Both(full(), blocks=3)

    assert REFUSED == both.ask(0, 0, external=12)


def test_after_a_load_the_call_is_an_ordinary_one() -> None:
    """e 10 had 3 columns; 4 more tokens end at 14, ceil(14/4) = 4."""
    both = Both(full())
    both.ask(0, 0, external=10)

    assert [[1, 2, 3, 4]] == both.ask(10, 4, waiting=True)


def test_a_failed_load_begins_anew() -> None:
    """[1 2 3] released: 3 2 1 in front, and 8 tokens from 0 take 3 and 2."""
    both = Both(full())
    both.ask(0, 0, external=10)
    both.release()

    assert [[3, 2]] == both.ask(0, 8, waiting=True)


def test_a_load_that_failed_in_part_goes_on_from_a_block_border() -> None:
    """e 10 had 3 columns, 8 tokens are good; 4 more end at 12, in the same 3 columns."""
    both = Both(full())
    both.ask(0, 0, external=10)

    assert [[1, 2, 3]] == both.ask(8, 4, waiting=True)


# -------------------------------------------------------------------------------------------------- sync


def test_sync_load_and_step_in_one_call() -> None:
    """e 4, n 2: t 4, 6 slots, ceil(6/4) = 2 columns."""
    both = Both(full())

    assert [[1, 2]] == both.ask(0, 2, external=4)


def test_sync_result_names_the_step_alone() -> None:
    """Block 1 is loaded, block 2 is the step's."""
    both = Both(full())
    both.ask(0, 2, external=4)

    assert [[2]] == both.added


def test_an_adopted_request_counts_more_external_tokens_as_plain_ones() -> None:
    """Wrong use that survives: c 6, e 4, n 2 is 12 slots, 3 columns."""
    both = Both(full())
    both.ask(0, 2, external=4)

    assert [[1, 2, 3]] == both.ask(6, 2, external=4)


def test_external_tokens_of_a_running_request_are_wrong_use() -> None:
    """[1] wasn't adopted: e 4 has no place in it."""
    both = Both(full())
    both.ask(0, 4)

    assert "error:AssertionError" == both.ask(4, 4, external=4)


def test_wrong_use_leaves_the_row() -> None:
    """The error comes before anything is taken."""
    both = Both(full())
    both.ask(0, 4)
    both.ask(4, 4, external=4)

    assert [[1]] == both.rows()


def test_external_tokens_do_not_pass_max_model_len() -> None:
    """M 10, e 8, n 2, k 4: min(14, 10) slots need 3 columns."""
    both = Both(full(), max_model_len=10)

    assert [[1, 2, 3]] == both.ask(0, 2, external=8, lookahead=4)
