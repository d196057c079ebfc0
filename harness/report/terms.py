"""The numbers behind a difference: the terms of its formula, or the positions that a broken law is about."""

from __future__ import annotations

import textwrap

from harness.compare import show_row
from harness.outcome import Outcome
from harness.report.walk import Moment, oracle_after
from oracle.call import REFUSED
from oracle.groups import RSWA, ChunkedLocal, Group, Mamba, SlidingWindow
from oracle.trace import Difference

#: terms of the formulas that do not explain themselves
GLOSSARY = {
    "tokens": "known tokens: prompt and output so far",
    "tokens_per_column": "tokens a block, times the DCP ranks of a sharded group",
    "speculative_blocks": "states that a Mamba group keeps for drafts",
    "held": "columns or blocks that the request has",
    "dead": "leading columns that no token from here on reads",
    "cap": "most blocks that the group holds at once, since it recycles them",
    "checkpoint": "1 if a chunk also saves an inner state",
    "first": "1 if the request has no row yet",
}

_GLUE = "\N{NO-BREAK SPACE}"


def terms_text(detail: str, width: int) -> str:
    """Breakdowns with the formula and the values of its terms on lines of their own."""
    said: list[str] = []
    for line in detail.splitlines():
        formula, _, terms = line.partition("  (")
        said += textwrap.wrap(formula, width, subsequent_indent="  ")
        whole = terms.removesuffix(")").replace(" ", _GLUE).replace(f",{_GLUE}", ", ")  # a name stays with its value
        said += textwrap.wrap(whole, width, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(said).replace(_GLUE, " ")


def glossary_of(detail: str) -> list[tuple[str, str]]:
    """What the terms in these Breakdowns mean, where the name does not say it."""
    shown = {part.split()[0] for line in detail.splitlines() for part in line.partition("  (")[2].split(", ") if part}
    return [(name, meaning) for name, meaning in GLOSSARY.items() if name in shown]


def missing(outcome: Outcome, moments: list[Moment], difference: Difference) -> str:
    """By how many blocks a call that must be refused does not fit; empty for other differences."""
    if difference.expected != REFUSED or not 0 <= difference.step < len(moments):
        return ""
    oracle = oracle_after(outcome, moments, difference.step)
    if oracle.short <= 0 or moments[difference.step].call is None:
        return ""
    who = "The gate" if oracle.refused_by == "gate" else "The call"
    return f"{who} needs {oracle.short} block{'s' * (oracle.short != 1)} more than it may take"


def law_terms(outcome: Outcome, moments: list[Moment], difference: Difference) -> list[str]:
    """What a step that breaks a law works on: its positions, its row, what its kind reads."""
    if difference.aspect != "law" or difference.group is None or not 0 <= difference.step < len(moments):
        return []
    moment = moments[difference.step]
    call, seen = moment.call, moment.seen
    if call is None or seen is None:
        return []
    setting = outcome.trace.setting
    group = setting.groups[difference.group]
    size = group.tokens_per_column(setting.dcp_size)
    start = call.computed + call.external
    said = [f"row of group {difference.group}: {show_row(seen.rows[difference.group])}"]
    said.append(
        f"column j is for positions j*{size} .. j*{size}+{size - 1}" if size > 1 else "column j is for position j"
    )
    if call.new:
        drafts = f", and the drafter on the {call.lookahead} behind them" if call.lookahead else ""
        open_ = f" ({call.in_flight} tokens are in flight: it may start lower)" if call.in_flight else ""
        said.append(f"the step works on positions {start} .. {start + call.new - 1}{drafts}{open_}")
    reads = _reads(group)
    return [*said, reads] if reads else said


def _reads(group: Group) -> str:
    if isinstance(group, SlidingWindow):
        return f"a token at position q reads q-{group.window - 1} .. q" if group.window > 1 else "a token reads itself"
    if isinstance(group, ChunkedLocal):
        return f"a token reads from the start of its chunk of {group.chunk} tokens on"
    if isinstance(group, RSWA):
        return f"a token reads the prompt and the last {group.window} positions"
    if isinstance(group, Mamba):
        return "a step goes on from the state behind the last computed token"
    return "a token reads every position up to its own" if group.positional else ""
