"""One call of the manager, or a lookup, and what a party answers: the same classes for the oracle and the real one.

A step makes several of each. So they are not frozen, and they are compiled (`hatch_build.py`).
"""

from __future__ import annotations

from attrs import define, field

from oracle.content import Content

Row = tuple[int, ...]
Rows = tuple[Row, ...]
Name = tuple[int, int]
"""Of a cached block: its group, and the node of the content that it holds (`oracle.content`)."""
Event = tuple[object, ...]


@define(slots=True)
class Call:
    """One `allocate_slots`, in absolute numbers (tokens). Not frozen: one is made for each step."""

    request: int
    computed: int
    """Tokens that have K/V before this call, those of the hit included."""
    in_flight: int
    prompt: int
    tokens: int
    waiting: bool
    """Status WAITING or PREEMPTED: the watermark counts."""
    preempted: bool
    new: int
    lookahead: int
    external: int
    encoder: int
    full_sequence_must_fit: bool
    reserved_blocks: int
    has_scheduled_reqs: bool
    skip_zeroing: tuple[int, ...]
    local: int = 0
    """Tokens of the prefix-cache hit that this call adopts."""
    junction: int = 0
    content: Content | None = None


@define(slots=True)
class Query:
    """What a lookup asks for: the first `tokens` of a content, at most `bound` of them. `request` -1: nobody's.

    Not frozen, as Call and Observation: one is made for many steps.

    report: what is hit is told. apart: the lookup for a connector that can bring what a group lacks (P26).
    """

    request: int
    content: Content
    tokens: int
    bound: int
    skip: bool = False
    report: bool = False
    apart: bool = False


@define(slots=True)
class Hit:
    """What a lookup finds: tokens, the junction (0: none), and per group the row that the request would begin with.

    diverged: some group has less than that, which a connector must bring (P26).
    """

    tokens: int
    junction: int
    rows: Rows
    diverged: bool = False


#: outcomes of a call; an error is "error:" and the exception's type
GRANTED, REFUSED, DONE = "granted", "refused", "done"


@define(slots=True)
class Observation:
    """What a party shows after one call: cheap, the touched request only.

    new: entries added per group (A20), blocks popped by a deferred release, or the zero list. rows: the request's row
    per group as block ids, 0 for null. free: blocks in the free queue.
    """

    outcome: str
    new: Rows
    rows: Rows
    free: int


@define(slots=True)
class Drained(Observation):
    """What a step boundary shows with caching on, since the last: copies (source, target) in order, and events.

    reused: blocks that were handed out or cleared while somebody still read them (P15).
    reported: the oracle says which of the events are reports of hits; no part of the answer.
    outdated: likewise, nodes in events whose lookahead holds a token that a session has discarded since.
    """

    copies: tuple[tuple[int, int], ...] = ()
    events: tuple[Event, ...] = ()
    reused: Row = ()
    reported: tuple[Event, ...] = field(default=(), eq=False)
    outdated: frozenset[int] = field(default=frozenset(), eq=False)
