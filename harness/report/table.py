"""A trace as a table for people: one line an operation, with the answer that was expected and the one that was given.

One structure, `Line`, and two renderings: Markdown for report.md, plain text for the terminal and for pytest.
"""

from __future__ import annotations

import io

from attrs import frozen
from rich import box
from rich.console import Console
from rich.table import Table

from harness.compare import counted
from harness.outcome import Outcome
from harness.report import words
from harness.report.terms import terms_text
from harness.report.title import title
from harness.report.walk import Moment, moments_of
from oracle.allocator import Allocator
from oracle.call import Call, Rows
from oracle.trace import NO_ANSWER, Difference

SAME, VOID = "same", "void"


@frozen
class Line:
    """One operation. `observed`: "same" where it equals what was expected, "" without a target."""

    index: int
    marked: bool
    """The step that differs."""
    operation: str
    expected: str
    observed: str
    free: str
    why: tuple[str, ...]
    """Per group, the terms of the number of columns; first those of the gate, if it was asked."""


def lines_of(outcome: Outcome) -> list[Line]:
    """The lines of an outcome whose entries were kept."""
    oracle = Allocator(outcome.trace.setting)
    found = {difference.step: difference for difference in (*outcome.declared, *outcome.differences)}
    return [_line(moment, found.get(moment.index), oracle) for moment in moments_of(outcome)]


def _line(moment: Moment, difference: Difference | None, oracle: Allocator) -> Line:
    expected, observed = moment.expected, moment.observed
    ours, theirs, free = "", "", ""
    if moment.void:
        ours = VOID
    elif expected is not None:
        ours, free = words.answer(moment.operation, expected, moment.before), str(expected.free)
        if observed is not None:
            theirs = words.answer(moment.operation, observed, moment.before)
            if ours == theirs and expected.new != observed.new and observed.new:
                ours += f", new {words.rows(expected.new)}"
                theirs += f", new {words.rows(observed.new)}"
            theirs = SAME if ours == theirs else theirs
            if observed.free != expected.free:
                free += f", got {observed.free}"
    if difference is not None and difference.rule in NO_ANSWER:
        theirs = difference.observed
    why = () if moment.call is None else _why(oracle, moment.call, moment.before)
    return Line(moment.index, difference is not None, moment.words, ours, theirs, free, why)


def _why(oracle: Allocator, call: Call, before: Rows) -> tuple[str, ...]:
    """The terms behind the numbers of one call."""
    said: list[str] = []
    if call.full_sequence_must_fit:
        said += [f"gate: {line}" for line in counted(oracle, call, before).splitlines()]
    reasons = oracle.reasons(call, before)
    said += [f"{group.kind}: {reason}" for group, reason in zip(oracle.setting.groups, reasons, strict=True)]
    return tuple(said)


# ----------------------------------------------------------------------------------------------- renderings


def _header(lines: list[Line]) -> list[str]:
    real = any(line.observed for line in lines)
    return ["#", "operation", "expected", *(["observed"] if real else []), "free"]


def _cells(line: Line, mark: str, width: int) -> list[str]:
    cells = [mark, line.operation, line.expected, line.observed, line.free]
    return cells if width == len(cells) else [*cells[:3], cells[4]]


def markdown(outcome: Outcome) -> str:
    """The table in Markdown; the step that differs is in bold."""
    lines = lines_of(outcome)
    header = _header(lines)
    rows = [header, ["---"] * len(header)]
    for line in lines:
        mark = f"**{line.index}**" if line.marked else str(line.index)
        rows.append([cell.replace("|", "\\|") for cell in _cells(line, mark, len(header))])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def text(outcome: Outcome, width: int = 100) -> str:
    """The table in plain text, `width` characters at most; the step that differs is marked by >."""
    lines = lines_of(outcome)
    if not lines:
        return "no operation was run"
    header = _header(lines)
    table = Table(box=box.ASCII_DOUBLE_HEAD, expand=False)
    for name in header:
        table.add_column(name, justify="right" if name == "#" else "left", overflow="fold")
    for line in lines:
        mark = f"> {line.index}" if line.marked else str(line.index)
        table.add_row(*_cells(line, mark, len(header)))
    stream = io.StringIO()
    Console(file=stream, width=width, no_color=True, highlight=False, markup=False, emoji=False).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def explanation(outcome: Outcome) -> str:
    """Every step with its answer and the terms of every number."""
    said: list[str] = []
    for line in lines_of(outcome):
        said.append(f"{line.index}. {line.operation}")
        answers = line.expected if line.observed in ("", SAME) else f"expected {line.expected}, got {line.observed}"
        if answers:
            said.append(f"     {answers}{f', free {line.free}' if line.free else ''}")
        said += [f"     {why}" for reason in line.why for why in terms_text(reason, 95).splitlines()]
    return "\n".join(said) if said else "no operation was run"


def difference_text(difference: Difference) -> str:
    """A difference in a few lines: which rule, what was expected and seen, and the terms of the number that differs."""
    where = "" if difference.step < 0 else f"step {difference.step}: "
    said = [f"{where}{title(difference)}", f"  rule      {difference.rule}"]
    said += [f"  expected  {difference.expected}", f"  observed  {difference.observed}"]
    terms = terms_text(difference.detail, 88).splitlines()
    said += [f"  {'' if n else 'terms':<8}  {line}" for n, line in enumerate(terms)]
    return "\n".join(said)
