"""Recordings are read while they grow, part by part, and refused in a sentence."""

from __future__ import annotations

import pytest

from harness.recording import is_recording, recordings
from oracle.errors import TraceError
from tests.recorded.lines import HEAD, LINES, text


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "engine-7-1.0001.jsonl").write_text(text(LINES[:3]))
    return tmp_path


def test_lines_come_in_order(folder):
    [found] = recordings(folder)

    assert LINES[:3] == list(found.lines())


def test_what_is_added_is_read_next(folder):
    [found] = recordings(folder)
    list(found.lines())
    with (folder / "engine-7-1.0001.jsonl").open("a") as file:
        file.write('{"u":40}\n{"s":5')

    assert [{"u": 40}] == list(found.lines())


def test_a_line_that_is_not_whole_waits(folder):
    [found] = recordings(folder)
    with (folder / "engine-7-1.0001.jsonl").open("a") as file:
        file.write('{"s":5')
    first = list(found.lines())
    with (folder / "engine-7-1.0001.jsonl").open("a") as file:
        file.write("0}\n")

    assert 3 == len(first)
    assert [{"s": 50}] == list(found.lines())


def test_the_next_part_goes_on(folder):
    [found] = recordings(folder)
    list(found.lines())
    (folder / "engine-7-1.0002.jsonl").write_text(text(LINES[3:], HEAD | {"part": 2}))

    assert LINES[3:] == list(found.lines())


def test_each_engine_has_its_own(folder):
    (folder / "engine-8-1.0001.jsonl").write_text(text([]))

    assert ["engine-7-1", "engine-8-1"] == [one.name for one in recordings(folder)]


def test_a_trace_is_no_recording(tmp_path):
    (tmp_path / "trace.json").write_text('{"format": 1}')

    assert not is_recording(tmp_path / "trace.json")
    assert not is_recording(tmp_path)
    assert not is_recording(tmp_path / "nothing")


def test_no_recording_is_said(tmp_path):
    with pytest.raises(TraceError, match="start the engine with SLOTCHECK_RECORD="):
        recordings(tmp_path)


@pytest.mark.parametrize(
    "head", [{"format": 9}, {"setting": {"groups": []}}, {"began": "yesterday"}, {"setting": {"colour": 1}}]
)
def test_a_head_that_cannot_be_read_is_said(tmp_path, head):
    (tmp_path / "engine-7-1.0001.jsonl").write_text(text([], HEAD | head))

    with pytest.raises(TraceError, match=r"engine-7-1\.0001"):
        recordings(tmp_path)


def test_a_damaged_line_is_said(folder):
    with (folder / "engine-7-1.0001.jsonl").open("a") as file:
        file.write("{]\n")
    [found] = recordings(folder)

    with pytest.raises(TraceError, match="line 5 that is not JSON"):
        list(found.lines())
