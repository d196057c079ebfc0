"""From a row of block ids to the slots that a step's positions are written to, as the worker must compute them.

A slot is the index of one position in the physical cache of a rank: block id * block size + offset. With D ranks column
p // (b * D) of a sharded group has position p. In it the ranks take turns of I tokens, `cp_interleave`: p is on rank
(p // I) mod D, and the others have no slot for it. Units: positions in tokens, columns and ids as in `oracle.groups`.
"""

from __future__ import annotations

from oracle.groups import Group, SlidingWindow
from oracle.warmup import Part, WarmupSetting

#: no slot: nothing is written
PAD = -1


def slot(setting: WarmupSetting, group: Group, row: tuple[int, ...], position: int, rank: int) -> int | None:
    """The slot of a position on a rank, PAD when another rank has it; None when the row has no block for it."""
    ranks = setting.dcp_size if group.dcp_sharded else 1
    column, inside = divmod(position, group.block_size * ranks)
    turn, ahead = divmod(inside, setting.cp_interleave)
    if turn % ranks != rank % ranks:
        return PAD
    if column >= len(row) or row[column] == 0:
        return None
    return row[column] * group.block_size + turn // ranks * setting.cp_interleave + ahead


def drafted(setting: WarmupSetting, part: Part) -> range:
    """Positions past the target's range that the drafter may write (D1 to D9, at most the lookahead), below M."""
    return range(part.end, min(part.end + setting.lookahead, setting.max_model_len))


def gathered(setting: WarmupSetting, group: Group, row: tuple[int, ...], computed: int) -> tuple[int, ...]:
    """The row that the forward pass sees: a window's columns that no token at or past `computed` reads are null.

    With several ranks a column is no range of positions, and nothing is masked. Older releases mask nothing.
    """
    if setting.null_block_redirect:
        return (0,) * len(row)
    if not setting.choices.masks_windows or not isinstance(group, SlidingWindow) or setting.dcp_size > 1:
        return row
    dead = min(group.live(computed) // group.block_size, len(row))
    return (0,) * dead + row[dead:]


def queries(setting: WarmupSetting, last_valid: int) -> range:
    """Positions of the query pass of DFlash (a bonus query and K masked ones) and of DSpark (D6 to D8)."""
    count = setting.num_speculative_tokens + (setting.method != "dspark")
    return range(last_valid + 1, last_valid + 1 + count)


def query_slot(setting: WarmupSetting, group: Group, row: tuple[int, ...], position: int, rank: int) -> int:
    """Where a query's KV goes: nowhere at or past max_model_len (D-L2), nowhere without a block, else to its slot."""
    if position >= setting.max_model_len:
        return PAD
    found = slot(setting, group, row, position, rank)
    return PAD if found is None else found


def position_of(setting: WarmupSetting, group: Group, row: tuple[int, ...], found: int, rank: int) -> int | None:
    """The position whose place a slot is; None when it is in no block of the row."""
    block, offset = divmod(found, group.block_size)
    if block <= 0 or block not in row:
        return None
    ranks = setting.dcp_size if group.dcp_sharded else 1
    turn, ahead = divmod(offset, setting.cp_interleave)
    inside = (turn * ranks + rank % ranks) * setting.cp_interleave + ahead
    return row.index(block) * group.block_size * ranks + inside
