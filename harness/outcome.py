"""What a replay is asked for and what comes of it: options, the entries of a trace as it went, its outcome.

And the guard around a target: what it raises is its answer, never a fault of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from traceback import walk_tb
from types import SimpleNamespace
from typing import cast

from attrs import define, field

from oracle.call import Call, Observation, Rows
from oracle.errors import SlotcheckError
from oracle.releases import NEWEST
from oracle.setting import Setting
from oracle.trace import ASPECTS, METHODS, Audit, Difference, Operation, Target, Trace
from strategies.packed import Operations
from strategies.profiles import open_trace

MakeTarget = Callable[[Setting], Target]
#: operations between two audits; a difference found by one is looked up again with an audit at each step
AUDIT_EVERY = 32


@define
class Entry:
    """One operation as it went, for people: kept only when asked for."""

    index: int
    operation: Operation
    call: Call | None
    before: Rows
    expected: Observation | None
    observed: Observation | None
    said: str = ""
    """What it did, in words; with caching on only."""


@define
class Options:
    """What a replay checks. release: whose rules hold; None: the newest's, or a trace's own. limits: see strategies.

    Not frozen: attrs' frozen classes cost at each read nothing, but here nothing is gained.
    """

    aspects: frozenset[str] = frozenset(ASPECTS)
    audit_every: int = AUDIT_EVERY
    declared: Callable[[Difference], bool] = lambda difference: False
    keep_entries: bool = False
    memory: bool = True
    release: str | None = None
    limits: str | None = None

    def open(self, data: bytes, profile: str) -> tuple[Setting, Operations]:
        """Decode packed bytes for this release."""
        return open_trace(data, profile, self.release or NEWEST, self.limits)


@define
class Outcome:
    """What came of a trace."""

    trace: Trace
    differences: list[Difference] = field(factory=list)
    """Not declared; the first ended the trace."""
    declared: list[Difference] = field(factory=list)
    entries: list[Entry] = field(factory=list)
    steps: int = 0


class TargetRaised(Exception):  # noqa: N818  # what a target did, no error of ours
    """The target raised where it must answer: class and text of what it raised, and the functions that it was in.

    frames: their names, the innermost last. The exception itself is not kept: its frames hold whoever called them, a
    whole run, in a cycle that had to be collected.
    """

    def __init__(self, kind: str, text: str, frames: tuple[str, ...] = ()) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text, self.frames = kind, text, frames


def raised_by(error: Exception) -> TargetRaised:
    """What a target raised, as its answer."""
    frames = tuple(frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__))
    return TargetRaised(type(error).__name__, str(error), frames)


def _answer(method: Callable[..., Observation | Audit], *arguments: object) -> Observation | Audit:
    try:
        return method(*arguments)
    except (SlotcheckError, TargetRaised):
        raise
    except Exception as error:  # whatever else a target raises is its answer, never a fault of ours
        raise raised_by(error) from None


def guarded(target: Target, methods: tuple[str, ...] = METHODS) -> Target:
    """The target, with exceptions that cannot be taken for ours."""
    return cast(Target, SimpleNamespace(**{name: partial(_answer, getattr(target, name)) for name in methods}))
