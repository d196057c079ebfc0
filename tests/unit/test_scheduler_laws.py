"""The law of needless preemption on a step of our own: three requests run in a pool of three blocks."""

from __future__ import annotations

import pytest

from oracle.call import GRANTED, REFUSED, Call, Observation, Rows
from oracle.groups import FullAttention
from oracle.scheduled import ASK, FREE, Event, Planned
from oracle.scheduler_laws import NEXT_STAYS, SchedulerLaws
from oracle.scheduler_setting import SchedulerSetting
from oracle.violation import Violation
from oracle.workload import Submit

ASKER, NEXT, LAST = 0, 1, 2


def event(what: str, request: int, outcome: str, rows: Rows, free: int) -> Event:
    """An ask for one token behind the four that are there, or a return of blocks."""
    call = None
    if what == ASK:
        call = Call(
            request=request, computed=4, in_flight=0, prompt=4, tokens=5, waiting=False, preempted=False, new=1,
            lookahead=0, external=0, encoder=0, full_sequence_must_fit=False, reserved_blocks=0,
            has_scheduled_reqs=True, skip_zeroing=(),
        )  # fmt: skip
    return Event(what, request, call, Observation(outcome, (), rows, free), free)


def planned(*tokens: tuple[int, int]) -> Planned:
    """A step of requests that run already."""
    cached = [(name, 4, 1, None) for name, _ in tokens]
    return Planned(list(tokens), [], [], cached, [], [LAST], [], (), 0, False)


def told(in_flight: set[int], scheduled: bool = False, connector: bool = True) -> list[str]:
    """What is told of needless preemption where the last request makes room for the first."""
    found: list[Violation] = []
    setting = SchedulerSetting(
        groups=(FullAttention(block_size=4),), num_blocks=4, max_model_len=12, max_num_batched_tokens=16,
        max_num_seqs=4, kv_connector=connector, in_flight_depth=2,
    )  # fmt: skip
    laws = SchedulerLaws(setting, found.append)
    for name in (ASKER, NEXT, LAST):
        laws.submitted(Submit(request=name, prompt=4, max_tokens=4), name)
        laws.live[name].held, laws.live[name].out = 1, 1
        laws.running.append(laws.live[name])
    laws.free = 0
    laws.recent.append(in_flight)
    held = ((ASKER + 1,),)
    events = [event(ASK, ASKER, REFUSED, held, 0), event(FREE, LAST, GRANTED, (), 1)]
    granted = event(ASK, ASKER, GRANTED, ((ASKER + 1, LAST + 1),), 0)
    again = granted if scheduled else event(ASK, ASKER, REFUSED, held, 1)
    laws.planned(planned((ASKER, 1)) if scheduled else planned((NEXT, 1)), [*events, again], 1)
    return [violation.what for violation in found if violation.law == "needless"]


@pytest.mark.parametrize(
    ("in_flight", "connector", "signs"),
    [
        pytest.param({NEXT}, True, [NEXT_STAYS], id="the next victim is in flight"),
        pytest.param({LAST}, True, ["not scheduled"], id="another is in flight"),
        pytest.param({NEXT}, False, ["not scheduled"], id="its blocks come free at once"),
    ],
)
def test_a_preemption_in_vain_has_a_sign(in_flight, connector, signs):
    """By who would have to go next, and whether a step in flight may still write its blocks."""
    assert signs == told(in_flight, connector=connector)


def test_a_preemption_that_helps_is_none():
    """Who asked is scheduled."""
    assert [] == told({NEXT}, scheduled=True)
