"""`explain` of a warmup trace: each request in each step and group, with the terms of its columns and its slots.

held: the row of block ids. slots: where the target's positions lie and, behind a bar, those that the drafter may write;
on the first rank, "null" for a position without a block. expected, manager: blocks that the oracle's scheduler and the
real manager hold for the same tokens, where they were asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.compare import show_row
from harness.warmups import Entry, WarmupOutcome
from oracle.slots import PAD, drafted, slot
from oracle.trace import Difference
from oracle.warmup import Draft, Mixed, WarmupOperation, WarmupSetting
from oracle.warmup_laws import kind_of

HEAD = (
    "step", "request", "computed + scheduled + lookahead", "cap", "group", "block size", "columns", "held", "slots",
    "expected", "manager",
)  # fmt: skip


def rows(outcome: WarmupOutcome) -> list[tuple[str, ...]]:
    """The table's rows, in the order of `HEAD`; of an outcome that kept its entries."""
    return [_row(outcome.trace.setting, entry) for entry in outcome.entries]


def _row(setting: WarmupSetting, entry: Entry) -> tuple[str, ...]:
    group, part = setting.groups[entry.group], entry.part
    terms = dict(entry.reason.terms)
    return (
        f"{entry.step} {entry.what}",
        str(part.request),
        f"{part.computed} + {part.new} + {terms.get('lookahead', 0)}",
        str(terms.get("max_model_len", "-")),
        f"{entry.group} {kind_of(group)}",
        str(terms.get("tokens_per_column", group.block_size)),
        str(entry.reason.value),
        show_row(entry.row),
        _slots(setting, entry),
        "-" if entry.expected is None else str(entry.expected),
        "-" if entry.manager is None else str(entry.manager),
    )


def _slots(setting: WarmupSetting, entry: Entry) -> str:
    group, part = setting.groups[entry.group], entry.part
    if not group.positional or setting.null_block_redirect:
        return "-"

    def of(positions: Iterable[int]) -> str:
        return ranges([slot(setting, group, entry.row, position, 0) for position in positions])

    drafts = of(drafted(setting, part)) if group.drafts and setting.lookahead else ""
    return f"{of(range(part.computed, part.end))} | {drafts}" if drafts else of(range(part.computed, part.end))


def in_words(operation: WarmupOperation) -> str:
    """A warmup in words."""
    name = "warmup_kernels"
    if isinstance(operation, Mixed):
        name = f"run_mixed_prefill_decode_warmup, num_tokens {operation.num_tokens}"
    return f"{name}, call {operation.fail} of a worker function raises" if operation.fail else name


def ranges(slots: list[int | None]) -> str:
    """Slots with runs joined: 4..7 12; those of other ranks left out."""
    said: list[list[int | None]] = []
    for found in slots:
        if found == PAD:
            continue
        last = said[-1][-1] if said else None
        if said and (found == last or (found is not None and last is not None and found == last + 1)):
            said[-1].append(found)
        else:
            said.append([found])
    shown = [_one(run) for run in said]
    return " ".join(shown) or "-"


def _one(run: list[int | None]) -> str:
    if run[0] is None:
        return "null"
    return str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}"


def markdown(outcome: WarmupOutcome, at: int = -1) -> str:
    """The table in Markdown, without columns that say nothing; step `at` is in bold."""
    lines = rows(outcome)
    shown = [index for index in range(len(HEAD)) if any(line[index] != "-" for line in lines)]
    head = [HEAD[index] for index in shown]
    table = []
    for line, entry in zip(lines, outcome.entries, strict=True):
        cells = [line[index] for index in shown]
        table.append((f"**{cells[0]}**" if entry.step == at else cells[0], *cells[1:]))
    return grid(head, table)


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    table = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table)


def text(outcome: WarmupOutcome) -> str:
    """The table in plain text, one a warmup."""
    said: list[str] = []
    for index, operation in enumerate(outcome.trace.operations[: len(outcome.ran)]):
        if isinstance(operation, Draft):
            continue
        lines = [line for line, entry in zip(rows(outcome), outcome.entries, strict=True) if entry.operation == index]
        said += [f"{index}. {in_words(operation)}", *(aligned([HEAD, *lines]) if lines else ["nothing runs"]), ""]
    return "\n".join(said)


def aligned(lines: list[tuple[str, ...]]) -> list[str]:
    """Lines of cells, each column as wide as its widest cell."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def terms(outcome: WarmupOutcome) -> list[str]:
    """How the columns of each group are counted; what the table does not show of the terms."""
    said: dict[str, None] = {}
    for entry in outcome.entries:
        states = dict(entry.reason.terms).get("speculative_blocks", 0)
        more = f", speculative_blocks {states}" if states else ""
        kind = kind_of(outcome.trace.setting.groups[entry.group])
        said[f"{entry.group} {kind}: columns = {entry.reason.formula.text}{more}"] = None
    return list(said)


def difference_text(difference: Difference) -> str:
    """A difference with its terms."""
    said = [f"{difference.fingerprint}: expected {difference.expected}, got {difference.observed}"]
    said += [f"  {line}" for line in difference.detail.splitlines()]
    return "\n".join(said)
