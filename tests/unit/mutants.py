"""Targets with one planted defect each: edits of the oracle, so that they need no vLLM."""

from __future__ import annotations

import os
import signal
import time

from attrs import evolve

from oracle.align import AlignRows
from oracle.allocator import Allocator
from oracle.call import REFUSED, Call, Observation
from oracle.groups import Mamba
from oracle.pool import Pool
from oracle.reservation import Positional, RSWARows, Work
from oracle.setting import Setting
from oracle.trace import Audit


class Sound(Allocator):
    """No defect: the clean side of each control."""


class NoLookahead(Allocator):
    """Gives the drafter no slots."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        return super().extend(evolve(call, lookahead=0), gate, test)


class NoSecondBlock(Allocator):
    """Takes nothing for the first token behind two full blocks of 4."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        return super().extend(evolve(call, computed=7) if call.computed == 8 else call, gate, test)


class Refuses(Allocator):
    """Refuses every call: whatever is drawn, it differs."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        return self._seen(REFUSED, self.nothing, self.rows.get(call.request))


class NoGate(Allocator):
    """Admits whatever its next chunk fits."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        return super().extend(call, False, test)


class ForgetsFlight(Allocator):
    """Removes by what is computed, in flight or not."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        return super().extend(evolve(call, in_flight=0), gate, test)


class FreesAtOnce(Allocator):
    """Gives blocks back at once where they must wait for a step in flight."""

    def release(self, request: int, deferred: bool) -> Observation:
        return super().release(request, False)


class Leaks(Allocator):
    """Loses the first block of each released row."""

    def release(self, request: int, deferred: bool) -> Observation:
        if request in self.rows:
            self.rows[request][0][:1] = [0]
        return super().release(request, deferred)


class NoGateLeaks(NoGate, Leaks):
    """Two defects: the gate, then the release."""


class KeepsRow(Allocator):
    """Frees a released row, and shows it on."""

    def audit(self) -> Audit:
        audit = super().audit()
        return evolve(audit, rows={**audit.rows, 99: ((audit.free_order[0],),)}) if audit.free_order else audit


class Shares(Allocator):
    """Shows every second block as the same one."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        seen = super().extend(call, gate, test)
        return evolve(seen, rows=tuple(tuple(block and 1 + block % 2 for block in row) for row in seen.rows))


def eager(family: type[Positional], columns: int = 1) -> type[Positional]:
    """Rules that take `columns` more for dead than are."""

    class Eager(family):  # type: ignore[misc, valid-type]
        def remove(self, work: Work, row: list[int], pool: Pool) -> None:
            super().remove(evolve(work, processed=work.processed + columns * self.size), row, pool)

    return Eager


class NoScratch(AlignRows):
    """Has no states for drafts."""

    def __init__(self, group: Mamba, setting: Setting) -> None:
        super().__init__(group, setting)
        self.scratch = 0


def with_rules(family: type[Positional], edited: type[Positional]):
    """Makes targets whose rules of one family are edited."""

    def make(setting: Setting) -> Allocator:
        target = Allocator(setting)
        target.rules = [edited(rule.group, setting) if type(rule) is family else rule for rule in target.rules]
        return target

    return make


EAGER_WINDOWS = with_rules(Positional, eager(Positional))
EAGER_GAPS = with_rules(RSWARows, eager(RSWARows))
EAGER_STATES = with_rules(AlignRows, eager(AlignRows))
NO_SCRATCH = with_rules(AlignRows, NoScratch)


# ------------------------------------------------------------------------- targets that do not just answer wrong


class Raises(Allocator):
    """Raises when it is asked for slots of a request that has a row."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        if call.request in self.rows:
            raise RuntimeError("no [bold]slots[/x] today")
        return super().extend(call, gate, test)


class RaisesOnRelease(Allocator):
    """Raises when a request gives its blocks back."""

    def release(self, request: int, deferred: bool) -> Observation:
        raise LookupError(request)


class Crashes(Allocator):
    """Kills its process when a request gives its blocks back."""

    def release(self, request: int, deferred: bool) -> Observation:
        os.kill(os.getpid(), signal.SIGSEGV)
        return super().release(request, deferred)


class Exits(Allocator):
    """Leaves without a word when a request gives its blocks back."""

    def release(self, request: int, deferred: bool) -> Observation:
        os._exit(9)


class Hangs(Allocator):
    """Does not come back when a request gives its blocks back."""

    def release(self, request: int, deferred: bool) -> Observation:
        time.sleep(3600)
        return super().release(request, deferred)


class CannotBeBuilt(Allocator):
    """Raises when it is built."""

    def __init__(self, setting: Setting) -> None:
        raise ValueError("not this [setting]")


class ChangesItsMind(Allocator):
    """Every third manager that is built refuses everything."""

    built = 0

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        ChangesItsMind.built += 1
        self.refuses = ChangesItsMind.built % 3 == 0

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        return Refuses.extend(self, call) if self.refuses else super().extend(call, gate, test)
