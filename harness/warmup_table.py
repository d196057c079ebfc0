"""`explain` of a warmup trace as text: each request in each step and group, with the terms of its columns."""

from __future__ import annotations

from harness.compare import show_row
from harness.warmups import Entry, WarmupOutcome
from oracle.warmup import WarmupSetting
from oracle.warmup_laws import kind_of

HEAD = ("step", "request", "computed + new + lookahead", "cap", "group", "b", "columns", "held", "expected", "manager")


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
        kind_of(group),
        str(terms.get("tokens_per_column", group.block_size)),
        str(entry.reason.value),
        show_row(entry.row),
        f"{entry.expected} blocks",
        "-" if entry.manager is None else f"{entry.manager} blocks",
    )


def text(outcome: WarmupOutcome) -> str:
    """The table, and below it each difference with its terms."""
    lines = [HEAD, *rows(outcome)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    for difference in (*outcome.differences, *outcome.declared):
        shown += ["", f"{difference.fingerprint}: expected {difference.expected}, got {difference.observed}"]
        shown += [f"  {line}" for line in difference.detail.splitlines()]
    return "\n".join(shown) + "\n"
