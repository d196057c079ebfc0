"""What is checked of a workload, and what came of it: options, entries of the table, differences."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from attrs import define, evolve, field, frozen

from harness.workload_suspects import UNSHARDED, unfreed_by, unreserved_by
from oracle.call import Rows
from oracle.content import Content
from oracle.groups import Mamba
from oracle.scheduled import Event, Planned
from oracle.scheduler_laws import ENDS, NEVER
from oracle.scheduler_setting import SchedulerSetting
from oracle.trace import Difference
from oracle.violation import Violation
from oracle.workload import SCHEDULER_ASPECTS, Delivered, SchedulerDifference, SchedulerTarget, SchedulerTrace, Update

#: the folder of this package, whose frames tell nothing of an error; compiled modules name theirs from the root
HERE = (str(Path(__file__).parent), f"{Path(__file__).parent.name}/")
MakeScheduler = Callable[[SchedulerSetting], SchedulerTarget]


@define
class WorkloadOptions:
    """What is checked. predict, memory: whether these two oracles run; the laws always do.

    release: whose rules hold; None: the trace's own. limits: see strategies.
    """

    aspects: frozenset[str] = frozenset(SCHEDULER_ASPECTS)
    declared: Callable[[Difference], bool] = lambda difference: False
    keep_entries: bool = False
    predict: bool = True
    memory: bool = True
    release: str | None = None
    limits: str | None = None


@frozen(kw_only=True)
class Entry:
    """One planned step, for the table of `explain`."""

    operation: int
    planned: Planned
    events: tuple[Event, ...]
    left: int
    """Tokens of the step's budget that are left."""
    rows_left: int
    free: int
    delivered: tuple[Delivered, ...] = ()
    handed: Rows = ()
    """What the connector was handed of a request that ended."""


@define
class WorkloadOutcome:
    """What came of a workload. differences: those that are not declared, the first of each fingerprint."""

    trace: SchedulerTrace
    differences: list[Difference] = field(factory=list)
    declared: list[Difference] = field(factory=list)
    entries: list[Entry] = field(factory=list)
    reach: Counter[str] = field(factory=Counter)
    contents: dict[int, Content] = field(factory=dict)
    """With caching on: the tokens of each request."""
    turns: dict[tuple[int, int], Content] = field(factory=dict)
    """... of a session with each of its pieces: by its prompt, of all pieces together."""
    shown: dict[str, int] = field(factory=dict)
    """Steps planned when each difference was seen."""
    steps: int = 0
    failed: dict[int, tuple[int, int]] = field(factory=dict)
    """Of each step the load that failed with it: the request and the first column that is not there."""

    updates: dict[int, Update] = field(factory=dict)
    """What sessions were given, by operation; those of the end too."""

    said: dict[int, list[int]] = field(factory=dict)
    """With caching on: the tokens of these."""


class Over(Exception):  # noqa: N818  # the end of a trace, no error
    """The trace cannot go on: the scheduler raised, or went another way than the prediction."""


class Differences:
    """Takes in the differences of one workload: declared or not, the first of each fingerprint."""

    def __init__(self, setting: SchedulerSetting, options: WorkloadOptions, outcome: WorkloadOutcome) -> None:
        self.setting, self.options, self.outcome = setting, options, outcome
        self.index = -1
        self.behind = self.blamed = False
        self.seen: set[str] = set()
        #: why the prediction stands still, or moves for ever, as tags; it is asked once
        self.standstill: Callable[[bool], tuple[str, ...]] = _unknown

    def raised(self, error: Exception) -> Difference:
        """The scheduler raised."""
        frames = traceback.extract_tb(error.__traceback__)
        frame = frames[-1]
        inner = [one for one in frames if not one.filename.startswith(HERE)] or frames
        places = [f"{_inside(one.filename)}:{one.lineno} in {one.name}: {one.line}" for one in inner[-3:]]
        return self.difference(
            "error",
            "raised",
            f"error:{type(error).__name__}",
            "no error",
            f"{type(error).__name__}: {error}".splitlines()[0],
            detail="\n".join(places),
            tags=(frame.name, frame.line or ""),
        )

    def difference(
        self, aspect: str, rule: str, sign: str, expected: str, observed: str, detail: str = "",
        tags: tuple[str, ...] = (),
    ) -> SchedulerDifference:  # fmt: skip
        """A difference of the operation under way."""
        return SchedulerDifference(
            aspect=aspect,
            step=self.index,
            group=None,
            kind="scheduler",
            rule=rule,
            sign=sign,
            expected=expected,
            observed=observed,
            detail=detail,
            tags=tags,
        )

    def law(self, violation: Violation, tags: tuple[str, ...] = ()) -> None:
        """A law is broken; one of progress may have a known trap for its cause, one of the memory a situation."""
        if violation.what in ENDS:
            cause, self.standstill = self.standstill(violation.what == NEVER), _unknown
            tags = cause or _known(unfreed_by(self.setting))
        if violation.law == "needless":
            tags = _known(unfreed_by(self.setting))
        if violation.law == "W1" and violation.what.startswith("drafter"):
            tags += unreserved_by(self.setting)
        if violation.law == "handover" and self.setting.dcp_size > 1:
            tags = (UNSHARDED,)
        group = None if violation.group < 0 else self.setting.groups[violation.group]
        kind = "scheduler" if group is None else f"mamba_{group.mode}" if isinstance(group, Mamba) else group.kind
        self.differ(
            evolve(
                self.difference("law", violation.law, violation.what, "the law holds", violation.text, tags=tags),
                kind=kind,
                group=None if group is None else violation.group,
            )
        )

    def differ(self, difference: Difference) -> None:
        """Take a difference in."""
        if difference.level == "scheduler" and (self.behind or difference.aspect not in self.options.aspects):
            return
        self.blamed = True
        if difference.fingerprint in self.seen:
            return
        self.seen.add(difference.fingerprint)
        found = self.outcome.declared if self.options.declared(difference) else self.outcome.differences
        found.append(difference)
        self.outcome.shown.setdefault(difference.fingerprint, self.outcome.steps)


def _unknown(moves: bool) -> tuple[str, ...]:
    """Without a prediction nobody knows."""
    return ()


def _known(cause: str) -> tuple[str, ...]:
    return (cause,) if cause else ()


def _inside(path: str) -> str:
    """A source file by its place inside its package."""
    _, found, rest = path.rpartition("/site-packages/")
    return rest if found else path.rpartition("/")[2]
