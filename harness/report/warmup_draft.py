"""Report parts of a draft step: its table, and a repro.py that holds the text of `harness.targets.drafter_kernels`."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

from attrs import frozen

from harness.compare import show_row
from harness.targets import drafter_kernels
from harness.targets.drafters import batch_arguments, drafting_groups, run_call
from harness.warmups import WarmupDifference
from oracle.drafting import CONTEXT, Pass, passes, rows_of, shown, step_of
from oracle.slots import slot
from oracle.warmup import Draft, Part, WarmupSetting
from oracle.warmup_laws import kind_of

HEAD = ("refused", "last valid", "pass", "positions", "group", "held", "slots")
LEGEND = (
    "What each pass of the drafter must work on behind the step, for each number of drafts refused: positions as the "
    "model sees them, and the slots of their places; -: nothing is written there."
)


def rows(setting: WarmupSetting, operation: Draft) -> list[tuple[str, ...]]:
    """The table of a draft step on the first rank, from the oracle alone; the target's own slots are left out."""
    part = step_of(setting, operation)
    held = rows_of(setting, part, part.drafts + 1)
    lines: list[tuple[str, ...]] = []
    for refused in range(part.drafts + 1):
        valid = part.end - 1 - refused
        for made in passes(setting, part, refused):
            positions = " ".join(map(str, shown(setting, made)))
            for index in drafting_groups(setting):
                row = held[refused][index]
                slots = _places(setting, index, row, made, valid) if made.own else "of the target"
                kind = kind_of(setting.groups[index])
                lines.append((str(refused), str(valid), made.what, positions, f"{index} {kind}", _short(row), slots))
    return lines


def _short(row: tuple[int, ...]) -> str:
    """A row, its middle left out where it is long: a draft step is at its end."""
    return show_row(row) if len(row) <= 12 else f"[{row[0]} .. {' '.join(map(str, row[-4:]))}]"


def _places(setting: WarmupSetting, group: int, row: tuple[int, ...], made: Pass, valid: int) -> str:
    said = []
    for position in made.at:
        if (made.what == CONTEXT and position > valid) or (
            made.what == "queries" and position >= setting.max_model_len
        ):
            said.append("-")
            continue
        found = slot(setting, setting.groups[group], row, min(position, setting.max_model_len - 1), 0)
        said.append("null" if found is None else "-" if found < 0 else str(found))
    return " ".join(said)


def step_text(setting: WarmupSetting, operation: Draft) -> str:
    """A draft step in words."""
    part: Part = step_of(setting, operation)
    return (
        f"a decode step of {part.new} tokens from position {part.computed} on, {part.drafts} of them drafts, and "
        f"{setting.method}'s own code behind it"
    )


@frozen
class Script:
    """What the template needs of one difference."""

    rows: str
    arguments: list[tuple[str, str]]
    call: str
    judge: list[str]
    must: str
    source: str


def script(setting: WarmupSetting, operation: Draft, difference: WarmupDifference) -> Script:
    """The script that shows a difference of a draft step."""
    part = step_of(setting, operation)
    held = rows_of(setting, part, part.drafts + 1)
    rank = difference.rank
    arguments: dict[str, Any] = batch_arguments(setting, part, held, rank)
    name, keywords = run_call(setting.method)
    call = f"{name}({', '.join(['batch', *(f'{key}={value}' for key, value in keywords.items())])})"
    return Script(
        rows=repr(arguments["rows"]),
        arguments=[(key, "rows" if key == "rows" else repr(value)) for key, value in arguments.items()],
        call=call,
        judge=_judge(setting, difference),
        must=difference.expected,
        source=textwrap.dedent(_text()),
    )


def _text() -> str:
    """The text of the module without its head: the template imports what it needs."""
    text = inspect.getsource(drafter_kernels)
    return text[text.index("DECODERS = ") :].rstrip()


def _judge(setting: WarmupSetting, difference: WarmupDifference) -> list[str]:
    if difference.group is None:
        if difference.at < 0:
            return ["got = [[what for what, _, _ in passes] for passes in found]", "there = True"]
        got = f"got = found[{difference.request}][{difference.at}][1]"
        return [got, f"there = got != {difference.expected}"]
    group = setting.groups[difference.group]
    index = drafting_groups(setting).index(difference.group)
    lines = [f"got = found[{difference.request}][{difference.at}][2][{index}][{difference.token}]"]
    if difference.rule == "D-L2":
        ranks = setting.dcp_size if group.dcp_sharded else 1
        size, turn = group.block_size, setting.cp_interleave
        places = sum(p // turn % ranks == difference.rank % ranks for p in range(setting.max_model_len))
        lines += [
            f"row = rows[{difference.request}][{index}]",
            f"context = [block * {size} + offset for block in row for offset in range({size})][:{places}]",
            "there = got in context  # the place of a position below max_model_len",
        ]
        return lines
    return [*lines, f"there = got == {difference.observed.split()[-1]}"]
