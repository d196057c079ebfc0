"""What a scheduler shows: each step's output, its calls of the manager and of the connector, the state of its requests.

The same classes for the oracle and the real one. Compiled, as those of `oracle.call`.
"""

from __future__ import annotations

from attrs import define

from oracle.call import Call, Observation, Rows

#: the states of a request, as the tables name them
WAITING, RUNNING, PREEMPTED, LOADING, COMPILING = "waiting", "running", "preempted", "loading", "compiling"
#: a session that waits for input
PAUSED_SESSION = "paused session"
#: why a request ended
STOPPED, LENGTH, ERROR = "stop", "length", "error"


@define(slots=True)
class Planned:
    """One `SchedulerOutput`: what a step's worker is told.

    tokens: (request, tokens scheduled) in order. drafts: (request, drafts among them). new: (request, computed tokens,
    known tokens, row per group). cached: (request, computed tokens, outputs with those in flight, new entries per group
    or None). resumed: requests of `cached` whose row starts anew (the V1 runner). preempted, finished: since the step
    before. zeroed: blocks to zero. proposals: drafts of the next step. skip_drafts: nobody can use them. copies: blocks
    (source, target) to copy before the step runs. encoded: (request, which of its items) that the encoder takes in it.
    dropped: items whose outputs the worker drops before that. again: (request, known tokens) whose tokens are sent once
    more (the V1 runner). has_structured_output_requests: a grammar masks what is sampled in it.
    pending_structured_output_tokens: its mask needs tokens in flight. has_sync_kv_loads: it loads what it reads.
    """

    tokens: list[tuple[int, int]]
    drafts: list[tuple[int, int]]
    new: list[tuple[int, int, int, Rows]]
    cached: list[tuple[int, int, int, Rows | None]]
    resumed: list[int]
    preempted: list[int]
    finished: list[int]
    zeroed: tuple[int, ...]
    proposals: int
    skip_drafts: bool
    copies: tuple[tuple[int, int], ...] = ()
    encoded: tuple[tuple[int, tuple[int, ...]], ...] = ()
    dropped: tuple[int, ...] = ()
    again: tuple[tuple[int, int], ...] = ()
    has_structured_output_requests: bool = False
    pending_structured_output_tokens: bool = False
    has_sync_kv_loads: bool = False


#: the fields of Planned, and the rule that decides each
PLANNED_RULES = {
    "tokens": "S3",
    "drafts": "S18",
    "new": "S10",
    "cached": "S11",
    "resumed": "S7",
    "preempted": "S7",
    "finished": "S12",
    "zeroed": "A60",
    "proposals": "S24",
    "skip_drafts": "S23",
    "copies": "P36",
    "encoded": "S52",
    "dropped": "S54",
    "again": "S55",
    "has_structured_output_requests": "S57",
    "pending_structured_output_tokens": "S58",
    "has_sync_kv_loads": "S59",
}


@define(slots=True)
class State:
    """One request between steps: status, computed, known, placeholders, in flight, stale, drafts, preemptions.

    chunk: its last scheduled part ended before what was known.
    """

    request: int
    status: str
    computed: int
    tokens: int
    placeholders: int
    in_flight: int
    stale: int
    drafts: int
    preemptions: int
    chunk: bool


@define(slots=True)
class Situation:
    """Every live request: who runs, who waits and who waits with blocks, in order; and the free blocks.

    states: of those that run; of the others too when everything is asked for. outputs: of the encoder, (item, requests
    that hold it) by item. unheld: items that nobody holds, the next one to go first. place: tokens that no output
    takes, and with the unheld ones.
    """

    running: list[int]
    waiting: list[int]
    holding: list[int]
    states: list[State]
    free: int
    busy: bool = True
    """Whether the engine goes on by itself, with nothing in flight: else it sleeps until somebody calls."""
    outputs: tuple[tuple[int, tuple[int, ...]], ...] = ()
    unheld: tuple[int, ...] = ()
    place: tuple[int, int] = (0, 0)


#: what the scheduler does to the manager, in order
ASK, FREE, LOOK, NAME = "ask", "free", "look", "name"
#: blocks taken from a request and kept back, the oldest of these returned, dead columns returned
POP, GIVE, TRIM = "pop", "give", "trim"
#: what it does to its KV connector: asks for a match, tells that blocks are there, that a request has ended, that
#: all it has is to be forgotten
MATCH, START, ENDED, CLEAR = "match", "start", "ended", "clear"


@define(slots=True)
class Event:
    """One call of the manager: an ask with its answer, or blocks returned (free: blocks free afterwards).

    With caching on also a lookup (tokens: the hit; junction) and names published up to `tokens`. With a connector:
    tokens of a match (-1: it cannot tell) or of a start; of an end the blocks handed over (`seen.rows`),
    tokens 1 where they are kept.
    """

    what: str
    request: int
    call: Call | None
    seen: Observation | None
    free: int
    tokens: int = 0
    junction: int = 0
