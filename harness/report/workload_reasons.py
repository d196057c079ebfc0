"""Why the rules and laws of the scheduler level must hold, in which code, and one sentence for each difference.

S numbers are rules of the prediction; words are laws, which hold in any release and for every setting.
"""

from __future__ import annotations

from harness.report import title as titles
from harness.report.reasons import Reason, cause_of, places_of, reason_of
from oracle.trace import Difference

SCHEDULER = "vllm/v1/core/sched/scheduler.py"
_SCHEDULE = f"{SCHEDULER}:Scheduler.schedule"
_AFTER = f"{SCHEDULER}:Scheduler._update_after_schedule"
_OUTPUT = f"{SCHEDULER}:Scheduler.update_from_output"
_PREEMPT = f"{SCHEDULER}:Scheduler._preempt_request"
_FREE = f"{SCHEDULER}:Scheduler._free_blocks"
_SPLIT = f"{SCHEDULER}:Scheduler._mamba_block_aligned_split"
_FINISHED = f"{SCHEDULER}:Scheduler._connector_finished"
_LOADED = f"{SCHEDULER}:Scheduler._update_waiting_for_remote_kv"
ENCODER_CACHE = "vllm/v1/core/encoder_cache_manager.py"
_ENCODER = f"{SCHEDULER}:Scheduler._try_schedule_encoder_inputs"

REASONS: dict[str, Reason] = {
    "S2": Reason(
        False,
        "Running requests are asked for first, from the front of their list; the waiting ones only if nobody was "
        "preempted. Who could be scheduled is.",
        (_SCHEDULE,),
    ),
    "S3": Reason(
        False,
        "A running request gets what is known, drafted and owed of it and not yet computed, cut by the long-prefill "
        "threshold, the room of the step and the end of the model.",
        (_SCHEDULE,),
    ),
    "S5": Reason(
        True,
        "A running request is always asked for with the lookahead of its method: the drafter writes its tokens' KV "
        "behind the target's in the same step.",
        (_SCHEDULE,),
    ),
    "S6": Reason(
        False, "A refused running request takes the blocks of one victim after another, until it fits.", (_PREEMPT,)
    ),
    "S8": Reason(
        False,
        "A waiting request is admitted from the front of its queue while there are seats, tokens and draft slots; the "
        "first that does not fit ends the pass.",
        (_SCHEDULE,),
    ),
    "S9": Reason(
        False,
        "An admitted request gets what its hit, its load and its former steps have not computed, cut as a running "
        "one's; without chunked prefill all of it or nothing.",
        (_SCHEDULE, _SPLIT),
    ),
    "S10": Reason(
        False,
        "An admission asks with the full lookahead, the blocks of an encoder, the blocks that loads keep for others, "
        "and whether the whole sequence must fit.",
        (_SCHEDULE,),
    ),
    "S11": Reason(
        False,
        "After a step is planned its tokens count as computed and as in flight; the order of the running list stays.",
        (_AFTER,),
    ),
    "S12": Reason(
        False,
        "After the output of a step drafts that were rejected are no longer computed, a request ends at its stop token "
        "or its limit, and what lies behind is dropped.",
        (_OUTPUT,),
    ),
    "S7": Reason(
        False,
        "A preempted request gives all its blocks back, has computed nothing, has no drafts, and comes again in front "
        "of the waiting ones of its rank.",
        (_PREEMPT,),
    ),
    "S18": Reason(
        False,
        "What a step has room for beyond the known tokens is verified drafts, in order; the others are dropped.",
        (_SCHEDULE,),
    ),
    "S23": Reason(
        False,
        "A step in which nobody will use the drafter's proposals tells the worker to skip it.",
        (f"{SCHEDULER}:Scheduler._drafts_unused",),
    ),
    "S24": Reason(
        False, "Where the number of drafts depends on the batch it is looked up by the size of the batch.", (_SCHEDULE,)
    ),
    "S55": Reason(
        True,
        "The V1 worker keeps tokens only of who was in the step before, in the same row. Whoever was left out of it "
        "or comes back is sent with all its known tokens again; the others are not.",
        (f"{SCHEDULER}:Scheduler._make_cached_request_data",),
    ),
    "S56": Reason(
        True,
        "A request of a model that pools ends with the pooler's output, which has no tokens: no position and no "
        "placeholder is kept for one.",
        (_OUTPUT,),
    ),
    "S57": Reason(
        True,
        "Where a step samples for a request with a grammar its mask is made, and the worker sends back the drafts that "
        "it verifies: else tokens are sampled that the grammar forbids.",
        (_AFTER, f"{SCHEDULER}:Scheduler.get_grammar_bitmask"),
    ),
    "S58": Reason(
        True,
        "A grammar's mask follows from all tokens before it: while one of them is in flight the step's sampling waits.",
        ("vllm/v1/core/sched/async_scheduler.py:AsyncScheduler._update_after_schedule",),
    ),
    "S59": Reason(
        True,
        "What a step reads is loaded before its forward pass; where it reads nothing of them its loads wait behind it.",
        (_SCHEDULE,),
    ),
    "S52": Reason(
        True,
        "A position of a multimodal item is computed in or after the step that encodes the item, which the encoder "
        "takes whole. So a part ends before the first item for which the step's encoder budget or the outputs' place "
        "is used up.",
        (_ENCODER,),
    ),
    "S53": Reason(
        True,
        "A request holds an output from the part that first needs it until the item is computed for sure, or until it "
        "is preempted, refused or ends.",
        (
            f"{SCHEDULER}:Scheduler._free_encoder_inputs",
            f"{SCHEDULER}:Scheduler._free_request",
            _PREEMPT,
            f"{ENCODER_CACHE}:EncoderCacheManager.free",
        ),
    ),
    "S54": Reason(
        False,
        "An encoder's output stays until its place is needed, and goes only when no request holds it; the one that has "
        "been free for longest goes first.",
        (
            f"{ENCODER_CACHE}:EncoderCacheManager.can_allocate",
            f"{ENCODER_CACHE}:EncoderCacheManager.free_encoder_input",
        ),
    ),
    "encoder": Reason(
        True,
        "What a step computes of an item is taken from the item's output, which the worker must have: it was encoded "
        "in this step or before, and not dropped since. The outputs never take more than their place.",
        (_SCHEDULE, _ENCODER, f"{ENCODER_CACHE}:EncoderCacheManager.check_and_update_cache"),
    ),
    "P12": Reason(
        True,
        "A reset of the prefix cache succeeds exactly when nobody holds a block, or after all running requests were "
        "preempted.",
        (f"{SCHEDULER}:Scheduler.reset_prefix_cache",),
    ),
    "P27": Reason(
        False,
        "The junction is the longest prefix that some group still has and the common hit does not reach; a chunk ends "
        "there so that its state is kept.",
        (_SCHEDULE,),
    ),
    "S38": Reason(False, "A hit is the longest prefix that the cache has, at most all but one token.", (_SCHEDULE,)),
    "S40": Reason(
        False,
        "Whole blocks of verified tokens get their names; those of a load when it has ended, drafts never.",
        (_SCHEDULE, _LOADED),
    ),
    "S42": Reason(
        False,
        "The connector is asked for what lies behind the local hit, once for each admission of a request that has "
        "computed nothing.",
        (_SCHEDULE,),
    ),
    "S43": Reason(
        False,
        "An asynchronous load asks for its own tokens alone: no new ones, no lookahead, names later.",
        (_SCHEDULE,),
    ),
    "S44": Reason(
        False,
        "A load must leave free what those who started earlier still need to hold their known tokens, and a step's "
        "drafts: else they and the load wait for each other.",
        (f"{SCHEDULER}:Scheduler._inflight_prefill_reserved_blocks", _SCHEDULE),
    ),
    "S46": Reason(
        False, "A synchronous load is like a local hit: its tokens are computed within the step.", (_SCHEDULE,)
    ),
    "S49": Reason(
        True,
        "Blocks that a step in flight may still write, or that a connector still sends, come back when that is over, "
        "and once. Nobody is preempted whose blocks would not come free now, nor while the connector says that it is "
        "about to give some back.",
        (_FREE, _OUTPUT),
    ),
    "S50": Reason(
        False,
        "A connector may keep the blocks of a request that has ended, until it says that they are sent.",
        (_FINISHED, _FREE),
    ),
    "S51": Reason(
        True,
        "The prefill side hands over the blocks of what is computed and the decode side loads the same number: the "
        "connector pairs them by index.",
        (_FINISHED,),
    ),
    "P22": Reason(True, "A hit is the longest prefix that every group can take over.", (_SCHEDULE,)),
    "owner": Reason(
        True, "Blocks come back once, to nobody but the pool, and not while something still moves them.", (_FREE,)
    ),
    "conservation": Reason(
        True,
        "What is free, what requests hold and what is kept back are all blocks, after each call.",
        (_FREE, _SCHEDULE),
    ),
    "drain": Reason(
        True,
        "When all requests have ended every block is free, and nobody holds an output of the encoder.",
        (_FREE, f"{SCHEDULER}:Scheduler._free_request"),
    ),
    "order": Reason(
        True, "Nobody is admitted in a step that took a running request's blocks away.", (_SCHEDULE, _PREEMPT)
    ),
    "lookahead": Reason(
        True,
        "Every ask has slots for what the drafter writes in the step: the method's lookahead, none for a load beside "
        "the steps.",
        (_SCHEDULE,),
    ),
    "needless": Reason(
        True,
        "A request is preempted only when blocks are refused, its blocks are free at once, and who asked is asked "
        "again and scheduled.",
        (_PREEMPT, _SCHEDULE),
    ),
    "victim": Reason(True, "Who came last gives way, or by priority the least urgent.", (_SCHEDULE,)),
    "budget": Reason(
        True,
        "A step has no more tokens, rows with its draft slots, or encoder tokens than the worker's buffers.",
        (_SCHEDULE, _ENCODER),
    ),
    "seats": Reason(
        True, "No more requests run than max_num_seqs, or than the drafter's own pass has rows for.", (_SCHEDULE,)
    ),
    "stranger": Reason(True, "What is scheduled is known to the worker and has not ended.", (_SCHEDULE, _OUTPUT)),
    "tokens": Reason(True, "A scheduled request has a token at least.", (_SCHEDULE,)),
    "positions": Reason(True, "No position at or past max_model_len is scheduled.", (_SCHEDULE,)),
    "drafts": Reason(
        True,
        "A step verifies drafts of requests that it schedules, at most K each, behind all of their known tokens.",
        (_SCHEDULE, _AFTER),
    ),
    "chunk": Reason(
        True,
        "A chunk of a multi-module MTP prompt ends where all modules can read ahead, or at its end.",
        (_SCHEDULE,),
    ),
    "progress": Reason(
        True,
        "If some request could run alone in the idle engine there is no endless sequence of empty steps.",
        (_SCHEDULE,),
    ),
    "delivered": Reason(
        True, "The client gets each sampled token that counts once and in order, of requests that go on.", (_OUTPUT,)
    ),
    "length": Reason(True, "A request has no more outputs than it asked for.", (_OUTPUT,)),
    "finished": Reason(True, "A request ends once.", (_OUTPUT,)),
    "certainty": Reason(
        True,
        "Computed less placeholders is what is surely there; with nothing in flight there are no placeholders.",
        (_AFTER, _OUTPUT),
    ),
    "worker row": Reason(
        True,
        "The worker appends what it is sent and is never corrected: its row is the manager's, or its kernels read "
        "other blocks.",
        (f"{SCHEDULER}:Scheduler._make_cached_request_data", _SCHEDULE),
    ),
    "load": Reason(
        True,
        "A load holds the blocks of its tokens as the side that sends them does: the connector pairs them by index.",
        (_SCHEDULE, _FINISHED),
    ),
    "handover": Reason(
        True,
        "What a connector is handed when a request ends are the blocks of what is computed: all known tokens but the "
        "last, and of the prefill side of a pair no others.",
        (_FINISHED,),
    ),
    "reset": Reason(
        True,
        "Where only running requests hold blocks, preempting them all makes sure that the prefix cache can be emptied.",
        (f"{SCHEDULER}:Scheduler.reset_prefix_cache", f"{SCHEDULER}:Scheduler._free_request_blocks"),
    ),
    "raised": Reason(
        True, "schedule and update_from_output answer; an exception there ends the engine.", (_SCHEDULE, _OUTPUT)
    ),
    "process": Reason(
        True, "schedule and update_from_output answer; an exception there ends the engine.", (_SCHEDULE,)
    ),
}

_TITLES = {
    "error": "The scheduler ends the engine: {sign}",
    "ask": "The scheduler asks its manager for something else: {sign}",
    "output": "The planned step is another one: {sign}",
    "delivered": "The client is given other tokens",
    "state": "A request is in another state after the step: {sign}",
}


def title(difference: Difference) -> str:
    """One sentence without its full stop; of an answer of the manager behind the scheduler that level's."""
    if difference.level != "scheduler":
        return titles.title(difference)
    if difference.aspect != "law":
        return _TITLES[difference.aspect].format(sign=difference.sign.removeprefix("error:"))
    return f"A law of the scheduler is broken, {difference.rule}: {difference.sign}"


def reason(rule: str) -> Reason:
    """The reason of a rule: this level's, else the manager's."""
    return REASONS.get(rule) or reason_of(rule)


def places(difference: Difference) -> list[tuple[str, str]]:
    """Where the release decides it: (file, "Class.method")."""
    cause = cause_of(difference)
    if difference.rule not in REASONS or (cause and cause.places):
        return places_of(difference)
    return [(file, name) for file, _, name in (place.partition(":") for place in REASONS[difference.rule].places)]
