"""The grid of the rules level: every method and K at the borders of its rules, small numbers first.

No generator and no shrinker: the first case that shows a difference is the smallest one that does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from attrs import evolve

from oracle.budget import LONGEST, Case, DraftCounts, predict
from oracle.released import rows_of
from oracle.releases import NEWEST, choices_of

ALL_DRAFTS = tuple(range(1, 17))

#: a budget as large as real ones, for the crossings that do not depend on it
ROOMY, MANY = 2048, 256


def budgets(case: Case) -> list[tuple[int, int]]:
    """(T, R) at the borders of a method's rules: the refusal, one request, a pass of its own filled exactly."""
    row, drafts = case.row, case.drafts
    lookahead, own = row.reserved.of(drafts), row.own_rows.of(drafts)
    padded = row.verified_rows(drafts) + row.charged.of(drafts)
    found = {(t, 1) for t in (1, drafts, lookahead, lookahead + 1, padded - 1, padded)}
    for seqs in (2, 7, MANY):
        found |= {(t, seqs) for t in (seqs - 1, seqs, lookahead, lookahead + 1)}
        found |= {(max(own, 2) * seqs + more, seqs) for more in (-1, 0, 1)}
    found.add((ROOMY, MANY))
    return sorted((t, seqs) for t, seqs in found if t > 0)


def methods_at(release: str) -> list[tuple[str, bool]]:
    """The methods of the grid, of a release: those that it has and that a configuration can be built for."""
    return [key for key in rows_of(release) if key[0] != "mtp_constant" or choices_of(release).constant_models]


def cases(drafts: Sequence[int] = ALL_DRAFTS, release: str = NEWEST) -> Iterator[Case]:
    """Every case of the grid, small numbers first."""
    for count in (0, *drafts):
        for name, parallel in methods_at(release):
            if (count == 0) != (name == "none"):
                continue
            yield from _cases_of(
                Case(method=name, parallel=parallel, drafts=count, budget=ROOMY, seqs=MANY, release=release)
            )


def _cases_of(base: Case) -> Iterator[Case]:
    both, choices = (False, True), choices_of(base.release)
    drops, hashes = both[: 1 + choices.drop_option], both[: 1 + choices.hash_lookahead]
    for budget, seqs in budgets(base):
        yield evolve(base, budget=budget, seqs=seqs)
    for overlap, caching, connector, drop, hashing in product(both, both, both, drops, hashes):
        yield evolve(
            base,
            overlap=overlap,
            caching=not caching,
            connector=connector,
            drop_disabled=drop,
            hash_disabled=hashing,
        )
    own = max(base.row.own_rows.of(base.drafts), 1)
    fits = base.budget // own
    for active in sorted({1, fits - 1, fits, fits + 1, MANY, MANY + 1}) if choices.active_option else ():
        if active > 0:
            yield evolve(base, active=active)
    lengths = {LONGEST, LONGEST + 1} if base.drafts < 2 else set()
    for threshold in sorted({1, max(1, base.drafts), base.drafts + 1} | lengths):
        yield evolve(base, threshold=threshold)
    for scheduled in sorted({1, base.drafts + 1, base.budget, base.budget + 1}):
        yield evolve(base, scheduled=scheduled)


def kept_cases(drafts: Sequence[int] = ALL_DRAFTS, release: str = NEWEST) -> Iterator[Case]:
    """Accepted cases for the further places: each method and K, with the budget that filled a draft pass once."""
    for count in (0, *drafts):
        for name, parallel in methods_at(release):
            if (count == 0) == (name == "none"):
                case = Case(method=name, parallel=parallel, drafts=count, budget=ROOMY, seqs=MANY, release=release)
                if not predict(case).refused:
                    yield case


#: dynamic draft counts: one range, a gap, ranges that end early, counts above K
RANGES: tuple[tuple[tuple[int, int, int], ...], ...] = (
    ((1, 4, 3),),
    ((1, 2, 3), (5, 6, 1)),
    ((1, 1, 16), (2, 4, 2), (5, 64, 0)),
    ((1, 300, 4),),
)


def count_cases() -> Iterator[DraftCounts]:
    """Dynamic draft counts at the ends of their ranges."""
    for ranges, drafts, seqs in product(RANGES, (1, 3, 16), (1, 2, 5, 7, 64)):
        yield DraftCounts(ranges=ranges, drafts=drafts, seqs=seqs)
