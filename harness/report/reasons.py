"""Why each rule and law must hold, in the words of the specification, and which code of vLLM answers for it.

A place is "file:Class.method". `single:*` stands for the manager of the group's kind. Rules marked as a choice could be
decided in another way by another release; laws hold in any.
"""

from __future__ import annotations

from attrs import frozen

from oracle.trace import Difference

FILES = {
    "manager": "vllm/v1/core/kv_cache_manager.py",
    "single": "vllm/v1/core/single_type_kv_cache_manager.py",
    "pool": "vllm/v1/core/block_pool.py",
    "scheduler": "vllm/v1/core/sched/scheduler.py",
    "coordinator": "vllm/v1/core/kv_cache_coordinator.py",
}
_MANAGERS = {
    "sliding_window": "SlidingWindowManager",
    "sliding_window_mla": "SlidingWindowManager",
    "chunked_local_attention": "ChunkedLocalAttentionManager",
    "rswa": "RSWAManager",
    "circular_buffer": "CircularBufferManager",
    "kpool_tail": "KpoolTailManager",
    "cross_attention": "CrossAttentionManager",
    "mamba": "MambaManager",
    "sink_full_attention": "SinkFullAttentionManager",
}


@frozen
class Reason:
    """`why` a rule must hold; `law`: in any release; `places`: where the release decides it."""

    law: bool
    why: str
    places: tuple[str, ...]


_ALLOCATE = "manager:KVCacheManager.allocate_slots"
_COUNT = "single:*.get_num_blocks_to_allocate"
_EXTEND = "single:*.allocate_new_blocks"
_REMOVE = "single:*.remove_skipped_blocks"
_SKIPPED = "single:*.get_num_skipped_tokens"
_LOOKED_UP = "manager:KVCacheManager.get_computed_blocks"

REASONS: dict[str, Reason] = {
    "A1": Reason(
        True,
        "Block 0 is the null block. It stands in a row for a column that nobody reads, so it is never free, never "
        "handed out and in no count.",
        ("pool:BlockPool.get_new_blocks", "pool:BlockPool.free_blocks"),
    ),
    "A2": Reason(
        True,
        "Every block is free once, or held by one row of one request, or popped and not yet given back. A block "
        "with two owners is overwritten by one of them, a block without an owner is lost to the pool.",
        ("pool:BlockPool.get_new_blocks", "pool:BlockPool.free_blocks"),
    ),
    "A3": Reason(
        False,
        "A group that needs blocks takes the first of the free queue, in order, as its next columns in order; "
        "groups take in configuration order.",
        (_EXTEND, "pool:BlockPool.get_new_blocks"),
    ),
    "A5": Reason(
        False,
        "Freed blocks go to the front of the free queue, highest column first, one batch a group, so that the "
        "block that was used last is used again first; a deferred release leads to the order of a direct one.",
        ("pool:BlockPool.free_blocks", "single:*.free", _REMOVE),
    ),
    "A7": Reason(
        True,
        "After a release the request holds nothing, everything that it held is free again, and its next call is a "
        "first call.",
        ("manager:KVCacheManager.free", "single:*.free"),
    ),
    "A8": Reason(
        True,
        "A deferred release forgets the request at once and frees nothing, because a step in flight may still "
        "write the blocks; giving the reversed list back later frees each of them once.",
        ("manager:KVCacheManager.pop_blocks_for_free", "pool:BlockPool.free_blocks"),
    ),
    "A10": Reason(
        False,
        "Wrong use (no new and no external tokens; external tokens for a row that was not adopted) is told by an "
        "error.",
        (_ALLOCATE,),
    ),
    "A13": Reason(
        True,
        "With full_sequence_must_fit a request is admitted only if the blocks that it must still take at its peak "
        "are free. A group that recycles blocks counts its cap, or the columns that are not dead where these are "
        "fewer; null columns cost nothing and must not pay for others. What is admitted beyond that runs dry "
        "later, when no one else may be left to give way.",
        (_ALLOCATE, _COUNT),
    ),
    "A14": Reason(
        True,
        "A column is removed when no token from the processed position on reads it, and not before: steps in "
        "flight read from where they started, and rejected drafts move the position back, though never below the "
        "processed one.",
        (_REMOVE, _SKIPPED),
    ),
    "A15": Reason(
        True,
        "A call is granted only if all blocks that adoption and extension will take are free. Otherwise the pool "
        "runs out in the middle of the call, or blocks that were reserved for others are given away.",
        (_ALLOCATE, _COUNT),
    ),
    "A16": Reason(
        True,
        "A call whose blocks are free is granted, an exact fit included; only the watermark (waiting requests) and"
        " the reserved blocks are kept. A request that is refused although it fits may wait for ever.",
        (_ALLOCATE, _COUNT),
    ),
    "A19": Reason(
        True,
        "A row grows to the columns of the positions that the step writes, min(computed + new + lookahead, "
        "max_model_len), because the drafter writes the KV of its tokens behind the target's; and it never "
        "shrinks. With a column too few, writes land in the null block or past the row; a column too many is "
        "taken from others.",
        (_ALLOCATE, _EXTEND),
    ),
    "A20": Reason(
        False,
        "The result lists, per group, the entries that the extension added, in column order and without adopted "
        "blocks: the worker appends just these to its block table.",
        (_ALLOCATE, _EXTEND),
    ),
    "A22": Reason(
        True,
        "A refusal changes nothing but the removal of what nobody reads, and refused by the gate not even that: so"
        " a refused request can be tried again.",
        (_ALLOCATE,),
    ),
    "A38": Reason(
        True,
        "A circular buffer is one block for the request's life, taken by the first granted call and used modulo "
        "its size: tokens, lookahead and external tokens do not matter.",
        ("single:CircularBufferManager.get_num_blocks_to_allocate", "single:CircularBufferManager.allocate_new_blocks"),
    ),
    "A39": Reason(
        True,
        "Cross-attention holds the encoder's output, so its columns go by encoder tokens; calls without any change"
        " nothing.",
        ("single:CrossAttentionManager.allocate_new_blocks", _ALLOCATE),
    ),
    "A42": Reason(
        True,
        "In align mode column j is for the state after (j+1) * block_size tokens. A step that ends at m writes its"
        " running state to column ceil(m / block_size) - 1 and one state per draft behind it, without lookahead "
        "and without the cap at max_model_len, because drafters have no Mamba layer.",
        ("single:MambaManager.allocate_new_blocks", "single:MambaManager.get_num_blocks_to_allocate"),
    ),
    "A60": Reason(
        False,
        "Where a group is Mamba or formats differ, the ids that attention groups take are listed to be zeroed, in "
        "order of taking, once: such a block is read before it is fully written, or holds bytes of another format."
        " A block that a load writes meanwhile must not be zeroed.",
        ("manager:KVCacheManager.take_new_block_ids", "single:*.take_new_block_ids", _EXTEND),
    ),
    "M12": Reason(
        True,
        "Every position that a step reads was written for exactly this prefix, in a block of the request's row. A "
        "null block or other content at such a position means that the model attends to, or goes on from, "
        "something else.",
        (_REMOVE, _SKIPPED, "single:*.allocate_external_computed_blocks"),
    ),
    "W1": Reason(
        True,
        "Every position, state or ring that the target or the drafter writes in a step lies in a block of the "
        "request's row. What is written to the null block or past the row is lost, or lands in cells of others.",
        (_ALLOCATE, _EXTEND, "single:*.allocate_external_computed_blocks"),
    ),
    "W4": Reason(
        True,
        "As long as no more tokens are in flight than the setting allows, a group that recycles blocks never holds"
        " more of them for a request than its admission cap. Start-up sizing and the full-sequence gate both rest "
        "on it.",
        (_REMOVE, _COUNT),
    ),
    "W5": Reason(
        True,
        "What full_sequence_must_fit admits to an otherwise idle pool can run to the end of its known tokens. A "
        "request that is refused later with nobody else there can only be preempted and admitted again, for ever.",
        (_ALLOCATE, _COUNT),
    ),
    "W6": Reason(True, "Two runs of one trace give the same answers.", (_ALLOCATE,)),
    "M14": Reason(
        True,
        "A block is free or referenced, its references are the rows, deferred releases and copies that hold it, and "
        "the copies of a name are exactly the blocks that bear it.",
        ("pool:BlockPool.touch", "pool:BlockPool.free_blocks"),
    ),
    "P3": Reason(
        False,
        "A request has a name at each multiple of the hash block size that its known tokens cover, the hash lookahead "
        "included. A boundary without one is never looked up: an index past the last hash ends the engine.",
        (_LOOKED_UP, "single:*.find_longest_cache_hit"),
    ),
    "P9": Reason(
        False,
        "A block's first name is the longest prefix that it holds; a further one is a shorter prefix inside it.",
        ("pool:BlockPool.cache_full_blocks", "pool:BlockPool.cache_partial_block"),
    ),
    "P10": Reason(
        False, "All copies of a name are kept; a lookup takes the oldest.", ("pool:BlockPool.get_cached_block",)
    ),
    "P15": Reason(True, "A hit that is adopted adds a reference to each of its blocks.", ("pool:BlockPool.touch",)),
    "P22": Reason(
        True,
        "A hit is the longest prefix that every group can take over: full attention needs everything from the start, a "
        "window what the next token reads, Mamba one state. Where the drafter has a layer the last unit is dropped, "
        "once: what it drops may lie behind the last token but one, so that a resend loses one unit.",
        (_LOOKED_UP, "single:*.find_longest_cache_hit"),
    ),
    "P26": Reason(
        False,
        "For a connector that brings states the hit of full attention is taken by itself, and said to have diverged "
        "where another group has less; where another has more they must agree.",
        ("manager:KVCacheManager.get_computed_blocks_for_connector",),
    ),
    "P27": Reason(
        False,
        "The junction is the longest prefix that some group still has and the common hit does not reach.",
        (_LOOKED_UP,),
    ),
    "P36": Reason(
        True,
        "A hit that ends inside a block is copied before it is written, and so is a block whose owner goes on writing "
        "behind a name. Copies run before the forward pass of their step.",
        ("single:*.allocate_new_blocks", "manager:KVCacheManager.take_kv_cache_block_copies"),
    ),
    "P46": Reason(
        False,
        "Each publication of whole columns gives one event with the names, their parent, their tokens; a name that is "
        "found no more gives one that it was removed.",
        ("pool:BlockPool.cache_full_blocks", "pool:BlockPool.cache_partial_block"),
    ),
    "P47": Reason(
        True,
        "A consumer that adds what is stored and deletes what is removed holds exactly what can be found, and the "
        "tokens of an event are those of its names.",
        ("pool:BlockPool.cache_full_blocks", "pool:BlockPool.cache_partial_block"),
    ),
    "build": Reason(
        True,
        "A kind of group that the release can declare in its KVCacheConfig is one that the manager can be built with.",
        ("manager:KVCacheManager.__init__", "single:*.__init__"),
    ),
    "raised": Reason(
        True,
        "What gives blocks back, removes or lists them decides nothing and always answers. An exception there leaves "
        "the pool half changed and ends the engine.",
        ("manager:KVCacheManager.free", "single:*.remove_skipped_blocks"),
    ),
    "process": Reason(
        True,
        "A call answers or raises; it never ends or blocks the process of the engine, in which all other requests run.",
        (_ALLOCATE,),
    ),
}

_LOOKUP = "single:*.find_longest_cache_hit"
_REPORT = "coordinator:KVCacheCoordinator.emit_cached_block_events"
_NAME = "manager:KVCacheManager.cache_blocks"


@frozen
class Cause:
    """What is known to be behind a difference, in `words`. `places`: where, if the rule's own places do not say it."""

    words: str
    places: tuple[str, ...] = ()


#: by the tags that `harness.suspects` and the memory model give
CAUSES = {
    "behind nulls": Cause("states that nobody reads, before a null column, were not given back"),
    "dead columns": Cause("dead columns are taken off the cap, and null columns count as held"),
    "adopted state": Cause("the block of the loaded state is not counted beside the running state's"),
    "longer row": Cause("a row that is longer than the call needs counts below zero and pays for other groups"),
    "dropped step": Cause(
        "the block was named by a step that was taken back before it ran",
        (_ALLOCATE, "scheduler:Scheduler._preempt_request", "manager:KVCacheManager.free"),
    ),
    "load before its copy": Cause(
        "a load fills a block into which a copy is still to be made, with nothing that orders the two",
        ("scheduler:Scheduler.schedule", "single:*._apply_cow"),
    ),
    "copied too early": Cause(
        "the block was copied before the step that both are part of has written its source",
        (_LOOKUP, "single:*._apply_cow", _ALLOCATE),
    ),
    "passed border": Cause(
        "the chunk began from the block's state and went past its border, so that state was never made",
        ("single:*._cache_partial_tail_block", "single:*.cache_blocks"),
    ),
    "prefilled again": Cause(
        "names lag behind the chunk's end by what the drafter may prefill again",
        ("single:*._cache_partial_tail_block", _NAME),
    ),
    "checkpoint forgotten": Cause(
        "a refused call of the request came after the chunk that saved the state in this block",
        ("single:*.get_num_blocks_to_allocate", "single:*.cache_blocks"),
    ),
    "hit report": Cause("`kv_cache_report_mode` full tells a hit", (_LOOKED_UP, _REPORT)),
    "discarded token": Cause(
        "the cell was computed from a token that the session discarded",
        ("scheduler:Scheduler._update_request_as_session", _NAME),
    ),
    "discarded lookahead": Cause(
        "the event reads the tokens behind the block from the session of today; the name was made with a discarded one",
        ("pool:BlockPool._lookahead_token_ids", "scheduler:Scheduler._update_request_as_session"),
    ),
    "checkpoint beyond the tokens": Cause(
        "drafts of the answer that has ended follow the session's next piece, and a checkpoint lies among them",
        ("scheduler:Scheduler.update_draft_token_ids", "pool:BlockPool._get_partial_block_hash"),
    ),
    "answered in flight": Cause(
        "a step of the session was in flight when its answer ended, and has advanced the state by the discarded token",
        ("scheduler:Scheduler._update_request_as_session", "scheduler:Scheduler._handle_stopped_request"),
    ),
    "state among those of drafts": Cause(
        "drafts left the state in another column than the one where a request that is new to the worker starts",
        ("scheduler:Scheduler._update_request_as_session", "scheduler:Scheduler._handle_stopped_request"),
    ),
    "accepted beyond the answer": Cause(
        "the answer ended inside accepted drafts, and the state has seen those that were cut",
        ("scheduler:Scheduler._handle_stopped_request", "scheduler:Scheduler._update_request_with_output"),
    ),
    "answer behind the window": Cause(
        "the column held an answer and had left the window before the session made it part of its prompt",
        ("scheduler:Scheduler._update_request_as_session", "single:*.remove_skipped_blocks"),
    ),
    "exported into a moved block": Cause(
        "the backend saved a state inside a chunk, where the worker's row still has a scratch block that was moved",
        ("single:*.get_num_blocks_to_allocate", "single:*.allocate_new_blocks"),
    ),
    "short drop": Cause(
        "a hit loses fewer tokens than the drafter looks ahead",
        (_LOOKUP, "coordinator:HybridKVCacheCoordinator.__init__"),
    ),
    "another copy": Cause(
        "what was dropped is another request's, and so is the token that the cell was computed from",
        (_LOOKUP, "pool:BlockPool.get_cached_block"),
    ),
    "diverged hit": Cause(
        "the hit is that of full attention by itself, and a group that is no Mamba group has less",
        ("manager:KVCacheManager.get_computed_blocks_for_connector",),
    ),
    "checkpoint ahead": Cause(
        "a checkpoint was named before the columns that may be prefilled again", ("single:*.cache_blocks", _NAME)
    ),
    "copy owed": Cause(
        "the state that was named has left the row before it was copied",
        ("single:*.allocate_new_blocks", "single:*._apply_cow"),
    ),
    "past the known boundaries": Cause("the lookup goes up to the last token but one, its names end earlier"),
    "coarse window": Cause("hits may end inside a block, and a window with larger blocks cannot answer for them"),
    "own state taken for a hit": Cause(
        "a first call that takes no block is forgotten, so that the request's own state is copied like somebody's",
        ("single:MambaManager.allocate_new_blocks",),
    ),
    "rows beyond the hit": Cause(
        "only the first kind of full attention is cut to the common hit",
        ("coordinator:HybridKVCacheCoordinator.find_longest_cache_hit",),
    ),
    "blocks of one rank": Cause(
        "a lookup for a connector does not know that DCP shards blocks",
        ("coordinator:HybridKVCacheCoordinator.find_longest_cache_hit_per_group",),
    ),
    "no margin": Cause("with a single group the dropped unit must lie before the last token"),
    "aligned before the drop": Cause("a run from column 0 is cut to the hit unit before the drop and after it"),
}


def reason_of(rule: str) -> Reason:
    """The reason of a rule; one that this table lacks is named by its number."""
    return REASONS.get(rule, Reason(False, f"Rule {rule} of the specification.", (_ALLOCATE,)))


def cause_of(difference: Difference) -> Cause | None:
    """The known cause that a difference's tags name, if one does."""
    return next((cause for tag, cause in CAUSES.items() if tag in difference.tags), None)


def places_of(difference: Difference) -> list[tuple[str, str]]:
    """Where the release decides it: (file, "Class.method"), the most telling first, each once."""
    found: list[tuple[str, str]] = []
    cause = cause_of(difference)
    places = cause.places if cause and cause.places else reason_of(difference.rule).places
    if "loaded" in difference.tags:  # the load decides what the step after it finds
        places = tuple(sorted(places, key=lambda place: "external" not in place))
    for place in places:
        file, _, name = place.partition(":")
        for kind in difference.kind.split("+"):
            named = (FILES[file], name.replace("*", _manager(kind)))
            if named not in found:
                found.append(named)
    return found


def _manager(kind: str) -> str:
    if kind == "pool":
        return "SingleTypeKVCacheManager"
    return _MANAGERS.get(kind.removesuffix("_align").removesuffix("_none").removesuffix("_all"), "FullAttentionManager")
