"""Known miscounts of older warmups, as formulas: to tell an instance of a declared finding from a new defect.

Each suspect says what such a release counts for a request of so many tokens in one group (blocks). A difference whose
number it gives carries its name as a tag; one that no suspect explains stays new. Block sizes are the rank's own:
no release multiplies them with the ranks of DCP. What the newest count gives as well (`_kinds`) is no miscount of an
older one: with DCP it is wrong in every release.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from packaging.version import Version

from oracle.groups import CircularBuffer, CrossAttention, Group, KpoolTail, Mamba
from oracle.rounding import ceil_div
from oracle.warmup import (
    Kernels,
    WarmupOperation,
    WarmupSetting,
    kernel_requests,
    longest_request,
    longest_tokens,
    mixed_tokens,
)

#: blocks of a request of so many tokens in a group
Count = Callable[[WarmupSetting, Group, int], int]


def _tokens(setting: WarmupSetting, group: Group, tokens: int) -> int:
    """Up to 0.24.0 everywhere, and in the mixed warmup up to 0.27.1."""
    return ceil_div(tokens, group.block_size)


def _tokens_by_kind(setting: WarmupSetting, group: Group, tokens: int) -> int:
    """0.25.1 to 0.27.1 in warmup_kernels: a uniform-type group is of no kind."""
    if isinstance(group, CrossAttention) and not group.uniform_layers:
        return ceil_div(setting.max_encoder_len, group.block_size)
    align = isinstance(group, Mamba) and group.mode == "align" and not group.uniform_layers
    return ceil_div(tokens, group.block_size) + (group.speculative_blocks if align else 0)  # type: ignore[attr-defined]


def _attention(setting: WarmupSetting, group: Group, tokens: int) -> int:
    return ceil_div(min(tokens + setting.lookahead, setting.max_model_len), group.block_size)


def _kinds(setting: WarmupSetting, group: Group, tokens: int) -> int:
    """What 0.29.0 and later count."""
    if isinstance(group, CircularBuffer):
        return 1
    if isinstance(group, CrossAttention):
        return ceil_div(setting.max_encoder_len, group.block_size)
    if isinstance(group, Mamba):
        end = tokens if group.mode == "align" else min(tokens + setting.lookahead, setting.max_model_len)
        return ceil_div(end, group.block_size) + group.speculative_blocks
    return _attention(setting, group, tokens)


def _uniform(setting: WarmupSetting, group: Group, tokens: int) -> int:
    """0.28.0: a uniform-type group is counted as attention, whatever its layers are."""
    return (_attention if group.uniform_layers else _kinds)(setting, group, tokens)


def _tails(setting: WarmupSetting, group: Group, tokens: int) -> int:
    """0.30.0 and 0.31.0: the ring of an indexer's tail is a window by its base class."""
    return (_attention if isinstance(group, KpoolTail) else _kinds)(setting, group, tokens)


#: name, first and last release that counted so, and how
SUSPECTS: tuple[tuple[str, str, str, tuple[Count, ...]], ...] = (
    ("tokens alone", "0.20.2", "0.27.1", (_tokens, _tokens_by_kind)),
    ("uniform as attention", "0.28.0", "0.28.0", (_uniform,)),
    ("tail as window", "0.30.0", "0.31.0", (_tails,)),
)


@cache
def _suspects(release: str) -> tuple[tuple[str, tuple[Count, ...]], ...]:
    """Those of a release; a patch release that is not in the table counts as the one before it did."""
    version = Version(release.partition("+")[0])
    return tuple(
        (name, counts)
        for name, first, last, counts in SUSPECTS
        if Version(first) <= version and version.release[:2] <= Version(last).release[:2]
    )


def of_columns(setting: WarmupSetting, group: Group, tokens: int, observed: int) -> tuple[str, ...]:
    """The suspects that give this number of blocks."""
    if _kinds(setting, group, tokens) == observed:
        return ()
    return tuple(
        name
        for name, counts in _suspects(setting.release)
        if any(count(setting, group, tokens) == observed for count in counts)
    )


def _longest(setting: WarmupSetting, count: Count) -> int:
    return sum(count(setting, group, longest_tokens(setting)) for group in setting.groups)


def _requests(setting: WarmupSetting, count: Count) -> int:
    return kernel_requests(setting, _longest(setting, count))


def of_requests(setting: WarmupSetting, observed: int) -> tuple[str, ...]:
    """The suspects by which the pool holds this number of warmup requests."""
    if _requests(setting, _kinds) == observed:
        return ()
    return tuple(
        name
        for name, counts in _suspects(setting.release)
        if any(_requests(setting, count) == observed for count in counts)
    )


def of_pool(setting: WarmupSetting) -> tuple[str, ...]:
    """The suspects by which the pool is too small for one request although it holds it by W1."""
    least = setting.num_blocks - 1
    if longest_request(setting) > least or _longest(setting, _kinds) > least:
        return ()
    return tuple(
        name for name, counts in _suspects(setting.release) if any(_longest(setting, count) > least for count in counts)
    )


def _skips(setting: WarmupSetting, num_tokens: int, count: Count) -> bool:
    need = sum(count(setting, group, tokens) for group in setting.groups for tokens in mixed_tokens(num_tokens))
    return setting.num_blocks <= need


def of_skip(setting: WarmupSetting, operation: WarmupOperation, ran: bool) -> tuple[str, ...]:
    """The suspects by which the mixed step fits the pool, or does not; "one seat" where two requests never fit."""
    if isinstance(operation, Kernels) or setting.max_num_seqs < 2:
        return ("one seat",) if ran else ()
    if _skips(setting, operation.num_tokens, _kinds) is not ran:
        return ()
    return tuple(
        name
        for name, counts in _suspects(setting.release)
        if any(_skips(setting, operation.num_tokens, count) is not ran for count in counts)
    )
