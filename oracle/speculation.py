"""The speculative methods: how many positions past the target's range a drafter writes, and so what to reserve.

One row a method (scheduling spec, section 3). The reason of the lookahead is a law: the drafter runs in the same step
as the target, before anybody can give it another block, so every position that it writes must have a slot already.
"""

from __future__ import annotations

from attrs import frozen

from oracle.errors import SettingError


@frozen
class Method:
    """One speculative method. `extra` is what the drafter needs beyond its K drafts; None: it writes no KV at all."""

    name: str
    parallel: bool
    extra: int | None
    why: str


METHODS: dict[tuple[str, bool], Method] = {
    (m.name, m.parallel): m
    for m in (
        Method("none", False, None, "no drafter"),
        Method("ngram", False, None, "drafts come from the prompt, no KV is written"),
        Method("draft_model", False, 0, "one unsliced token, then K - 1 single steps"),
        Method("draft_model", True, 0, "PARD: K queries, none reused"),
        Method("eagle", False, 0, "first pass at the target's positions, then K - 1 steps; K reserved"),
        Method("eagle3", False, 0, "as eagle"),
        Method("eagle3", True, 0, "P-EAGLE: K - 1 masked queries after the reused one; K reserved"),
        Method("mtp", False, 0, "as eagle"),
        Method("dflash", False, 1, "a query for the last sampled token and K masked ones"),
        Method("dspark", False, 0, "K queries, the anchor is the first prediction"),
        Method("dspark_fill_in", False, 1, "as dflash"),
    )
}


def method(name: str, parallel: bool) -> Method:
    """The row of the table; SettingError for a method that the release does not have."""
    found = METHODS.get((name, parallel))
    if found is None:
        names = ", ".join(sorted({key[0] for key in METHODS}))
        how = " with parallel drafting" if parallel else ""
        raise SettingError(f"no speculative method {name!r}{how}; known: {names}")
    return found


def lookahead_tokens(name: str, parallel: bool, drafts: int) -> int:
    """`num_lookahead_tokens` (tokens) of a method with `drafts` (K) draft tokens a step."""
    extra = method(name, parallel).extra
    return 0 if extra is None or drafts == 0 else drafts + extra
