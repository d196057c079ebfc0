"""A number and the named terms it was made of, so that a difference can say which term differs."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from oracle.rounding import ceil_div

_RANKS = (2, 4, 8)
"""DCP ranks."""


@frozen
class Formula:
    """A named formula: its text for people, and the same as a function of its terms."""

    name: str
    text: str
    evaluate: Callable[[dict[str, int]], int]

    def of(self, **terms: int) -> Breakdown:
        """The breakdown for these terms."""
        return Breakdown(self, tuple(terms.items()), self.evaluate(terms))


@frozen
class Breakdown:
    """`value` (columns or blocks) by `formula` from `terms`."""

    formula: Formula
    terms: tuple[tuple[str, int], ...]
    value: int

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {value}" for name, value in self.terms)
        return f"{self.formula.text} = {self.value}  ({shown})"

    def blame(self, observed: int) -> list[str]:
        """Terms that, changed alone, give the observed number: left out first, then off by one."""
        terms = dict(self.terms)
        tried = [(order, name, other) for name in terms for order, other in enumerate(_others(name, terms[name]))]
        found: dict[str, None] = {}  # a term of 1, left out, is off by one too: it is named once
        for _, name, other in sorted(tried, key=lambda one: one[0]):
            if name == "tokens_per_column" and any(line.startswith(name) for line in found):
                continue  # the nearest number of ranks is enough
            if other >= 0 and self.formula.evaluate({**terms, name: other}) == observed:
                found[f"{name} = {other} (ours {terms[name]}) would give {observed}"] = None
        return list(found)


def _others(name: str, value: int) -> list[int]:
    """What a term may have been taken for. A column's tokens are a block's times the DCP ranks, or without them."""
    if name == "tokens_per_column":
        return [value // ranks for ranks in _RANKS if value % ranks == 0] + [value * ranks for ranks in _RANKS]
    return [other for other in (0, value - 1, value + 1) if other != value]


def _attention(t: dict[str, int]) -> int:
    need = min(t["computed"] + t["new"] + t["lookahead"], t["max_model_len"])
    return max(t["held"], ceil_div(need, t["tokens_per_column"]) + t["speculative_blocks"])


def _align(t: dict[str, int]) -> int:
    columns = ceil_div(t["computed"] + t["new"], t["tokens_per_column"])
    return max(t["held"], columns + t["speculative_blocks"])


def _sequence(t: dict[str, int]) -> int:
    return ceil_div(min(t["tokens"], t["max_model_len"]), t["tokens_per_column"]) + t["speculative_blocks"]


_ATTENTION = "ceil(min(computed + new + lookahead, max_model_len) / tokens_per_column) + speculative_blocks"
_SEQUENCE = "ceil(min(tokens, max_model_len) / tokens_per_column) + speculative_blocks"


def _part(t: dict[str, int]) -> int:
    part = t["known"] + t["drafts"] + t["placeholders"] - t["computed"] + t["padding"]
    part = min(part, t["room"], t["max_model_len"] - 1 - t["computed"])
    return (min(part, t["threshold"]) if t["threshold"] else part) - t["cut"]


FORMULAS: dict[str, Formula] = {
    f.name: f
    for f in (
        Formula("A19 attention columns", f"max(held, {_ATTENTION})", _attention),
        Formula(
            "A42 align columns",
            "max(held, ceil((computed + new) / tokens_per_column) + speculative_blocks)",
            _align,
        ),
        Formula(
            "A39 cross-attention columns",
            "max(held, ceil(encoder / tokens_per_column))",
            lambda t: max(t["held"], ceil_div(t["encoder"], t["tokens_per_column"])),
        ),
        Formula(
            "A39 cross-attention to take",
            "max(0, ceil(encoder / tokens_per_column) - held)",
            lambda t: max(0, ceil_div(t["encoder"], t["tokens_per_column"]) - t["held"]),
        ),
        Formula(
            "S3 part of a request",
            "min(known + drafts + placeholders - computed + padding, threshold if set, room, "
            "max_model_len - 1 - computed) - cut",
            _part,
        ),
        Formula("A38 ring", "1 block", lambda t: t["block"]),
        Formula("A38 ring to take", "1 - held", lambda t: max(0, 1 - t["held"])),
        Formula(
            "A13 gate, no cap",
            f"max(0, {_SEQUENCE} - max(dead, held))",
            lambda t: max(0, _sequence(t) - max(t["dead"], t["held"])),
        ),
        Formula(
            "A13 gate, capped",
            f"max(0, min(cap, {_SEQUENCE} - dead) - held)",
            lambda t: max(0, min(t["cap"], _sequence(t) - t["dead"]) - t["held"]),
        ),
        Formula(
            "A47 align gate",
            f"min(max(0, {_SEQUENCE} - held), 1 + checkpoint + (speculative_blocks if first else 0))",
            lambda t: min(
                max(0, _sequence(t) - t["held"]),
                1 + t["checkpoint"] + (t["speculative_blocks"] if t["first"] else 0),
            ),
        ),
    )
}


def formula(name: str) -> Formula:
    """The formula of that name."""
    return FORMULAS[name]
