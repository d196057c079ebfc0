"""What a score says: the share, the reasons, the tables."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from harness import score_page
from harness.mutants import mutants_of
from harness.score import Judged, Plan, Score, levels_of
from harness.score_page import Reason
from oracle.errors import SlotcheckError

FILE = "v1/core/block_pool.py"
MUTANTS = mutants_of("def f(a, b):\n    return a < b and min(a, b) == 7\n", FILE)
KILLED = [
    Judged(mutant=one, asked=("manager",), level="manager", aspect="ids", fingerprint="manager/ids", steps=9, size=2)
    for one in MUTANTS[:6]
]
LEFT = [Judged(mutant=one, asked=("manager", "caching")) for one in MUTANTS[6:8]]
SCORE = Score(
    Plan(sample=8, seed=0, steps=100, workers=1, files=(FILE,), release="0.33.0"), [*KILLED, *LEFT], {FILE: (8, 9)}
)
DATA = score_page.data(SCORE, {})
ROWS = DATA["mutants"]
NAMES = [one.mutant.name for one in LEFT]


def test_an_unexplained_survivor_counts_against_the_share():
    assert 0.75 == score_page.share(ROWS, {})


@pytest.mark.parametrize("verdict", ["equivalent", "unreachable", "out of scope"])
def test_an_explained_one_does_not(verdict):
    assert 6 / 7 == score_page.share(ROWS, {NAMES[0]: Reason(verdict, "why")})


def test_a_missed_one_does():
    assert 0.75 == score_page.share(ROWS, {name: Reason("missed", "why") for name in NAMES})


def test_the_data_names_the_unexplained():
    found = score_page.data(SCORE, {NAMES[0]: Reason("equivalent", "why")})

    assert [NAMES[1]] == found["unexplained"]
    assert (6, 2, 9, 2) == (found["killed"], found["survived"], found["steps_median"], found["size_median"])


def test_the_page_has_a_row_for_each_file_and_survivor():
    text = score_page.page(DATA, {NAMES[0]: Reason("equivalent", "a cache's size")})

    assert f"| {FILE} | 8 | 6 | 86% | 8 / 9 |" in text
    assert "| equivalent | a cache's size |" in text
    assert "| unexplained |  |" in text


def test_a_stored_score_is_judged_by_the_reasons_of_today(tmp_path):
    path = tmp_path / "scored.json"
    path.write_text(json.dumps(DATA), encoding="utf-8")
    why = {name: Reason("equivalent", "why") for name in NAMES}

    assert (1.0, []) == tuple(score_page.read(path, why)[name] for name in ("share", "unexplained"))
    assert DATA == score_page.read(path, {})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mutants": [1]}', '{"mutants": [{"level": ""}]}'])
def test_what_is_no_stored_score_is_refused(tmp_path, text):
    path = tmp_path / "scored.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SlotcheckError, match="is not what `slotcheck score --json` prints"):
        score_page.read(path, {})


def test_a_section_is_renewed_and_the_rest_stays(tmp_path):
    path = tmp_path / "score.md"
    path.write_text("# Score\n\n<!-- score -->\nold \\1\n<!-- end of score -->\n\nLimits.\n", encoding="utf-8")

    score_page.write_section(path, "score", "new \\1\n")

    assert "# Score\n\n<!-- score -->\n\nnew \\1\n\n<!-- end of score -->\n\nLimits.\n" == path.read_text("utf-8")


def test_a_page_without_marks_is_refused(tmp_path):
    path = tmp_path / "score.md"
    path.write_text("# Score\n", encoding="utf-8")

    with pytest.raises(SlotcheckError, match="has no lines <!-- score -->"):
        score_page.write_section(path, "score", "new")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("survivor = [", "cannot be read"),
        ('[[survivor]]\nmutant = "a"\nverdict = "equivalent"\n', "has mutant, verdict and why"),
        ('[[survivor]]\nmutant = "a"\nverdict = "fine"\nwhy = "b"\n', "verdict 'fine' of a"),
        ("survivor = 3", "has mutant, verdict and why"),
    ],
)
def test_reasons_that_cannot_be_used(tmp_path, text, said):
    path = tmp_path / "survivors.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SlotcheckError, match=said):
        score_page.reasons(path)


def test_reasons_are_read(tmp_path):
    path = tmp_path / "survivors.toml"
    path.write_text('[[survivor]]\nmutant = "a"\nverdict = "missed"\nwhy = "b"\n', encoding="utf-8")

    assert {"a": Reason("missed", "b")} == score_page.reasons(path)
    assert not score_page.reasons(tmp_path / "none.toml")


def test_the_projects_own_reasons_can_be_read():
    assert all(reason.why for reason in score_page.reasons(score_page.reasons_file()).values())


def test_levels_are_asked_in_the_files_order_and_only_where_the_line_runs():
    reached = {"caching": {FILE: {2}}, "manager": {FILE: {2}}, "scheduler": {FILE: {1}}}

    assert ("manager", "caching") == levels_of(MUTANTS[0], reached)


def test_the_comparison_counts_what_only_one_of_the_two_kills():
    from harness import score_upstream

    scored = score_page.data(SCORE, {})
    theirs = [
        {"mutant": row["mutant"], "killed_by": "test_a" if index in {0, 7} else "", "seconds": 4.0}
        for index, row in enumerate(scored["mutants"])
    ]
    why = {NAMES[0]: Reason("equivalent", "why")}
    text = score_upstream.page(scored, score_upstream.Ran((), 12, 3, 40.0), theirs, why)

    assert "7 mutants that one of the two can tell" in text
    assert "| slotcheck | 6 | 86% |" in text
    assert "| upstream's tests, no limit | 2 | 29% | 4.0 |" in text
    assert f"- `{NAMES[1]}`: test_a" in text


def test_a_folder_without_upstreams_tests_is_refused(tmp_path):
    """It would say that upstream's tests find nothing."""
    from harness import score_upstream

    scored = tmp_path / "scored.json"
    scored.write_text(json.dumps(DATA), encoding="utf-8")
    result = CliRunner().invoke(score_upstream.main, [str(tmp_path), str(scored)])

    assert (2, True) == (result.exit_code, "give the folder that holds upstream's `tests`" in result.output)
