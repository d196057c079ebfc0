"""Films are the replay: what each frame says, where the marks are, what lies beside; and pages that need nothing."""

from __future__ import annotations

import json
import re

import pytest
from attrs import evolve

from harness.page.render import embedded, film_page
from oracle.budget import RuleTrace
from oracle.errors import TraceError
from oracle.trace import Release, Settle
from tests.page.conftest import DRAFTED, film, long_trace
from tests.unit.examples import ask, setting, trace


def held(made, step):
    """Rows by request after `step`, from the frames alone."""
    rows = {}
    for frame in made["frames"][: step + 1]:
        for change in frame.get("rows", ()):
            if len(change) == 1:
                del rows[change[0]]
                continue
            request, group, at, removed, added = change
            row = rows.setdefault(request, [[] for _ in made["groups"]])[group]
            row[at : at + removed] = added
    return rows


def test_the_frames_hold_every_row(planted):
    """Columns by hand: 9 + 4 lookahead tokens are 4 blocks a group; request 1 without lookahead has 6 tokens: 2."""
    assert {0: [[1, 2, 3, 4], [5, 6, 7, 8]], 1: [[9, 10], [11, 12]]} == held(planted, 4)


def test_the_mark_is_at_the_difference_with_the_expected_row_beside(planted):
    [mark] = planted["marks"]

    assert 4 == mark["at"]
    assert [[1, 0, (9, 10, 11)], [1, 1, (12, 13, 14)]] == mark["beside"]["rows"]
    assert mark["title"] == planted["title"]


def test_the_mark_says_which_term_would_explain_it(planted):
    assert ["lookahead = 0 (ours 4) would give 2", "tokens_per_column = 8 (ours 4) would give 2"] == planted["marks"][
        0
    ]["detail"]


def test_without_a_target_the_oracle_is_shown():
    made = film(DRAFTED)

    assert [] == made["marks"]
    assert len(DRAFTED.operations) == len(made["frames"])
    assert "The oracle alone" in made["against"]


def test_terms_are_values_of_formulas_said_once():
    made = film(long_trace(200))
    [formula] = made["formulas"]
    number, what, value, values = made["frames"][0]["terms"][0]

    assert (0, "group 0 full_attention", 2) == (number, what, value)
    assert dict(zip([name for name, _ in formula["terms"]], values, strict=True))["new"] == 6


def test_a_release_of_the_last_request_leaves_nobody():
    made = film(trace(setting(), ask(4, prompt=4), *DRAFTED.operations[1:2], *DRAFTED.operations[-1:]))

    assert {} == held(made, 2)


def test_a_killed_process_is_told_by_the_oracles_film(monkeypatch):
    monkeypatch.setattr("harness.targets.loader.import_vllm", lambda: None)
    made = film(trace(setting(), ask(4, prompt=4), Settle(), Release(request=0)), "tests.unit.mutants:Exits")

    assert ["exit"] == [mark["observed"].split()[0] for mark in made["marks"]]
    assert 3 == len(made["frames"])


def test_a_question_of_the_rules_level_has_no_steps():
    with pytest.raises(TraceError, match="use replay or explain"):
        film(object.__new__(RuleTrace))


# -------------------------------------------------------------------------------------------------------- page


def test_the_page_asks_the_network_for_nothing(planted):
    text = film_page(planted)

    assert [] == re.findall(r"""(?:src|href)=["'](?!#|data:)""", text)
    assert "@import" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_the_data_on_the_page_is_the_film(planted):
    data = re.search(r'id="film">(.*?)</script>', film_page(planted), re.DOTALL)[1]

    assert json.loads(json.dumps(planted)) == json.loads(data)


def test_nothing_in_a_trace_ends_the_script():
    assert "<" not in embedded({"title": "</script><script>alert(1)</script>"})


def test_names_are_escaped(planted):
    text = film_page(planted | {"title": "<b>bold</b>"})

    assert "<b>bold</b>" not in text


def test_ten_thousand_steps_are_a_few_megabytes():
    assert len(film_page(film(long_trace(10_000)))) < 4_000_000


def test_the_same_trace_gives_the_same_page():
    assert film_page(film(DRAFTED)) == film_page(film(evolve(DRAFTED)))
