"""R-SWA: the prompt and the last R generated tokens stay, the gap between them is null (A8, A13, A36)."""

from __future__ import annotations

import pytest

from oracle.call import REFUSED
from oracle.groups import RSWA
from tests.real.script import Both


def generate(prompt: int, until: int) -> Both:
    """R 4 in blocks of 4: the prompt in one call, then one token a step until `until` tokens are computed."""
    both = Both(RSWA(block_size=4, window=4))
    both.ask(0, prompt, prompt=prompt)
    for computed in range(prompt, until):
        both.ask(computed, 1, prompt=prompt)
    return both


@pytest.mark.parametrize(
    ("tokens", "row"),
    [
        (6, [1, 2]),
        (13, [1, 2, 3, 4]),
        (16, [1, 2, 3, 4]),
        (17, [1, 2, 0, 4, 3]),
        (20, [1, 2, 0, 4, 3]),
        (21, [1, 2, 0, 0, 3, 4]),
    ],
)
def test_the_gap_follows_the_generated_tokens(tokens: int, row: list[int]) -> None:
    """P 6: columns 0, 1 stay. At t 16 the gap is 2 .. (16-4)//4 = 3, exclusive: block 3 goes and comes back as
    column 4; at t 20 it ends at 16//4 = 4: block 4 goes and comes back as column 5."""
    both = generate(6, tokens)

    assert [row] == both.rows()


def test_one_position_more_is_kept_than_the_mask_reads() -> None:
    """P 8, t 15: the token reads 12 .. 15, so column 2 (8 .. 11) is unread; but (15-4)//4 = 2, it isn't in the gap."""
    both = generate(8, 16)

    assert [[1, 2, 3, 4]] == both.rows()


def test_a_prompt_that_ends_on_a_border_keeps_its_own_columns_only() -> None:
    """P 8 = 2 columns; at t 16 the gap is column 2 alone, (16-4)//4 = 3 exclusive: block 3 becomes column 4."""
    both = generate(8, 17)

    assert [[1, 2, 0, 4, 3]] == both.rows()


def test_a_long_prompt_is_never_removed() -> None:
    """P 30: at p 30 max(30, 26) // 4 = 7 is below ceil(30/4) = 8, there is no gap."""
    both = Both(RSWA(block_size=4, window=4))
    both.ask(0, 30, prompt=30)

    assert [[1, 2, 3, 4, 5, 6, 7, 8]] == both.trim(30, prompt=30)


def test_tokens_in_flight_hold_the_gap_back() -> None:
    """P 6, t 16 with f 1: p = 15, (15-4)//4 = 2, no gap yet; 17 tokens are 5 columns."""
    both = generate(6, 16)

    assert [[1, 2, 3, 4, 5]] == both.ask(16, 1, in_flight=1, prompt=6)


def test_popped_blocks_keep_inner_nulls() -> None:
    """[1 2 0 0 3 4]: only leading nulls are left out, and there are none."""
    both = generate(6, 21)

    assert [1, 2, 0, 0, 3, 4] == both.pop()


def test_popped_blocks_come_back_tail_first() -> None:
    """1 2 0 0 3 4 reversed, nulls ignored: 4 3 2 1, then 5 which was never out."""
    both = generate(6, 21)
    both.pop()
    both.give_back()

    assert [4, 3, 2, 1, 5] == both.queue(5)


def test_adoption_is_that_of_full_attention() -> None:
    """dead is 0: 20 external tokens of a prompt of 24 are all loaded, ceil(20/4) = 5 columns; 4 new ones add one."""
    both = Both(RSWA(block_size=4, window=4))

    assert [[1, 2, 3, 4, 5, 6]] == both.ask(0, 4, external=20, prompt=24)


def test_the_gate_has_no_cap() -> None:
    """T 17 needs ceil(17/4) = 5 blocks whatever R is; N 5 has 4."""
    both = Both(RSWA(block_size=4, window=4), blocks=5, max_in_flight_tokens=4)

    assert REFUSED == both.ask(0, 4, prompt=17, gate=True)
