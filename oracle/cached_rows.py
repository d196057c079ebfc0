"""Counting and growing rows that begin with a hit (P36, P37, P41, P42)."""

from __future__ import annotations

from oracle.align import AlignRows
from oracle.groups import Mamba
from oracle.names import NamedPool
from oracle.reservation import Positional, Work, rules_of
from oracle.retention import resume_position
from oracle.rounding import ceil_div
from oracle.setting import Setting


class CachedAlignRows(AlignRows):
    """An align group whose inner boundary follows the hit unit and the drop (A44, P35)."""

    def __init__(self, group: Mamba, setting: Setting) -> None:
        super().__init__(group, setting)
        self.unit = setting.hit_unit
        self.lookahead_hash = setting.num_hash_lookahead_tokens
        self.use_eagle = setting.use_eagle
        self.counts_cap = setting.choices.counts_cap

    def unneeded(self, work: Work, needed: int, copies: int) -> int:
        """A15 up to 0.30.0: who takes any block is counted the most that one call can take beside the copy."""
        if not self.counts_cap or needed + copies == 0:
            return 0
        return max(0, 1 + (self.scratch if work.first else 0) - needed)

    def inner_boundary(self, end: int) -> int:
        return resume_position(end, self.unit, self.lookahead_hash, self.use_eagle)


def cached_rules_of(setting: Setting) -> list[Positional]:
    """The rules of each group with caching on."""
    return [
        CachedAlignRows(rule.group, setting) if isinstance(rule, AlignRows) and isinstance(rule.group, Mamba) else rule
        for rule in rules_of(setting)
    ]


def begun(rule: Positional, work: Work, hits: tuple[int, ...]) -> list[int]:
    """P42: the row that a first call begins with: its dead columns, null, then the hit blocks from there on."""
    dead = rule.dead_columns(work.loaded)
    return [0] * dead + list(hits[dead:])


def loads(rule: Positional, work: Work, row: list[int]) -> int:
    """A18: blocks for the external tokens that are still read, in a row that begins as `row`."""
    if not rule.adopts or min(work.loaded - rule.group.live(work.loaded), work.external) <= 0:
        return 0
    return max(0, ceil_div(work.loaded, rule.size) - len(row))


def grows(rule: Positional, work: Work, row: list[int]) -> int:
    """A19, A45: blocks that the extension of `row` takes."""
    if isinstance(rule, AlignRows):
        return rule.fresh(work, row)
    if not rule.adopts:
        return rule.count(work, row)
    return max(0, ceil_div(work.need, rule.size) + rule.more - len(row))


def _free(rule: Positional, start: list[int], hits: tuple[int, ...], pool: NamedPool) -> int:
    """P41: hit blocks that leave the free queue; of Mamba also a hit state that a load has made superfluous."""
    return pool.unused(hits if isinstance(rule, AlignRows) else start)


def spared(rule: Positional, work: Work, hits: tuple[int, ...], pool: NamedPool) -> int:
    """Blocks that P41 counts and nobody takes: a hit state that a load has made superfluous."""
    if not isinstance(rule, AlignRows):
        return 0
    return pool.unused(hits) - pool.unused(begun(rule, work, hits))


def superseded(rule: Positional, work: Work, hits: tuple[int, ...], copies: int) -> int:
    """1 if a load on top of a hit inside a block brings a later state, so that nobody copies the hit's."""
    return int(bool(hits) and (work.loaded - work.external) % rule.size > 0 and not copies)


def uncalled(rule: Positional, work: Work, row: list[int], hits: tuple[int, ...], copies: int) -> int:
    """Blocks that a release counts and does not take."""
    if not isinstance(rule, CachedAlignRows):
        return 0
    start = begun(rule, work, hits) if work.first else row
    loaded = loads(rule, work, start) if work.first else 0
    saved = superseded(rule, work, hits, copies)
    return saved + rule.unneeded(work, rule.fresh(work, start + [-1] * loaded), copies + saved)


def counted(rule: Positional, work: Work, row: list[int], hits: tuple[int, ...], copies: int, pool: NamedPool) -> int:
    """P41: blocks that the call takes out of the free queue. `copies`: 1 if it first takes one for a copy."""
    if not (work.first and rule.adopts and work.loaded):  # nothing is found or loaded: A15
        return rule.count(work, row) + copies
    start = begun(rule, work, hits)
    free = _free(rule, start, hits, pool)
    loaded = loads(rule, work, start)
    return free + loaded + grows(rule, work, start + [-1] * loaded) + copies


def gated(rule: Positional, work: Work, row: list[int], hits: tuple[int, ...], copies: int, pool: NamedPool) -> int:
    """A13, A47 with hits: what the whole known sequence still takes at its peak."""
    if not work.first or not any(hits):
        needed = rule.gate(work, row)
        return needed + copies + (rule.unneeded(work, needed, copies) if isinstance(rule, CachedAlignRows) else 0)
    start = begun(rule, work, hits)
    free = _free(rule, start, hits, pool)
    if isinstance(rule, CachedAlignRows):
        needed = rule.gate(work, list(hits))
        copies += superseded(rule, work, hits, copies)
        return needed + free + copies + rule.unneeded(work, needed, copies)
    columns = ceil_div(min(work.tokens, rule.max_model_len), rule.size) + rule.more
    if rule.cap is None:
        return max(0, columns - max(rule.dead_columns(work.start), len(hits))) + free + copies
    empty = start.count(0)  # never filled: dead columns, and what the hit left out because the window does not need it
    return (
        max(0, min(rule.cap, columns - max(rule.dead_columns(work.start), empty)) - (len(start) - empty))
        + free
        + copies
    )
