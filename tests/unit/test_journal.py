"""The journal of a worker: which trace it runs and how far it is, readable when the worker is gone."""

from __future__ import annotations

import pytest

from harness.cli import _read
from harness.worker import CAPACITY, Journal, decode, read_journal
from oracle.errors import TraceError
from strategies.traces import RUN_LENGTH

DATA = bytes(range(48))


def begun(path, step, profile="scheduler"):
    journal = Journal(path)
    journal.begin(3, DATA, profile)
    journal.at(step)
    return journal


def test_a_new_journal_says_nothing_yet(tmp_path):
    """No trace has begun."""
    Journal(tmp_path / "j")

    assert (0, 0, b"") == (read_journal(tmp_path / "j").traces, 0, read_journal(tmp_path / "j").data)


@pytest.mark.parametrize("profile", ["scheduler", "hostile"])
def test_what_runs_is_on_disk(tmp_path, profile):
    """Read by anybody, while the worker still has it mapped."""
    journal = begun(tmp_path / "j", 5, profile)
    progress = read_journal(tmp_path / "j")

    assert (3, 5, DATA, profile) == (progress.traces, progress.step, progress.data, progress.profile)
    journal.map.close()


def test_a_new_trace_begins_at_its_first_step(tmp_path):
    """The step of the one before is not taken over."""
    journal = begun(tmp_path / "j", 5)
    journal.begin(4, DATA[:10], "scheduler")

    assert (4, 0, DATA[:10]) == (
        read_journal(tmp_path / "j").traces,
        read_journal(tmp_path / "j").step,
        read_journal(tmp_path / "j").data,
    )


def test_the_trace_ends_at_the_step_that_runs(tmp_path):
    """The operations up to it, decoded without a target."""
    begun(tmp_path / "j", 2)

    assert decode(DATA, 2, "scheduler") == read_journal(tmp_path / "j").trace()


def test_a_journal_is_read_where_a_trace_is(tmp_path):
    """`replay`, `explain` and `shrink` take either."""
    begun(tmp_path / "j", 2)

    assert read_journal(tmp_path / "j").trace() == _read(tmp_path / "j")


@pytest.mark.parametrize("content", [b"", b"slotcheck-1\n", b"slotcheck-2\n" + bytes(100)])
def test_what_is_no_journal(tmp_path, content):
    """Too short, or of another version."""
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(TraceError, match="is not a journal of a run"):
        read_journal(tmp_path / "j")


def test_a_runs_traces_fit():
    """Every drawn trace can be written down."""
    assert RUN_LENGTH <= CAPACITY
