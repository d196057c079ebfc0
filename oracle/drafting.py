"""What a drafter works on behind one decode step (rule table D): the positions of each of its passes, and their slots.

v is the last valid position after verification. A draft is made for the position that it will be verified at, so an
autoregressive drafter goes on at v + 1; a draft model of its own reads one position more than the target first, and
goes on at v + 2; a query pass has its queries at v + 1 onwards. No position at or past max_model_len is shown to a
model: it is max_model_len - 1 instead (D-L2). Positions in tokens, slots as in `oracle.slots`.
"""

from __future__ import annotations

from attrs import frozen

from oracle.call import Rows
from oracle.groups import Group
from oracle.slots import position_of, slot
from oracle.warmup import AUTOREGRESSIVE, Draft, Part, WarmupSetting, columns

#: the first pass of an autoregressive drafter takes the target's own slots
FIRST, EXPANDED, STEP, CONTEXT, QUERIES = "first pass", "expanded pass", "step", "context", "queries"


@frozen
class Pass:
    """One pass of the drafter. at: where its tokens belong, which may be past max_model_len. own: it makes slots."""

    what: str
    at: tuple[int, ...]
    own: bool = True


def step_of(setting: WarmupSetting, operation: Draft) -> Part:
    """The decode step: 1 + K tokens, fewer where the sampled token would be at or past max_model_len."""
    new = min(1 + setting.num_speculative_tokens, setting.max_model_len - 1 - operation.computed)
    return Part(0, operation.computed, new, new - 1, 1)


def rows_of(setting: WarmupSetting, part: Part, requests: int) -> list[Rows]:
    """Rows of that many requests with this step behind them; every block's id is its own, in no order."""
    lengths = [reason.value for reason in columns(setting, part)]
    ids = iter(range(sum(lengths) * requests, 0, -1))
    return [tuple(tuple(next(ids) for _ in range(length)) for length in lengths) for _ in range(requests)]


def passes(setting: WarmupSetting, part: Part, rejected: int) -> list[Pass]:
    """D1 to D8: the passes behind a step of which `rejected` drafts were refused; D2 stays at v."""
    constant = setting.method == "mtp_constant"
    drafts, valid = setting.num_speculative_tokens, part.end - 1 - rejected
    if setting.method in AUTOREGRESSIVE:
        first = Pass(FIRST, tuple(range(part.computed, valid + 1)), own=False)
        return [first, *(Pass(STEP, (valid if constant else valid + step,)) for step in range(1, drafts))]
    if setting.method == "draft_model":
        expanded = Pass(EXPANDED, tuple(range(part.computed, part.end + 1)))
        return [expanded, *(Pass(STEP, (valid + 1 + step,)) for step in range(1, drafts))]
    count = drafts + (setting.method != "dspark")
    context = Pass(CONTEXT, tuple(range(part.computed, part.end)))
    return [context, Pass(QUERIES, tuple(range(valid + 1, valid + 1 + count)))]


def shown(setting: WarmupSetting, made: Pass) -> tuple[int, ...]:
    """The positions as a model sees them."""
    return tuple(min(position, setting.max_model_len - 1) for position in made.at)


def misplaced(
    setting: WarmupSetting,
    group: Group,
    row: tuple[int, ...],
    made: Pass,
    index: int,
    valid: int,
    found: int,
    rank: int,
) -> str:
    """What is wrong with the slot `found` of token `index` of a pass; "" when it is as it must be.

    valid: the last valid position. A refused token's place as context is nowhere; in older releases its own, over which
    the queries then go (D6). A query at or past the end goes nowhere, in older releases to the null block.
    """
    position = made.at[index]
    if made.what == CONTEXT and position > valid:
        if found < 0 or (setting.choices.refused_as_context and found == slot(setting, group, row, position, rank)):
            return ""
        return "a refused token is context"
    if made.what == QUERIES and position >= setting.max_model_len:
        if found < 0 or (setting.choices.ends_in_null and found < group.block_size):
            return ""
        hit = position_of(setting, group, row, found, rank)
        if hit is None:
            return "another's block"
        return "" if hit >= setting.max_model_len else "over context"
    wanted = slot(setting, group, row, shown(setting, made)[index], rank)
    if wanted is None:
        return "no block"
    return "" if found == wanted else "null block" if 0 <= found < group.block_size else "another slot"
