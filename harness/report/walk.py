"""Goes through the entries of a replay again with the scheduler's accounting, to say in words what each operation did.

An entry has the operation and the answers, not what the ledger made of it: whether it was void, which outputs came
back, what a removal was asked with. The ledger depends on the trace and the outcomes alone, so it says this again.
"""

from __future__ import annotations

from attrs import frozen

from harness.outcome import Entry, Outcome
from harness.report import words
from oracle.allocator import Allocator
from oracle.call import GRANTED, REFUSED, Call, Observation, Rows
from oracle.ledger import Ledger
from oracle.trace import Extend, GiveBack, Loaded, NewStep, Operation, Release, Resume, Settle, Trim


@frozen
class Moment:
    """One operation as it went. `expected`, `observed`: None where no party was asked."""

    index: int
    operation: Operation
    words: str
    void: bool
    before: Rows
    expected: Observation | None
    observed: Observation | None
    call: Call | None = None
    """The call of an Extend."""
    released: int | None = None
    """The request that gave its blocks back, or had them popped."""
    trimmed: tuple[int, int] | None = None
    """Processed and prompt tokens that a removal was asked with."""

    @property
    def seen(self) -> Observation | None:
        """The target's answer, or the oracle's where there is no target."""
        return self.observed if self.observed is not None else self.expected


class Walk:
    """The ledger of one outcome, entry by entry."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.ledger = Ledger(outcome.trace.setting)

    def moments(self) -> list[Moment]:
        """All entries in order. With caching on they say themselves what they did."""
        if self.outcome.trace.setting.enable_caching:
            return [self._told(entry, entry.said, call=entry.call) for entry in self.outcome.entries]
        return [self._moment(entry) for entry in self.outcome.entries]

    def _moment(self, entry: Entry) -> Moment:
        operation = entry.operation
        self.ledger.index = entry.index
        if isinstance(operation, Extend):
            return self._extend(entry, operation)
        released, trimmed, said = None, None, ""
        if isinstance(operation, Settle):
            settled = self.ledger.settle(operation)
            said = "" if settled is None else words.settled(settled)
        elif isinstance(operation, Loaded):
            request = self.ledger.requests.get(operation.request)
            loading = 0 if request is None else request.loading
            result = self.ledger.loaded(operation)
            if result is not None and request is not None:
                said = words.loaded(operation, loading, request.computed, result)
                released = operation.request if result == "failed" else None
        elif isinstance(operation, Release):
            if self.ledger.release(operation) is not None:
                released, said = operation.request, words.release(operation)
        elif isinstance(operation, GiveBack):
            said = words.GIVE_BACK if self.ledger.give_back() else ""
        elif isinstance(operation, Resume):
            said = words.resume(operation) if self.ledger.resume(operation) else ""
        elif isinstance(operation, Trim):
            found = self.ledger.trim(operation.request)
            if found is not None:
                trimmed = (found.processed, found.prompt)
                said = words.trim(operation, found.processed)
        else:
            self.ledger.launch()
            said = words.NEW_STEP
        return self._told(entry, said, released=released, trimmed=trimmed)

    def _extend(self, entry: Entry, operation: Extend) -> Moment:
        known = self.ledger.extend(operation)
        call = entry.call or known  # a recording's accounting is another
        moment = self._told(entry, "" if call is None else words.extend(call), call=call)
        outcome = "" if call is None or moment.seen is None else moment.seen.outcome
        if known is not None and outcome == GRANTED:
            self.ledger.granted(known)
        elif outcome == REFUSED:
            self.ledger.refused()
        return moment

    def _told(
        self,
        entry: Entry,
        said: str,
        call: Call | None = None,
        released: int | None = None,
        trimmed: tuple[int, int] | None = None,
    ) -> Moment:
        return Moment(
            entry.index,
            entry.operation,
            said or words.plain(entry.operation),
            not said,
            entry.before,
            entry.expected,
            entry.observed,
            call,
            released,
            trimmed,
        )


def moments_of(outcome: Outcome) -> list[Moment]:
    """The operations of an outcome whose entries were kept."""
    return Walk(outcome).moments()


def oracle_after(outcome: Outcome, moments: list[Moment], step: int) -> Allocator:
    """The oracle as it was after operation `step`: its rows, free queue, and why its last refusal was one."""
    oracle = Allocator(outcome.trace.setting)
    if outcome.trace.setting.enable_caching:
        return oracle  # what it would say of a hit is in the difference itself
    for moment in moments[: step + 1]:
        if moment.call is not None:
            expected = oracle.extend(moment.call)
            observed = moment.observed
            if observed is not None and expected.outcome == REFUSED != observed.outcome and moment.index < step:
                oracle.follow(moment.call, observed.outcome)  # a declared difference on the way
        elif moment.released is not None:
            operation = moment.operation
            oracle.release(moment.released, isinstance(operation, Release) and operation.deferred)
        elif moment.void:
            continue
        elif isinstance(moment.operation, GiveBack):
            oracle.give_back()
        elif isinstance(moment.operation, Trim) and moment.trimmed is not None:
            oracle.trim(moment.operation.request, *moment.trimmed)
        elif isinstance(moment.operation, NewStep):
            oracle.new_step()
    return oracle
