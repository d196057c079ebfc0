"""Edits of the oracle: subclasses of its allocator, or of the rules of a family of kinds, with one rule changed.

The docstrings name the rule of the allocation spec and, where there was one, the defect of vLLM (its issue or change).
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from oracle.align import AlignRows
from oracle.allocator import Allocator
from oracle.call import Call, Observation
from oracle.groups import Mamba
from oracle.pool import Pool
from oracle.reservation import Positional, RingRows, RSWARows, Work
from oracle.rounding import ceil_div
from oracle.setting import Setting
from tests.quality.planting import edited


@edited("order/A5/other", "ids/A3/other")
class PoolUsedFromTheEnd(Allocator):
    """A4: what is given back waits for its turn at the end of the queue."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)

        class Fair(Pool):
            def give(self, batch: Iterable[int]) -> None:
                self._queue[:0] = [block for block in reversed(list(batch)) if block]
                self.free = len(self._queue)

        self.pool = Fair(setting.num_blocks)


@edited("outcome/A16/refused")
class ExactFitRefused(Allocator):
    """A16: the last free block is never used."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        return super().extend(evolve(call, reserved_blocks=call.reserved_blocks + 1), gate, test)


@edited("nulls/A14/less", "free/A2/more", tight="refused")
class RemovalAfterTheTest(Allocator):
    """A11: what nobody reads any more serves the next call only."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        removals = [(rule, rule.remove) for rule in self.rules]
        for rule in self.rules:
            rule.remove = lambda work, row, pool: None  # type: ignore[method-assign]
        seen = super().extend(call, gate, test)
        for rule, remove in removals:
            rule.remove = remove  # type: ignore[method-assign]
        if call.request in self.rows:
            self.trim(call.request, max(0, call.computed - call.in_flight), call.prompt)
        return seen


@edited("ids/A20/other")
class LeadingNullsPopped(Allocator):
    """A8: a deferred release gives the row as it is, dead columns included."""

    def release(self, request: int, deferred: bool) -> Observation:
        rows = self.rows.get(request, [])
        seen = super().release(request, deferred)
        return evolve(seen, new=(tuple(block for row in rows for block in row),)) if deferred else seen


@edited("zeroing/A60/other")
class ReleaseShortensTheZeroList(Allocator):
    """A60: a released block leaves the list, so its next owner reads what the last one left."""

    def release(self, request: int, deferred: bool) -> Observation:
        gone = {block for row in self.rows.get(request, []) for block in row}
        self.to_zero = [[block for block in taken if block not in gone] for taken in self.to_zero]
        return super().release(request, deferred)


@edited("columns/A19/less", tight="granted")
class RowShrinks(Positional):
    """A19: after a rejection the columns of the drafts are given back, and taken again by the next step."""

    def extend(self, work: Work, row: list[int], pool: Pool) -> list[int]:
        surplus = row[ceil_div(work.need, self.size) :]
        if surplus:
            del row[-len(surplus) :]
            pool.give(reversed(surplus))
        return super().extend(work, row, pool)

    def count(self, work: Work, row: list[int]) -> int:
        return super().count(work, row) if work.first else ceil_div(work.need, self.size) - len(row)


@edited("nulls/A14/less", tight="refused")
class DeadColumnsAdopted(Positional):
    """A18: an adopted row takes blocks for columns that no token reads any more."""

    def count(self, work: Work, row: list[int]) -> int:
        return max(0, ceil_div(work.need, self.size) - len(row))

    def begin(self, work: Work) -> list[int]:
        return []


@edited("nulls/A14/more", tight="granted")
class GapBeginsInThePrompt(RSWARows):
    """A36: the block that holds the prompt's end and the first generated tokens goes with the gap."""

    def remove(self, work: Work, row: list[int], pool: Pool) -> None:
        super().remove(evolve(work, prompt=max(0, work.prompt - self.size + 1)), row, pool)


@edited("columns/A38/more", tight="refused")
class RingByTokens(RingRows):
    """A38: a ring grows with its request."""

    count, extend = Positional.count, Positional.extend


@edited("columns/A42/more", tight="refused")
class AlignOpensTheNextColumn(AlignRows):
    """A42: at m = b * j the running state is put in column j, where the next token's would be."""

    def count(self, work: Work, row: list[int]) -> int:
        return super().count(evolve(work, end=work.end + 1), row)

    def extend(self, work: Work, row: list[int], pool: Pool) -> list[int]:
        return super().extend(evolve(work, end=work.end + 1), row, pool)


@edited("nulls/A14/less", tight="refused")
class CheckpointInEveryChunk(AlignRows):
    """A44: with retention interval 0 only the chunk that ends the prompt saves an inner state."""

    def __init__(self, group: Mamba, setting: Setting) -> None:
        super().__init__(group, setting)
        self.only_last = False


@edited("nulls/A14/less", tight="refused")
class CheckpointAnywhere(AlignRows):
    """A44: an inner state is saved at multiples of the group's checkpoint alignment only."""

    def __init__(self, group: Mamba, setting: Setting) -> None:
        super().__init__(group, setting)
        self.alignment = 1
