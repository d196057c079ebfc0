"""Judges a recording: the oracle answers the calls that a live scheduler made; the recorded answers are held beside.

The lines become operations of a trace, resolved by the same ledger as any; the recorded manager is a Target that plays
its answers back. So rules, memory model and laws are those of every replay. What the ledger would ask otherwise than
the recorded scheduler did ends the judging: the two accounts have parted, and nothing can be said from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

from attrs import define, evolve, field

from harness.outcome import Options
from harness.recording import Head
from harness.replay import Replay
from harness.trace_run import new_replay
from oracle.cached_ledger import CachingLedger
from oracle.content import Content, Item, Prefixes
from oracle.errors import SlotcheckError
from oracle.setting import Setting
from oracle.trace import (
    CACHING_METHODS,
    DONE,
    GRANTED,
    Audit,
    Call,
    Difference,
    Drained,
    Evict,
    Extend,
    Hit,
    NewStep,
    Observation,
    Operation,
    Query,
    Release,
    Reset,
    Row,
    Rows,
    Settle,
    Target,
    Trace,
)

NEVER = 1 << 60
#: an ask of a running request (request, new tokens, what it took), or what the recorder says of anything else
Event = tuple[int, int, list[Any] | None] | dict[str, Any]


class PartedError(SlotcheckError):
    """The recorded scheduler asked what the accounting of a trace would not: the rest cannot be judged."""


def rows_of(found: list[list[int]]) -> Rows:
    """JSON's lists as rows."""
    return tuple(map(tuple, found))


class Playback:
    """The recorded manager: what it answered, in order. `told` is the record of the call that comes next."""

    def __init__(self, setting: Setting) -> None:
        self.nothing: Rows = tuple(() for _ in setting.groups)
        self.caching = setting.enable_caching
        self.rows: dict[int, Rows] = {}
        self.free = setting.num_blocks - 1
        self.told: Any = None
        self.hits: dict[int, Hit] = {}

    def _take(self) -> Any:  # noqa: ANN401  # JSON, by the kind of the call
        told, self.told = self.told, None
        return told

    def extend(self, call: Call) -> Observation:
        told = self._take()
        if isinstance(told, tuple):
            return self._running(call, told[2])
        _same("computed tokens", call.computed, told["computed"] + told.get("local", 0))
        _same("tokens in flight", call.in_flight, told["in_flight"])
        _same("known tokens", call.tokens, told["tokens"])
        _same("new tokens", call.new, told["new"])
        _same("lookahead tokens", call.lookahead, told.get("lookahead", 0))
        _same("tokens of the hit", call.local, told.get("local", 0))
        outcome = told.get("said", GRANTED)
        got = rows_of(told["got"]) if outcome == GRANTED else self.nothing
        before = self.rows.get(call.request, self.nothing)
        rows = tuple(old + new for old, new in zip(before, got, strict=True))
        if "rows" in told:
            rows = rows_of(told["rows"])
        if outcome == GRANTED or any(rows):
            self.rows[call.request] = rows
        self.free = told["free"]
        return Observation(outcome, got, rows, self.free)

    def _running(self, call: Call, taken: list[Any] | None) -> Observation:
        """A granted ask of a running request; with windows and states its whole row is told, else what it took."""
        before = self.rows[call.request]
        if taken is None:
            return Observation(GRANTED, self.nothing, before, self.free)
        _, computed, self.free, *got = taken
        _same("computed tokens", call.computed, computed)
        if got[0] is None:
            rows = rows_of(got[1])
            new = tuple(row[len(old) :] for old, row in zip(before, rows, strict=True))
        else:
            new = rows_of(got)
            rows = tuple(old + more for old, more in zip(before, new, strict=True))
        self.rows[call.request] = rows
        return Observation(GRANTED, new, rows, self.free)

    def release(self, request: int, deferred: bool) -> Observation:
        self.free = self._take()["free"]
        self.rows.pop(request, None)
        return Observation(DONE, ((),), self.nothing, self.free)

    def new_step(self) -> Observation:
        zeroed = tuple(self._take() or ())
        if self.caching:
            return Drained(DONE, (zeroed,), self.nothing, self.free)
        return Observation(DONE, (zeroed,), self.nothing, self.free)

    def lookup(self, query: Query) -> Hit:
        return self.hits.get(query.request, Hit(0, 0, self.nothing))

    def cut(self, request: int, tokens: int) -> None:
        return None

    def publish(self, call: Call, tokens: int) -> Observation:
        return Observation(DONE, self.nothing, self.rows.get(call.request, self.nothing), self.free)

    def explain(self, query: Query) -> str:
        return "as it was recorded"

    def give_back(self) -> Observation:
        raise PartedError("a deferred release is not judged in a recording")

    def trim(self, request: int, processed: int, prompt: int) -> Observation:
        raise PartedError("a removal without an allocation is not judged in a recording")

    def evict(self, blocks: Row) -> Observation:
        self._take()
        return Observation(DONE, self.nothing, self.nothing, self.free)

    def reset(self) -> Observation:
        return Observation(str(self._take()["reset"]), self.nothing, self.nothing, self.free)

    def pin(self, blocks: Row) -> Observation:
        raise PartedError("a pin is not judged in a recording")

    def unpin(self, watched: bool) -> Observation:
        raise PartedError("the end of a pin is not judged in a recording")

    def return_copies(self) -> Observation:
        return Observation(DONE, self.nothing, self.nothing, self.free)

    def audit(self) -> Audit:
        return Audit(dict(self.rows), ())


def _same(what: str, ours: int, theirs: int) -> None:
    if ours != theirs:
        raise PartedError(f"the recorded scheduler has {theirs} {what} where the accounting of a trace has {ours}")


class RecordedPrefixes(Prefixes):
    """Contents as digests of their hash blocks: equal digests are equal prefixes, whatever lies inside a block."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.size, self.ahead = setting.hash_size, setting.num_hash_lookahead_tokens
        self.unknown = 0
        #: the digests of the request that comes next
        self.coming: list[int] = []

    def begin(
        self,
        forks: tuple[int, ...] = (),
        salt: int = 0,
        adapter: int = 0,
        items: tuple[Item, ...] = (),
        embeds: int = 0,
        prompt: int = 0,
    ) -> Content:
        content = Content((), 0, 0, (), [0])
        self.tell(content, self.coming)
        return content

    def grow(self, content: Content, length: int) -> None:
        while len(content.tokens) < length:
            content.tokens.append(0)
            self.unknown -= 1
            content.path.append(self.unknown)

    def tell(self, content: Content, digests: list[int]) -> None:
        """What the hash blocks of a content are, as far as they are known."""
        self.grow(content, len(digests) * self.size + self.ahead)
        for index, digest in enumerate(digests, 1):
            content.path[index * self.size + self.ahead] = digest


def logged(playback: Playback, log: list[Any]) -> Target:
    """The same party; its answers are kept."""

    def kept(method: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*arguments: object) -> object:
            seen = method(*arguments)
            log.append(seen)
            return seen

        return answer

    return cast("Target", SimpleNamespace(**{name: kept(getattr(playback, name)) for name in CACHING_METHODS}))


@define
class Judged:
    """A recording as far as it has been judged. steps: of the engine, whole ones; at: wall time of the last line."""

    head: Head
    options: Options
    log: list[Any] | None = None
    """Where to keep every answer, in order."""
    replay: Replay = field(init=False)
    playback: Playback = field(init=False)
    steps: int = 0
    at: datetime = field(init=False)
    parted: str = ""
    """Why the rest cannot be judged."""
    shown: int = 0
    digests: dict[int, list[int]] = field(factory=dict)
    """Of each request, what its hash blocks are."""
    aspects: frozenset[str] = frozenset()
    """What is compared: of those wanted, those that a recording has."""
    met: set[int] = field(factory=set)
    plain: list[int] = field(factory=list)
    """Asks of running requests of the last step."""

    def __attrs_post_init__(self) -> None:
        setting = self.head.setting
        self.at = self.head.began
        self.playback = Playback(setting)
        given = evolve(self.options, audit_every=NEVER, memory=self.options.memory and not setting.enable_caching)
        if setting.enable_caching:  # copies are not recorded, and free blocks say nothing of the queue's order
            given.aspects -= {"copies", "events", "order"}
        self.aspects = frozenset(given.aspects)
        party = self.playback if self.log is None else logged(self.playback, self.log)
        self.replay = new_replay(setting, lambda _: party, given)
        if isinstance(self.replay.ledger, CachingLedger):
            self.replay.ledger.prefixes = RecordedPrefixes(setting)
        if self.head.dropped:
            self.parted = f"the first {self.head.dropped} part(s) were dropped: nobody knows what was held then"

    @property
    def over(self) -> bool:
        """Whether there is nothing more to judge."""
        return self.replay.over or bool(self.parted)

    @property
    def difference(self) -> Difference | None:
        """The first that is not declared."""
        found = self.replay.outcome_differences
        return found[0] if found else None

    @property
    def trace(self) -> Trace:
        """What was judged so far, as a trace."""
        return Trace(setting=self.head.setting, operations=tuple(self.replay.operations))

    def feed(self, line: dict[str, Any]) -> None:
        """Judge one line."""
        if self.over:
            return
        self.at = self.head.at(line.get("s", line.get("u", 0)))
        try:
            for request, digests in line.get("h", ()):
                self._tell(request, digests)
            for _ in range(line.get("back", 0)):
                self._run(Settle(), None)
            if "u" in line and line.get("of", 1):
                self._run(Settle(accepted=tuple(map(tuple, line.get("a", ())))), None)
            self._events(line)
        except PartedError as error:
            self.parted = str(error)

    def _events(self, line: dict[str, Any]) -> None:
        zeroed: list[int] = []
        for event in self._in_order(line):
            if self.over:
                return
            if isinstance(event, dict) and "zero" in event:
                zeroed = event["zero"]
            else:
                self._event(event)
        if "s" in line and not self.over:
            self.steps += 1
            self._run(NewStep(), zeroed)

    def _in_order(self, line: dict[str, Any]) -> Iterator[Event]:
        """Plain asks, asks that took, and everything else, as they came."""
        plain = line.get("p", self.plain if "same" in line else [])
        self.plain = plain or self.plain
        others = line.get("e", ())
        taken = {said[0]: said for said in line.get("t", ())}
        next_other = 0
        usual = 1 + self.head.setting.num_speculative_tokens
        unusual = dict(line.get("n", ()))
        for place in range(len(plain) + 1):
            while next_other < len(others) and others[next_other][0] <= place:
                yield others[next_other][1]
                next_other += 1
            if place < len(plain):
                yield (plain[place], unusual.get(place, usual), taken.get(place))

    def _event(self, event: Event) -> None:
        if isinstance(event, tuple):
            self._run(Extend(request=event[0], new=event[1]), event)
        elif "q" in event:
            self._know(event["q"])
            self._run(extend_of(event, event["q"] not in self.met), event)
            self.met.add(event["q"])
        elif "free" in event:
            if event["of"] in self.replay.ledger.requests:
                self._run(Release(request=event["of"], preempt=bool(event["preempt"])), event)
        elif "look" in event:
            self._know(event["look"])
            self.playback.hits[event["look"]] = Hit(event["hit"], event["junction"], rows_of(event["rows"]))
        elif "evict" in event:
            self._run(Evict(blocks=tuple(event["evict"])), event)
        elif "reset" in event:
            self._run(Reset(), event)
        elif "not judged" in event:
            raise PartedError(f"{event['not judged']} was called, which is not judged in a recording")

    def _tell(self, request: int, digests: Sequence[int]) -> None:
        if digests:
            self.digests.setdefault(request, []).extend(digests)
        self._know(request)

    def _know(self, request: int) -> None:
        prefixes = getattr(self.replay.ledger, "prefixes", None)
        if not isinstance(prefixes, RecordedPrefixes):
            return
        prefixes.coming = self.digests.get(request, [])
        known = self.replay.ledger.requests.get(request)
        if known is not None and known.content is not None:
            prefixes.tell(known.content, prefixes.coming)

    def _run(self, operation: Operation, told: Event | list[int] | None) -> None:
        """One operation; the recorded answer must have been asked for."""
        replay, playback = self.replay, self.playback
        playback.told = told
        replay.step(operation)
        if playback.told and not replay.over:
            raise PartedError("the recorded scheduler asked what no scheduler of a trace would")
        playback.told = None


def extend_of(event: dict[str, Any], first: bool) -> Extend:
    """The operation of an ask that is not plain."""
    return Extend(
        request=event["q"],
        new=event["new"],
        prompt=event["prompt"] if first else 0,
        external=event.get("external", 0),
        encoder=event.get("encoder", 0),
        lookahead=event.get("lookahead", 0),
        full_sequence_must_fit=bool(event.get("gate", 0)),
        reserved_blocks=event.get("reserved", 0),
        has_scheduled_reqs=bool(event.get("others", 0)) if "status" in event else True,
        skip_lookup=bool(event.get("skip", False)),
    )
