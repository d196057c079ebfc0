"""Known traps of 0.33.0 as formulas, to tell an instance of a declared finding from a new one."""

from __future__ import annotations

from attrs import evolve

from oracle.align import AlignRows
from oracle.allocator import Allocator
from oracle.groups import Mamba
from oracle.laws import blocks_for_one
from oracle.methods import unreserved
from oracle.released import method_of
from oracle.rounding import ceil_div
from oracle.scheduled import PAUSED_SESSION
from oracle.scheduler import Scheduler
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import PAUSED_NEW

#: columns counted without the DCP ranks that they are spread over
UNSHARDED = "without the DCP factor"
#: a state that is saved within a chunk, behind the tokens that have names
BEYOND = "checkpoint beyond the tokens"
#: why nobody runs where sessions hold blocks; a continued session's place under priority
SESSIONS_HOLD, PLACE = "sessions hold blocks", "place of a continued session"


def asleep_by(prediction: Scheduler) -> tuple[str, ...]:
    """Under PAUSED_NEW the queue is not counted, but sessions that wait for input in it are subtracted."""
    apart = prediction.paused == PAUSED_NEW and any(one.status == PAUSED_SESSION for one in prediction.waiting)
    return ("sessions without blocks",) if apart else ()


def unfreed_by(setting: SchedulerSetting) -> str:
    """S49: the release preempts requests whose blocks do not come free, all of them in vain, step by step."""
    return "preempted in vain" if setting.defers_frees and not setting.choices.spares_unfreed else ""


def unsized(setting: SchedulerSetting, short: int, session: bool, hit: bool) -> tuple[str, ...]:
    """What start-up sizing leaves out, where one request alone is refused in a pool of that size, `short` blocks short.

    A step in flight keeps its Mamba states and checkpoints beside the next one's; a row that goes on begins with more
    states than a new one; a hit inside a block holds its source and its copy at once (P36); releases that count the
    most that a call can take (A15) count the copy at each block; the drafter's lookahead lies past a window's cap.
    """
    states = [group for group in setting.groups if isinstance(group, Mamba) and group.mode == "align"]
    overlap, fine, counts_cap = setting.in_flight_depth > 1, setting.fine_hits, setting.choices.counts_cap
    copies = sum(group.cacheable and group.block_size > setting.hash_size for group in setting.groups)
    ahead = setting.facts.lookahead
    missing = {
        "copies of a hit": copies * (hit and fine),
        "states in flight": sum(1 + group.checkpoint_blocks for group in states) * overlap,
        "counts what a call can take": len(states) * (counts_cap and fine),
        SESSIONS_HOLD: sum(1 + group.speculative_blocks for group in states) * session,
        "lookahead past the cap": sum(ceil_div(ahead, group.block_size) for group in setting.groups if group.recycles),
    }
    short += setting.num_blocks - 1 - blocks_for_one(setting)
    for tag, blocks in missing.items():
        if 0 < short <= blocks:
            return (tag,)
    return tuple(tag for tag, blocks in missing.items() if blocks) if 0 < short <= sum(missing.values()) else ()


def unreserved_by(setting: SchedulerSetting) -> tuple[str, ...]:
    """Law D-L1: the release keeps fewer slots than the method's drafter writes."""
    row = method_of(setting.method, setting.parallel_drafting, setting.release)
    return (f"lookahead of {row.name}",) if unreserved(row, setting.num_speculative_tokens) else ()


def cut_by(setting: SchedulerSetting, prediction: Scheduler, name: int, new: int) -> tuple[str, ...]:
    """S41: chunks that end at multiples of the smallest block of all groups, not at those of the Mamba groups'."""
    sizes = [group.block_size for group in setting.groups if group.cacheable]
    if not (setting.enable_caching and min(sizes) < setting.align_size):
        return ()
    smallest = evolve(prediction.chunks, size=min(sizes))
    return ("smallest block",) if prediction.cut_by(smallest, name) == new else ()


def reserved_by(prediction: Scheduler, allocator: Allocator, missing: int) -> tuple[str, ...]:
    """S44: a Mamba row that drafts made longer than what is known counts below zero for those who started earlier."""
    surplus = 0
    for request in prediction.prefilling:
        for rule, row in zip(allocator.rules, allocator.rows.get(request.id, ()), strict=False):
            if isinstance(rule, AlignRows):
                known = ceil_div(min(request.n, allocator.max_model_len), rule.size)
                surplus += max(0, len(row) - known - rule.scratch)
    return ("longer row",) if surplus == missing else ()
