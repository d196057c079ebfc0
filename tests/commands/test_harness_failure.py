"""Exit status 70: the harness itself failed. Only here a traceback is printed, for the bug report."""

from __future__ import annotations

import json

import pytest

from tests.commands.conftest import left, target


@pytest.fixture
def blind(monkeypatch):
    """A canary that nobody catches."""
    monkeypatch.setattr("harness.canary.caught", lambda *arguments, **named: None)


def test_a_canary_that_is_not_caught(pure, blind, snapshot):
    """The command says what that means."""
    result = pure("canary", "--target", target("Sound"))

    assert snapshot == result.err
    assert (70, "") == (result.status, result.out)


def test_a_run_whose_canary_is_not_caught(pure, blind):
    """It could not have failed: broken, though nothing differs."""
    result = pure("run", "--steps", 1, "--target", target("Sound"), "--aspects", "outcome,columns", "--json")
    data = json.loads(result.out)

    assert (70, "broken", None, ["the canary was not caught: this run could not have failed"]) == (
        result.status,
        data["verdict"],
        data["canary_steps"],
        data["reasons"],
    )


def test_a_run_that_differs_needs_no_canary(pure, blind):
    """It has proved that it can fail."""
    result = pure("run", "--steps", 1, "--target", target("NoLookahead"), "--aspects", "outcome,columns")

    assert 1 == result.status


def test_a_fault_in_a_worker(pure, tmp_path, monkeypatch):
    """Ours, not the target's: told with the traceback of the worker; the journals are left for it."""

    def fail(*arguments, **named):
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr("harness.engine.run_shard", fail)
    result = pure("run", "--steps", 1, "--target", target("Sound"))

    assert 70 == result.status
    assert result.err.startswith(
        "slotcheck: the harness itself failed: HarnessError: ZeroDivisionError: a bug of ours\n"
    )
    assert not [name for name in left(tmp_path) if "run.json" in name]


def test_a_fault_in_a_command(pure, monkeypatch):
    """The type and text of the error first, the traceback below."""

    def fail(*arguments):
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr("harness.cli.findings.load", fail)
    result = pure("findings", "list")

    assert (70, "") == (result.status, result.out)
    assert result.err.startswith(
        "slotcheck: the harness itself failed: ZeroDivisionError: a bug of ours\nslotcheck: Tr"
    )
