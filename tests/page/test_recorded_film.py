"""The film of a recording shows what was recorded, its last operations alone where there are many."""

from __future__ import annotations

import pytest

from harness.page import recorded_film
from tests.page.test_film import held
from tests.recorded.lines import LINES, text


@pytest.fixture
def recording(tmp_path):
    (tmp_path / "engine-7-1.0001.jsonl").write_text(text(LINES))
    return tmp_path


def undeclared(difference):
    return False


def test_rows_are_those_recorded(recording):
    made = recorded_film.recorded_film(recording, undeclared)

    assert {0: [[1, 2, 3]]} == held(made, 6)
    assert {} == held(made, 9)


def test_the_last_operations_begin_with_who_was_there(recording, monkeypatch):
    """Of 11 operations the last 4: the request has its three blocks, then it goes."""
    monkeypatch.setattr(recorded_film, "SHOWN", 4)
    made = recorded_film.recorded_film(recording, undeclared)

    assert 4 == len(made["frames"])
    assert {0: [[1, 2, 3]]} == held(made, 0)
    assert made["start"] is None
