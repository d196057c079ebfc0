"""Who holds an encoder's output and when it goes, and the laws of it, without vLLM."""

from __future__ import annotations

import pytest

from oracle.call import GRANTED, Call, Observation
from oracle.groups import FullAttention
from oracle.scheduled import ASK, FREE, Event, Planned, Situation
from oracle.scheduler_block_laws import Known
from oracle.scheduler_encoder_laws import TAKEN_BACK, EncoderLaws
from oracle.scheduler_encoders import EncoderOutputs
from oracle.scheduler_request import Request
from oracle.scheduler_setting import SchedulerSetting

#: identifiers of items of 3 and 5 tokens
THREE, FIVE = 2, 4
SETTING = SchedulerSetting(
    groups=(FullAttention(block_size=4),),
    num_blocks=17,
    max_model_len=32,
    max_num_batched_tokens=16,
    max_num_seqs=2,
    encoder_cache_size=8,
    max_num_encoder_input_tokens=6,
)


def asking(name: int, *items: tuple[int, int]) -> Request:
    request = Request(name, 20, 1, 0, name)
    request.items = items
    return request


def test_a_part_takes_what_fits_and_ends_before_the_rest() -> None:
    """Items of 3 and 5 tokens, a budget of 6: the first is encoded, the part ends before the second."""
    outputs, request = EncoderOutputs(SETTING), asking(0, (THREE, 1), (FIVE, 9))

    assert 9 == outputs.part(request, 0, 16, 6)
    assert [0] == outputs.take(request)


def test_an_output_goes_when_place_is_needed_and_nobody_holds_it() -> None:
    """Place for 8: the 3 of the first item are held, so 5 more fit and 3 others do not; let go of, they make place."""
    outputs, first, other = EncoderOutputs(SETTING), asking(0, (THREE, 0), (FIVE, 4)), asking(1, (THREE + 5, 0))
    assert 16 == outputs.part(first, 0, 16, 8)
    outputs.take(first)

    assert 0 == outputs.part(other, 0, 16, 8)
    outputs.let_go(first, 3)
    assert 16 == outputs.part(other, 0, 16, 8)
    outputs.take(other)
    assert [THREE] == outputs.leave()
    assert (((FIVE, (0,)), (THREE + 5, (1,))), (), (0, 0)) == outputs.shown()


def test_an_output_that_was_dropped_and_made_again_in_one_step_stays() -> None:
    outputs, request = EncoderOutputs(SETTING), asking(0, (THREE, 0))
    outputs.gone = [THREE]
    outputs.part(request, 0, 16, 8)
    outputs.take(request)

    assert [] == outputs.leave()


def planned(
    *tokens: tuple[int, int], at: int = 0, encoded: tuple[int, ...] = (), dropped: tuple[int, ...] = ()
) -> Planned:
    new = [(name, at, 20, ()) for name, _ in tokens]
    made = ((0, encoded),) if encoded else ()
    return Planned([*tokens], [], new, [], [], [], [], (), 0, False, encoded=made, dropped=dropped)


def events_of_a_victim() -> list[Event]:
    call = Call(0, 0, 0, 20, 20, False, False, 8, 0, 0, 0, False, 0, True, (), 0, 0, None)
    return [Event(ASK, 0, call, Observation(GRANTED, (), (), 0), 0), Event(FREE, 0, None, None, 0)]


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        ([(planned((0, 4), encoded=(0,)), [])], []),
        ([(planned((0, 4)), [])], [("encoder", "not encoded")]),
        (
            [(planned((0, 1), encoded=(0,)), []), (planned((0, 2), at=1, dropped=(THREE,)), [])],
            [("encoder", "not encoded")],
        ),
        ([(planned((0, 1), encoded=(0, 1)), [])], [("budget", "encoder")]),
        (
            [
                (planned((0, 1), encoded=(0,)), []),
                (planned((0, 1), encoded=(1,)), []),
                (planned((0, 1), encoded=(2,)), []),
            ],
            [("encoder", "more than its place")],
        ),
        ([(planned(), events_of_a_victim()), (planned((0, 4)), [])], [("encoder", TAKEN_BACK)]),
    ],
    ids=["kept", "never encoded", "dropped too early", "budget", "place", "taken back"],
)
def test_laws_of_the_encoder(steps: list[tuple[Planned, list[Event]]], broken: list[tuple[str, str]]) -> None:
    found: list[tuple[str, str]] = []
    items = ((THREE, 0), (FIVE, 8), (THREE + 5, 13))
    live = {0: Known(20, 1, items=items, id=0, priority=0, arrival=1, arrivals=[])}
    laws = EncoderLaws(SETTING, live, lambda law, what, text: found.append((law, what)))
    for step, events in steps:
        laws.planned(step, events)

    assert broken == found


@pytest.mark.parametrize(
    ("situation", "broken"),
    [
        (Situation([], [], [], [], 16, outputs=((THREE, ()),), unheld=(THREE,), place=(5, 8)), []),
        (Situation([], [], [], [], 16, outputs=((THREE, (0,)),), place=(5, 8)), [("drain", "outputs held")]),
        (Situation([], [], [], [], 16, outputs=((THREE, ()),), unheld=(THREE,), place=(5, 5)), [("drain", "place")]),
    ],
    ids=["clean", "held", "place"],
)
def test_nothing_is_held_at_the_end(situation: Situation, broken: list[tuple[str, str]]) -> None:
    found: list[tuple[str, str]] = []
    EncoderLaws(SETTING, {}, lambda law, what, text: found.append((law, what))).drained(situation)

    assert broken == found
