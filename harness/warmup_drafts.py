"""Judges a draft step: the positions and slots that the drafter's own code makes, for every number refused."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from harness.compare import show_row
from harness.targets.compat import AbsentKindError
from harness.targets.drafters import Drafted, Drafter, drafting_groups
from oracle.call import Rows
from oracle.drafting import Pass, misplaced, passes, rows_of, shown, step_of
from oracle.warmup import Draft, Part, WarmupSetting


@frozen
class Wrong:
    """One thing that is not as rule table D says. group None: positions, not slots.

    where: the pass, the number of refused drafts, the token in the pass, the rank.
    """

    rule: str
    sign: str
    expected: str
    observed: str
    group: int | None = None
    detail: str = ""
    where: tuple[int, int, int, int] = (-1, -1, -1, 0)


def check(setting: WarmupSetting, operation: Draft, draft: Drafter) -> Iterator[Wrong]:
    """Everything that is wrong on the first rank and the last, the first of each kind.

    AbsentKindError where the release has no such drafter.
    """
    if not drafting_groups(setting):
        return
    part = step_of(setting, operation)
    rows = rows_of(setting, part, part.drafts + 1)
    told: set[tuple[str, str, int | None]] = set()
    for rank in sorted({0, setting.dcp_size - 1}):
        try:
            found = draft(setting, part, rows, rank)
        except AbsentKindError:
            raise
        except Exception as error:
            yield Wrong("D", f"error:{type(error).__name__}", "positions and slots", str(error))
            return
        for rejected, (made, row) in enumerate(zip(found, rows, strict=True)):
            for wrong in _request(setting, part, rejected, made, row, rank):
                key = (wrong.rule, wrong.sign, wrong.group)
                if key not in told:
                    told.add(key)
                    yield wrong


def _request(
    setting: WarmupSetting, part: Part, rejected: int, made: list[Drafted], rows: Rows, rank: int
) -> Iterator[Wrong]:
    wanted = passes(setting, part, rejected)
    step = f"{part}, {rejected} refused"
    if [one.what for one in made] != [one.what for one in wanted]:
        yield Wrong("D", "passes", _names(one.what for one in wanted), _names(one.what for one in made), detail=step)
        return
    for number, (expected, seen) in enumerate(zip(wanted, made, strict=True)):
        if seen.positions != shown(setting, expected):
            ours, theirs = list(shown(setting, expected)), list(seen.positions)
            yield Wrong("D", "positions", str(ours), str(theirs), detail=step, where=(number, rejected, -1, rank))
            return
        if expected.own:
            yield from _slots(setting, part, (number, rejected, rank), expected, seen, rows)


def _slots(
    setting: WarmupSetting, part: Part, which: tuple[int, int, int], expected: Pass, seen: Drafted, rows: Rows
) -> Iterator[Wrong]:
    number, rejected, rank = which
    valid = part.end - 1 - rejected
    for group, slots in zip(drafting_groups(setting), seen.slots, strict=True):
        row = rows[group]
        for index, found in enumerate(slots):
            sign = misplaced(setting, setting.groups[group], row, expected, index, valid, found, rank)
            if sign:
                past = expected.at[index] >= setting.max_model_len
                detail = (
                    f"{part}, {rejected} refused: the last valid position is {valid}\n"
                    f"{expected.what}, positions {expected.at[0]} .. {expected.at[-1]}, slots {list(slots)}\n"
                    f"row of group {group}: {show_row(row)}, block size {setting.groups[group].block_size}"
                    + (f", rank {rank} of {setting.dcp_size}" if setting.dcp_size > 1 else "")
                )
                must = "written nowhere" if past else "the slot of its position"
                yield Wrong(
                    "D-L2" if past else "D-L1", sign, f"position {expected.at[index]}: {must}", f"slot {found}",
                    group, detail, (number, rejected, index, rank),
                )  # fmt: skip


def _names(names: Iterator[str]) -> str:
    return ", ".join(names)
