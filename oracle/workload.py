"""The language of the scheduler level: an engine's setting, a workload, and what a scheduler shows of each step.

A workload says who comes when, how many drafts of each request are accepted, where a stop token falls, who is aborted.
What is scheduled follows from it. An operation that fits no request is void, so that any part of a workload can be
dropped. Step numbers and request ids count from 0; lengths are in tokens.
"""

from __future__ import annotations

from typing import Protocol

from attrs import define, evolve, field, frozen

from oracle.budget import predict
from oracle.content import Content, Item, check_items, item_length
from oracle.errors import SettingError
from oracle.groups import MOST, one_of
from oracle.releases import NEWEST
from oracle.scheduler_setting import KV_PRODUCER, SchedulerSetting
from oracle.trace import Call, Difference, Observation, Rows

#: the token that stops a request
STOP = 120
#: a load runs beside the steps, or as part of the step that admits the request
ASYNC, SYNC = "async", "sync"
#: nothing is held back; no newcomer is admitted; nothing is scheduled
UNPAUSED, PAUSED_NEW, PAUSED_ALL = "unpaused", "paused_new", "paused_all"

# ---------------------------------------------------------------------------------------------- the workload


@frozen(kw_only=True)
class Submit:
    """A request arrives: `prompt` tokens, at most `max_tokens` outputs. Smaller `priority` is more urgent.

    forks: where its content leaves the one that all share (`oracle.content`); with caching on.
    With a KV connector: remote: tokens of the prompt whose K/V lie elsewhere, `load`ed beside the steps or in one.
    unknown: how many looks the connector cannot answer yet. again: they can be loaded once more after a preemption or a
    failed load. keeps: the blocks are kept after the end until they are sent.
    encoder: tokens of the encoder's input; with a cross-attention group.
    grammar: structured output, whose grammar is compiled after so many looks less 1; 0: free text.
    session: input comes in pieces, of which this is the first; see `Update`.
    items: multimodal items of the prompt, (identifier, offset), where the setting has an encoder_cache_size.
    skip: it does not read the prefix cache (`skip_reading_prefix_cache`), nor what a connector has.
    Where the model pools max_tokens is 1 and means the pooler's output.
    """

    request: int
    prompt: int
    max_tokens: int = 1
    priority: int = 0
    forks: tuple[int, ...] = ()
    remote: int = 0
    load: str = field(default=ASYNC, validator=one_of(ASYNC, SYNC))
    unknown: int = 0
    again: bool = False
    keeps: bool = False
    encoder: int = 0
    grammar: int = 0
    session: bool = False
    items: tuple[Item, ...] = ()
    skip: bool = False


@frozen(kw_only=True)
class Update:
    """The next piece of a session's input: `prompt` tokens, answered by at most `max_tokens`. No tokens: its end.

    Void where the session has ended, or where its tokens may not fit into max_model_len.
    """

    request: int
    prompt: int = 0
    max_tokens: int = 1


@frozen(kw_only=True)
class Step:
    """The scheduler plans a step; when as many are in flight as may be, the oldest one's output comes back.

    Of the output that comes back: accepted: (request, accepted drafts), absent 0. stops: (request, which of the
    returned tokens is a stop token, from 0). drafts: (request, drafts proposed for its next step), absent K; without
    overlap only. early: every output in flight comes back.
    loaded: (request, 0) whose load ends with this output, (request, j) if it failed from the j-th column on, the first
    is 1. sent: requests whose blocks are sent.
    valid: (request with a grammar, drafts that it allows), absent all. refused: whose grammar refuses what was sampled.
    """

    accepted: tuple[tuple[int, int], ...] = ()
    stops: tuple[tuple[int, int], ...] = ()
    drafts: tuple[tuple[int, int], ...] = ()
    early: bool = False
    loaded: tuple[tuple[int, int], ...] = ()
    sent: tuple[int, ...] = ()
    valid: tuple[tuple[int, int], ...] = ()
    refused: tuple[int, ...] = ()


@frozen(kw_only=True)
class Abort:
    """A client goes away."""

    request: int


@frozen(kw_only=True)
class Reset:
    """The prefix cache is emptied, if nobody holds blocks.

    running: requests that run are preempted for it, their outputs in flight dropped. connector: it forgets what it has.
    """

    running: bool = True
    connector: bool = False


@frozen(kw_only=True)
class Pause:
    """The engine is paused, or goes on."""

    state: str = field(default=UNPAUSED, validator=one_of(UNPAUSED, PAUSED_NEW, PAUSED_ALL))


SchedulerOperation = Submit | Update | Step | Abort | Reset | Pause
SCHEDULER_OPERATIONS: tuple[type, ...] = (Submit, Update, Step, Abort, Reset, Pause)


@frozen(kw_only=True)
class SchedulerTrace:
    """A setting and a workload; after its last operation steps follow until everything has finished."""

    setting: SchedulerSetting
    operations: tuple[SchedulerOperation, ...]
    level: str = "scheduler"


def check_workload(setting: SchedulerSetting, operation: SchedulerOperation) -> None:
    """Refuse what the front end would refuse; SettingError names the number."""
    if isinstance(operation, Submit):
        limit = setting.max_model_len
        if not 0 < operation.prompt <= limit - setting.sampled:
            raise SettingError(
                f"prompt must be 1 to {limit - setting.sampled}, max_model_len {limit} less what a step samples, "
                f"got {operation.prompt}"
            )
        if not 0 < operation.max_tokens <= MOST:
            raise SettingError(f"max_tokens must be 1 to {MOST}, got {operation.max_tokens}")
        if not 0 <= operation.encoder <= setting.max_encoder_len:
            raise SettingError(
                f"encoder must be 0 to max_encoder_len {setting.max_encoder_len}, got {operation.encoder}"
            )
        if operation.remote and (not setting.kv_connector or setting.kv_role == KV_PRODUCER):
            raise SettingError(f"remote tokens need a KV connector that consumes, got {operation.remote}")
        if operation.keeps and not setting.kv_connector:
            raise SettingError("a request that keeps its blocks needs a KV connector")
        if not 0 <= operation.remote <= operation.prompt:
            raise SettingError(f"remote must be 0 to the prompt's {operation.prompt} tokens, got {operation.remote}")
        for name in ("unknown", "grammar"):
            if not 0 <= getattr(operation, name) <= MOST:
                raise SettingError(f"{name} must be 0 to {MOST} looks, got {getattr(operation, name)}")
        _check_kind(setting, operation)
    if isinstance(operation, Update):
        _check_update(setting, operation)
    if isinstance(operation, Submit | Update | Abort) and operation.request < 0:
        raise SettingError(f"request must be at least 0, got {operation.request}")
    if isinstance(operation, Step):
        for name in ("accepted", "stops", "drafts", "loaded", "valid"):
            for pair in getattr(operation, name):
                if len(pair) != 2 or min(pair) < 0:
                    raise SettingError(f"{name} must be pairs of numbers of at least 0, got {list(pair)}")


def _check_kind(setting: SchedulerSetting, operation: Submit) -> None:
    """Where requests of a kind are specified."""
    if operation.session:
        _check_session(setting)
    if setting.pooling:
        _check_pooled(operation)
    if operation.items:
        _check_items(setting, operation)


def _check_items(setting: SchedulerSetting, operation: Submit) -> None:
    """Items lie in the prompt, in order."""
    if not setting.encoder_cache_size:
        raise SettingError(f"items need an encoder_cache_size, got {list(operation.items)}")
    check_items(operation.items)
    identifier, offset = operation.items[-1]
    if offset + item_length(identifier) > operation.prompt:
        raise SettingError(f"items must lie in the prompt's {operation.prompt} tokens, got one at {offset}")


def _check_pooled(operation: Submit) -> None:
    """What a request for the pooler's output cannot ask for."""
    for name, value in (("max_tokens", 1), ("grammar", 0), ("session", False)):
        if getattr(operation, name) != value:
            raise SettingError(f"{name} must be {value} where the model pools, got {getattr(operation, name)}")


def _check_session(setting: SchedulerSetting) -> None:
    """Where sessions are specified."""
    if setting.max_encoder_len:
        raise SettingError(f"this version has no sessions beside max_encoder_len, got {setting.max_encoder_len}")
    if setting.release != NEWEST:
        raise SettingError(f"this version has sessions by the rules of {NEWEST}, got {setting.release}")


def _check_update(setting: SchedulerSetting, operation: Update) -> None:
    if not 0 <= operation.prompt < setting.max_model_len:
        raise SettingError(f"prompt must be 0 to {setting.max_model_len - 1}, got {operation.prompt}")
    if not 0 < operation.max_tokens <= MOST:
        raise SettingError(f"max_tokens must be 1 to {MOST}, got {operation.max_tokens}")


# ------------------------------------------------------------------------------------------- what is observed

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


#: (request, tokens, finish reason or "")
Delivered = tuple[int, tuple[int, ...], str]


@frozen
class Transfers:
    """What comes with an output beside tokens and drafts: from the worker's side of a connector, and from grammars.

    loaded, sent: requests. failed: (request, first column that did not load): one at most, or none.
    valid: drafts that a request's grammar allows. refused: requests whose grammar refuses what was sampled.
    """

    loaded: tuple[int, ...] = ()
    sent: tuple[int, ...] = ()
    failed: tuple[int, int] | None = None
    valid: tuple[tuple[int, int], ...] = ()
    refused: tuple[int, ...] = ()


NOTHING_MOVED = Transfers()


class SchedulerTarget(Protocol):
    """A party that schedules: the real one, or one of a fork. `events` holds the manager's calls of the last method."""

    events: list[Event]

    def submit(self, operation: Submit, arrival: int, content: Content | None) -> None: ...

    def update(self, operation: Update, arrival: int, tokens: list[int] | None) -> None:
        """A session gets its next piece of input, with caching on these tokens; or its end."""
        ...

    def goes_on(self, request: int, content: Content) -> None:
        """With caching on: what a session says from now on, whose next piece was taken."""
        ...

    def schedule(self) -> Planned: ...

    def samples(self) -> dict[int, bool]:
        """Of each request of the last planned step, whether the worker samples for it."""
        ...

    def output(
        self, returned: dict[int, list[int]], proposed: dict[int, int] | None, transfers: Transfers
    ) -> list[Delivered]:
        """The oldest step in flight comes back with these tokens; the drafts proposed after it, without overlap."""
        ...

    def abort(self, request: int) -> bool: ...

    def reset(self, running: bool, connector: bool) -> bool:
        """Whether the prefix cache was emptied. A release may raise where running requests were preempted in vain."""
        ...

    def pause(self, state: str) -> None: ...

    def situation(self, everything: bool) -> Situation: ...

    def rows(self, request: int) -> Rows: ...


@frozen(kw_only=True)
class SchedulerDifference(Difference):
    """A difference of the scheduler level; `step` is the operation's index."""

    level: str = "scheduler"


#: what a run of this level compares, from robust to strict
SCHEDULER_ASPECTS = ("error", "law", "ask", "output", "delivered", "state")


def of_release(trace: SchedulerTrace, release: str | None) -> SchedulerTrace:
    """The same workload by the rules of a release (None: as it is), with what its engine tells the manager there.

    SettingError where its engine does not have the setting.
    """
    setting = trace.setting
    if release is None or release == setting.release:
        return trace
    changes: dict[str, object] = {"release": release}
    if setting.enable_caching:
        facts = predict(setting.case, release)
        changes |= {
            "use_eagle": facts.block_drop and not facts.hash_lookahead,
            "num_hash_lookahead_tokens": facts.hash_lookahead,
            "num_prefill_lookahead_tokens": facts.prefill_lookahead,
        }
    return with_setting(trace, **changes)


def with_setting(trace: SchedulerTrace, **changes: object) -> SchedulerTrace:
    """The same workload in a changed setting. SettingError if no engine has it."""
    return evolve(trace, setting=evolve(trace.setting, **changes))  # type: ignore[arg-type]
