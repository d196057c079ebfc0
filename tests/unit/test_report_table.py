"""A trace as a table: the words of each operation and answer, and the two renderings."""

from __future__ import annotations

import pytest

from harness.outcome import Options
from harness.report import table, words
from harness.report.table import lines_of
from harness.trace_run import run_trace
from oracle.call import Call
from oracle.groups import FullAttention, Mamba, SlidingWindow
from oracle.setting import Setting
from oracle.trace import Extend, GiveBack, Loaded, NewStep, Release, Resume, Settle, Trace, Trim
from tests.unit.report_samples import SAMPLES


def run(*operations, groups=(), make=None, **setting):
    """The outcome of operations, on the oracle alone unless a target is given."""
    built = Setting(
        groups=groups or (FullAttention(block_size=4),), **{"num_blocks": 9, "max_model_len": 64, **setting}
    )
    options = Options(audit_every=1, keep_entries=True)
    return run_trace(Trace(setting=built, operations=operations), make, options)


def said(*operations, **setting):
    """Operation and answer of each line."""
    return [(line.operation, line.expected) for line in lines_of(run(*operations, **setting))]


def call(**changes):
    values = {
        "request": 0,
        "computed": 0,
        "in_flight": 0,
        "prompt": 30,
        "tokens": 30,
        "waiting": True,
        "preempted": False,
        "new": 8,
        "lookahead": 0,
        "external": 0,
        "encoder": 0,
        "full_sequence_must_fit": False,
        "reserved_blocks": 0,
        "has_scheduled_reqs": True,
        "skip_zeroing": (),
    }
    return Call(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "8 more of 30 tokens"),
        ({"computed": 8, "in_flight": 4, "lookahead": 3}, "8 more of 30 tokens, computed 8, in flight 4, lookahead 3"),
        ({"external": 12}, "8 more of 30 tokens, external 12 (sync)"),
        ({"external": 12, "new": 0}, "async load of 12 of 30 tokens"),
        ({"new": 0}, "no more of 30 tokens"),
        ({"encoder": 5, "full_sequence_must_fit": True}, "8 more of 30 tokens, encoder 5, gate"),
        ({"reserved_blocks": 2, "preempted": True}, "8 more of 30 tokens, reserved 2, preempted before"),
        (
            {"has_scheduled_reqs": False, "skip_zeroing": (0, 1)},
            "8 more of 30 tokens, nothing else scheduled, zeroing skipped in groups 0 1",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_words_of_a_call(changes, expected):
    assert f"request 0: {expected}" == words.extend(call(**changes))


def test_a_decode_with_drafts():
    """Prompt 3, one token sampled, K 2: the second step's drafts are the last 2 of its 3 tokens."""
    lines = said(
        Extend(request=0, new=3, prompt=3),
        Settle(),
        Extend(request=0, new=3),
        Settle(accepted=((0, 1),)),
        method="eagle",
        num_speculative_tokens=2,
    )

    assert [
        ("request 0: 3 more of 3 tokens, lookahead 2", "[1 2]"),
        ("output is back: request 0", ""),
        ("request 0: 3 more of 4 tokens, computed 3, lookahead 2", "[1 2]"),
        ("output is back: request 0 (1 of 2 drafts accepted)", ""),
    ] == lines


def test_loads():
    lines = said(
        Extend(request=0, new=0, prompt=9, external=8),
        Loaded(request=0, valid=4),
        Extend(request=1, new=0, prompt=4, external=4),
        Loaded(request=1, valid=0),
        Loaded(request=1),
        kv_connector=True,
    )

    assert [
        ("request 0: async load of 8 of 9 tokens", "[1 2]"),
        ("request 0: 4 of 8 loaded tokens are good, computed 4", ""),
        ("request 1: async load of 4 of 4 tokens", "[3]"),
        ("request 1: the load has failed, its blocks are given back", "-"),
        ("request 1: the load has ended", "void"),
    ] == lines


def test_releases():
    lines = said(
        Extend(request=0, new=5, prompt=5),
        Extend(request=1, new=1, prompt=1),
        Settle(),
        Release(request=0, preempt=True),
        Extend(request=0, new=6),
        Settle(),
        Release(request=1, deferred=True),
        GiveBack(),
        GiveBack(),
    )

    assert [
        ("request 0: preempted, its blocks are given back", "-"),
        ("request 0: 6 more of 6 tokens, preempted before", "[2 1]"),
        ("output is back: request 0", ""),
        ("request 1: finished, its blocks are popped, not yet given back", "popped [3]"),
        ("the oldest popped blocks are given back", "-"),
        ("the oldest popped blocks are given back", "void"),
    ] == lines[3:]


def test_session_trim_and_new_step():
    """A window of 2 in blocks of 2: of 6 processed tokens the next reads from 5 on, so columns 0 and 1 are dead."""
    lines = said(
        Extend(request=0, new=6, prompt=6),
        Settle(),
        Trim(request=0),
        Resume(request=0, tokens=3),
        NewStep(),
        groups=(SlidingWindow(block_size=2, window=2), Mamba(block_size=64, mode="none")),
    )

    assert [
        ("request 0: 6 more of 6 tokens", "[1 2 3] [4]"),
        ("output is back: request 0", ""),
        ("request 0: what nobody reads any more is removed, processed 6", "[0 0 3] [4]"),
        ("request 0: the session goes on with 3 more prompt tokens", ""),
        ("a new step begins", "zero list [1 2 3]"),
    ] == lines


def test_a_void_operation_says_so():
    assert [("request 3: 1 more tokens", "void")] == said(Extend(request=3, new=1))


def test_an_observation_that_agrees_is_not_repeated():
    line = lines_of(SAMPLES["M12"].outcome())[0]

    assert ("[0 0 0 0 1]", "same", "1") == (line.expected, line.observed, line.free)


def test_a_wrong_decision_shows_both_answers_and_both_counts():
    line = lines_of(SAMPLES["A15"].outcome())[0]

    assert ("X", "ValueError", "1") == (line.expected, line.observed, line.free)
    assert line.marked


def test_a_wrong_result_is_shown_although_the_rows_agree():
    line = lines_of(SAMPLES["A20"].outcome())[0]

    assert "[1 2] [3], new [1 2] [3]" == line.expected
    assert "[1 2] [3], new [1 2] []" == line.observed


def test_a_call_has_the_terms_of_its_numbers():
    line = lines_of(SAMPLES["A13"].outcome())[0]

    assert ["gate: sliding_window", "sliding_window"] == [why.rpartition(": ")[0] for why in line.why]


@pytest.mark.parametrize("width", [80, 120])
def test_text_keeps_to_its_width(width):
    long = [Extend(request=index, new=0, prompt=16, external=16, reserved_blocks=1) for index in range(3)]
    shown = table.text(run(*long, kv_connector=True, groups=(FullAttention(block_size=1),)), width=width)

    assert max(map(len, shown.splitlines())) <= width


def test_text_without_operations():
    assert "no operation was run" == table.text(SAMPLES["build"].outcome())


def test_without_a_target_there_is_no_column_for_it():
    shown = table.markdown(run(Extend(request=0, new=5, prompt=5)))

    assert [
        "| # | operation | expected | free |",
        "| --- | --- | --- | --- |",
        "| 0 | request 0: 5 more of 5 tokens | [1 2] | 6 |",
    ] == shown.splitlines()


def test_explanation_gives_every_term():
    assert [
        "0. request 0: 5 more of 5 tokens",
        "     [1 2], free 6",
        "     full_attention: max(held, ceil(min(computed + new + lookahead, max_model_len) /",
        "       tokens_per_column) + speculative_blocks) = 2",
        "       computed 0, new 5, lookahead 0, max_model_len 64, tokens_per_column 4, speculative_blocks 0,",
        "       held 0",
    ] == table.explanation(run(Extend(request=0, new=5, prompt=5))).splitlines()
