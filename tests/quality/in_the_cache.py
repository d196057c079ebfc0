"""Edits of the pool with names, of what gets a name, of copies, events, connectors and contents."""

from __future__ import annotations

from functools import partial

from attrs import evolve

from oracle.cached_allocator import CachingAllocator
from oracle.call import Hit
from oracle.content import Content
from oracle.lookup import Finder, SpecClass
from oracle.publication import Publisher
from tests.quality import in_the_lookups
from tests.quality.cache_edits import EDITS, classes, edited, target_of

__all__ = ["CACHE_DEFECTS", "in_the_lookups", "target_of"]

#: all edits, those of lookups too
CACHE_DEFECTS = EDITS

# ------------------------------------------------------------------------------------------------ the pool


@edited
def newest_copy(target: CachingAllocator) -> None:
    """P10: a lookup takes the newest copy."""
    for one in classes(target):
        one.copies = partial(_newest, one)  # type: ignore[method-assign]


def _newest(one: SpecClass, node: int) -> list[int] | None:
    resident = [one.pool.copies.get((group, node)) for group in one.groups]
    return [[*copies][-1] for copies in resident if copies] if all(resident) else None


@edited
def missing_eviction(target: CachingAllocator) -> None:
    """P11: a block that is handed out keeps its names."""
    pool = target.pool
    forget, taking = pool.forget, []
    take = pool.take

    def keep(block: int, told: bool = True) -> None:
        if not taking:
            forget(block, told)

    def takes(blocks: int) -> list[int]:
        taking.append(1)
        try:
            return take(blocks)
        finally:
            taking.pop()

    pool.forget, pool.take = keep, takes  # type: ignore[method-assign]


@edited
def stale_name(target: CachingAllocator) -> None:
    """P9: a block that now holds more keeps the name of what it held."""
    pool = target.pool

    def name(block: int, new: tuple[int, int], reach: int) -> bool:
        if new in pool.names.get(block, {}):
            return False
        pool.names[block] = {new: reach, **pool.names.get(block, {})}
        pool.copies.setdefault(new, {})[block] = None
        return True

    pool.name = name  # type: ignore[method-assign]


@edited
def named_blocks_first(target: CachingAllocator) -> None:
    """P13: named blocks go to the front as well."""
    pool = target.pool
    give = pool.give

    def gives(batch: object) -> None:
        blocks = [block for block in batch if block]  # type: ignore[attr-defined]
        give(blocks)
        for block in reversed(blocks):
            if not pool.references[block]:
                pool._order.move_to_end(block, last=False)

    pool.give = gives  # type: ignore[method-assign, assignment]


@edited
def plain_blocks_last(target: CachingAllocator) -> None:
    """P13: plain blocks wait for their turn at the end."""
    pool = target.pool
    give = pool.give

    def gives(batch: object) -> None:
        blocks = [block for block in batch if block]  # type: ignore[attr-defined]
        give(blocks)
        for block in blocks:
            if not pool.references[block] and block not in pool.names:
                pool._order.move_to_end(block)

    pool.give = gives  # type: ignore[method-assign, assignment]


@edited
def head_before_tail(target: CachingAllocator) -> None:
    """P14: a request's first blocks are given back first."""
    release = target.release

    def releases(request: int, deferred: bool):
        for row in target.rows.get(request, []):
            row.reverse()
        return release(request, deferred)

    target.release = releases  # type: ignore[method-assign]


@edited
def untouched_hits(target: CachingAllocator) -> None:
    """P15: a free hit block stays where it is in the queue."""
    pool = target.pool

    def touch(blocks: object) -> None:
        for block in blocks:  # type: ignore[attr-defined]
            if block:
                pool.references[block] += 1

    pool.touch = touch  # type: ignore[method-assign, assignment]


@edited
def shared_blocks_counted_once(target: CachingAllocator) -> None:
    """P15: a hit on a block in use adds no reference."""
    pool = target.pool
    touch = pool.touch
    pool.touch = lambda blocks: touch([b for b in blocks if b and not pool.references[b]])  # type: ignore[method-assign]


@edited
def reset_while_in_use(target: CachingAllocator) -> None:
    """P12: names end although blocks are in use."""
    target.reset = lambda: target._seen("True", target.nothing, None)  # type: ignore[method-assign]


@edited
def only_free_blocks_evicted(target: CachingAllocator) -> None:
    """P11: a block in use keeps its names when it is evicted by id."""
    evict = target.pool.evict
    target.pool.evict = lambda blocks: evict([b for b in blocks if not target.pool.references[b]])  # type: ignore[method-assign]


# --------------------------------------------------------------------------------------------------- names


@edited
def drafts_named(target: CachingAllocator) -> None:
    """P5: what is not verified is named, as far as the tokens are known."""
    publish = target.publisher.publish

    def names(numbers, rows, progress):
        numbers.upto = max(numbers.upto, numbers.known)
        publish(numbers, rows, progress)

    target.publisher.publish = names  # type: ignore[method-assign]


@edited
def named_late(target: CachingAllocator) -> None:
    """P5: names come with the next call only."""
    publish = target.publisher.publish

    def names(numbers, rows, progress):
        numbers.upto = min(numbers.upto, numbers.computed)
        publish(numbers, rows, progress)

    target.publisher.publish = names  # type: ignore[method-assign]


@edited
def prefilled_again_but_named(target: CachingAllocator) -> None:
    """P6: what a multi-module drafter may write again is named."""
    target.publisher.again = 0


@edited
def no_block_behind_the_border(target: CachingAllocator) -> None:
    """P6: a dropping group does not name the block that it will match and drop."""
    target.publisher.drops = [False for _ in target.publisher.drops]


@edited
def no_tail(target: CachingAllocator) -> None:
    """P33: the prompt's last boundary inside a block has no name."""
    target.publisher._tail = lambda *arguments: None  # type: ignore[method-assign]


@edited
def no_state_tail(target: CachingAllocator) -> None:
    """P34: nor has the state there."""
    target.publisher._state = lambda *arguments: None  # type: ignore[method-assign]


@edited
def keeps_everything(target: CachingAllocator) -> None:
    """P30, P31: retention is ignored."""
    target.publisher.setting = evolve(target.setting, prefix_cache_retention_interval=None)


@edited
def published_again(target: CachingAllocator) -> None:
    """P42: the columns of a hit are named once more."""
    publisher = target.publisher

    def publish(numbers, rows, progress):
        for one in progress:
            one.columns = 0
        Publisher.publish(publisher, numbers, rows, progress)

    publisher.publish = publish  # type: ignore[method-assign]


# -------------------------------------------------------------------------------------------------- copies


@edited
def shared_block_written(target: CachingAllocator) -> None:
    """P36, P37: nothing is copied."""
    target._copies = lambda call, hits: [0 for _ in target.rules]  # type: ignore[method-assign]


@edited
def copied_backwards(target: CachingAllocator) -> None:
    """P36: source and target are exchanged."""
    new_step = target.new_step

    def starts():
        target.pending = [[(new, source) for source, new in pairs] for pairs in target.pending]
        return new_step()

    target.new_step = starts  # type: ignore[method-assign]


@edited
def ends_of_copies_kept(target: CachingAllocator) -> None:
    """P36: what a copy held is never given back."""

    def starts():
        give = target.pool.give
        target.pool.give = lambda batch: None  # type: ignore[method-assign]
        seen = CachingAllocator.new_step(target)
        target.pool.give = give  # type: ignore[method-assign]
        return seen

    target.new_step = starts  # type: ignore[method-assign]


@edited
def state_of_the_same_step(target: CachingAllocator) -> None:
    """P39: a state that this very step makes is taken over."""
    target._too_early = lambda hits: False  # type: ignore[method-assign]


@edited
def owner_moves_on(target: CachingAllocator) -> None:
    """P37: the names stay on the block that its owner goes on writing."""
    target.pool.move = lambda source, block: None  # type: ignore[method-assign]


# -------------------------------------------------------------------------------------------------- events


@edited
def silent_eviction(target: CachingAllocator) -> None:
    """P46: a name that ends is not told."""
    forget = target.pool.forget
    target.pool.forget = lambda block, told=True: forget(block, False)  # type: ignore[method-assign]


@edited
def orphans(target: CachingAllocator) -> None:
    """P46: events have no parent."""
    publisher = target.publisher
    tell = publisher._tell

    def tells(index, names, nodes, parent, *rest):
        tell(index, names, nodes, 0, *rest)

    publisher._tell = tells  # type: ignore[method-assign]


@edited
def report_of_the_last_column_alone(target: CachingAllocator) -> None:
    """P46: a full report of a hit tells one name a group."""
    report = target.publisher.report

    def reports(query, hit):
        cut = Hit(hit.tokens, hit.junction, tuple(row[:1] for row in hit.rows))
        return report(query, cut)

    target.publisher.report = reports  # type: ignore[method-assign]


# ---------------------------------------------------------------------------------- connectors, sessions, contents


@edited
def lacking_states_are_not_told(target: CachingAllocator) -> None:
    """P26: a hit that only full attention has is taken for one that all have."""
    lookup = target.lookup
    target.lookup = lambda query: evolve(lookup(query), diverged=False)  # type: ignore[method-assign]


@edited
def connectors_look_up_as_others(target: CachingAllocator) -> None:
    """P26: the common hit behind every connector."""
    lookup = target.lookup
    target.lookup = lambda query: lookup(evolve(query, apart=False))  # type: ignore[method-assign]


@edited
def pinned_blocks_given_away(target: CachingAllocator) -> None:
    """P15: a connector's pin is no reference."""
    target.pin = lambda blocks: (target.pins.append(()), target._seen("done", target.nothing, None))[1]  # type: ignore[method-assign]


@edited
def watched_blocks_queue_like_others(target: CachingAllocator) -> None:
    """P13: what is still being read is handed out first, if it bears no name."""
    pool = target.pool

    def give_watched(blocks):
        taken = [*blocks]
        pool.give(taken)
        pool.watched.update(dict.fromkeys(taken))

    pool.give_watched = give_watched  # type: ignore[method-assign]


@edited
def reuse_is_not_told(target: CachingAllocator) -> None:
    """P15: a block that is being read is handed out in silence."""
    target.pool._tell_reuse = lambda blocks: None  # type: ignore[method-assign]


@edited
def discarded_tokens_named(target: CachingAllocator) -> None:
    """P3: the name that ends with a session's discarded token stays."""
    last: dict[int, Content] = {}
    publish = target._publish

    def publishes(call, upto, computed):
        before, content = last.get(call.request, call.content), call.content
        last[call.request] = content
        if before is not content and content.kept:
            end = content.kept + 2
            content = evolve(content, named=[*before.named[:end], *content.named[end:]])
        publish(evolve(call, content=content), upto, computed)

    target._publish = publishes  # type: ignore[method-assign]


@edited
def embeddings_are_all_alike(target: CachingAllocator) -> None:
    """P1: a prompt of embeddings is told apart by its tokens alone, which are placeholders."""
    pool = target.pool
    oldest = pool.oldest
    seen: dict[int, int] = {}

    def nodes(query):
        found = Finder.nodes(target.finder, query)
        if query.content.embedded:
            for index, node in enumerate(found):
                found[index] = seen.setdefault(index, node) if pool.copies else node
        return found

    target.finder.nodes = nodes  # type: ignore[method-assign]
    pool.oldest = oldest  # type: ignore[method-assign]
