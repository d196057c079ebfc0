"""Bisecting over releases: what the rows say."""

from __future__ import annotations

import pytest

from harness import first_bad
from harness.first_bad import Row
from harness.targets import compat
from harness.targets.compat import TargetError

GOOD, BAD, CANNOT = False, True, None
SAID = {
    "later": ([GOOD, BAD, BAD], "the first is 0.2"),
    "from the start": ([BAD, BAD, BAD], "0.1, the oldest one that ran it, has it already"),
    "mended": ([BAD, BAD, GOOD], "0.1, the oldest one that ran it, has it already; 0.3 is the first that agrees again"),
    "for a while": ([GOOD, BAD, GOOD], "the first is 0.2; 0.3 is the first that agrees again"),
    "first one that can": ([CANNOT, BAD, BAD], "0.2, the oldest one that ran it, has it already"),
    "nowhere": ([GOOD, CANNOT, GOOD], "no release at hand diverges"),
    "cannot be run": ([CANNOT, CANNOT, CANNOT], "no release could run it"),
}


@pytest.mark.parametrize(("marks", "said"), SAID.values(), ids=SAID)
def test_the_first_bad_release(marks, said):
    """In one sentence."""
    assert said == first_bad.first([Row(f"0.{n}", bad, "") for n, bad in enumerate(marks, 1)])


def test_at_hand(monkeypatch, tmp_path):
    """The installed release stands among the stored ones by its number."""
    monkeypatch.setattr(compat, "installed_release", lambda: "0.33.0")
    monkeypatch.setattr(
        first_bad.store, "stored", lambda: [first_bad.store.Stored(r, tmp_path, 1, "") for r in ("0.9.0", "0.100.0")]
    )

    assert ["0.9.0", "0.33.0", "0.100.0"] == first_bad.at_hand()


class Told:
    """A process that answers one question."""

    def __init__(self, answer):
        self.answer = answer

    def start(self):
        if isinstance(self.answer, Exception):
            raise self.answer

    def ask(self, question):
        return self.answer

    def close(self):
        pass


@pytest.mark.parametrize(
    ("answer", "row"),
    [
        ({"new": [], "declared": []}, Row("0.1", GOOD, "agrees")),
        ({"new": ["a/b"], "declared": ["leak"]}, Row("0.1", BAD, "a/b, leak (declared)")),
        ({"cannot": "no such kind"}, Row("0.1", CANNOT, "no such kind")),
        (TargetError("does not import"), Row("0.1", CANNOT, "does not import")),
    ],
)
def test_one_release(monkeypatch, tmp_path, answer, row):
    """What its process answered, or why it could not."""
    monkeypatch.setattr(first_bad, "Side", lambda release: Told(answer))

    assert row == first_bad.row("0.1", tmp_path / "trace.json")
