"""The language of the scheduler level: an engine's setting, a workload, and what a scheduler shows of each step.

A workload says who comes when, how many drafts of each request are accepted, where a stop token falls, who is aborted.
What is scheduled follows from it. An operation that fits no request is void, so that any part of a workload can be
dropped. Step numbers and request ids count from 0; lengths are in tokens.
"""

from __future__ import annotations

from typing import Protocol

from attrs import evolve, field, frozen

from oracle.budget import predict
from oracle.call import Rows
from oracle.content import Content, Item
from oracle.groups import one_of
from oracle.scheduled import Event, Planned, Situation
from oracle.scheduler_setting import SchedulerSetting
from oracle.trace import Difference

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

    items: multimodal ones of the piece, each with its offset in it (tokens).

    Void where the session has ended, where its tokens may not fit into max_model_len, or with too many items in all.
    """

    request: int
    prompt: int = 0
    max_tokens: int = 1
    items: tuple[Item, ...] = ()


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
