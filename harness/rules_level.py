"""The rules level: the table of speculative methods beside the release's configurations, and every further place.

A party is anything that answers a `Case` with `Facts`: the release (`harness.targets.config.facts`), an edited table in
a test.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from attrs import asdict, define, evolve, field, frozen

from harness.rules_grid import ALL_DRAFTS, cases, count_cases, kept_cases
from harness.rules_places import KEPT
from harness.rules_reach import meet, minima_of
from oracle.budget import REFUSAL_RULES, Case, DraftCounts, Facts, broken_laws, predict, reason, said
from oracle.methods import draft_counts
from oracle.released import words_of
from oracle.releases import NEWEST, choices_of, rules_for
from oracle.trace import Difference

Party = Callable[[Case], Facts]
Place = Callable[[Case], int]
Lookup = Callable[[DraftCounts], tuple[int, ...]]

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

#: laws of the scheduler's: every method that drafts meets them the same way
OF_RESUMED, RESUMED = ("progress", "padding"), "resumed decode"


@frozen(kw_only=True)
class RuleDifference(Difference):
    """A difference of the rules level; `step` is the number of the case, `case` the case itself, if it has one."""

    case: Case | DraftCounts | None
    level: str = "rules"


@frozen
class Release:
    """What a release, or a table that stands for one, is asked: facts, further places, draft counts, method words.

    rules: the release whose rules hold.
    """

    facts: Party
    places: dict[str, Place] = field(factory=dict)
    draft_counts: Lookup | None = None
    words: Collection[str] | None = None
    rules: str = NEWEST


def _sign(ours: object, theirs: object) -> str:
    if isinstance(ours, bool) or not isinstance(ours, int) or not isinstance(theirs, int):
        return "other"
    return "more" if theirs > ours else "less"


def rule_of(fact: str, case: Case) -> str:
    """The rule that decides a fact of a case."""
    return FACTS[fact] or (case.row.budget_rule if fact == "charged" else case.row.rule)


def differences(case: Case, expected: Facts, observed: Facts, step: int = 0) -> list[RuleDifference]:
    """Every fact in which two parties differ on a case, each with its formula and the term that would explain it."""
    base = {"step": step, "group": None, "kind": case.row.title, "case": case}
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
        why = reason(name, case)
        lines = [] if why is None else [str(why)]
        if why is not None and isinstance(theirs[name], int):
            lines += why.blame(theirs[name])
        found.append(
            RuleDifference(
                aspect=name,
                rule=rule_of(name, case),
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
            kind=RESUMED if rule in OF_RESUMED else case.row.title,
            rule=rule,
            sign="broken",
            expected="holds",
            observed=said,
            case=case,
            tags=("G given",) if rule in OF_RESUMED and case.scheduled is not None else (),
        )
        for rule, said in broken_laws(case, observed)
    ]


def place_differences(case: Case, places: dict[str, Place], reach: Counter[str], step: int = 0) -> list[RuleDifference]:
    """Where a further place differs from the table on an accepted case."""
    found = []
    for kept in KEPT:
        if kept.name not in places or not kept.exists(case.release) or not kept.methods(case):
            continue
        reach[f"place {kept.name}"] += 1
        ours = kept.expected(case)
        try:
            theirs: int | str = places[kept.name](case)
        except Exception as error:
            theirs = f"error:{type(error).__name__}"
        if theirs == ours or (kept.least and isinstance(theirs, int) and theirs > ours):
            continue
        found.append(
            RuleDifference(
                aspect=kept.name,
                step=step,
                group=None,
                kind=case.row.title,
                rule=kept.rule,
                sign=theirs if isinstance(theirs, str) else _sign(ours, theirs),
                expected=f"at least {ours}" if kept.least else str(ours),
                observed=str(theirs),
                case=case,
            )
        )
    return found


def count_differences(counts: DraftCounts, lookup: Lookup, step: int = 0) -> list[RuleDifference]:
    """Dynamic draft counts beside the release's lookup."""
    ours, theirs = draft_counts(counts.ranges, counts.drafts, counts.seqs), lookup(counts)
    if ours == theirs:
        return []
    return [
        RuleDifference(
            aspect="draft_counts",
            step=step,
            group=None,
            kind="draft counts",
            rule="S24",
            sign="other",
            expected=str(ours),
            observed=str(theirs),
            case=counts,
        )
    ]


def word_differences(accepted: Collection[str], release: str = NEWEST) -> list[RuleDifference]:
    """Words for a method that the release takes and the table lacks, or the other way round."""
    known = words_of(release)
    return [
        RuleDifference(
            aspect="methods",
            step=-1,
            group=None,
            kind=word,
            rule="D9",
            sign="more" if word in accepted else "less",
            expected="a known method" if word in known else "no such method",
            observed="accepted" if word in accepted else "not accepted",
            case=None,
        )
        for word in sorted(known.symmetric_difference(accepted))
    ]


def compare(
    question: Case | DraftCounts, release: Release, reach: Counter[str] | None = None, step: int = 0
) -> list[RuleDifference]:
    """Everything that one question can show: facts, laws and further places, or draft counts."""
    reach = Counter() if reach is None else reach
    if isinstance(question, DraftCounts):
        return [] if release.draft_counts is None else count_differences(question, release.draft_counts, step)
    question = evolve(question, release=release.rules)
    found = _compare_facts(question, release, reach, step)
    if not predict(question).refused:
        found += [one for one in _compare_places(question, release, reach, step) if one not in found]
    return found


def _compare_facts(case: Case, release: Release, reach: Counter[str], step: int) -> list[RuleDifference]:
    expected, observed = said(case), release.facts(case)
    meet(case, expected, reach)
    return [*differences(case, expected, observed, step), *law_differences(case, observed, step)]


def _compare_places(case: Case, release: Release, reach: Counter[str], step: int) -> list[RuleDifference]:
    """The further places of an accepted case; one refusal where the release builds no such configuration to ask."""
    found = place_differences(case, release.places, reach, step)
    if any(one.sign.startswith("error:") for one in found):
        refusals = [one for one in differences(case, said(case), release.facts(case), step) if one.aspect == "refusal"]
        return refusals or found
    return found


@define
class RulesResult:
    """What came of a walk: cases, seconds, one difference a fingerprint (its smallest case), how often it was met.

    whole: the walk came to the end of the grid.
    """

    cases: int = 0
    seconds: float = 0.0
    whole: bool = True
    found: dict[str, RuleDifference] = field(factory=dict)
    counts: Counter[str] = field(factory=Counter)
    reach: Counter[str] = field(factory=Counter)
    rules: str = NEWEST
    """The release whose rules held."""

    @property
    def missed(self) -> list[str]:
        """Reach counters below their minimum."""
        return [name for name, least in minima_of(self.rules).items() if self.reach[name] < least]

    def add(self, several: Iterable[RuleDifference]) -> None:
        """Keep the first difference of each fingerprint, count the rest."""
        for difference in several:
            self.found.setdefault(difference.fingerprint, difference)
            self.counts[difference.fingerprint] += 1


def walk(release: Release, drafts: Sequence[int], reach: Counter[str]) -> Iterator[list[RuleDifference]]:
    """The differences of each case: the grid, then the further places, draft counts and words."""
    step = 0
    for step, case in enumerate(cases(drafts, release.rules)):
        yield _compare_facts(case, release, reach, step)
    for case in kept_cases(drafts, release.rules):
        step += 1
        yield _compare_places(case, release, reach, step)
    for counts in count_cases() if release.draft_counts is not None else ():
        step += 1
        reach["draft counts"] += 1
        yield compare(counts, release, reach, step)
    if release.words is not None:
        yield word_differences(release.words, release.rules)


def run(
    release: Release, *, drafts: Sequence[int] = ALL_DRAFTS, seconds: float | None = None, most: int | None = None
) -> RulesResult:
    """Compare the table with a release. `seconds`, `most` (cases): end the walk there."""
    result = RulesResult(rules=release.rules)
    began = time.monotonic()
    for several in walk(release, drafts, result.reach):
        result.cases += 1
        result.add(several)
        spent = time.monotonic() - began
        if (seconds is not None and spent > seconds) or (most is not None and result.cases >= most):
            result.whole = False
            break
    result.seconds = time.monotonic() - began
    return result


def installed() -> Release:
    """The installed release."""
    from harness.targets import compat, config, kept

    config.import_config()
    rules = rules_for(compat.installed_release())
    counts = kept.draft_counts if choices_of(rules).draft_counts else None
    return Release(config.facts, kept.PLACES, counts, kept.method_words(), rules)
