"""Known miscounts of vLLM, as formulas: to tell an instance of a declared finding from a new defect that looks like it.

A wrong decision shows only that some count was too small, not which. Each suspect says by how many blocks it would have
counted too little for this very call; if that covers what was missing, the suspect is the cause and its name becomes
part of the difference's fingerprint. A decision that no suspect covers keeps its situation as fingerprint, and is new.
"""

from __future__ import annotations

from attrs import evolve

from oracle.align import AlignRows
from oracle.allocator import Allocator
from oracle.call import Call, Rows
from oracle.reservation import Positional, Work, work_of
from oracle.rounding import ceil_div


def _dead_columns(rule: Positional, work: Work, row: list[int]) -> int:
    """The gate cuts dead columns off the cap, and counts null columns as held: recycled blocks pay twice (A13)."""
    if rule.cap is None:
        return 0
    columns = ceil_div(min(work.tokens, rule.max_model_len), rule.size)
    dead = rule.dead_columns(work.start)
    suspected = max(0, min(columns, rule.cap) - max(dead, len(row)))
    return rule.gate(evolve(work, first=not row), row) - suspected


def _adopted_state(rule: Positional, work: Work, row: list[int]) -> int:
    """The block of a loaded state is not counted beside the running state's (A15)."""
    return int(isinstance(rule, AlignRows) and work.first and work.external > 0)


def _longer_row(rule: Positional, work: Work, row: list[int]) -> int:
    """A row longer than the call needs counts below zero, and pays for other groups (A15)."""
    if not isinstance(rule, AlignRows) or work.first:
        return 0
    return max(0, len(row) - ceil_div(work.end, rule.size) - rule.scratch)


def _longer_known(rule: Positional, work: Work, row: list[int]) -> int:
    """The same in the gate, for the whole known sequence."""
    if not isinstance(rule, AlignRows) or work.first:
        return 0
    return max(0, len(row) - ceil_div(min(work.tokens, rule.max_model_len), rule.size) - rule.scratch)


def _behind_nulls(rule: Positional, work: Work, row: list[int]) -> int:
    """Dead states before a null: a removal that walks back to the first null leaves them allocated (A14)."""
    if not isinstance(rule, AlignRows) or work.first:
        return 0
    dead = row[: rule.dead_columns(work.processed)]
    while dead and dead[-1]:
        dead.pop()  # what the walk reaches
    return len(dead) - dead.count(0)


_GATE = (("dead columns", _dead_columns), ("longer row", _longer_known))
_TEST = (("adopted state", _adopted_state), ("longer row", _longer_row))
#: the names that a difference may carry in its tags
NAMES = frozenset(name for name, _ in (*_GATE, *_TEST)) | {"behind nulls"}


def cause(allocator: Allocator, call: Call, before: Rows) -> tuple[str, str] | None:
    """Name and kinds of the suspect that explains why the target went on where the oracle refused; None without one."""
    work = work_of(call, not any(before), allocator.setting.max_model_len)
    for name, too_little in _GATE if allocator.refused_by == "gate" else _TEST:
        kinds = set()
        total = 0
        for rule, row in zip(allocator.rules, allocator.counted_rows(call, before), strict=True):
            missing = too_little(rule, work, list(row))
            total += missing
            if missing > 0:
                kinds.add(_kind(rule))
        if total >= allocator.short:
            return name, "+".join(sorted(kinds))
    return None


def refusal(allocator: Allocator, call: Call, before: Rows) -> tuple[str, str] | None:
    """The same for a target that refused where the oracle granted, by what the oracle's count left."""
    work = work_of(call, not any(before), allocator.setting.max_model_len)
    kept = sum(_behind_nulls(rule, work, list(row)) for rule, row in zip(allocator.rules, before, strict=True))
    return ("behind nulls", "mamba_align") if kept > -allocator.short else None


def _kind(rule: Positional) -> str:
    return "mamba_align" if isinstance(rule, AlignRows) else rule.group.kind
