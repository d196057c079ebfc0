"""Multimodal items at the scheduler level: each example beside the real scheduler, with its arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from harness.targets.scheduler import Scheduler
from harness.workload_outcome import WorkloadOptions, WorkloadOutcome
from harness.workloads import run_workload
from oracle.errors import SettingError
from oracle.groups import FullAttention, Mamba
from oracle.scheduled import LOOK
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import Abort, SchedulerOperation, SchedulerTrace, Step, Submit, Update

pytestmark = pytest.mark.usefixtures("release")

#: identifiers of items of 3, 4 and 5 tokens
THREE, FOUR, FIVE = 2, 3, 4


def run(*operations: SchedulerOperation, **setting: Any) -> WorkloadOutcome:
    """The real scheduler, the laws and the prediction on a workload; nothing may differ."""
    plain: dict[str, Any] = {
        "groups": (FullAttention(block_size=4),),
        "num_blocks": 17,
        "max_model_len": 32,
        "max_num_batched_tokens": 16,
        "max_num_seqs": 2,
        "encoder_cache_size": 5,
    }
    trace = SchedulerTrace(setting=SchedulerSetting(**plain | setting), operations=operations)
    outcome = run_workload(trace, Scheduler, WorkloadOptions(keep_entries=True))
    assert [] == outcome.differences
    return outcome


def parts(outcome: WorkloadOutcome) -> list[list[tuple[int, int]]]:
    return [entry.planned.tokens for entry in outcome.entries if entry.planned.tokens]


def encoded(outcome: WorkloadOutcome) -> list[tuple[tuple[int, tuple[int, ...]], ...]]:
    return [entry.planned.encoded for entry in outcome.entries if entry.planned.tokens]


def test_a_part_ends_before_an_item_that_the_encoder_cannot_take() -> None:
    """Items of 5 and 4 tokens at 1 and 8, budget 5: the first step ends at 8, the second takes the other item."""
    outcome = run(
        Submit(request=0, prompt=14, items=((FIVE, 1), (FOUR, 8))),
        encoder_cache_size=16,
        max_num_encoder_input_tokens=5,
    )

    assert [[(0, 8)], [(0, 6)]] == parts(outcome)
    assert [((0, (0,)),), ((0, (1,)),)] == encoded(outcome)


def test_a_part_ends_before_an_item_whose_output_has_no_place() -> None:
    """Place for 5 tokens, held by the item of 5 until it is computed; then it goes for the one of 4."""
    outcome = run(Submit(request=0, prompt=14, items=((FIVE, 1), (FOUR, 8))))

    assert [[(0, 8)], [(0, 6)]] == parts(outcome)
    assert [(), (FIVE,)] == [entry.planned.dropped for entry in outcome.entries if entry.planned.tokens]


def test_an_output_is_shared_by_what_the_item_is() -> None:
    """Two more bring the same item at other places, one in the same step, one later: nothing is encoded for them."""
    outcome = run(
        Submit(request=0, prompt=6, items=((FIVE, 0),)),
        Submit(request=1, prompt=8, items=((FIVE, 3),)),
        Step(),
        Submit(request=2, prompt=9, items=((FIVE, 2),)),
    )

    assert [((0, (0,)),), ()] == encoded(outcome)


def test_an_item_that_comes_twice_is_held_until_its_last_place() -> None:
    """Items of 4 at 0 and at 8, parts of 6: the output is still held behind the first place, and nothing is encoded."""
    outcome = run(Submit(request=0, prompt=13, items=((FOUR, 0), (FOUR, 8))), max_num_batched_tokens=6)

    assert [[(0, 6)], [(0, 6)], [(0, 1)]] == parts(outcome)
    assert [((0, (0,)),), (), ()] == encoded(outcome)


def test_a_drafter_that_reads_ahead_has_the_next_item_encoded() -> None:
    """EAGLE reads one token past the part of 8, where an item begins: it is encoded a step early."""
    speculation: dict[str, Any] = {"method": "eagle", "num_speculative_tokens": 1}
    outcome = run(
        Submit(request=0, prompt=14, items=((FOUR, 8),)), max_num_batched_tokens=8, num_blocks=33, **speculation
    )

    assert [(0, 8)] == parts(outcome)[0]
    assert ((0, (0,)),) == encoded(outcome)[0]


def test_an_item_that_may_not_be_split_waits_for_a_whole_part() -> None:
    """Parts of 8, an item of 5 at 5: the first part ends before it instead of inside."""
    outcome = run(
        Submit(request=0, prompt=14, items=((FIVE, 5),)), max_num_batched_tokens=8, disable_chunked_mm_input=True
    )

    assert [[(0, 5)], [(0, 8)], [(0, 1)]] == parts(outcome)


def test_a_hit_that_ends_inside_an_item_needs_its_output_again() -> None:
    """The same prompt of 12 hits 8 tokens, inside the item of 5 at 6. Its output has gone for another by then."""
    shared = Submit(request=0, prompt=12, items=((FIVE, 6),))
    other = Submit(request=1, prompt=6, items=((FOUR, 0),), forks=(0,))
    outcome = run(shared, Step(), other, Step(), evolve(shared, request=2), enable_caching=True)

    assert [((0, (0,)),), ((1, (0,)),), ((2, (0,)),)] == encoded(outcome)
    assert [(2, 4)] == parts(outcome)[-1]


def test_prompts_with_other_items_share_nothing_behind_the_first() -> None:
    """The tokens are the same, but the item in the second block is another: the third request hits one block."""
    outcome = run(
        Submit(request=0, prompt=12, items=((FIVE, 4),)),
        Step(),
        Submit(request=1, prompt=12, items=((FIVE + 5, 4),)),
        Step(),
        enable_caching=True,
    )

    assert [(1, 8)] == parts(outcome)[-1]


def test_nobody_holds_an_output_of_who_went_away() -> None:
    """Aborted inside its item of 5: the place can be had again at once by an item of 4."""
    outcome = run(
        Submit(request=0, prompt=14, items=((FIVE, 4),)),
        Step(),
        Abort(request=0),
        Submit(request=1, prompt=6, items=((FOUR, 0),)),
        max_num_batched_tokens=6,
    )

    assert [((0, (0,)),), ((1, (0,)),)] == encoded(outcome)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"encoder_cache_size": 4}, "encoder_cache_size must hold an item, 5 tokens, got 4"),
        ({"max_num_encoder_input_tokens": 4}, "max_num_encoder_input_tokens must hold an item, 5 tokens, got 4"),
        ({"release": "0.32.0"}, "items by the rules of 0.33.0, got 0.32.0"),
        (
            {"disable_chunked_mm_input": True, "groups": (Mamba(block_size=4, mode="align"),)},
            "disable_chunked_mm_input must be false beside Mamba groups in mode align",
        ),
        (
            {"encoder_cache_size": 0, "disable_chunked_mm_input": True},
            "disable_chunked_mm_input needs a cross-attention group",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else "+".join(value),
)
def test_settings_that_no_engine_has(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        run(**wrong)


@pytest.mark.parametrize(
    ("submit", "said"),
    [
        (Submit(request=0, prompt=6, items=((FIVE, 2),)), "items must lie in the prompt's 6 tokens, got one at 2"),
        (Submit(request=0, prompt=9, items=((FIVE, 0), (FOUR, 4))), "items must come in order without overlap"),
    ],
    ids=["behind the prompt", "overlap"],
)
def test_requests_that_no_client_can_make(submit: Submit, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        run(submit)


def test_a_session_goes_on_behind_its_item() -> None:
    """Prompt 8 with an item, an answer of 2 of which the last token is discarded: 4 new ones, nothing encoded again."""
    outcome = run(
        Submit(request=0, prompt=8, max_tokens=2, items=((FIVE, 1),), session=True),
        *[Step()] * 2,
        Update(request=0, prompt=4),
        Step(),
    )

    assert [[(0, 8)], [(0, 1)], [(0, 4)]] == parts(outcome)
    assert [((0, (0,)),), (), ()] == encoded(outcome)
    assert 1 <= outcome.reach["session with items"]


def test_an_item_of_a_later_piece_lies_behind_what_was_kept() -> None:
    """Prompt 8 and an answer of 2 leave 9 tokens: the item at 1 of the piece lies at 10 to 14."""
    outcome = run(
        Submit(request=0, prompt=8, max_tokens=2, session=True),
        *[Step()] * 3,
        Update(request=0, prompt=7, items=((FIVE, 1),)),
        max_num_batched_tokens=5,
        disable_chunked_mm_input=True,
    )

    assert [[(0, 5)], [(0, 3)], [(0, 1)], [(0, 1)], [(0, 5)], [(0, 1)]] == parts(outcome)
    assert [(), (), (), (), ((0, (0,)),), ()] == encoded(outcome)
    assert 1 == outcome.reach["item in a later piece"]


def test_an_item_that_comes_again_in_a_later_piece_has_its_output() -> None:
    """Nobody holds it between the two pieces, and it has its place: it is not encoded again."""
    outcome = run(
        Submit(request=0, prompt=8, max_tokens=2, items=((FIVE, 1),), session=True),
        *[Step()] * 2,
        Update(request=0, prompt=6, items=((FIVE, 1),)),
        Step(),
    )

    assert [((0, (0,)),), (), ()] == encoded(outcome)
    assert 1 == outcome.reach["output found"]


@pytest.mark.parametrize(("item", "hit"), [(FIVE, 16), (FOUR, 8)], ids=["the same", "another"])
def test_who_says_what_a_session_said_hits_behind_the_item_of_its_piece(item: int, hit: int) -> None:
    """Prompt 6 and an answer of 3 leave 8 tokens, then 9 with an item at 9: its blocks are found, or those before."""
    outcome = run(
        Submit(request=0, prompt=6, max_tokens=3, session=True),
        *[Step()] * 3,
        Update(request=0, prompt=9, items=((FIVE, 1),)),
        *[Step()] * 2,
        Submit(request=1, prompt=18, forks=(8,), items=((item, 9),)),
        Step(),
        enable_caching=True,
        encoder_cache_size=16,
    )

    looks = [event.tokens for entry in outcome.entries for event in entry.events if event.what == LOOK]
    assert hit == looks[-1]


@pytest.mark.parametrize(
    ("update", "setting", "said"),
    [
        ({"items": ((FIVE, 3),)}, {}, "items must lie in the prompt's 7 tokens"),
        ({"items": ((FIVE, 1),)}, {"encoder_cache_size": 0}, "items need an encoder_cache_size"),
        ({"items": tuple((0, at) for at in range(7))}, {}, ""),
        ({"prompt": 9, "items": tuple((0, at) for at in range(9))}, {}, "a request may have 8 items, got 9"),
    ],
    ids=["behind the piece", "no encoder", "seven", "nine"],
)
def test_pieces_that_no_client_can_send(update: dict[str, Any], setting: dict[str, Any], said: str) -> None:
    operations = (Submit(request=0, prompt=4, session=True), Update(**{"request": 0, "prompt": 7} | update))
    if not said:
        assert run(*operations, **setting).reach["item in a later piece"]
        return
    with pytest.raises(SettingError, match=said):
        run(*operations, **setting)


def test_a_piece_with_too_many_items_in_all_is_void() -> None:
    """Of 6 items and 3 more."""
    outcome = run(
        Submit(request=0, prompt=6, items=tuple((0, at) for at in range(6)), session=True),
        Step(),
        Update(request=0, prompt=4, items=((0, 0), (0, 1), (0, 2))),
        Update(request=0, prompt=4, items=((0, 0), (0, 1))),
    )

    assert [2] == [len(piece.items) for piece in outcome.updates.values() if piece.prompt]
