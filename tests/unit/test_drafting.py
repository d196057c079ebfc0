"""Rule table D by hand, and the law that every draft has its place; needs no vLLM."""

from __future__ import annotations

import pytest

from oracle.drafting import CONTEXT, QUERIES, misplaced, passes, rows_of, shown, step_of
from oracle.groups import FullAttention
from oracle.slots import slot
from oracle.warmup import DRAFTERS, Draft, WarmupSetting

GROUP = FullAttention(block_size=4)


def setting(method: str, drafts: int = 3, **fields: int) -> WarmupSetting:
    known = {"num_blocks": 999, "max_model_len": 64, "max_num_seqs": 1, "max_num_batched_tokens": 64} | fields
    return WarmupSetting(groups=(GROUP,), method=method, num_speculative_tokens=drafts, **known)


def places(method: str, rejected: int, **fields: int) -> list[tuple[int, ...]]:
    """Where each pass works behind the step of 4 tokens from position 5 on."""
    of = setting(method, **fields)
    return [made.at for made in passes(of, step_of(of, Draft(computed=5)), rejected)]


@pytest.mark.parametrize(
    ("method", "rejected", "expected"),
    [
        ("eagle", 0, [(5, 6, 7, 8), (9,), (10,)]),  # D1: v = 8, then v + 1 .. v + K - 1
        ("eagle", 2, [(5, 6), (7,), (8,)]),
        ("mtp_constant", 1, [(5, 6, 7), (7,), (7,)]),  # D2
        ("draft_model", 0, [(5, 6, 7, 8, 9), (10,), (11,)]),  # D3: one more than the target, then v + 2 .. v + K
        ("draft_model", 3, [(5, 6, 7, 8, 9), (7,), (8,)]),
        ("dflash", 1, [(5, 6, 7, 8), (8, 9, 10, 11)]),  # D6: v + 1 .. v + 1 + K
        ("dspark", 1, [(5, 6, 7, 8), (8, 9, 10)]),  # D7: v + 1 .. v + K
        ("dspark_fill_in", 3, [(5, 6, 7, 8), (6, 7, 8, 9)]),  # D8
    ],
)
def test_where_the_passes_of_a_drafter_work(method, rejected, expected):
    assert expected == places(method, rejected)


def test_step_leaves_room_for_its_sampled_token():
    """M 64: from 62 on one token, which ends at M - 1; from 60 on three of the four."""
    of = setting("eagle")

    assert [(1, 0), (3, 2), (4, 3)] == [
        (part.new, part.drafts) for part in (step_of(of, Draft(computed=first)) for first in (62, 60, 59))
    ]


def test_no_model_sees_a_position_past_the_end():
    of = setting("dflash", max_model_len=10)
    (_, queries) = passes(of, step_of(of, Draft(computed=5)), 0)

    assert ((9, 10, 11, 12), (9, 9, 9, 9)) == (queries.at, shown(of, queries))


@pytest.mark.parametrize("method", DRAFTERS)
@pytest.mark.parametrize("drafts", [1, 2, 7, 16])
def test_every_draft_has_its_place(method, drafts):
    """D-L1: with the lookahead of the method each position below M lies in a block, wherever the step is."""
    of = setting(method, drafts)
    for computed in range(1, 63):
        part = step_of(of, Draft(computed=computed))
        for rejected, rows in enumerate(rows_of(of, part, part.drafts + 1)):
            for made in passes(of, part, rejected):
                beyond = made.what == QUERIES
                for position in shown(of, made):
                    past = beyond and position >= of.max_model_len
                    assert past or slot(of, GROUP, rows[0], position, 0) is not None


def test_what_is_wrong_with_a_slot():
    """Rows of M 8 with b4, blocks 2 and 1: position 5 is slot 5, position 9 has no place, 4 is context."""
    of = setting("dflash", drafts=3, max_model_len=8)
    part = step_of(of, Draft(computed=5))
    (context, queries), row = passes(of, part, 0), (2, 1)
    valid = part.end - 1

    def of_query(index: int, found: int) -> str:
        return misplaced(of, GROUP, row, queries, index, valid, found, 0)

    assert "" == misplaced(of, GROUP, row, context, 0, valid, 5, 0)
    assert "a refused token is context" == misplaced(of, GROUP, row, context, 1, 5, 6, 0)
    assert (7, 8, 9, 10) == queries.at
    assert ["", "another slot", "null block"] == [of_query(0, found) for found in (7, 6, 3)]
    assert ["", "over context", "another's block"] == [of_query(1, found) for found in (-1, 4, 13)]


def test_context_and_queries_are_named():
    of = setting("dflash")

    assert [CONTEXT, QUERIES] == [made.what for made in passes(of, step_of(of, Draft(computed=5)), 0)]
