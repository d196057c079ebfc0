"""Holds answers beside each other that only a manager with caching on gives: hits, drains, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import groupby

from attrs import evolve

from harness.compare import show_row
from harness.outcome import TargetRaised
from harness.targets.event_keys import LOOKAHEAD, odd_of
from oracle.cached_allocator import CachingAllocator
from oracle.call import Drained, Event, Hit, Observation, Query
from oracle.groups import Mamba, SlidingWindow
from oracle.lookup import UNSHARDED
from oracle.setting import Setting
from oracle.trace import Audit, CachingTarget, Difference, NamedAudit


def show_hit(hit: Hit) -> str:
    """A hit as the specs write it."""
    junction = f", junction {hit.junction}" if hit.junction else ""
    diverged = ", some group has less" if hit.diverged else ""
    return f"{hit.tokens} tokens{junction}{diverged}: {' '.join(map(show_row, hit.rows))}"


def hits(
    expected: Hit, observed: Hit, query: Query, oracle: CachingAllocator, real: CachingTarget, step: int
) -> Difference | None:
    """The difference of two lookups, with both explained group by group."""
    if expected == observed:
        return None
    groups = oracle.setting.groups
    rule, sign, group = "P22", "other", None
    if expected.tokens != observed.tokens:
        sign = "more" if observed.tokens > expected.tokens else "less"
    elif expected.junction != observed.junction:
        rule, sign = "P27", "more" if observed.junction > expected.junction else "less"
    elif expected.diverged != observed.diverged:
        rule = "P26"
    else:
        group = next(i for i, (a, b) in enumerate(zip(expected.rows, observed.rows, strict=True)) if a != b)
        rule = "P10"
    return Difference(
        aspect="hits",
        step=step,
        group=group,
        kind=groups[group].kind if group is not None else "+".join(sorted({g.kind for g in groups})),
        rule=rule,
        sign=sign,
        expected=show_hit(expected),
        observed=show_hit(observed),
        detail=f"expected:\n{oracle.explain(query)}\nobserved:\n{real.explain(query)}",
        tags=_cause(expected, observed, query, oracle),
    )


def _cause(expected: Hit, observed: Hit, query: Query, oracle: CachingAllocator) -> tuple[str, ...]:
    """The known miss that explains a hit, if one does: its name becomes part of the fingerprint."""
    for suspects in () if query.skip else oracle.finder.suspects:
        if observed == oracle.finder.find(query, suspects=suspects):
            return suspects
    return ("adapter",) if query.content.adapter and not oracle.choices.adapter_paths else ()


def lookup_raised(error: TargetRaised, query: Query, expected: Hit, oracle: CachingAllocator, step: int) -> Difference:
    """A lookup that gave no answer."""
    groups = oracle.setting.groups
    known = len(oracle.finder.nodes(query)) * oracle.setting.hash_size
    return Difference(
        aspect="hits",
        step=step,
        group=None,
        kind="+".join(sorted({g.kind for g in groups})),
        rule="P3",
        sign=f"error:{error.kind}",
        expected=show_hit(expected),
        observed=str(error),
        detail=oracle.explain(query),
        tags=_cause_of_no_answer(error, query, known, oracle.setting),
    )


def cause_of_raising(error: TargetRaised, setting: Setting) -> tuple[str, ...]:
    """A checkpoint is named at once, the columns before it later; a diverged hit is cut where a group has less."""
    innermost = error.frames[-1:]
    if setting.divergent_hits and innermost == ("truncate_computed_blocks",):
        return ("diverged hit",)
    held_back = setting.num_prefill_lookahead_tokens > 1
    exported = any(isinstance(group, Mamba) and group.checkpoint_blocks for group in setting.groups)
    return ("checkpoint ahead",) if held_back and exported and innermost == ("cache_full_blocks",) else ()


def cause_of_copy(expected: Observation, observed: Observation, oracle: CachingAllocator) -> tuple[str, ...]:
    """The call first copies the request's own state (P37): an error, or the request goes on in the copy (P36).

    The error is known where the state has left the row: named for less than it stands after, or named a second time.
    """
    pairs = [pair for pending in oracle.pending for pair in pending]
    if observed.outcome.startswith("error:"):
        why = "prefilled again" if oracle.publisher.again else "tail of a prompt"
        return ("copy owed", why) if any(source == 0 for source, _ in pairs) else ()
    rows = zip(expected.rows, observed.rows, strict=True)
    other = [pair for ours, theirs in rows for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]]
    return ("own state taken for a hit",) if other and all(pair in pairs for pair in other) else ()


def renamed(expected: Audit, observed: Audit, forgotten: Collection[int]) -> bool:
    """Whether names differ, and at blocks alone whose inner state a refused call may have made the target forget."""
    assert isinstance(expected, NamedAudit)
    assert isinstance(observed, NamedAudit)
    ours, theirs = expected.names, observed.names
    blocks = {block for block in {*ours, *theirs} if ours.get(block) != theirs.get(block)}
    return bool(blocks) and blocks <= set(forgotten)


def _cause_of_no_answer(error: TargetRaised, query: Query, known: int, setting: Setting) -> tuple[str, ...]:
    if "emit_cached_block_events" in error.frames:
        return ("hit report", "sharded") if setting.dcp_size > 1 else ("hit report",)
    if setting.fine_hits and any(
        isinstance(g, SlidingWindow) and g.block_size > setting.hash_size for g in setting.groups
    ):
        return ("coarse window",)
    if query.apart and setting.dcp_size > 1 and not setting.choices.sharded_fine_hits:
        return (UNSHARDED,)
    return ("past the known boundaries",) if query.bound - query.bound % setting.hash_size > known else ()


def _pool(aspect: str, step: int, rule: str, expected: object, observed: object) -> Difference:
    return Difference(
        aspect=aspect,
        step=step,
        group=None,
        kind="pool",
        rule=rule,
        sign="other",
        expected=str(expected),
        observed=str(observed),
    )


def in_order(events: tuple[Event, ...]) -> list[Event]:
    """Events, those removed one after the other sorted: a block's names go in no fixed order (P46)."""
    ordered: list[Event] = []
    for removed, found in groupby(events, lambda event: event[0] == "removed"):
        run = [*found]
        ordered += sorted(run, key=repr) if removed else run
    return ordered


def drained(
    expected: Observation, observed: Observation, aspects: Collection[str], step: int, setting: Setting
) -> Difference | None:
    """The first difference of two step boundaries; events are looked at last, nothing follows from them."""
    assert isinstance(expected, Drained)
    assert isinstance(observed, Drained)
    if expected.copies != observed.copies and "copies" in aspects:
        return _pool("copies", step, "P36", expected.copies, observed.copies)
    if expected.new != observed.new and "zeroing" in aspects:
        return _pool("zeroing", step, "A60", show_row(expected.new[0]), show_row(observed.new[0]))
    if expected.free != observed.free and "free" in aspects:
        return _pool("free", step, "A2", expected.free, observed.free)
    if expected.reused != observed.reused and "order" in aspects:
        return _pool("order", step, "P15", show_row(expected.reused), show_row(observed.reused))
    if expected.events != observed.events and "events" in aspects:
        ours, theirs = in_order(expected.events), in_order(observed.events)
        for first, second in zip([*ours, None], [*theirs, None], strict=False):
            if first != second:
                tags = _missed(expected, observed, setting) or _discarded(expected, first, second)
                return evolve(_pool("events", step, "P46", first, second), tags=tags)
    return None


def _missed(expected: Drained, observed: Drained, setting: Setting) -> tuple[str, ...]:
    """Whether events differ in reports of hits alone, and what those hits have in common."""
    told = Counter(expected.reported)
    others, seen = Counter(expected.events) - told, Counter(observed.events)
    if not told or others - seen or any(event[0] != "stored" or event[3] for event in seen - others):
        return ()
    return (
        "hit report",
        *(("sharded",) if setting.dcp_size > 1 else ()),
        *(("connector",) if setting.divergent_hits else ()),
    )


def _discarded(expected: Drained, ours: Event | None, theirs: Event | None) -> tuple[str, ...]:
    """Whether an event is right but for the lookahead of a name that holds a token which a session has discarded."""
    if ours is None or theirs is None or theirs[:-1] != ours:
        return ()
    odd, nodes = odd_of(theirs), ours[2]
    assert isinstance(nodes, tuple)
    known = odd and odd[0].startswith(LOOKAHEAD) and not expected.outdated.isdisjoint(nodes)
    return ("discarded lookahead",) if known else ()


def named(expected: Audit, observed: Audit, aspects: Collection[str], step: int) -> Difference | None:
    """The first difference of two audits in what caching adds."""
    if expected == observed or "hashes" not in aspects:
        return None
    assert isinstance(expected, NamedAudit)
    assert isinstance(observed, NamedAudit)
    if expected.references != observed.references:
        block = next(i for i, (a, b) in enumerate(zip(expected.references, observed.references, strict=True)) if a != b)
        ours, theirs = (f"block {block}: {audit.references[block]} references" for audit in (expected, observed))
        return _pool("hashes", step, "P15", ours, theirs)
    for rule, look in (("P9", "names"), ("P10", "copies")):
        first, second = getattr(expected, look), getattr(observed, look)
        for key in sorted({*first, *second}):
            if first.get(key) != second.get(key):
                ours, theirs = (f"{look} of {key}: {found.get(key)}" for found in (first, second))
                return _pool("hashes", step, rule, ours, theirs)
    return None
