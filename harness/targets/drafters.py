"""The release's drafters as a party: what their own code makes of one decode step, for each number refused."""

from __future__ import annotations

from typing import Any, Protocol

from attrs import frozen

from harness.targets import drafter_kernels
from harness.targets.compat import AbsentKindError, installed_release
from oracle.call import Rows
from oracle.warmup import AUTOREGRESSIVE, Part, WarmupSetting, row_width


@frozen
class Drafted:
    """One pass of one request: positions, and per group that drafts are written to the slots (none: the target's)."""

    what: str
    positions: tuple[int, ...]
    slots: tuple[tuple[int, ...], ...]


class Drafter(Protocol):
    """A party that drafts behind a step: per request, of which request i refuses i drafts, its passes."""

    def __call__(self, setting: WarmupSetting, part: Part, rows: list[Rows], rank: int) -> list[list[Drafted]]: ...


def drafting_groups(setting: WarmupSetting) -> list[int]:
    """Indices of the groups that the drafter writes to by position."""
    return [index for index, group in enumerate(setting.groups) if group.drafts and group.positional]


def batch_arguments(setting: WarmupSetting, part: Part, rows: list[Rows], rank: int) -> dict[str, Any]:
    """The arguments of `drafter_kernels.Batch`, plain data."""
    groups = drafting_groups(setting)
    return {
        "computed": part.computed,
        "new": part.new,
        "drafts": setting.num_speculative_tokens,
        "rejected": list(range(len(rows))),
        "rows": [[list(row[index]) for index in groups] for row in rows],
        "block_sizes": [setting.groups[index].block_size for index in groups],
        "widths": [row_width(setting, setting.groups[index]) for index in groups],
        "sharded": [setting.groups[index].dcp_sharded for index in groups],
        "max_model_len": setting.max_model_len,
        "ranks": setting.dcp_size,
        "rank": rank,
        "interleave": setting.cp_interleave,
    }


def run_call(method: str) -> tuple[str, dict[str, bool]]:
    """The function of `drafter_kernels` for a method, and its keywords."""
    if method in AUTOREGRESSIVE:
        return "autoregressive", {"advance": False} if method == "mtp_constant" else {}
    return ("draft_model", {}) if method == "draft_model" else ("query_pass", {"anchor": method == "dspark"})


def draft(setting: WarmupSetting, part: Part, rows: list[Rows], rank: int, **more: Any) -> list[list[Drafted]]:
    """Run the drafter of the setting's method; `module`: its code in place of the release's.

    AbsentKindError where the release's V2 runner has none for it, or none that knows of ranks (DCP).
    """
    name, keywords = run_call(setting.method)
    if drafter_kernels.home(name) is None or (setting.dcp_size > 1 and not drafter_kernels.sharded(name)):
        raise AbsentKindError(
            f"the V2 runner of vLLM {installed_release()} has no such drafter: {setting.method}, DCP {setting.dcp_size}"
        )
    batch = drafter_kernels.Batch(**batch_arguments(setting, part, rows, rank))
    found = getattr(drafter_kernels, name)(batch, **keywords, **more)
    return [
        [Drafted(what, tuple(positions), tuple(map(tuple, slots))) for what, positions, slots in passes]
        for passes in found
    ]
