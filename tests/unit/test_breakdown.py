"""A number and its terms: what it comes to, how it reads, which term is to blame."""

from __future__ import annotations

import pytest

from oracle.breakdown import FORMULAS, formula

PART = {
    "known": 10, "drafts": 0, "placeholders": 0, "computed": 2, "padding": 0, "threshold": 0, "room": 16,
    "max_model_len": 40, "cut": 0,
}  # fmt: skip
COLUMNS = {"max_model_len": 64, "tokens_per_column": 4, "speculative_blocks": 0, "held": 0}


def columns(**terms):
    return formula("A19 attention columns").of(**{**COLUMNS, **terms})


@pytest.mark.parametrize(
    ("name", "terms", "value"),
    [
        ("A19 attention columns", {**COLUMNS, "computed": 6, "new": 4, "lookahead": 3}, 4),
        ("A19 attention columns", {**COLUMNS, "computed": 60, "new": 4, "lookahead": 3}, 16),
        ("A19 attention columns", {**COLUMNS, "computed": 0, "new": 1, "lookahead": 0, "held": 5}, 5),
        ("A42 align columns", {**COLUMNS, "computed": 6, "new": 4, "speculative_blocks": 2}, 5),
        ("A39 cross-attention columns", {"encoder": 9, "tokens_per_column": 4, "held": 0}, 3),
        ("A39 cross-attention to take", {"encoder": 9, "tokens_per_column": 4, "held": 2}, 1),
        ("A39 cross-attention to take", {"encoder": 0, "tokens_per_column": 4, "held": 2}, 0),
        ("S3 part of a request", {**PART, "room": 5}, 5),
        ("S3 part of a request", {**PART, "threshold": 3, "cut": 1}, 2),
        ("S3 part of a request", {**PART, "max_model_len": 11, "drafts": 4, "computed": 9}, 1),
        ("A38 ring", {"block": 1}, 1),
        ("A38 ring to take", {"held": 1}, 0),
        ("A13 gate, no cap", {**COLUMNS, "tokens": 24, "dead": 2, "held": 3}, 3),
        ("A13 gate, capped", {**COLUMNS, "tokens": 24, "dead": 3, "held": 0, "cap": 4}, 3),
        ("A13 gate, capped", {**COLUMNS, "tokens": 64, "dead": 3, "held": 1, "cap": 4}, 3),
        ("A47 align gate", {**COLUMNS, "tokens": 24, "speculative_blocks": 2, "checkpoint": 1, "first": 1}, 4),
        ("A47 align gate", {**COLUMNS, "tokens": 24, "checkpoint": 0, "first": 0, "held": 6}, 0),
    ],
)
def test_what_a_formula_comes_to(name, terms, value):
    """Worked by hand from the text of the formula."""
    assert value == formula(name).of(**terms).value


def test_every_formula_has_an_example():
    """Those above are all that there are."""
    shown = {example[0] for mark in test_what_a_formula_comes_to.pytestmark for example in mark.args[1]}

    assert set(FORMULAS) == shown


def test_a_breakdown_reads_as_its_formula():
    """The text, the value, and each term with its number."""
    assert "max(held, ceil(encoder / tokens_per_column)) = 3  (encoder 9, tokens_per_column 4, held 0)" == str(
        formula("A39 cross-attention columns").of(encoder=9, tokens_per_column=4, held=0)
    )


@pytest.mark.parametrize(
    ("terms", "observed", "blamed"),
    [
        ({"computed": 4, "new": 4, "lookahead": 3}, 2, ["lookahead = 0 (ours 3) would give 2"]),
        ({"computed": 8, "new": 4, "lookahead": 1}, 3, ["lookahead = 0 (ours 1) would give 3"]),
        ({"computed": 4, "new": 4, "lookahead": 0}, 7, []),
    ],
    ids=["left out", "left out once, though off by one too", "nobody"],
)
def test_blame(terms, observed, blamed):
    """Terms that, left out or off by one, give the number that was seen."""
    assert blamed == [line for line in columns(**terms).blame(observed) if line.startswith("lookahead")]


def test_blame_names_what_is_off_by_one():
    """9 + 4 tokens are 4 columns; with 8 + 4 they are 3: one computed token fewer explains it."""
    assert "computed = 8 (ours 9) would give 3" in columns(computed=9, new=4, lookahead=0).blame(3)


def test_blame_never_divides_by_nothing():
    """Columns of 1 token, one token fewer, would be columns of none: only one token more is tried."""
    terms = {**COLUMNS, "tokens_per_column": 1, "computed": 0, "new": 3, "lookahead": 0}
    blamed = formula("A19 attention columns").of(**terms).blame(2)

    assert ["tokens_per_column = 2 (ours 1) would give 2"] == [line for line in blamed if "column" in line]


def test_blame_names_the_ranks_of_a_sharded_group():
    """Of a column of 4 x 16 tokens somebody counts 16."""
    terms = {"computed": 9, "new": 8, "lookahead": 7, "max_model_len": 512, "tokens_per_column": 64}
    blamed = formula("A19 attention columns").of(**terms, speculative_blocks=0, held=1).blame(2)

    assert "tokens_per_column = 16 (ours 64) would give 2" in blamed
