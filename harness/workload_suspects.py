"""Known traps of 0.33.0 as formulas, to tell an instance of a declared finding from a new one."""

from __future__ import annotations

from attrs import evolve

from oracle.align import AlignRows
from oracle.allocator import Allocator
from oracle.content import LONGEST_ITEM
from oracle.groups import Mamba, ceil_div
from oracle.laws import blocks_for_one
from oracle.methods import unreserved
from oracle.released import method_of
from oracle.scheduler import Scheduler
from oracle.scheduler_setting import PRIORITY, SchedulerSetting
from oracle.violation import Waiting
from oracle.workload import PAUSED_NEW, PAUSED_SESSION

#: columns counted without the DCP ranks that they are spread over
UNSHARDED = "without the DCP factor"
#: a state that is saved within a chunk, behind the tokens that have names
BEYOND = "checkpoint beyond the tokens"
#: why nobody runs where sessions hold blocks; a continued session's place under priority
SESSIONS_HOLD, PLACE = "sessions hold blocks", "place of a continued session"


def stuck_by(setting: SchedulerSetting, sessions: bool = False) -> str:
    """The trap that a setting has for progress; empty without one. sessions: some request is one.

    S1, S4 against S22: the largest part of a request, and more known tokens than that must be left for the drafter's
    modules. S41 against S22: the same, where a chunk must stop at the next Mamba block. S9 and S41 against S1: a prompt
    without chunks, or a Mamba block that fits into G, must fit beside its charged draft slots. S21: a prompt cached but
    for a token is padded to 1 + K rows. P36: a hit inside a block holds its source and its copy at once, which start-up
    sizing leaves out. S52: an item that may not be split must fit into a part, with what a drafter reads past the part
    before it. S44: a load leaves the blocks of a step's drafts free, also where nobody runs.
    """
    facts = setting.facts
    room = min(setting.budget, setting.max_num_batched_tokens - setting.charged)
    if min(room, setting.long_prefill_token_threshold or room) < facts.prefill_lookahead:
        return "largest part below the lookahead"
    if not setting.enable_chunked_prefill and room < setting.max_model_len - 1:
        return "prompt beside draft slots"
    begins_late = setting.enable_caching or setting.kv_connector or sessions
    padded = begins_late and setting.choices.pads_alone and setting.num_speculative_tokens > 0
    if padded and room < 1 + setting.num_speculative_tokens:
        return "padding beyond the room"
    largest = min(setting.budget, setting.long_prefill_token_threshold or setting.budget)
    if room < setting.align_size <= largest:
        return "block beside draft slots"
    if setting.disable_chunked_mm_input and min(room, setting.long_prefill_token_threshold or room) < whole_item(
        setting
    ):
        return "item beyond a part"
    if setting.choices.chunks_loose and setting.align_size > min(room, setting.long_prefill_token_threshold or room):
        return "block beyond a chunk"
    if setting.align_size > 0 and facts.prefill_lookahead > 1:
        return "block border in the lookahead"
    if setting.enable_caching and setting.fine_hits:
        copies = sum(group.cacheable and group.block_size > setting.hash_size for group in setting.groups)
        if setting.num_blocks - 1 - blocks_for_one(setting) < copies:
            return "copies of a hit"
    if setting.kv_connector and setting.num_blocks - 1 - blocks_for_one(setting) < reserve_of_a_load(setting):
        return "reserve beside a load"
    return ""


def whole_item(setting: SchedulerSetting) -> int:
    """Tokens of a part that holds any item whole: the one before it stopped short of what is read ahead."""
    return setting.facts.prefill_lookahead + LONGEST_ITEM


def stuck_again_by(setting: SchedulerSetting, sessions: bool = False, waits: tuple[Waiting, ...] = ()) -> str:
    """S44: loads that failed as a whole are still among those reserved for when one of them is tried again.

    Those who have loaded are, too; each is reserved for with the draft slots of a step.
    """
    held, more = sum(one.held for one in waits), rows_of_a_load(setting)
    kept = sum(max(0, blocks_for_one(setting, one.tokens + more) - one.held) for one in waits if one.failed or one.held)
    needs = max((blocks_for_one(setting, one.tokens) for one in waits if not one.held), default=0)
    if setting.num_blocks - 1 - held < needs + kept + reserve_of_a_load(setting):
        return "retry reserves for itself"
    return stuck_by(setting, sessions)


def stuck_held_by(setting: SchedulerSetting, sessions: bool = False) -> str:
    """S8, S44: who has loaded waits behind a candidate that is refused, or all who have lack a block for drafts."""
    return stuck_by(setting, sessions) or "waits with blocks"


def begun_by(setting: SchedulerSetting, waits: tuple[Waiting, ...]) -> str:
    """S10, S44: a load need not leave what the rest of its own prompt needs, unless all of that must fit.

    Who came later and is more urgent lacks it, and stands before another one that holds blocks.
    """
    if setting.scheduler_reserve_full_isl or setting.policy != PRIORITY or not setting.choices.holders_first:
        return ""
    holders = sorted((one for one in waits if one.held), key=lambda one: one.urgency)
    later = len(holders) > 1 and holders[0].urgency[1] > min(one.urgency[1] for one in holders[1:])
    return "load without the rest of its prompt" if setting.kv_connector and later else ""


def kept_place_by(setting: SchedulerSetting, waits: tuple[Waiting, ...]) -> str:
    """S56: the position of a sampled token is kept where none is sampled, and a prompt may have all of them."""
    keeps = setting.pooling and setting.choices.pooled_keeps_place
    return "place for no token" if keeps and any(one.tokens == setting.max_model_len for one in waits) else ""


def asleep_by(prediction: Scheduler) -> tuple[str, ...]:
    """Under PAUSED_NEW the queue is not counted, but sessions that wait for input in it are subtracted."""
    apart = prediction.paused == PAUSED_NEW and any(one.status == PAUSED_SESSION for one in prediction.waiting)
    return ("sessions without blocks",) if apart else ()


def unfreed_by(setting: SchedulerSetting) -> str:
    """S49: the release preempts requests whose blocks do not come free, all of them in vain, step by step."""
    return "preempted in vain" if setting.defers_frees and not setting.choices.spares_unfreed else ""


def sessions_by(setting: SchedulerSetting, sessions: bool) -> str:
    """Sessions that wait to go on hold the blocks that each other needs, and nobody takes them away."""
    return stuck_by(setting, sessions) or SESSIONS_HOLD


def alone_by(setting: SchedulerSetting, sessions: bool = False) -> str:
    """What start-up sizing leaves out, where a pool of just that size does not hold one request alone; or empty.

    A step in flight keeps its Mamba states and checkpoints beside the next one's; releases that count the most that a
    call can take (A15) count the copy of a hit at each block; the drafter's lookahead lies past a window's cap.
    """
    spare = setting.num_blocks - 1 - blocks_for_one(setting)
    states = [group for group in setting.groups if isinstance(group, Mamba) and group.mode == "align"]
    aligned = sum(1 + group.checkpoint_blocks for group in states)
    if setting.in_flight_depth > 1 and spare < aligned:
        return "states in flight"
    in_flight = aligned if setting.in_flight_depth > 1 else 0
    if setting.choices.counts_cap and setting.fine_hits and spare < in_flight + len(states):
        return "counts what a call can take"
    if sessions and spare < sum(1 + group.speculative_blocks for group in states):
        return SESSIONS_HOLD  # a row that goes on begins with more states than a new one
    ahead = setting.facts.lookahead
    if spare < sum(ceil_div(ahead, group.block_size) for group in setting.groups if group.recycles):
        return "lookahead past the cap"
    return ""


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


def rows_of_a_load(setting: SchedulerSetting) -> int:
    """Rows that S44 adds to what is known: those of a step with drafts."""
    facts = setting.facts
    return 1 + facts.drafts + facts.lookahead if facts.drafts else 0


def reserve_of_a_load(setting: SchedulerSetting) -> int:
    """W of S44 (blocks)."""
    rows, kept = rows_of_a_load(setting), setting.choices.load_reserve
    if kept != "each group":
        return ceil_div(rows, setting.scheduler_block_size) if kept == "one group" else 0
    return sum(
        ceil_div(rows, group.tokens_per_column(setting.dcp_size))
        for group in setting.groups
        if not isinstance(group, Mamba)
    )
