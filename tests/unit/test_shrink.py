"""The shrinker: exact minimal traces of planted defects, a budget of tries, and the same defect from end to end."""

from __future__ import annotations

import pytest
from attrs import evolve

from harness.outcome import Options
from harness.shrink import Shrinker, same_defect, shrink
from harness.trace_run import run_trace
from oracle.groups import CrossAttention, FullAttention, Mamba, SlidingWindow
from oracle.trace import Difference, Extend, NewStep, Release, Settle
from tests.unit.examples import accept, ask, setting, trace
from tests.unit.mutants import EAGER_WINDOWS, NoGate, NoLookahead, Sound

EAGLE = {"method": "eagle", "num_speculative_tokens": 3}
CLOSELY = Options(audit_every=1)

LONG = trace(
    setting(
        FullAttention(block_size=16, precision="single"),
        FullAttention(block_size=4),
        watermark=0.1,
        max_num_seqs=3,
        max_num_batched_tokens=32,
        in_flight_depth=2,
        kv_connector=True,
        method="dflash",
        num_speculative_tokens=3,
    ),
    *(ask(9, prompt=9, full_sequence_must_fit=True), NewStep(), ask(3, request=1, prompt=10), Settle()),
    *(ask(4), accept(2), ask(7, request=1), NewStep(), Release(request=0, deferred=True), Settle()),
)


def smallest(of, make, **arguments):
    difference = run_trace(of, make, CLOSELY).differences[0]
    return shrink(of, difference, make, CLOSELY, **arguments)


@pytest.fixture(scope="module")
def lost_lookahead():
    """The long trace, on a target without lookahead, as small as it gets."""
    return smallest(LONG, NoLookahead)


def test_one_operation_is_left(lost_lookahead):
    """One token of one request needs a block for itself and one for the draft behind it."""
    assert (Extend(request=0, new=1, prompt=1),) == lost_lookahead.trace.operations


def test_features_are_switched_off(lost_lookahead):
    """One group in blocks of 1, the plainest method with one draft; the smallest pool in which it shows."""
    plain = setting(
        FullAttention(block_size=1), num_blocks=3, max_model_len=2, method="eagle", num_speculative_tokens=1
    )

    assert plain == lost_lookahead.trace.setting


def test_it_is_a_minimum(lost_lookahead):
    """No pass makes progress any more."""
    assert lost_lookahead.minimal


def test_a_minimum_stays_as_it_is(lost_lookahead):
    """Shrinking it again changes nothing."""
    assert lost_lookahead.trace == smallest(lost_lookahead.trace, NoLookahead).trace


def test_it_still_shows_the_difference(lost_lookahead):
    """The difference that comes with the trace is the one that a replay finds."""
    assert [lost_lookahead.difference] == run_trace(lost_lookahead.trace, NoLookahead, CLOSELY).differences


@pytest.mark.parametrize("tries", [1, 5, 20])
def test_the_tries_are_a_budget(tries):
    """It ends, says so, and gives the smallest trace so far."""
    small = smallest(LONG, NoLookahead, max_tries=tries)

    assert (tries, False) == (small.tries, small.minimal)


def test_two_runs_shrink_to_the_same_trace(lost_lookahead):
    """Nothing random in it."""
    assert lost_lookahead == smallest(LONG, NoLookahead)


def test_a_window_needs_two_steps():
    """The null appears in the second call: the step that reads what was taken, after one that wrote it."""
    of = trace(
        setting(SlidingWindow(block_size=4, window=8)),
        *(ask(8, prompt=40), Settle(), ask(8), Settle(), ask(4, request=1, prompt=4), ask(8), Settle()),
    )

    assert [Extend, Extend] == [
        type(operation)
        for operation in smallest(of, EAGER_WINDOWS).trace.operations
        if not isinstance(operation, Settle)
    ]


def test_a_gate_that_is_not_asked():
    """A pool of one block, a prompt of two tokens: the gate must refuse what the test lets pass."""
    of = trace(
        setting(FullAttention(block_size=8), num_blocks=6),
        *(ask(8, prompt=20), Settle(), ask(8, request=1, prompt=60, full_sequence_must_fit=True), Settle()),
    )
    small = smallest(of, NoGate).trace

    assert (
        setting(FullAttention(block_size=1), num_blocks=2, max_model_len=3),
        (Extend(request=0, new=1, prompt=2, full_sequence_must_fit=True),),
    ) == (small.setting, small.operations)


def test_encoder_tokens_go_with_their_group():
    """Without its cross-attention group a trace brings no encoder tokens."""
    of = trace(
        setting(FullAttention(block_size=4), CrossAttention(block_size=4), max_encoder_len=8, **EAGLE),
        ask(8, prompt=8, encoder=5),
    )
    small = smallest(of, NoLookahead).trace

    assert (["full_attention"], 0, 0) == (
        [group.kind for group in small.setting.groups],
        small.setting.max_encoder_len,
        small.operations[0].encoder,
    )


def test_a_mamba_group_stays_where_it_is_needed():
    """Kinds are dropped only when the same defect shows without them."""
    of = trace(
        setting(Mamba(block_size=4, speculative_blocks=3), FullAttention(block_size=4), **EAGLE), ask(4, prompt=4)
    )

    assert ["full_attention"] == [group.kind for group in smallest(of, NoLookahead).trace.setting.groups]


def test_a_decision_is_told_by_the_row_behind_it():
    """16 tokens and 3 drafts are 5 blocks of 4: without lookahead it is 4, and granted. With room the row is short."""
    of = trace(setting(num_blocks=5, **EAGLE), ask(16, prompt=16))
    found = run_trace(of, NoLookahead, CLOSELY).differences[0]

    assert ("outcome", "columns") == (found.aspect, smallest(of, NoLookahead).difference.aspect)


def test_a_pool_is_made_small_with_what_fills_it():
    """Two requests fill 7 blocks but one, the third one's prompt takes two; alone it needs a pool of one."""
    of = trace(
        setting(FullAttention(block_size=4), num_blocks=8),
        *(ask(12, prompt=12), ask(9, request=1, prompt=9), ask(4, request=2, prompt=6, full_sequence_must_fit=True)),
    )
    small = smallest(of, NoGate).trace

    assert (
        setting(FullAttention(block_size=1), num_blocks=2, max_model_len=3),
        (Extend(request=0, new=1, prompt=2, full_sequence_must_fit=True),),
    ) == (small.setting, small.operations)


# ------------------------------------------------------------------------------------- what is the same

SEEN = Difference(
    aspect="columns",
    step=3,
    group=1,
    kind="rswa+full_attention",
    rule="A19",
    sign="less",
    expected="[1 2]",
    observed="[1]",
    tags=("first",),
)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"step": 0, "group": 0, "expected": "[1]", "observed": "[]", "detail": "x"}, True),
        ({"kind": "full_attention"}, True),
        ({"kind": "mamba"}, False),
        ({"kind": "full_attention+mamba"}, False),
        ({"sign": "more"}, False),
        ({"rule": "A42"}, False),
        ({"aspect": "free"}, False),
        ({"tags": ()}, True),
        ({"tags": ("first", "sync")}, False),
        ({"tags": ("first", "longer row")}, False),
    ],
    ids=[
        *("another place", "a kind less", "another kind", "a kind more", "sign", "rule", "aspect"),
        *("a situation less", "a situation more", "a known cause"),
    ],
)
def test_the_same_defect(changes, same):
    """Where it shows may become plainer, what it is must stay: kinds and situations may be dropped, never added."""
    assert same is same_defect(SEEN, evolve(SEEN, **changes))


def test_any_kind_may_give_way_to_full_attention():
    """No rule is special to it: what shows there too is no matter of the kind."""
    assert same_defect(evolve(SEEN, kind="rswa"), evolve(SEEN, kind="full_attention"))


def test_columns_of_full_attention_have_a_rule_of_their_own():
    """A row that is short in a Mamba group, and in full attention too, is short for the same reason."""
    short = evolve(SEEN, kind="mamba", rule="A42")

    assert same_defect(short, evolve(short, kind="full_attention", rule="A19"))
    assert not same_defect(short, evolve(short, rule="A19"))


def test_a_known_cause_stays():
    """A wrong decision with a known cause is not the same as one without."""
    known = evolve(SEEN, tags=("adopted state",))

    assert [True, False] == [same_defect(known, evolve(SEEN, tags=tags)) for tags in (("adopted state",), ())]


def test_a_situation_may_come_back():
    """What is the same is judged by the difference as it was found, not by what it was last."""
    plain, loaded = trace(setting(), ask(3, prompt=4)), trace(setting(), ask(1, prompt=3))
    found = evolve(SEEN, tags=("loaded",))
    shown = {plain: evolve(SEEN, tags=()), loaded: found}
    shrinker = Shrinker(LONG, found, lambda candidate: [shown[candidate]] if candidate in shown else [], 100)
    for candidate in shown:
        shrinker._attempt(candidate)

    assert (loaded, found) == (shrinker.best, shrinker.difference)


def test_another_defect_on_the_way_is_not_taken():
    """A candidate that fails for another reason is no candidate."""
    other = evolve(SEEN, rule="A15", aspect="outcome")
    shrinker = Shrinker(LONG, SEEN, lambda trace: [other], 100)

    assert LONG == shrinker.run().trace


def test_what_shows_earlier_is_shrunk():
    """With an audit after each step another difference may come first: the one that was found follows from it."""
    small = shrink(LONG, evolve(SEEN, aspect="order"), NoLookahead, CLOSELY)

    assert ("A19", "less", 1) == (small.difference.rule, small.difference.sign, len(small.trace.operations))


def test_two_runs_that_differ_are_not_shrunk():
    """Whatever one run shows."""
    assert not shrink(LONG, evolve(SEEN, rule="W6"), NoLookahead, CLOSELY).minimal


def test_nothing_to_shrink_is_left_alone():
    """What does not show again, as when two runs differ, is not shrunk, and is not called a minimum."""
    small = shrink(LONG, SEEN, Sound, CLOSELY)

    assert (LONG, 0, False, "not shrunk") == (small.trace, small.tries, small.minimal, small.end)
