"""What the shrinker proposes: each reduction on a trace that it makes simpler, and nothing kept."""

from __future__ import annotations

import pytest

from harness.knobs import AcceptedKnob, OperationKnob, WatermarkKnob, knobs_of
from harness.plainer import plainer_groups, plainer_operations, plainer_setting, renumber
from harness.shorter import begin_later, drop_operations, drop_requests, merge_steps, replace_requests
from harness.shrink import rank
from harness.smaller import scaled_down, smaller_numbers, smaller_together
from oracle.groups import CrossAttention, FullAttention, Mamba, SlidingWindow
from oracle.trace import Loaded, NewStep, Release, Settle
from tests.unit.examples import accept, ask, setting, trace


def proposed(reduction, of):
    """All candidates, none of them kept."""
    candidates, found = reduction(of), []
    candidate = next(candidates, None)
    try:
        while True:
            found.append(candidate)
            candidate = candidates.send(of)
    except StopIteration:
        return found


def test_runs_of_operations():
    of = trace(setting(), ask(4, prompt=12), Settle(), ask(4), Settle())

    assert [(0, 1), (2, 3), (0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)] == [
        tuple(index for index, op in enumerate(of.operations) if any(op is kept for kept in candidate.operations))
        for candidate in proposed(drop_operations, of)
    ]


def test_a_request_with_all_its_operations():
    of = trace(setting(), ask(4, prompt=4), ask(4, request=1, prompt=4), Settle(), Release(request=1))

    assert trace(setting(), ask(4, prompt=4), Settle()) in proposed(drop_requests, of)


def test_a_request_leaves_the_start_of_a_step_behind():
    """Its second step had launched the first one of the other request."""
    of = trace(setting(), ask(4, prompt=4), ask(2, request=1, prompt=4), ask(2, request=1), Release(request=0))

    assert trace(setting(), ask(4, prompt=4), NewStep(), Release(request=0)) in proposed(replace_requests, of)


CHUNKS = (ask(4, prompt=12), Settle(), ask(8))
DECODING = (ask(4, prompt=4), Settle(), ask(1), Settle(), ask(1), Settle(), ask(1))
LOAD = (ask(0, prompt=9, external=4), Loaded(request=0), ask(5))


@pytest.mark.parametrize(
    ("operations", "merged"),
    [
        (CHUNKS, (ask(12, prompt=12),)),
        (DECODING[:3], (ask(5, prompt=5),)),
        (LOAD, (ask(9, prompt=9),)),
        (LOAD, (ask(5, prompt=9, external=4),)),
        ((ask(4, prompt=4), ask(3, request=1, prompt=3), ask(1)), (ask(5, prompt=5), ask(3, request=1, prompt=3))),
    ],
    ids=["chunks", "a longer prompt", "a load as tokens", "a load within the step", "another request between them"],
)
def test_two_steps_become_one(operations, merged):
    assert trace(setting(), *merged) in proposed(merge_steps, trace(setting(), *operations))


def test_a_step_becomes_a_load():
    """What the first step computed is loaded in the second one."""
    of = setting(kv_connector=True)

    assert trace(of, ask(8, prompt=12, external=4)) in proposed(merge_steps, trace(of, *CHUNKS))


def test_steps_become_drafts():
    """Two tokens of one step, one of them a draft that is accepted, in place of two steps; a state for it."""
    states = setting(Mamba(block_size=4))
    drafting = setting(Mamba(block_size=4, speculative_blocks=1), method="ngram", num_speculative_tokens=1)

    assert trace(drafting, *DECODING[:2], ask(2), accept(1), ask(1)) in proposed(merge_steps, trace(states, *DECODING))


def test_a_history_becomes_one_step():
    """4 tokens of the prompt and 2 of the output are computed before the last step, which asks for the last one."""
    assert trace(setting(), ask(6, prompt=6), Settle(), ask(1)) in proposed(begin_later, trace(setting(), *DECODING))


def test_a_preempted_request_comes_with_its_output():
    """5 tokens are known when it is back."""
    of = trace(setting(), ask(4, prompt=4), Settle(), Release(request=0, preempt=True), ask(5))

    assert trace(setting(), ask(5, prompt=5)) in proposed(begin_later, of)


def test_any_kind_as_full_attention():
    """Without its cross-attention group a trace brings no encoder tokens."""
    of = trace(setting(CrossAttention(block_size=4), max_encoder_len=8), ask(4, prompt=4, encoder=3))

    assert trace(setting(FullAttention(block_size=4)), ask(4, prompt=4)) in proposed(plainer_groups, of)


def test_a_longer_prompt_in_place_of_the_lookahead():
    of = trace(setting(method="eagle", num_speculative_tokens=3), ask(4, prompt=4))

    assert trace(setting(max_model_len=67), ask(7, prompt=7)) in proposed(plainer_setting, of)


def test_no_load():
    of = trace(setting(kv_connector=True), ask(4, prompt=9, external=5))

    assert trace(setting(kv_connector=True), ask(9, prompt=9)) in proposed(plainer_operations, of)


def test_names_in_order_of_appearance():
    of = trace(setting(), ask(4, request=7, prompt=4), ask(4, request=3, prompt=4), Settle(accepted=((3, 1), (7, 2))))
    plain = trace(setting(), ask(4, prompt=4), ask(4, request=1, prompt=4), Settle(accepted=((0, 2), (1, 1))))

    assert [plain] == proposed(renumber, of)


# -------------------------------------------------------------------------------------------------- numbers


def test_each_number_alone():
    """0 and 1, then strides that halve."""
    of = trace(setting(), ask(6, prompt=20))
    news = {candidate.operations[0].new for candidate in proposed(smaller_numbers, of) if candidate is not None}

    assert {0, 1, 3, 5, 6} == news


def test_a_prompt_and_its_step_fall_together():
    of = trace(setting(), ask(6, prompt=6))

    assert trace(setting(max_model_len=61), ask(3, prompt=3)) in proposed(smaller_together, of)


def test_all_lengths_are_scaled():
    of = trace(setting(SlidingWindow(block_size=4, window=9)), ask(8, prompt=20))
    small = trace(setting(SlidingWindow(block_size=1, window=3), max_model_len=16), ask(2, prompt=5))

    assert small in proposed(scaled_down, of)


DRAFTED = trace(setting(num_blocks=20, watermark=0.17), ask(4, prompt=4, lookahead=3), accept(3))


@pytest.mark.parametrize(
    ("knob", "value", "lower"),
    [
        (WatermarkKnob(), 3, trace(setting(num_blocks=20, watermark=0.1), *DRAFTED.operations)),
        (AcceptedKnob(1, 0), 3, trace(DRAFTED.setting, DRAFTED.operations[0], accept(2))),
        (OperationKnob(0, "lookahead"), 3, trace(DRAFTED.setting, ask(4, prompt=4, lookahead=2), accept(3))),
    ],
    ids=["watermark in blocks", "accepted drafts", "lookahead"],
)
def test_a_knob(knob, value, lower):
    assert (value, lower) == (knob.read(DRAFTED), knob.turn(DRAFTED, 2))


def test_a_smaller_pool_keeps_its_watermark():
    """3 blocks of 20, of 10, of 4."""
    pool = next(knob for knob in knobs_of(DRAFTED) if getattr(knob, "name", "") == "num_blocks")

    assert [3, 3, 3] == [pool.turn(DRAFTED, blocks).setting.watermark_blocks for blocks in (20, 10, 4)]


# ------------------------------------------------------------------------------------------------- the order


def test_what_is_simpler():
    """From the least to the most: numbers, flags, drafters, kinds, groups, requests, operations."""
    one = ask(1, prompt=1)
    ordered = [
        trace(setting(), one),
        trace(setting(), ask(40, prompt=60)),
        trace(setting(kv_connector=True), one),
        trace(setting(method="ngram"), one),
        trace(setting(SlidingWindow(block_size=1, window=2)), one),
        trace(setting(FullAttention(block_size=1), FullAttention(block_size=1)), one),
        trace(setting(FullAttention(block_size=1), FullAttention(block_size=1)), ask(1, prompt=1), Settle()),
        trace(setting(), one, ask(1, request=1, prompt=1)),
        trace(setting(), one, Settle(), ask(1)),
    ]

    assert [*range(len(ordered))] == sorted(range(len(ordered)), key=lambda index: rank(ordered[index]))
