"""What a configuration with a drafter comes to: lookahead, budgets, limits, or a refusal (rules B, D10, D11, S1, S17).

T: max_num_batched_tokens, rows of a pass. R: max_num_seqs. G: max_num_scheduled_tokens, tokens of a step. A:
max_num_active_seqs, requests that may run. A `Case` asks, `predict` answers with `Facts`; the laws at the end use no
prediction of the release's. Each case is one of a release, whose rules hold for it.
"""

from __future__ import annotations

from attrs import evolve, field, frozen
from packaging.version import InvalidVersion

from oracle.breakdown import Breakdown, Formula
from oracle.errors import SettingError
from oracle.groups import FEW, at_least, one_of, optional
from oracle.methods import Count, Method, draft_counts
from oracle.released import row_of
from oracle.releases import NEWEST, Choices, choices_of

#: refusals, in the order in which the configurations are built
MODULES, SEQS, ACTIVE, THRESHOLD, OVERLAP, BUDGET = "modules", "seqs", "active", "threshold", "overlap", "budget"
REFUSALS = (MODULES, SEQS, ACTIVE, THRESHOLD, OVERLAP, BUDGET)

#: which rule decides a refusal
REFUSAL_RULES = {MODULES: "S11", SEQS: "S8", ACTIVE: "S8", THRESHOLD: "S4", OVERLAP: "S30", BUDGET: "B6"}

#: max_model_len (tokens) of every case
LONGEST = 256


def _a_release(instance: object, attribute: object, value: object) -> None:
    try:
        choices_of(str(value))
    except InvalidVersion:
        raise SettingError(f"release must be a number like {NEWEST}, got {value!r}") from None


@frozen(kw_only=True)
class Case:
    """One configuration. method, parallel: a row of the table; drafts: K; scheduled: G; active: A (None: not given).

    threshold: most tokens of one request in a step while there are others (`long_prefill_token_threshold`; None: off).

    drop_disabled, hash_disabled: the two switches of the EAGLE block drop and of lookahead hashes.

    release: the vLLM release whose rules hold.
    """

    method: str
    parallel: bool = False
    drafts: int = field(default=0, validator=at_least(0, FEW))
    budget: int = field(default=512, validator=at_least(1))
    seqs: int = field(default=16, validator=at_least(1))
    scheduled: int | None = field(default=None, validator=optional(1))
    active: int | None = field(default=None, validator=optional(1))
    threshold: int | None = field(default=None, validator=optional(1))
    overlap: bool = field(default=False, validator=one_of(False, True))
    caching: bool = field(default=True, validator=one_of(False, True))
    connector: bool = field(default=False, validator=one_of(False, True))
    drop_disabled: bool = field(default=False, validator=one_of(False, True))
    hash_disabled: bool = field(default=False, validator=one_of(False, True))
    release: str = field(default=NEWEST, validator=_a_release)

    def __attrs_post_init__(self) -> None:
        if (self.drafts == 0) != (self.method == "none"):
            raise SettingError(
                f"drafts must be 0 for method 'none' and at least 1 else, got {self.drafts}, {self.method!r}"
            )
        _ = self.row

    @property
    def row(self) -> Method:
        """The method's row of the table, as the release has it."""
        return row_of(self.method, self.parallel, self.release)

    @property
    def choices(self) -> Choices:
        """What the release chose."""
        return choices_of(self.release)

    def _given(self) -> tuple[tuple[str, int | None], ...]:
        return (("G", self.scheduled), ("A", self.active), ("threshold", self.threshold))

    def __str__(self) -> str:
        flags = [word for word in ("overlap", "connector", "drop_disabled", "hash_disabled") if getattr(self, word)]
        given = [f"{n}={v}" for n, v in self._given() if v is not None]
        rest = [*given, *flags, *([] if self.caching else ["no caching"])]
        return " ".join([f"{self.row.title} K={self.drafts} T={self.budget} R={self.seqs}", *rest])


@frozen(kw_only=True)
class DraftCounts:
    """A question about dynamic draft counts: K of the next drafts for 1 .. `seqs` scheduled requests (S24).

    ranges: (first, last, K), inclusive.
    """

    ranges: tuple[tuple[int, int, int], ...]
    drafts: int = field(validator=at_least(1, FEW))
    seqs: int = field(validator=at_least(1))

    def __attrs_post_init__(self) -> None:
        draft_counts(self.ranges, self.drafts, self.seqs)  # refuses ranges that are none

    def __str__(self) -> str:
        ranges = ", ".join(f"{first}-{last}: {count}" for first, last, count in self.ranges)
        return f"draft counts {ranges} K={self.drafts} R={self.seqs}"


@frozen(kw_only=True)
class RuleTrace:
    """What a file of the rules level holds: one case, or one question about draft counts."""

    case: Case | None = None
    draft_counts: DraftCounts | None = None
    level: str = "rules"

    def __attrs_post_init__(self) -> None:
        if (self.case is None) == (self.draft_counts is None):
            raise SettingError("a file of the rules level has either a case or draft_counts")

    @property
    def question(self) -> Case | DraftCounts:
        """The one that is there."""
        found = self.case or self.draft_counts
        assert found is not None
        return found


@frozen(kw_only=True)
class Facts:
    """What the release says of a case, or what it should. Of a refused case only `refused` counts.

    prefill_lookahead, in_flight 0: the release may keep no such number.
    """

    refused: str = ""
    drafts: int = 0
    lookahead: int = 0
    prefill_lookahead: int = 0
    hash_lookahead: int = 0
    charged: int = 0
    scheduled: int | None = None
    active: int | None = None
    in_flight: int = 0
    query_rows: int = 1
    eagle: bool = False
    block_drop: bool = False
    runner: str = "V2"
    overlap: bool = False


def refusal(case: Case) -> str:
    """Why a configuration is refused; empty when it is accepted.

    S11: draft tokens beyond the modules must be whole turns of them. S8: T rows must do for R requests of one token; no
    more may be active than there can be. S4: no part is longer than the longest request. S30: overlap needs
    placeholders, which the drafter must be able to fill on the worker. B6: T must exceed what one request needs beside
    its token; where slots are charged up front, it must hold them for R requests beside what is scheduled.
    """
    row = case.row
    if case.drafts > row.modules and case.drafts % row.modules:
        return MODULES
    if case.budget < case.seqs:
        return SEQS
    if case.active is not None and case.active > case.seqs:
        return ACTIVE
    if case.choices.threshold_bounded and case.threshold is not None and case.threshold > LONGEST:
        return THRESHOLD
    if case.overlap and not row.overlaps:
        return OVERLAP
    if case.drafts and row.name != "diffusion" and _lacks_room(case):
        return BUDGET
    return ""


def _lacks_room(case: Case) -> bool:
    slots, scheduled = case.row.charged.of(case.drafts), case.scheduled
    if case.choices.charged_up_front:
        return case.budget < slots * case.seqs + (1 if scheduled is None else scheduled)
    return case.budget <= (case.row.reserved.of(case.drafts) if case.choices.refused_by_lookahead else slots)


def scheduled_limit(case: Case) -> int:
    """G (tokens): the most that a step schedules where it is not given: T, less what is charged up front (S1)."""
    taken = case.row.charged.of(case.drafts) * case.seqs if case.choices.charged_up_front else 0
    return case.budget - taken


def active_limit(case: Case) -> int | None:
    """A (requests): a draft pass of its own has T rows for all requests; no more may be active than fit (B5, S17)."""
    rows = case.row.own_rows.of(case.drafts)
    if not rows or not case.choices.own_pass_limited:
        return case.active
    wanted = case.seqs if case.active is None else case.active
    fit = case.budget // rows
    return fit if fit < wanted else case.active


def depth(case: Case) -> int:
    """Steps scheduled whose output may be outstanding: two with overlap, without pipeline stages (S30)."""
    return 2 if case.overlap else 1


def predict(case: Case, release: str | None = None) -> Facts:
    """What the rules say of a case; `release`: those of another one."""
    if release is not None:
        case = evolve(case, release=release)
    why = refusal(case)
    if why:
        return Facts(refused=why)
    row, drafts = case.row, case.drafts
    ahead = row.prefill_lookahead.of(drafts)
    drafter = drafts > 0 and row.name != "diffusion"
    return Facts(
        drafts=drafts,
        lookahead=row.reserved.of(drafts),
        prefill_lookahead=ahead,
        hash_lookahead=ahead if _hashes_ahead(case) else 0,
        charged=row.charged.of(drafts),
        scheduled=scheduled_limit(case) if drafter and case.scheduled is None else case.scheduled,
        active=active_limit(case),
        in_flight=depth(case) * case.budget,
        query_rows=row.verified_rows(drafts),
        eagle=row.eagle,
        block_drop=_drops(case),
        runner=row.runner,
        overlap=case.overlap,
    )


def said(case: Case) -> Facts:
    """The same, without the numbers that the release does not keep."""
    facts, choices = predict(case), case.choices
    ahead = facts.prefill_lookahead if choices.modules_read_ahead else 0
    return evolve(facts, prefill_lookahead=ahead, in_flight=facts.in_flight if choices.in_flight else 0)


def reason(fact: str, case: Case) -> Breakdown | None:
    """The formula of a fact with the terms of this case; None where it is no formula."""
    row, drafts = case.row, case.drafts
    counts: dict[str, tuple[str, Count]] = {
        "lookahead": (f"{row.rule} lookahead", row.reserved),
        "prefill_lookahead": ("D10 prefill lookahead", row.prefill_lookahead),
        "hash_lookahead": ("D11 hash lookahead", row.prefill_lookahead),
        "charged": (f"{row.budget_rule} charged", row.charged),
    }
    if fact in counts:
        name, count = counts[fact]
        return count.because(name, drafts)
    if fact == "active" and row.own_rows.of(drafts):
        wanted = case.seqs if case.active is None else case.active
        return _ACTIVE.of(wanted=wanted, budget=case.budget, rows=row.own_rows.of(drafts))
    if fact == "in_flight":
        return _IN_FLIGHT.of(steps=depth(case), budget=case.budget)
    if fact == "query_rows":
        return _QUERY_ROWS.of(sampled=row.sampled, drafts=drafts)
    return None


_ACTIVE = Formula(
    "B5 active requests",
    "min(wanted, budget // rows)",
    lambda t: min(t["wanted"], t["budget"] // t["rows"]) if t["rows"] else t["wanted"],
)
_IN_FLIGHT = Formula("S30 tokens in flight", "steps * budget", lambda t: t["steps"] * t["budget"])
_QUERY_ROWS = Formula("S21 query rows", "sampled + drafts", lambda t: t["sampled"] + t["drafts"])


# ------------------------------------------------------------------------------------------------------ the laws


def stuck(case: Case, charged: int) -> int:
    """Law of progress: rows that an accepted budget lacks for the least that must be schedulable (must be 0).

    One token of one request beside its charge; and, where a resumed decode is padded to one query length (S21), all of
    its 1 + K rows: a newcomer that does not fit is not cut, it is not admitted. Alone, a newcomer has one token left
    only after a hit or a load. `charged`: what is really charged.
    """
    least = case.row.verified_rows(case.drafts) if _pads(case) and case.choices.pads_alone else 1
    room = case.budget - charged * (case.seqs if case.choices.charged_up_front else 1)
    if case.scheduled is not None:
        room = min(room, case.scheduled)
    return max(0, least - room)


def _pads(case: Case) -> bool:
    """Whether a newcomer can come with one token left, which is then padded (S21).

    A hit that gives up its last block leaves more than one token; a load does not.
    """
    whole = case.caching and not (_drops(case) and not _hashes_ahead(case))
    return case.choices.pads and case.row.pads and (whole or case.connector)


def _drops(case: Case) -> bool:
    """Whether the EAGLE block drop applies, unless hashes look ahead (D11)."""
    return case.row.block_drop and not case.drop_disabled


def _hashes_ahead(case: Case) -> bool:
    """Whether a block's hash covers the tokens behind it, instead of the drop (D11)."""
    allowed = case.caching and not case.connector and not case.hash_disabled
    return case.choices.hash_lookahead and _drops(case) and allowed


def cut_padding(case: Case, charged: int) -> int:
    """Law of padding: rows that the long-prefill cap takes off a padded decode (must be 0).

    All requests of a decode batch have one query length: a newcomer that is padded has all of its 1 + K rows, or it is
    not padded. The cap (S4) holds while there is another request, so this one can be any of two.
    """
    if case.threshold is None or not _pads(case) or stuck(case, charged):
        return 0
    return max(0, case.row.verified_rows(case.drafts) - case.threshold)


def _most_requests(case: Case, facts: Facts) -> int:
    """Requests of the largest batch, each with a token and what it is charged."""
    if case.choices.charged_up_front:
        return case.budget if facts.scheduled is None else facts.scheduled
    return case.budget // (1 + facts.charged)


def broken_laws(case: Case, facts: Facts) -> list[tuple[str, str]]:
    """Laws that accepted facts break, as (rule, sentence). They use the table's needs and the release's numbers."""
    row, drafts = case.row, case.drafts
    found: list[tuple[str, str]] = []
    if facts.refused:
        return found
    if row.furthest(drafts) > facts.lookahead:
        found.append(("D-L1", f"writes {row.furthest(drafts)} positions past the target's, {facts.lookahead} reserved"))
    if row.added_rows.of(drafts) > facts.charged:
        found.append(("B-L1", f"adds {row.added_rows.of(drafts)} rows a request, {facts.charged} charged"))
    requests = min(case.seqs if facts.active is None else facts.active, _most_requests(case, facts))
    if row.own_rows.of(drafts) * requests > case.budget:
        own = row.own_rows.of(drafts)
        found.append(("B-L1", f"a draft pass of {requests} requests x {own} rows exceeds {case.budget}"))
    lack = stuck(case, facts.charged)
    if lack:
        found.append(("progress", f"a resumed decode never fits, rows that it lacks: {lack}"))
    if cut_padding(case, facts.charged):
        rows = row.verified_rows(drafts)
        found.append(("padding", f"a resumed decode is padded to {rows} rows and then cut to {case.threshold}"))
    return found
