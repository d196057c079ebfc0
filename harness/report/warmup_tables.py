"""repro.py of a row or slot that the worker's block tables make otherwise: the recorded steps as literals."""

from __future__ import annotations

from typing import Any

from harness.warmups import WarmupDifference
from oracle.groups import CircularBuffer, Group, SlidingWindow
from oracle.warmup import Ran, Recorded, WarmupSetting, row_width

Step = list[tuple[int, int, int, list[list[int]] | None]]


def has_slots(group: Group) -> bool:
    """Whether the worker makes slots for a kind of group: a ring is indexed by its kernel."""
    return not isinstance(group, CircularBuffer)


def script(setting: WarmupSetting, difference: WarmupDifference, ran: Ran) -> dict[str, Any]:
    """What the template needs beside title and reason."""
    groups = setting.groups
    reach = [g.window - 1 + g.extra_retained_tokens if isinstance(g, SlidingWindow) else 0 for g in groups]
    arguments: dict[str, Any] = {
        "block_sizes": [group.block_size for group in groups],
        "kernel_block_sizes": [group.block_size for group in groups],
        "max_num_reqs": setting.max_num_seqs,
        "max_num_batched_tokens": max(setting.max_num_batched_tokens, setting.max_num_seqs * setting.lookahead),
        "max_num_blocks_per_group": [row_width(setting, group) for group in groups],
        "slot_mapping_enabled": [has_slots(group) for group in groups],
        "dcp_sharded": [group.dcp_sharded for group in groups],
        "sliding_window_reach": reach,
        "cp_size": setting.dcp_size,
        "cp_rank": difference.rank,
        "cp_interleave": setting.cp_interleave,
    }
    return {
        "arguments": [(name, repr(value)) for name, value in arguments.items()],
        "redirect": setting.null_block_redirect,
        "seats": setting.max_num_seqs,
        "steps": [_literal(step) for step in steps_of(ran, difference.at)],
        "request": difference.request,
        "position": difference.token,
        "group": difference.group or 0,
        "there": _there(setting, difference),
        "must": difference.expected,
    }


def _there(setting: WarmupSetting, difference: WarmupDifference) -> str:
    if difference.sign.startswith("error:"):
        return f'got == "{difference.sign.removeprefix("error:")}"'
    if difference.token >= 0 and difference.group is not None:
        if difference.sign.endswith("null block"):
            return f"0 <= got < {setting.groups[difference.group].block_size}"
        return f"got != {difference.expected.split()[-1]}"
    return f"got != {[int(block) for block in difference.expected.strip('[]').split()]}"


def steps_of(ran: Ran, at: int) -> list[Recorded]:
    """The steps of one pass up to step `at` of the warmup."""
    steps = [step for step in ran.steps if step.parts or step.finished][: at + 1]
    first = max((index + 1 for index, step in enumerate(steps[:-1]) if step.finished), default=0)
    return steps[first:]


def _literal(recorded: Recorded) -> Step:
    return [
        (part.request, part.computed, part.new, None if blocks is None else [list(row) for row in blocks])
        for part, blocks in zip(recorded.parts, recorded.blocks, strict=True)
    ]
