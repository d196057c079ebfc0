"""Holds two answers beside each other: the first aspect that differs, from robust to strict.

The comparison is the same for any two Targets. Equal answers cost one equality test; only a difference is looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from harness import suspects
from oracle.allocator import Allocator
from oracle.call import GRANTED, REFUSED, Call, Observation, Row, Rows
from oracle.groups import Group
from oracle.trace import Audit, Difference


def situation(call: Call | None, allocator: Allocator, before: Rows | None) -> tuple[str, ...]:
    """What is special about a call; part of the fingerprint, so that two defects of one rule are told apart."""
    if call is None:
        return ()
    tags = []
    if before is None or not any(before):
        tags.append("first")
    if call.external:
        tags.append("async" if call.new == 0 else "sync")
    elif call.request in allocator.adopted:
        tags.append("loaded")
    elif call.waiting and "first" not in tags:
        tags.append("session")
    return tuple(tags)


def _nulls(row: Row) -> tuple[bool, ...]:
    return tuple(block == 0 for block in row)


def _aspects(expected: Observation, observed: Observation) -> list[tuple[str, int | None]]:
    """Every aspect in which two observations differ, with the group."""
    if expected.outcome != observed.outcome:
        return [("outcome", None)]
    found: list[tuple[str, int | None]] = []
    looks: tuple[tuple[str, Callable[[Row], object]], ...] = (("columns", len), ("nulls", _nulls))
    for aspect, look in looks:
        for index, (ours, theirs) in enumerate(zip(expected.rows, observed.rows, strict=True)):
            if look(ours) != look(theirs):
                found.append((aspect, index))
                break
    if expected.free != observed.free:
        found.append(("free", None))
    for index, (ours, theirs) in enumerate(zip(expected.rows, observed.rows, strict=True)):
        if ours != theirs:
            found.append(("ids", index))
            break
    if expected.new != observed.new:
        found.append(("ids", None))
    return found


def observations(
    expected: Observation,
    observed: Observation,
    aspects: Collection[str],
    allocator: Allocator,
    step: int,
    call: Call | None,
    before: Rows | None,
    zeroing: bool = False,
) -> Difference | None:
    """The first difference among `aspects`, or None. `before`: the row before the call."""
    if expected == observed:
        return None
    groups = allocator.setting.groups
    for aspect, index in _aspects(expected, observed):
        if zeroing and aspect == "ids":
            aspect = "zeroing"
        if aspect not in aspects:
            continue
        return _describe(aspect, index, expected, observed, allocator, groups, step, call, before)
    return None


def _describe(
    aspect: str,
    index: int | None,
    expected: Observation,
    observed: Observation,
    allocator: Allocator,
    groups: tuple[Group, ...],
    step: int,
    call: Call | None,
    before: Rows | None,
) -> Difference:
    kind = groups[index].kind if index is not None else "pool"
    rule, sign, detail = "A2", "other", ""
    ours, theirs = str(expected.outcome), str(observed.outcome)
    tags = situation(call, allocator, before)
    # removal comes after the gate: a row that was changed although the gate refuses tells that the target passed it
    passed = expected.outcome == observed.outcome == REFUSED and allocator.refused_by == "gate" and aspect == "nulls"
    if aspect == "outcome" or passed:
        if call is not None and before is not None and observed.outcome.startswith("error:"):
            _look_behind_the_gate(allocator, call, before)
        rule, sign = _decision(expected, observed, allocator)
        if call is not None and before is not None:
            detail = counted(allocator, call, before)
            suspect = None
            if expected.outcome == REFUSED:
                suspect = suspects.cause(allocator, call, before)
            elif observed.outcome == REFUSED:
                suspect = suspects.refusal(allocator, call, before)
            if suspect is not None:
                tags, kind = (suspect[0],), suspect[1]
    elif aspect in ("columns", "nulls", "ids") and index is not None:
        ours, theirs = show_row(expected.rows[index]), show_row(observed.rows[index])
        if aspect == "columns":
            rule, sign, detail = _columns_rule(expected, observed, allocator, index, call, before)
        elif aspect == "nulls":
            rule = "A14"
            missing = observed.rows[index].count(0) - expected.rows[index].count(0)
            sign = "more" if missing > 0 else "less" if missing < 0 else "other"
        else:
            rule = "A3"
    elif aspect == "free":
        ours, theirs = f"{expected.free} free", f"{observed.free} free"
        sign = "more" if observed.free > expected.free else "less"
    elif aspect == "zeroing":
        rule, ours, theirs = "A60", show_row(expected.new[0]), show_row(observed.new[0])
    else:
        rule, ours, theirs = "A20", " ".join(map(show_row, expected.new)), " ".join(map(show_row, observed.new))
    return Difference(
        aspect=aspect,
        step=step,
        group=index,
        kind=kind,
        rule=rule,
        sign=sign,
        expected=ours,
        observed=theirs,
        detail=detail,
        tags=tags,
    )


def _look_behind_the_gate(allocator: Allocator, call: Call, before: Rows) -> None:
    """An error comes after the gate. One that passed it for a known reason is judged by what the test says."""
    if allocator.refused_by == "gate" and suspects.cause(allocator, call, before) is not None:
        allocator.follow(call, REFUSED)  # the trace ends here: an error leaves a half-changed state


def _decision(expected: Observation, observed: Observation, allocator: Allocator) -> tuple[str, str]:
    """Rule and sign of a decision that went another way."""
    if expected.outcome == REFUSED:
        sign = "passed the gate" if observed.outcome == REFUSED else observed.outcome
        return ("A13" if allocator.refused_by == "gate" else "A15"), sign
    return ("A16", observed.outcome) if expected.outcome == GRANTED else ("A10", observed.outcome)


def _columns_rule(
    expected: Observation,
    observed: Observation,
    allocator: Allocator,
    index: int,
    call: Call | None,
    before: Rows | None,
) -> tuple[str, str, str]:
    count = len(observed.rows[index])
    sign = "more" if count > len(expected.rows[index]) else "less"
    if call is None or before is None:
        return "A19", sign, ""
    reason = allocator.reasons(call, before)[index]
    lines = [str(reason), *reason.blame(count)]
    return reason.formula.name.split()[0], sign, "\n".join(lines)


def counted(allocator: Allocator, call: Call, before: Rows) -> str:
    """What the gate (or the test) counted, group by group."""
    lines = []
    reasons = allocator.gate_reasons(call, before) if call.full_sequence_must_fit else allocator.reasons(call, before)
    for group, reason in zip(allocator.setting.groups, reasons, strict=True):
        lines.append(f"{group.kind}: {reason}")
    return "\n".join(lines)


def show_row(row: Row) -> str:
    """A row as the specs write it: [1 2 0 3]."""
    return "[" + " ".join(map(str, row)) + "]"


def audits(expected: Audit, observed: Audit, aspects: Collection[str], step: int) -> Difference | None:
    """The first difference of two audits."""
    if expected == observed:
        return None
    base = {"step": step, "group": None, "kind": "pool"}
    if expected.rows != observed.rows and "ids" in aspects:
        for request in sorted({*expected.rows, *observed.rows}):
            ours, theirs = expected.rows.get(request), observed.rows.get(request)
            if ours != theirs and any(ours or ()) | any(theirs or ()):
                return Difference(
                    aspect="ids",
                    rule="A2",
                    sign="other",
                    expected=f"request {request}: {ours}",
                    observed=f"request {request}: {theirs}",
                    **base,  # type: ignore[arg-type]
                )
    if expected.free_order != observed.free_order and "order" in aspects:
        return Difference(
            aspect="order",
            rule="A5",
            sign="other",
            expected=show_row(expected.free_order),
            observed=show_row(observed.free_order),
            **base,  # type: ignore[arg-type]
        )
    return None
