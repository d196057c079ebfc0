"""replay and shrink on planted targets: tables, traces, exit status."""

from __future__ import annotations

import re

import pytest
from attrs import evolve

from harness import cli, tracefile
from harness.findings import Finding, Match
from oracle.groups import FullAttention, SlidingWindow
from oracle.trace import Release, Settle
from tests.commands.conftest import EXAMPLE, left, plain, target
from tests.unit.examples import ask, setting, trace

DRAFTED = trace(
    setting(
        FullAttention(block_size=4),
        SlidingWindow(block_size=4, window=8),
        num_blocks=12,
        method="dflash",
        num_speculative_tokens=3,
    ),
    *(ask(6, prompt=9, full_sequence_must_fit=True), Settle(), ask(3), Settle(), ask(4), Release(request=0)),
)


@pytest.fixture
def drafted(tmp_path):
    """A trace on which lost lookahead shows."""
    path = tmp_path / "drafted.json"
    tracefile.write_text(path, tracefile.dumps(DRAFTED))
    return path


# ------------------------------------------------------------------------------------------------- replay


def test_replay_of_what_agrees(pure, snapshot):
    """The table, and that it agrees."""
    result = pure("replay", EXAMPLE, "--target", target("Sound"))

    assert snapshot == result.out
    assert (0, "") == (result.status, result.err)


def test_replay_of_a_difference(pure, drafted, snapshot):
    """The step is marked, the difference has its terms."""
    result = pure("replay", drafted, "--target", target("NoLookahead"))

    assert snapshot == result.out
    assert (1, "") == (result.status, result.err)


def test_replay_compares_what_is_wanted(pure, drafted):
    """The first aspect that is compared is the one that differs."""
    result = pure("replay", drafted, "--target", target("NoLookahead"), "--aspects", "free,order")

    assert "16 free" not in result.out
    assert "observed  " in result.out


@pytest.mark.parametrize("name", ["Crashes", "Exits", "RaisesOnRelease"])
def test_replay_survives_its_target(pure, drafted, snapshot, name):
    """What happened before, and how the process ended."""
    result = pure("replay", drafted, "--target", target(name))

    assert snapshot == result.out
    assert (1, "") == (result.status, result.err)


def test_replay_goes_on_after_a_declared_difference(pure, tmp_path, monkeypatch, snapshot):
    """A difference behind a declared one is found: that is how a run found it."""
    gate = Finding(
        title="",
        releases="",
        breaks="",
        deployment="",
        law="",
        match=(GATE,),
        reference="",
        reachable="",
        name="the-gate",
    )
    monkeypatch.setattr(
        cli.findings, "Declared", lambda *known: DECLARED([evolve(gate, releases="==0.33.0")], "0.33.0")
    )
    gated = trace(setting(num_blocks=4), ask(4, prompt=60, full_sequence_must_fit=True), Settle(), Release(request=0))
    tracefile.write_text(tmp_path / "gated.json", tracefile.dumps(gated))
    result = pure("replay", tmp_path / "gated.json", "--target", target("NoGateLeaks"))

    assert snapshot == result.out
    assert 1 == result.status


GATE = Match(aspect="outcome", rule="A13")
DECLARED = cli.findings.Declared


# ------------------------------------------------------------------------------------------------- shrink


def test_shrink(pure, drafted, snapshot):
    """The trace on stdout, what it took on stderr."""
    result = pure("shrink", drafted, "--target", target("NoLookahead"))

    assert snapshot == result.out
    assert snapshot == result.err
    assert 1 == result.status


def test_shrink_into_a_file(pure, drafted, tmp_path):
    """The same trace, nothing on stdout."""
    result = pure("shrink", drafted, "--target", target("NoLookahead"), "--output", tmp_path / "small" / "trace.json")

    assert "" == result.out
    assert ["drafted.json", "small/trace.json"] == left(tmp_path)


def test_shrink_with_few_tries(pure, drafted, snapshot):
    """It says that this is not a minimum."""
    assert snapshot == pure("shrink", drafted, "--target", target("NoLookahead"), "--tries", 5).err


def test_shrink_of_what_agrees(pure, drafted, snapshot):
    """Nothing to do."""
    result = pure("shrink", drafted, "--target", target("Sound"))

    assert snapshot == result.err
    assert (0, "") == (result.status, result.out)


def test_shrink_of_a_crash(pure, drafted, snapshot):
    """A process a try."""
    result = pure("shrink", drafted, "--target", target("Crashes"))

    assert snapshot == result.out
    assert 1 == result.status


# ------------------------------------------------------------------------------------------------- canary


def test_canary(pure):
    """Caught; how soon depends on the traces that are drawn."""
    result = pure("canary", "--target", target("Sound"))

    assert "the canary was caught after N steps\n" == re.sub(r"\d+", "N", result.out)
    assert (0, "") == (result.status, result.err)


def test_canary_of_a_target_that_crashes(pure, snapshot):
    """It cannot come to its end: nothing is proved."""
    result = pure("canary", "--target", target("Crashes"))

    assert snapshot == plain(result.err)
    assert (3, "") == (result.status, result.out)
