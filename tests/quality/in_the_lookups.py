"""Edits of lookups: how long a hit is, what it drops, which groups decide."""

from __future__ import annotations

from attrs import evolve

from oracle.cached_allocator import CachingAllocator
from oracle.call import Hit
from oracle.lookup import Finder
from tests.quality.cache_edits import classes, edited


@edited
def the_last_token_hits_too(target: CachingAllocator) -> None:
    """P16: nothing is left to compute the logits from."""
    lookup = target.lookup
    target.lookup = lambda query: lookup(evolve(query, bound=query.bound + 1))  # type: ignore[method-assign]


@edited
def no_drop(target: CachingAllocator) -> None:
    """P17, P18: the last unit is kept."""
    for one in classes(target):
        one.drops = False


@edited
def drop_twice(target: CachingAllocator) -> None:
    """P23: a class drops at each visit."""
    for one in classes(target):
        if one.drops and not one.state:
            find = one.find
            one.find = lambda nodes, bound, drop, find=find: find(nodes, bound, True)  # type: ignore[method-assign]


@edited
def no_margin(target: CachingAllocator) -> None:
    """P23: what is dropped must lie before the bound."""
    find = target.finder.find
    target.finder.find = lambda query, probes=None, suspects=(): find(query, probes, ("no margin",))  # type: ignore[method-assign]


def _longer_window(target: CachingAllocator, tokens: int) -> None:
    for one in classes(target):
        if hasattr(one.kind, "window") and not one.dense:
            one.kind = evolve(one.kind, window=max(2, one.kind.window + tokens))


@edited
def window_one_block_short(target: CachingAllocator) -> None:
    """P18: a block fewer than the window needs."""
    _longer_window(target, -max(one.size for one in classes(target)))


@edited
def window_one_block_long(target: CachingAllocator) -> None:
    """P18: a block more than the window needs."""
    _longer_window(target, max(one.size for one in classes(target)))


@edited
def uncut_full_attention(target: CachingAllocator) -> None:
    """P22: full attention keeps columns beyond the common hit."""
    finder = target.finder
    nodes = finder.nodes

    def find(query, probes=None, suspects=()):
        hit = Finder.find(finder, query, probes, suspects)
        rows = list(hit.rows)
        for one in finder.classes:
            if one.dense and hit.tokens:
                _, found, _ = one.find(nodes(query), query.bound, False)
                for group, row in zip(one.groups, found, strict=True):
                    rows[group] = tuple(row)
        return Hit(hit.tokens, hit.junction, tuple(rows))

    finder.find = find  # type: ignore[method-assign]


@edited
def first_class_decides(target: CachingAllocator) -> None:
    """P22: what the first class finds is taken for all."""
    target.finder.classes = target.finder.classes[:1]


@edited
def no_junction(target: CachingAllocator) -> None:
    """P27: nobody is told where another prefix went on."""
    lookup = target.lookup

    def looks(query):
        hit = lookup(query)
        return Hit(hit.tokens, 0, hit.rows)

    target.lookup = looks  # type: ignore[method-assign]


@edited
def no_fine_hits(target: CachingAllocator) -> None:
    """P24: nothing inside a block is looked at."""
    for one in classes(target):
        one.inner = False


@edited
def state_two_steps_back(target: CachingAllocator) -> None:
    """P20: not the last state but the one before."""
    for one in classes(target):
        if one.state:
            find = one._state
            one._state = lambda nodes, bound, find=find: find(nodes, find(nodes, bound)[0] - 1)  # type: ignore[method-assign]


@edited
def chunk_of_the_token_before(target: CachingAllocator) -> None:
    """P19: at a chunk's border the chunk that ends there is wanted."""
    for one in classes(target):
        if hasattr(one.kind, "chunk"):
            find = one._chunk
            one._chunk = lambda nodes, bound, kind, find=find: find(nodes, max(0, bound - 1), kind)  # type: ignore[method-assign]


@edited
def reads_although_told_not_to(target: CachingAllocator) -> None:
    """P16: `skip_reading_prefix_cache` is not obeyed."""
    lookup = target.lookup
    target.lookup = lambda query: lookup(evolve(query, skip=False))  # type: ignore[method-assign]
