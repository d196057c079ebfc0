"""The rules level: the table of speculative methods beside the release's configurations, and every further place.

No trace and no shrinker: the cases are a grid at the boundaries of the rules, walked from the smallest numbers up, so
the first case that shows a difference is the smallest one that does. A party is anything that answers a `Case` with
`Facts`: the release (`harness.targets.config.facts`), an edited table in a test.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from attrs import asdict, define, evolve, field, frozen

from oracle.budget import (
    REFUSAL_RULES,
    REFUSALS,
    Case,
    Facts,
    broken_laws,
    predict,
    reason,
)
from oracle.methods import METHODS, TARGET_PASS, draft_counts
from oracle.trace import Difference

Party = Callable[[Case], Facts]
Place = Callable[[Case], int]

#: what is compared of an accepted case, and the rule that decides it ("": the method's own row)
FACTS = {
    "drafts": "S18",
    "lookahead": "",
    "prefill_lookahead": "D10",
    "hash_lookahead": "D11",
    "charged": "",
    "scheduled": "S1",
    "active": "B5",
    "in_flight": "S30",
    "query_rows": "S21",
    "eagle": "D10",
    "block_drop": "D11",
    "runner": "S23",
    "overlap": "S30",
}

#: the law of progress is one of the scheduler's: every method that drafts meets it the same way
PROGRESS, RESUMED = "progress", "resumed decode"

ALL_DRAFTS = tuple(range(1, 17))

#: a budget as large as real ones, for the crossings that do not depend on it
_ROOMY, _MANY = 2048, 256


@frozen(kw_only=True)
class RuleDifference(Difference):
    """A difference of the rules level; `step` is the number of the case, `case` the case itself in words."""

    case: str
    level: str = "rules"


# ------------------------------------------------------------------------------------------------------ the cases


def budgets(case: Case) -> list[tuple[int, int]]:
    """(T, R) at the borders of a method's rules: the refusal, one request, a pass of its own filled exactly."""
    row, drafts = case.row, case.drafts
    lookahead, own = row.reserved.of(drafts), row.own_rows.of(drafts)
    padded = row.verified_rows(drafts) + row.charged.of(drafts)
    found = {(t, 1) for t in (1, drafts, lookahead, lookahead + 1, padded - 1, padded)}
    for seqs in (2, 7, _MANY):
        found |= {(t, seqs) for t in (seqs - 1, seqs, lookahead, lookahead + 1)}
        found |= {(max(own, 2) * seqs + more, seqs) for more in (-1, 0, 1)}
    found.add((_ROOMY, _MANY))
    return sorted((t, seqs) for t, seqs in found if t > 0)


def cases(drafts: Sequence[int] = ALL_DRAFTS) -> Iterator[Case]:
    """Every case of the grid, small numbers first."""
    for count in (0, *drafts):
        for name, parallel in METHODS:
            if (count == 0) != (name == "none"):
                continue
            yield from _cases_of(Case(method=name, parallel=parallel, drafts=count, budget=_ROOMY, seqs=_MANY))


def _cases_of(base: Case) -> Iterator[Case]:
    both = (False, True)
    for budget, seqs in budgets(base):
        yield evolve(base, budget=budget, seqs=seqs)
    for overlap, caching, connector, drop, hashing in product(both, repeat=5):
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
    for active in sorted({1, fits - 1, fits, fits + 1, _MANY, _MANY + 1}):
        if active > 0:
            yield evolve(base, active=active)
    for scheduled in sorted({1, base.drafts + 1, base.budget, base.budget + 1}):
        yield evolve(base, scheduled=scheduled)


# ---------------------------------------------------------------------------------------------------- the compare


def _sign(ours: object, theirs: object) -> str:
    if isinstance(ours, bool) or not isinstance(ours, int) or not isinstance(theirs, int):
        return "other"
    return "more" if theirs > ours else "less"


def _tags(case: Case) -> tuple[str, ...]:
    """The switches that matter for the fingerprint of a case: those that are not as a default has them."""
    found = [word for word in ("overlap", "connector", "drop_disabled", "hash_disabled") if getattr(case, word)]
    if case.scheduled is not None:
        found.append("G given")
    if case.active is not None:
        found.append("A given")
    return tuple(found if case.caching else [*found, "no caching"])


def differences(case: Case, expected: Facts, observed: Facts, step: int = 0) -> list[RuleDifference]:
    """Every fact in which two parties differ on a case, each with its formula and the term that would explain it."""
    base = {"step": step, "group": None, "kind": case.row.title, "case": str(case)}
    if expected.refused != observed.refused:
        sign = "refused" if observed.refused and not expected.refused else "other" if observed.refused else "accepted"
        return [
            RuleDifference(
                aspect="refusal",
                rule=REFUSAL_RULES.get(expected.refused or observed.refused, "S11"),
                sign=sign,
                expected=expected.refused or "accepted",
                observed=observed.refused or "accepted",
                **base,  # type: ignore[arg-type]
            )
        ]
    if expected.refused:
        return []
    found = []
    theirs = asdict(observed)
    for name, ours in asdict(expected).items():
        if name == "refused" or ours == theirs[name]:
            continue
        rule = FACTS[name] or (case.row.budget_rule if name == "charged" else case.row.rule)
        why = reason(name, case)
        lines = [] if why is None else [str(why)]
        if why is not None and isinstance(theirs[name], int):
            lines += why.blame(theirs[name])
        found.append(
            RuleDifference(
                aspect=name,
                rule=rule,
                sign=_sign(ours, theirs[name]),
                expected=str(ours),
                observed=str(theirs[name]),
                detail="\n".join(lines),
                **base,  # type: ignore[arg-type]
            )
        )
    return found


def law_differences(case: Case, observed: Facts, step: int = 0) -> list[RuleDifference]:
    """The laws that the facts of one party break, whatever the other says."""
    return [
        RuleDifference(
            aspect="law",
            step=step,
            group=None,
            kind=RESUMED if rule == PROGRESS else case.row.title,
            rule=rule,
            sign="broken",
            expected="holds",
            observed=said,
            case=str(case),
            tags=("G given",) if rule == PROGRESS and case.scheduled is not None else (),
        )
        for rule, said in broken_laws(case, observed)
    ]


# --------------------------------------------------------------------------------------------- the further places


@frozen
class Kept:
    """A fact that is kept once more. `expected`: of the table; `least`: the place may hold more than that, not less."""

    name: str
    rule: str
    expected: Callable[[Case], int]
    methods: Callable[[Case], bool]
    least: bool = False


def _v2(*names: str) -> Callable[[Case], bool]:
    return lambda case: case.method in names and not case.parallel


def _v1_drafter(case: Case) -> bool:
    return case.method in ("eagle", "eagle3", "mtp", "mtp_modules", "draft_model", "dflash")


def _drafter(case: Case) -> bool:
    return case.method not in ("none", "diffusion")


def _own(case: Case) -> int:
    return case.row.own_rows.of(case.drafts)


def _running(case: Case) -> int:
    """Requests of the largest batch that 0.33.0 schedules for this case."""
    facts = predict(case)
    most = case.seqs if facts.active is None else facts.active
    return min(most, case.budget // (1 + facts.charged))


def _pass_rows(case: Case) -> int:
    """Rows of the widest pass: all of T that is left after the charge, with the rows added; or the drafter's own."""
    running = _running(case)
    added = case.row.added_rows.of(case.drafts)
    charge = case.row.charged.of(case.drafts)
    return max(case.budget + (added - charge) * running, _own(case) * running)


KEPT: tuple[Kept, ...] = (
    # drafts that would pass max_model_len cannot be verified: a drafter without KV stops K tokens before it
    Kept(
        "v1_room",
        "D-L2",
        lambda case: max(case.row.reserved.of(case.drafts), case.drafts),
        lambda case: _drafter(case) and not case.method.startswith("dspark"),
    ),
    Kept(
        "backend_query_rows",
        "S21",
        lambda case: case.row.verified_rows(case.drafts) + case.row.added_rows.of(case.drafts) * case.row.parallel,
        _drafter,
        least=True,
    ),
    Kept("mamba_blocks", "A41", lambda case: case.drafts, lambda case: True),
    Kept("retained", "D10", lambda case: case.row.rewritten.of(case.drafts), _drafter),
    Kept("nixl_back_off", "D10", lambda case: case.row.rewritten.of(case.drafts), _drafter),
    Kept(
        "v2_rewritten",
        "D10",
        lambda case: case.row.rewritten.of(case.drafts),
        lambda c: _v2("mtp_modules")(c) and c.drafts > 1,
    ),
    Kept("v2_own_rows", "B5", _own, _v2("dflash", "dspark", "dspark_fill_in")),
    Kept("v2_pass_rows", "B-L1", _pass_rows, _v2("dflash", "dspark", "dspark_fill_in"), least=True),
    Kept("v2_added_rows", "B3", lambda case: case.row.added_rows.of(case.drafts), _v2("draft_model")),
    Kept("v2_expanded_rows", "B-L1", _pass_rows, _v2("draft_model"), least=True),
    Kept("v1_added_rows", "B2", lambda case: case.row.added_rows.of(case.drafts), _v1_drafter),
    Kept("v1_pass_rows", "B-L1", _pass_rows, _v1_drafter, least=True),
    Kept("warmup_blocks", "W1", lambda case: 1 + case.row.reserved.of(case.drafts), lambda case: True),
    Kept(
        "dspark_index_width",
        "D7",
        lambda case: 64 - case.drafts % 64 + _own(case),
        _v2("dspark"),
        least=True,
    ),
)


def kept_cases(drafts: Sequence[int] = ALL_DRAFTS) -> Iterator[Case]:
    """Accepted cases for the further places: each method and K, with the budget that filled a draft pass once."""
    for count in (0, *drafts):
        for name, parallel in METHODS:
            if (count == 0) == (name == "none"):
                case = Case(method=name, parallel=parallel, drafts=count, budget=_ROOMY, seqs=_MANY)
                if not predict(case).refused:
                    yield case


def kept_differences(
    places: dict[str, Place], drafts: Sequence[int] = ALL_DRAFTS, reach: Counter[str] | None = None
) -> list[RuleDifference]:
    """Where a further place differs from the table: the first case of each fingerprint."""
    counts: Counter[str] = Counter() if reach is None else reach
    found: dict[str, RuleDifference] = {}
    for step, case in enumerate(kept_cases(drafts)):
        for kept in KEPT:
            if not kept.methods(case):
                continue
            counts[f"place {kept.name}"] += 1
            ours = kept.expected(case)
            try:
                theirs: int | str = places[kept.name](case)
            except Exception as error:
                theirs = f"error:{type(error).__name__}"
            if theirs == ours or (kept.least and isinstance(theirs, int) and theirs > ours):
                continue
            difference = RuleDifference(
                aspect=kept.name,
                step=step,
                group=None,
                kind=case.row.title,
                rule=kept.rule,
                sign=theirs if isinstance(theirs, str) else _sign(ours, theirs),
                expected=f"at least {ours}" if kept.least else str(ours),
                observed=str(theirs),
                case=str(case),
            )
            found.setdefault(difference.fingerprint, difference)
    return list(found.values())


#: dynamic draft counts: one range, a gap, ranges that end early, counts above K
COUNTS: tuple[tuple[tuple[int, int, int], ...], ...] = (
    ((1, 4, 3),),
    ((1, 2, 3), (5, 6, 1)),
    ((1, 1, 16), (2, 4, 2), (5, 64, 0)),
    ((1, 300, 4),),
)


def count_differences(lookup: Callable[..., tuple[int, ...]]) -> list[RuleDifference]:
    """Dynamic draft counts beside the release's lookup."""
    found = []
    for step, (ranges, drafts, seqs) in enumerate(product(COUNTS, (1, 3, 16), (1, 2, 5, 7, 64))):
        ours, theirs = draft_counts(ranges, drafts, seqs), lookup(ranges, drafts, seqs)
        if ours != theirs:
            found.append(
                RuleDifference(
                    aspect="draft_counts",
                    step=step,
                    group=None,
                    kind="draft counts",
                    rule="S24",
                    sign="other",
                    expected=str(ours),
                    observed=str(theirs),
                    case=f"{ranges} K={drafts} R={seqs}",
                )
            )
    return found


# -------------------------------------------------------------------------------------------------------- the run

MINIMA: dict[str, int] = {
    **{f"method {row.title}": 5 for row in METHODS.values()},
    **{f"refused {why}": 5 for why in REFUSALS},
    "T = lookahead": 5,
    "T = lookahead + 1": 5,
    "active clamped": 5,
    "active kept": 5,
    "own pass filled exactly": 5,
    "hash lookahead": 5,
    "hash lookahead of several modules": 5,
    "hash off by connector": 5,
    "hash off by caching": 5,
    "hash off by switch": 5,
    "drop off by switch": 5,
    "overlap on V1": 5,
    "overlap on V2": 5,
    "rows added and charged": 5,
}


def meet(case: Case, expected: Facts, reach: Counter[str]) -> None:
    """Count the crossings of one case."""
    row = case.row
    reach[f"method {row.title}"] += 1
    lookahead = row.reserved.of(case.drafts)
    if lookahead:
        reach["T = lookahead"] += case.budget == lookahead
        reach["T = lookahead + 1"] += case.budget == lookahead + 1
    if expected.refused:
        reach[f"refused {expected.refused}"] += 1
        return
    own = _own(case)
    if own:
        reach["active clamped"] += expected.active != case.active
        reach["active kept"] += expected.active == case.active
        reach["own pass filled exactly"] += own * (expected.active or case.seqs) == case.budget
    if row.block_drop:
        reach["hash lookahead"] += expected.hash_lookahead == 1
        reach["hash lookahead of several modules"] += expected.hash_lookahead > 1
        reach["hash off by connector"] += case.connector and case.caching
        reach["hash off by caching"] += not case.caching
        reach["hash off by switch"] += case.hash_disabled
        reach["drop off by switch"] += case.drop_disabled
    if case.overlap:
        reach[f"overlap on {expected.runner}"] += 1
    if row.rows_in == TARGET_PASS and expected.charged:
        reach["rows added and charged"] += 1


@define
class RulesResult:
    """What came of a run: cases, seconds, one difference a fingerprint (its smallest case) and how often it was met."""

    cases: int = 0
    seconds: float = 0.0
    found: dict[str, RuleDifference] = field(factory=dict)
    counts: Counter[str] = field(factory=Counter)
    reach: Counter[str] = field(factory=Counter)

    @property
    def missed(self) -> list[str]:
        """Reach counters below their minimum."""
        return [name for name, least in MINIMA.items() if self.reach[name] < least]

    def add(self, several: Iterable[RuleDifference]) -> None:
        """Keep the first difference of each fingerprint, count the rest."""
        for difference in several:
            self.found.setdefault(difference.fingerprint, difference)
            self.counts[difference.fingerprint] += 1


def run(
    party: Party,
    places: dict[str, Place] | None = None,
    lookup: Callable[..., tuple[int, ...]] | None = None,
    *,
    drafts: Sequence[int] = ALL_DRAFTS,
    seconds: float | None = None,
) -> RulesResult:
    """Compare the table with a party on the grid, and with the further places. `seconds`: end the grid's walk then."""
    result = RulesResult()
    began = time.monotonic()
    for step, case in enumerate(cases(drafts)):
        if seconds is not None and time.monotonic() - began > seconds:
            break
        expected, observed = predict(case), party(case)
        meet(case, expected, result.reach)
        result.cases += 1
        result.add(differences(case, expected, observed, step))
        result.add(law_differences(case, observed, step))
    if places is not None:
        result.add(kept_differences(places, drafts, result.reach))
    if lookup is not None:
        result.add(count_differences(lookup))
    result.seconds = time.monotonic() - began
    return result


def run_release(*, drafts: Sequence[int] = ALL_DRAFTS, seconds: float | None = None) -> RulesResult:
    """The same with the installed release."""
    from harness.targets import config, kept

    return run(config.facts, kept.PLACES, kept.draft_counts, drafts=drafts, seconds=seconds)


def table(result: RulesResult) -> str:
    """The differences as text: case, fact, expected, observed, formula and term."""
    lines = [f"{result.cases} cases in {result.seconds:.1f} s, {len(result.found)} distinct difference(s)"]
    for name, difference in sorted(result.found.items()):
        lines.append(f"\n{name}  (met {result.counts[name]} times)")
        lines.append(f"  smallest case  {difference.case}")
        lines.append(f"  expected {difference.expected}, observed {difference.observed}")
        lines += [f"  {line}" for line in difference.detail.splitlines()]
    return "\n".join(lines)
