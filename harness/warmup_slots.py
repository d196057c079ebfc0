"""Comparison 3: the worker's real block tables, fed with a recorded warmup: rows, and the slot of every position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from attrs import frozen

from harness.compare import show_row
from harness.targets.block_tables import Written
from oracle.call import Rows
from oracle.groups import Group
from oracle.slots import drafted, gathered, slot
from oracle.warmup import Part, Recorded, WarmupSetting


class Tables(Protocol):
    """A party that turns scheduler outputs into rows and slots."""

    def step(self, step: Recorded) -> list[Written]: ...


MakeTables = Callable[[WarmupSetting, int], Tables]


@frozen
class Misplaced:
    """A row or a slot that is another. group -1: the step raised. where: step of the pass, request, position, rank."""

    group: int
    sign: str
    expected: str
    observed: str
    detail: str
    where: tuple[int, int, int, int]


def check(setting: WarmupSetting, run: list[Recorded], make: MakeTables, rank: int) -> Iterator[Misplaced]:
    """Every row and slot of one pass that is not as the oracle says, until a step goes past max_model_len."""
    tables = make(setting, rank)
    rows: dict[int, Rows] = {}
    for number, step in enumerate(run):
        if any(part.end > setting.max_model_len for part in step.parts):
            return
        try:
            written = tables.step(step)
        except Exception as error:  # a row past its capacity: it is the answer
            sign = f"error:{type(error).__name__}"
            yield Misplaced(-1, sign, "rows and slots", str(error), _name(step), (number, -1, -1, rank))
            return
        for part, blocks in zip(step.parts, step.blocks, strict=True):
            held = rows.get(part.request, tuple(() for _ in setting.groups))
            new = blocks or tuple(() for _ in held)
            rows[part.request] = tuple(row + more for row, more in zip(held, new, strict=True))
        for one in written:
            for index, group in enumerate(setting.groups):
                place = (number, one.part.request, -1, rank)
                yield from _group(setting, one, index, group, rows[one.part.request][index], place)


def _group(
    setting: WarmupSetting, one: Written, index: int, group: Group, row: tuple[int, ...], where: tuple[int, ...]
) -> Iterator[Misplaced]:
    part = one.part
    number, request, _, rank = where
    expected = gathered(setting, group, row, part.computed)
    found = one.rows[index]
    if found != expected:
        sign = "row cut" if len(found) < len(expected) and found == expected[: len(found)] else "row"
        yield Misplaced(index, sign, show_row(expected), show_row(found), str(part), (number, request, -1, rank))
    if not group.positional or setting.null_block_redirect:
        return
    yield from _slots(
        setting, part, index, row, (number, rank), range(part.computed, part.end), one.slots[index], "target"
    )
    if group.drafts:
        yield from _slots(
            setting, part, index, row, (number, rank), drafted(setting, part), one.drafts[index], "drafter"
        )


def _slots(
    setting: WarmupSetting,
    part: Part,
    index: int,
    row: tuple[int, ...],
    which: tuple[int, int],
    positions: range,
    slots: tuple[int, ...],
    who: str,
) -> Iterator[Misplaced]:
    group, (number, rank) = setting.groups[index], which
    for position, found in zip(positions, slots, strict=True):
        wanted = slot(setting, group, row, position, rank)
        if wanted is None or 0 <= found < group.block_size:
            place = f"{part}, {who} position {position}"
            where = (number, part.request, position, rank)
            yield Misplaced(index, f"{who} null block", "a block of the request", f"slot {found}", place, where)
            return
        if found != wanted:
            place = f"{part}, {who} position {position} of row {show_row(row)}"
            where = (number, part.request, position, rank)
            yield Misplaced(index, f"{who} slot", f"slot {wanted}", f"slot {found}", place, where)
            return


def _name(step: Recorded) -> str:
    return ", ".join(map(str, step.parts))
