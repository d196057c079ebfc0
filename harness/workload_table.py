"""`replay` of a workload as text: each step, who is scheduled with how many tokens and drafts, blocks, what is left."""

from __future__ import annotations

from harness.compare import show_row
from harness.workload_outcome import Entry, WorkloadOutcome
from oracle.breakdown import Breakdown
from oracle.call import GRANTED
from oracle.content import item_length
from oracle.scheduled import FREE, POP, START
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import SchedulerOperation, SchedulerTrace, Step, Submit, Update

HEAD = ("step", "operation", "request", "tokens", "drafts", "asked", "blocks", "left", "free", "then")


def describe(operation: SchedulerOperation) -> str:
    """An operation in a few words; a step that says nothing is "step"."""
    if isinstance(operation, Submit):
        rest = f", priority {operation.priority}" if operation.priority else ""
        if operation.remote:
            rest += f", {operation.remote} to load {operation.load}"
        rest += f", encoder {operation.encoder}" if operation.encoder else ""
        rest += _items(operation)
        rest += ", a session" if operation.session else ""
        rest += ", reads no cache" if operation.skip else ""
        rest += f", grammar after {operation.grammar} looks" if operation.grammar else ""
        words = ((operation.unknown, f"after {operation.unknown} looks"), (operation.again, "again"))
        rest += "".join([f", {word}" for there, word in (*words, (operation.keeps, "keeps")) if there])
        return f"submit {operation.request}: prompt {operation.prompt}, max {operation.max_tokens}{rest}"
    if isinstance(operation, Update):
        if not operation.prompt:
            return f"end of the input of {operation.request}"
        rest = f"prompt {operation.prompt}, max {operation.max_tokens}{_items(operation)}"
        return f"update {operation.request}: {rest}"
    if isinstance(operation, Step):
        said = [
            f"{name} " + ", ".join(f"{request}:{count}" for request, count in getattr(operation, name))
            for name in ("accepted", "stops", "drafts")
            if getattr(operation, name)
        ]
        said += [f"{name} loaded" + f" up to column {j - 1}" * (j > 0) for name, j in operation.loaded]
        said += [f"valid {name}:{count}" for name, count in operation.valid]
        said += [f"grammar of {name} refuses" for name in operation.refused]
        said += [f"{name} sent" for name in operation.sent]
        return "; ".join(["step", *said, *(["early"] if operation.early else [])])
    values = [f"{name} {value}" for name, value in _values(operation)]
    return " ".join([type(operation).__name__.lower(), *values])


def _items(operation: Submit | Update) -> str:
    return "".join([f", item {item} at {at} to {at + item_length(item) - 1}" for item, at in operation.items])


def _values(operation: SchedulerOperation) -> list[tuple[str, object]]:
    return [(name, getattr(operation, name)) for name in ("request", "running", "state") if hasattr(operation, name)]


def rows(outcome: WorkloadOutcome) -> list[tuple[str, ...]]:
    """The table's rows, in the order of `HEAD`; of an outcome that kept its entries."""
    found: list[tuple[str, ...]] = []
    shown = -1
    for number, entry in enumerate(outcome.entries):
        found += _said(outcome.trace, shown + 1, entry.operation)
        shown = entry.operation
        found += _step_rows(outcome, number, entry)
    return found + _said(outcome.trace, shown + 1, len(outcome.trace.operations))


def _said(trace: SchedulerTrace, first: int, end: int) -> list[tuple[str, ...]]:
    """Operations between two steps."""
    between = [operation for operation in trace.operations[first:end] if not isinstance(operation, Step)]
    return [("", describe(operation), *[""] * 8) for operation in between]


def _step_rows(outcome: WorkloadOutcome, number: int, entry: Entry) -> list[tuple[str, ...]]:
    operations = outcome.trace.operations
    what = describe(operations[entry.operation]) if entry.operation < len(operations) else "step (until all are done)"
    drafts = dict(entry.planned.drafts)
    asked = {event.request: event for event in entry.events if event.call is not None}
    lines = []
    for name, tokens in entry.planned.tokens:
        event = asked.get(name)
        ask = blocks = ""
        if event is not None and event.call is not None and event.seen is not None:
            ask = f"{event.call.computed}+{event.call.new}+{event.call.lookahead} of {event.call.tokens}"
            blocks = " ".join(map(show_row, event.seen.rows))
        lines.append([str(name), str(tokens), str(drafts.get(name, 0)), ask, blocks])
    begun = [e for e in entry.events if e.what == START and e.tokens]
    then = [f"{event.request} loads {event.tokens}" for event in begun]
    then += [
        f"{name} encodes item {_item(outcome, name, place)}" for name, made in entry.planned.encoded for place in made
    ]
    then += [f"output {item} dropped" for item in entry.planned.dropped]
    refused = [e.request for e in entry.events if e.seen is not None and e.seen.outcome != GRANTED]
    then += [f"{name} refused" for name in dict.fromkeys(refused)]
    then += [f"{event.request} preempted" for event in entry.events if event.what in (FREE, POP)]
    then += [f"{name} gets {len(tokens)}{', ' + reason if reason else ''}" for name, tokens, reason in entry.delivered]
    left = f"{entry.left} tokens, {entry.rows_left} rows"
    if not lines:
        lines = [["nobody", "", "", "", ""]]
    return [
        (
            str(number) if not place else "",
            what if not place else "",
            *line,
            left if not place else "",
            str(entry.free) if not place else "",
            "; ".join(then) if not place else "",
        )
        for place, line in enumerate(lines)
    ]


def _item(outcome: WorkloadOutcome, name: int, place: int) -> int:
    """The identifier of one of a request's items, those of its pieces after each other."""
    begun = (one for one in outcome.trace.operations if isinstance(one, Submit) and one.request == name)
    items = next(begun).items
    for piece in outcome.updates.values():
        items += piece.items if piece.request == name else ()
    return items[place][0]


def text(outcome: WorkloadOutcome) -> str:
    """The table, and below it each difference."""
    lines = [HEAD, *rows(outcome)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    for difference in (*outcome.differences, *outcome.declared):
        shown += ["", f"{difference.fingerprint}: expected {difference.expected}, got {difference.observed}"]
        shown += [f"  {line}" for line in difference.detail.splitlines()]
    return "\n".join(shown) + "\n"


def terms(setting: SchedulerSetting, reasons: list[list[tuple[int, str, list[Breakdown]]]]) -> list[str]:
    """Of each step and each ask the terms of its tokens, and of each group's columns (or of what the gate counts)."""
    lines: list[str] = []
    for number, asks in enumerate(reasons):
        for request, why, (part, *groups) in asks:
            lines += ["", f"step {number}, request {request}{': ' + why if why else ''}", f"  new = {part}"]
            for group, reason in zip(setting.groups, groups, strict=True):
                lines.append(f"  {group.kind}: {reason}")
    return lines
