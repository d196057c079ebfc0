"""Which boundaries are worth a name (P28 to P31), and where a chunk may leave a state that others can resume from.

Full attention and chunked local keep everything. A window or a state is of use only where a lookup can end: at the
hit unit's multiples, and with a retention interval only at a tail per interval and where a replay resumes.
"""

from __future__ import annotations

from oracle.groups import Group, Mamba, SlidingWindow
from oracle.rounding import ceil_div
from oracle.setting import Setting


def resume_position(tokens: int, unit: int, lookahead: int, use_eagle: bool) -> int:
    """The last multiple of `unit` that a sequence of `tokens` tokens can resume from (pos of P34, A44); 0: none.

    The last token is computed again; with the drop a lookup may see all, and loses one unit.
    """
    if use_eagle:
        return max(0, tokens // unit * unit - unit)
    return max(0, (tokens - max(1, lookahead)) // unit * unit)


def resume_points(setting: Setting, prompt: int, junction: int, drops: bool, size: int) -> list[int]:
    """P29: tokens where a resend, an extension or a sibling resumes. `drops`: this group's class; `size`: its b."""
    if setting.drop_groups and setting.choices.kept_for_drop:
        unit = setting.scheduler_block_size
        points = [max(0, tokens // unit * unit - unit) for tokens in (prompt - 1, prompt)]
    else:
        points = [prompt - 1]
    if junction:
        points.append(junction)
        if drops and setting.choices.junction_below:
            points.append(junction - size)
    return points


def keeps(setting: Setting, group: Group, drops: bool, column: int, points: list[int]) -> bool:
    """Whether a held column of the group gets a name (P7, P30, P31)."""
    if isinstance(group, SlidingWindow):
        return _keeps_window(setting, group, drops, column, points)
    if isinstance(group, Mamba):
        return _keeps_state(setting, group, column, points)
    return True


def _keeps_window(setting: Setting, group: SlidingWindow, drops: bool, column: int, points: list[int]) -> bool:
    """P30: a whole window before each place where a hit may end, one block more where the last is dropped."""
    size, unit, interval = group.tokens_per_column(setting.dcp_size), _unit(setting), _interval(setting)
    extra = int(drops)
    need = ceil_div(group.window - 1, size) + extra
    if unit % size:
        return True
    segment = unit if interval is None else interval
    if segment:
        per = segment // size
        if need >= per or (column >= extra and (column - extra) % per >= per - need):
            return True
    if interval is not None:
        for point in points:
            end = point // unit * unit // size + extra
            if end - need <= column < end:
                return True
    return False


def _keeps_state(setting: Setting, group: Mamba, column: int, points: list[int]) -> bool:
    """P31: the state at the end of an interval, and where a replay resumes."""
    size, interval = group.tokens_per_column(setting.dcp_size), _interval(setting)
    if interval is None:
        return True
    if interval and (interval <= size or (column + 1) % (interval // size) == 0):
        return True
    unit = _unit(setting)
    return any(point // unit * unit // size - 1 == column for point in points)


def _unit(setting: Setting) -> int:
    """Tokens between the borders where retention takes a hit to end."""
    return setting.hit_unit if setting.choices.kept_at_hit_units else setting.scheduler_block_size


def _interval(setting: Setting) -> int | None:
    """R (tokens): none is dense, 0 keeps resume points only."""
    return setting.prefix_cache_retention_interval
