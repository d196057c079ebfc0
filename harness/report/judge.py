"""How repro.py decides whether the defect is still there: one value, taken after the deciding call.

A wrong answer is compared with the expected one in the aspect that differs. A broken law is asked directly where it can
be (a column that must hold a block, a cap, an admission that ends in a refusal, blocks that must add up); else the
manager's recorded answers are compared: as long as it gives these very rows, the law stays broken.
"""

from __future__ import annotations

import re

from attrs import frozen

from harness.outcome import Outcome
from harness.report.walk import Moment, oracle_after
from oracle.call import GRANTED, Observation
from oracle.trace import NO_ANSWER, Difference, GiveBack, Release

#: what a script does: compare a value, watch the construction, watch its own process, run twice
VALUE, BUILD, PROCESS, TWICE = "value", "build", "process", "twice"
FREE_ORDER = "[block.block_id for block in manager.block_pool.free_block_queue.get_all_free_blocks()]"


@frozen(kw_only=True)
class Judge:
    """`got` and `there` (the defect is there) are Python expressions; `reference`: a variable and its value."""

    kind: str = VALUE
    step: int = -1
    got: str = ""
    reference: tuple[str, str] = ("", "")
    there: str = "got != expected"
    must: str = ""
    """What must be, in words or as a Python expression within braces."""
    admission: int | None = None
    """The call whose answer is kept as `admitted`."""
    direct: bool = False
    """The deciding call's result itself is wanted."""
    answers: bool = False
    """All answers are collected."""


def literal(value: object) -> str:
    """Rows and rows of rows as lists, everything else as Python shows it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(literal, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def name_of(outcome: str) -> str:
    """An outcome as repro.py calls it."""
    return outcome.removeprefix("error:")


def judge_of(outcome: Outcome, moments: list[Moment], difference: Difference) -> Judge:
    """The judge of a difference of a trace."""
    if difference.rule in ("build", *NO_ANSWER):
        return Judge(kind=BUILD if difference.rule == "build" else PROCESS, step=difference.step)
    if difference.rule == "W6" or not 0 <= difference.step < len(moments):
        return Judge(kind=TWICE, step=difference.step)
    moment = moments[difference.step]
    if difference.aspect == "law":
        return _law(outcome, moments, moment, difference)
    if moment.expected is None and difference.aspect not in ("order", "ids"):
        return Judge(kind=TWICE, step=difference.step)  # void in this run: it went another way when it was found
    return _answer(outcome, moments, moment, moment.expected or _NOTHING, difference)


#: of an operation that asks nobody; an audit may find a difference after it all the same
_NOTHING = Observation("", (), (), 0)


def _request(moment: Moment) -> int:
    request = getattr(moment.operation, "request", 0)
    return int(request)


def _rows(request: int, group: int | None = None) -> str:
    return f'rows("{request}")' + ("" if group is None else f"[{group}]")


# ----------------------------------------------------------------------------------------------- wrong answers


def _answer(
    outcome: Outcome, moments: list[Moment], moment: Moment, expected: Observation, difference: Difference
) -> Judge:
    request, group, step = _request(moment), difference.group, difference.step
    direct = False
    if difference.aspect == "outcome":
        got, value = "answer", literal(name_of(expected.outcome))
    elif difference.aspect == "free":
        got, value = "free_blocks()", literal(expected.free)
    elif difference.aspect == "zeroing":
        got, value = "zeroed", literal(expected.new[0])
    elif difference.aspect == "order":
        got, value = FREE_ORDER, literal(oracle_after(outcome, moments, step).audit().free_order)
    elif group is not None:
        got, value = _row(difference.aspect, _rows(request, group), expected.rows[group])
    elif difference.rule == "A20" and moment.released is not None:
        got, value = f"[block.block_id for block in popped_{moment.index}]", literal(expected.new[0])
    elif difference.rule == "A20":
        got, value, direct = "[list(ids) for ids in blocks.get_block_ids()]", literal(expected.new), True
    else:  # an audit: the rows of some request
        found = re.match(r"request (\d+)", difference.expected)
        named = int(found.group(1)) if found else request
        value = literal(oracle_after(outcome, moments, step).audit().rows.get(named, tuple(() for _ in expected.rows)))
        got = _rows(named)
    return Judge(step=step, got=got, reference=("expected", value), must="{expected}", direct=direct)


def _row(aspect: str, row: str, expected: tuple[int, ...]) -> tuple[str, str]:
    if aspect == "columns":
        return f"len({row})", str(len(expected))
    if aspect == "nulls":
        nulls = tuple(column for column, block in enumerate(expected) if block == 0)
        return f"[column for column, block in enumerate({row}) if block == 0]", literal(nulls)
    return row, literal(expected)


# ------------------------------------------------------------------------------------------------ broken laws


def _law(outcome: Outcome, moments: list[Moment], moment: Moment, difference: Difference) -> Judge:
    request, group, step = _request(moment), difference.group, difference.step
    column = re.search(r"column (\d+)", difference.observed)
    direct = difference.sign.endswith(("null block", "outside the row")) and moment.call is not None
    if direct and column is not None and group is not None:
        at = int(column.group(1))
        return Judge(
            step=step,
            got=f"{_rows(request, group)}[{at}:{at + 1}]",
            there='answer == "granted" and not any(got)',
            must=f"a refusal, or a block (not the null block) in column {at} of group {group}",
        )
    if difference.rule == "W4" and group is not None:
        setting = outcome.trace.setting
        cap = setting.groups[group].admission_cap(setting.in_flight_limit, setting.max_model_len)
        return Judge(
            step=step,
            got=f"sum(block != 0 for block in {_rows(request, group)})",
            reference=("cap", str(cap)),
            there="got > cap",
            must=f"at most {cap} blocks in group {group}",
        )
    if difference.rule == "W5":
        return Judge(
            step=step,
            got="(admitted, answer)",
            there='got == ("granted", "refused")',
            must="a refusal at admission, or slots for every chunk",
            admission=_admission(moments, step, request),
        )
    if difference.sign in ("owner", "conservation"):
        return _owners(outcome, moments, step)
    seen = moment.seen
    if difference.rule in ("M12", "W1") or seen is None:
        return Judge(
            step=step,
            got="answers",
            reference=("wrong", _recorded(moments)),
            there="got == wrong",
            must="other rows than these",
            answers=True,
        )
    recorded = f"({literal(seen.rows)}, {seen.free})"
    return Judge(
        step=step,
        got=f"({_rows(request)}, free_blocks())",
        reference=("wrong", recorded),
        there="got == wrong",
        must="another free count, or other rows"
        if difference.rule != "A22"
        else "the row as it was before the refusal",
    )


def _admission(moments: list[Moment], step: int, request: int) -> int | None:
    """The call by which the gate admitted the request."""
    found = None
    for moment in moments[:step]:
        call, seen = moment.call, moment.seen
        if call is not None and call.request == request and seen is not None and seen.outcome == GRANTED:
            found = moment.index if call.full_sequence_must_fit and not any(moment.before) else found
    return found


def _owners(outcome: Outcome, moments: list[Moment], step: int) -> Judge:
    names = sorted({moment.call.request for moment in moments if moment.call is not None})
    requests = ", ".join(f'"{name}"' for name in names)
    popped: list[str] = []
    for moment in moments[: step + 1]:
        if isinstance(moment.operation, Release) and moment.operation.deferred and not moment.void:
            popped.append(f"*popped_{moment.index}")
        elif isinstance(moment.operation, GiveBack) and not moment.void:
            popped.pop(0)
    lines = ["sorted(", f"    {FREE_ORDER}"]
    lines.append(f"    + [block for name in [{requests}] for row in rows(name) for block in row if block]")
    if popped:
        lines.append(f"    + [block.block_id for block in [{', '.join(popped)}] if block.block_id]")
    return Judge(
        step=step,
        got="\n".join([*lines, ")"]),
        reference=("expected", f"list(range(1, {outcome.trace.setting.num_blocks}))"),
        must="{expected}, every block free once or held once",
    )


def _recorded(moments: list[Moment]) -> str:
    """The answer and rows of every call, as repro.py collects them."""
    calls = [(m.seen.outcome, m.seen.rows) for m in moments if m.call is not None and m.seen is not None]
    shown = [f'    ("{name_of(outcome)}", {literal(rows)}),' for outcome, rows in calls]
    return "[\n" + "\n".join(shown) + "\n]"
