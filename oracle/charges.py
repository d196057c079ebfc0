"""How each release keeps a drafter's rows within T, and the law that they fit (B-L1).

A row of `CHARGES` is one policy of one method: what is charged, when, and whether requests are limited. The law is the
same for all of them, so that it shows which release broke it.
"""

from __future__ import annotations

from attrs import field, frozen
from packaging.version import Version

from oracle.methods import K_LESS_1, NONE, ONE, Count, K, Method, method


@frozen(kw_only=True)
class Policy:
    """How a release keeps the drafter's rows within T: what is charged, when, and whether requests are limited.

    up_front: `charged` x R is taken off T once. Otherwise each scheduled request is charged while the batch is built.
    """

    charged: Count
    up_front: bool = False
    limited: bool = False

    def __str__(self) -> str:
        if self.limited:
            return f"{self.charged}, and no more requests run than T // lookahead"
        when = " for each of R requests, up front" if self.up_front else " for each scheduled request"
        return f"{self.charged}{when if str(self.charged) != '0' else ''}"


def rows_over(row: Method, policy: Policy, drafts: int, budget: int, seqs: int) -> int:
    """Law B-L1, **draft rows fit**: rows past T in the worst batch that a policy lets through (must be 0).

    Every scheduled request has at least one token. In the target's batch: tokens + added rows. In a pass of its own:
    own rows alone. The worst batch has the most requests, for every row but a token is one of a request.
    """
    charge = policy.charged.of(drafts)
    own, added = row.own_rows.of(drafts), row.added_rows.of(drafts)
    limit = min(seqs, budget // own) if policy.limited and own else seqs
    tokens = budget - charge * seqs if policy.up_front else budget
    if tokens < 1:
        return 0
    each = 1 if policy.up_front else 1 + charge
    running = min(limit, tokens // each)
    most_tokens = tokens if policy.up_front else budget - charge * running
    target = most_tokens + added * running
    return max(0, target - budget, own * running - budget)


@frozen
class Charge:
    """A policy of one method in the releases `since` .. `until` (None: still so). `upstream`: where it is discussed."""

    name: str
    policy: Policy
    since: str
    until: str | None
    upstream: str = "in code"
    parallel: bool = field(default=False, kw_only=True)

    @property
    def row(self) -> Method:
        """The method's row of the table."""
        return method(self.name, self.parallel)

    def covers(self, release: str) -> bool:
        """Whether the policy is that of a release."""
        return _order(self.since) <= _order(release) and (self.until is None or _order(release) <= _order(self.until))


def _order(release: str) -> Version:
    return Version(release.partition("+")[0])


_NOTHING = Policy(charged=NONE)
_FIRST, _SINCE_OWN = "0.20.2", "0.25.1"
#: until here the charge is taken off T once; from the next on, and until the second, for each scheduled request
_UP_FRONT, _SCHEDULED, _CHARGED_OWN = "0.27.1", "0.28.0", "0.32.0"


def _charged(name: str, count: Count, *, parallel: bool = False) -> tuple[Charge, Charge]:
    """A method that adds rows to the target's batch: the same charge before and after #51725."""
    return (
        Charge(name, Policy(charged=count, up_front=True), _FIRST, _UP_FRONT, "#32887", parallel=parallel),
        Charge(name, Policy(charged=count), _SCHEDULED, None, "#51725", parallel=parallel),
    )


CHARGES: tuple[Charge, ...] = (
    Charge("eagle", _NOTHING, _FIRST, None),
    Charge("eagle3", _NOTHING, _FIRST, None),
    Charge("mtp", _NOTHING, _FIRST, None),
    Charge("ngram", _NOTHING, _FIRST, None),
    *_charged("eagle3", K_LESS_1, parallel=True),
    *_charged("draft_model", ONE),
    *_charged("draft_model", K, parallel=True),
    Charge("dflash", Policy(charged=K_LESS_1, up_front=True), _FIRST, _UP_FRONT, "overflows: #51256"),
    Charge("dflash", Policy(charged=K), _SCHEDULED, _CHARGED_OWN, "#51256"),
    Charge("dflash", Policy(charged=NONE, limited=True), "0.33.0", None),
    Charge("dspark", Policy(charged=K_LESS_1, up_front=True), _SINCE_OWN, _UP_FRONT),
    Charge("dspark", Policy(charged=K_LESS_1), _SCHEDULED, _CHARGED_OWN),
    Charge("dspark", Policy(charged=NONE, limited=True), "0.33.0", None),
    Charge("dspark_fill_in", Policy(charged=K_LESS_1, up_front=True), _SINCE_OWN, _UP_FRONT),
    Charge("dspark_fill_in", Policy(charged=K_LESS_1), _SCHEDULED, _CHARGED_OWN),
    Charge("dspark_fill_in", Policy(charged=NONE, limited=True), "0.33.0", None),
)


def charge_of(name: str, release: str, *, parallel: bool = False) -> Charge | None:
    """The policy of a method in a release; None where the release lacks the method, or the table does."""
    rows = (charge for charge in CHARGES if (charge.name, charge.parallel) == (name, parallel))
    return next((charge for charge in rows if charge.covers(release)), None)
