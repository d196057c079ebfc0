"""replay, watch, shrink and show of a recording: step and wall time of the first difference, exit status."""

from __future__ import annotations

import copy

import pytest

from harness import tracefile
from oracle.trace import Trace
from tests.commands.conftest import left, target
from tests.recorded.lines import HEAD, LINES, text

#: the manager takes no block for the 9th token
WRONG = [*copy.deepcopy(LINES[:2]), {key: value for key, value in LINES[2].items() if key != "t"}]


@pytest.fixture
def folder(tmp_path):
    """`folder(lines)`: a recording in a folder of its own."""

    def write(lines, head=None):
        here = tmp_path / "recorded"
        here.mkdir(exist_ok=True)
        (here / "engine-7-1.0001.jsonl").write_text(text(lines, head))
        return here

    return write


def test_replay_of_what_agrees(missing, folder):
    """How far, and until when."""
    result = missing("replay", folder(LINES))

    assert (0, "") == (result.status, result.err)
    assert "engine-7-1: 4 engine steps, 11 operations: agreed up to 2026-03-01 10:00:00.060+00:00\n" == result.out


def test_replay_of_a_difference(missing, folder, snapshot):
    """The engine's step, the wall time, the terms."""
    result = missing("replay", folder(WRONG))

    assert snapshot == result.out
    assert (1, "") == (result.status, result.err)


def test_replay_of_a_part(missing, folder):
    """A file stands for its recording."""
    assert 1 == missing("replay", folder(WRONG) / "engine-7-1.0001.jsonl").status


def test_replay_of_what_cannot_be_judged(missing, folder, snapshot):
    """Inconclusive, from which step on and why."""
    result = missing("replay", folder(LINES, HEAD | {"dropped": 2}))

    assert snapshot == result.out
    assert 3 == result.status


def test_watch_ends_at_a_difference(missing, folder):
    """What replay says, with its exit status."""
    path = folder(WRONG)

    assert missing("replay", path).out == missing("watch", path).out
    assert 1 == missing("watch", path).status


def test_watch_ends_in_time(missing, folder):
    """Agreed so far."""
    result = missing("watch", folder(LINES), "--for", "0.1s")

    assert 0 == result.status
    assert "agreed up to" in result.out


def test_watch_of_nothing(missing, tmp_path):
    """What to do to have a recording."""
    result = missing("watch", tmp_path, "--for", "0.1s")

    assert 2 == result.status
    assert "start the engine with SLOTCHECK_RECORD=" in result.err


def test_shrink(pure, folder, tmp_path):
    """A trace of the usual format, on a manager with the defect."""
    result = pure("shrink", folder(WRONG), "--target", target("NoSecondBlock"), "-o", "small.json")
    small = tracefile.read(tmp_path / "small.json")

    assert 1 == result.status
    assert "2 engine steps, 7 operations -> " in result.err
    assert isinstance(small, Trace)
    assert len(small.operations) <= 3


def test_shrink_to_a_report(pure, folder, tmp_path):
    """A folder as a run leaves it."""
    result = pure("shrink", folder(WRONG), "--target", target("NoSecondBlock"), "-o", "small")

    assert 1 == result.status
    assert ["page.html", "report.md", "repro.py", "trace.json"] == left(tmp_path / "small")


def test_shrink_on_a_sound_target(pure, folder, tmp_path):
    """Exit status 3, and which manager to name."""
    result = pure("shrink", folder(WRONG), "--target", target("Sound"), "-o", "small.json")

    assert 3 == result.status
    assert "name the manager that was recorded with --target" in " ".join(result.err.split())
    assert not (tmp_path / "small.json").exists()


def test_show_a_difference(missing, folder, tmp_path):
    """The recorded row, the expected one beside it."""
    result = missing("show", folder(WRONG), "--out", "page.html")
    text = (tmp_path / "page.html").read_text()

    assert 0 == result.status
    assert "Recorded by engine-7-1, 2026-03-01 10:00:00 to 10:00:00" in text
    assert "allocate_slots gives a row fewer columns than the step needs" in text
    assert '"beside":{"rows":[[0,0,[1,2,3]]]}' in text


def test_show(missing, folder, tmp_path):
    """A recording is shown as the trace that it is."""
    result = missing("show", folder(LINES), "--out", "page.html")

    assert 0 == result.status
    assert "page.html" in left(tmp_path)
