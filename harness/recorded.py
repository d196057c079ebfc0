"""Judges a recording: the oracle answers the calls that a live scheduler made; the recorded answers are held beside.

The lines become operations of a trace, resolved by the same ledger as any; the recorded manager is a Target that plays
its answers back. So rules, memory model and laws are those of every replay. What the ledger would ask otherwise than
the recorded scheduler did ends the judging: the two accounts have parted, and nothing can be said from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, cast

from attrs import define, evolve, field

from harness.outcome import Options
from harness.playback import PartedError, Playback, rows_of
from harness.recorded_ledger import RecordedCachingLedger, RecordedLedger, RecordedPrefixes
from harness.recorded_state import begin, may_begin
from harness.recording import Head
from harness.replay import Replay
from harness.trace_run import new_replay
from oracle.cached_allocator import CachingAllocator
from oracle.call import (
    Hit,
)
from oracle.ledger import PREEMPTED
from oracle.setting import Setting
from oracle.trace import (
    Difference,
    Evict,
    Extend,
    GiveBack,
    Loaded,
    NewStep,
    Operation,
    Release,
    Reset,
    Resume,
    Settle,
    Trace,
    Trim,
)

NEVER = 1 << 60
#: an ask of a running request (request, new tokens, what it took, computed tokens where these are told), or what the
#: recorder says of anything else
Event = tuple[int, int, list[Any] | None, int | None] | dict[str, Any]


def account(replay: Replay, setting: Setting) -> None:
    """Give a new replay a recording's accounting."""
    if setting.enable_caching:
        ledger = RecordedCachingLedger(setting)
        ledger.prefixes = RecordedPrefixes(setting)
        replay.ledger = ledger
    else:
        replay.ledger = RecordedLedger(setting)


@define
class Judged:
    """A recording as far as it has been judged. steps: of the engine, whole ones; at: wall time of the last line."""

    head: Head
    options: Options
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
    began: dict[str, Any] | None = None
    """The state that the judging began with, where the beginning is gone."""
    since: datetime = field(init=False)
    """The wall time of the first line that was judged."""
    waits: bool = False
    """Nothing is judged until a state is told."""
    plain: list[int] = field(factory=list)
    """Asks of running requests of the last step."""
    step: Callable[[Operation], None] | None = None
    """What runs an operation, in place of the replay."""

    def __attrs_post_init__(self) -> None:
        self.at = self.since = self.head.began
        self._start()
        if self.head.dropped:
            self.parted = f"the first {self.head.dropped} part(s) were dropped: nobody knows what was held then"
            self.waits = True

    def _start(self) -> None:
        setting = self.head.setting
        self.playback = Playback(setting)
        given = evolve(self.options, audit_every=NEVER, memory=self.options.memory and not setting.enable_caching)
        if setting.enable_caching:  # copies are not recorded, and free blocks say nothing of the queue's order
            given.aspects -= {"copies", "events", "order"}
        self.aspects = frozenset(given.aspects)
        self.replay = new_replay(setting, lambda _: self.playback, given)
        account(self.replay, setting)

    def _begin(self, state: dict[str, Any]) -> None:
        """Judge from here on."""
        reason = may_begin(self.head.setting)
        if reason:
            self.parted = f"{self.parted}; {reason}"
            return
        self._start()
        self.began, self.parted, self.waits = state, "", False
        self.digests = dict(state.get("digests", ()))
        self.met = {request[0] for request in state["requests"]}
        begin(self.replay, state)
        self.playback.begin(state)

    @property
    def _ledger(self) -> RecordedLedger | RecordedCachingLedger:
        return cast("RecordedLedger | RecordedCachingLedger", self.replay.ledger)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to judge."""
        return self.replay.over or bool(self.parted and not self.waits)

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
        if "lost" in line and not self.over:
            self.parted, self.waits = f"{line['lost']} was dropped before it was read", True
        if self.waits and "state" in line:
            self._begin(line["state"])
        if self.over or self.waits or "state" in line or "lost" in line:
            return
        self.at = self.head.at(line.get("s", line.get("u", 0)))
        if not self.replay.operations:
            self.since = self.at
        try:
            for request, digests in line.get("h", ()):
                self._tell(request, digests)
            for _ in range(line.get("back", 0)):
                self._run(Settle(), None)
            if "u" in line and line.get("of", 1):
                self.playback.returned = [said["returned"] for _, said in line.get("e", ()) if "returned" in said]
                self._ledger.facts.cut.update(_ends(line))
                self._spoil([said for _, said in line.get("e", ()) if "spoilt" in said])
                self._run(Settle(accepted=tuple(map(tuple, line.get("a", ())))), None)
            if "s" in line and isinstance(self.replay.oracle, CachingAllocator):
                self.replay.oracle.step_starts()  # what an output named is there; only this step's names are not
            self._events(line)
            if "raised" in line and not self.over:
                self.parted = f"the scheduler raised {line['raised']}"
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
        if "s" in line and "raised" not in line and not self.over:
            self.steps += 1
            self._run(NewStep(), (zeroed, line.get("free")))

    def _in_order(self, line: dict[str, Any]) -> Iterator[Event]:
        """Plain asks, asks that took, and everything else, as they came."""
        plain = line.get("p", self.plain if "same" in line else [])
        self.plain = plain or self.plain
        others = line.get("e", ())
        taken = {said[0]: said for said in line.get("t", ())}
        next_other = 0
        usual = 1 + self.head.setting.num_speculative_tokens
        unusual = {place: (new, computed) for place, new, computed in line.get("n", ())}
        for place in range(len(plain) + 1):
            while next_other < len(others) and others[next_other][0] <= place:
                yield others[next_other][1]
                next_other += 1
            if place < len(plain):
                new, computed = unusual.get(place, (usual, None))
                yield (plain[place], new, taken.get(place), computed)

    def _event(self, event: Event) -> None:
        if isinstance(event, tuple):
            self._run(Extend(request=event[0], new=event[1]), event)
        elif "q" in event:
            self._know(event["q"])
            self._again(event["q"], event["tokens"])
            self._run(extend_of(event, event["q"] not in self.met), event)
            self.met.add(event["q"])
        elif "of" in event:
            if event["of"] in self.replay.ledger.requests:
                deferred = bool(event.get("deferred"))
                if event["preempt"] and self.replay.ledger.requests[event["of"]].in_flight:
                    self._ledger.facts.stale.add(event["of"])
                self._run(Release(request=event["of"], preempt=bool(event["preempt"]), deferred=deferred), event)
        elif "gave" in event:
            self._run(GiveBack(), event)
        elif "trim" in event:
            held = self.replay.ledger.requests.get(event["trim"])
            if held is not None and held.holds:
                held.computed = event["processed"] + held.in_flight  # nothing else will be asked of it
                self._run(Trim(request=event["trim"]), event)
            self._ledger.facts.ended.add(event["trim"])
        elif "loaded" in event:
            self._loaded(event["loaded"], event.get("valid"), event)
        elif "paused" in event:
            self._pause(event["paused"], event["tokens"] - 1)
        elif "session" in event:
            self._session(event)
        elif "look" in event:
            self.digests[event["look"]] = event.get("h", self.digests.get(event["look"], []))
            self._know(event["look"])
            apart = "diverged" in event
            hit = Hit(event["hit"], event["junction"], rows_of(event["rows"]), bool(event.get("diverged")))
            self.playback.hits[event["look"], apart] = hit
        elif "evict" in event:
            self._run(Evict(blocks=tuple(event["evict"])), event)
        elif "reset" in event:
            self._run(Reset(), event)

    def _again(self, number: int, tokens: int) -> None:
        """A request comes back that was preempted, perhaps in flight: what came back since is kept, or thrown away.

        The memory model does not know that an output may be thrown away.
        """
        memory, request = self.replay.memory, self.replay.ledger.requests.get(number)
        if request is None or request.status != PREEMPTED:
            return
        dropped = number in self._ledger.facts.stale and tokens < request.tokens
        if dropped:
            request.tokens = tokens
        if memory is not None and request in memory.known and (dropped or request.in_flight > 0):
            memory.known[request].tainted = True

    def _loaded(self, number: int, valid: int | None, event: Event) -> None:
        """An async load has ended; valid: computed tokens of one that failed."""
        request = self.replay.ledger.requests.get(number)
        if request is None:
            return
        if valid and any(self.replay.oracle.zeroed):
            raise PartedError("a load failed in part beside blocks that are zeroed, which is not judged in a recording")
        if valid and self.head.setting.enable_caching:
            if valid <= request.found:
                request.loading, request.computed = 0, min(valid, request.tokens - 1)
                return
            request.loading, valid = valid - request.found, None
        self._run(Loaded(request=number, valid=valid), event if valid == 0 else None)

    def _spoil(self, spoilt: Sequence[dict[str, Any]]) -> None:
        """Loads within the step whose output comes back have failed: their requests go back to before them."""
        ledger, memory = self._ledger, self.replay.memory
        for said in spoilt:
            ledger.facts.spoilt[said["spoilt"]] = said["computed"]
            for step in ledger.launched[0].steps if memory is not None and ledger.launched else ():
                if memory is not None and step.request.id == said["spoilt"]:
                    memory.brought(step.request, step.external, step.rows)
                    memory.spoil(said["computed"], step.external, step.rows)

    def _pause(self, number: int, kept: int) -> None:
        """The answer of a session has ended: it will go on behind `kept` tokens, without what is in flight."""
        request, memory = self.replay.ledger.requests.get(number), self.replay.memory
        if request is None:
            return
        flown = self._ledger.pause(request)
        if memory is None or request not in memory.known:
            return
        if flown:
            self._ledger.facts.nobody.update(dict.fromkeys(flown, memory.parted(request)))
        contents = memory.known[request]
        contents.tags |= memory.answered(request, kept, bool(flown))
        contents.tags |= memory.rewound(contents, self.replay.rows.get(number, ()), kept)
        contents.done = request.computed

    def _session(self, event: dict[str, Any]) -> None:
        """A session goes on: its last output token is gone, and there are others."""
        request = event["session"]
        known = self.replay.ledger.requests.get(request)
        if known is None:
            return
        caching = self.head.setting.enable_caching
        if caching:
            whole = event["kept"] // self.head.setting.hash_size
            self.digests[request] = [*self.digests.get(request, ())[:whole], *event["h"]]
        more = event["tokens"] - event["kept"] if caching else event["tokens"] - known.tokens
        self._run(Resume(request=request, tokens=more, discard=caching), None)
        self._know(request)
        if known.tokens != event["tokens"]:
            raise PartedError("a session went on from an unknown place, which is not judged in a recording")

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

    def _run(self, operation: Operation, told: Any) -> None:  # noqa: ANN401  # JSON, by the operation
        """One operation; the recorded answer must have been asked for."""
        replay, playback = self.replay, self.playback
        playback.told = told
        (self.step or replay.step)(operation)
        if playback.told and not replay.over and not isinstance(operation, NewStep):
            raise PartedError("the recorded scheduler asked what no scheduler of a trace would")
        playback.told = None


def _ends(line: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """How many tokens those had whose answers ended with this output."""
    for _, said in line.get("e", ()):
        number = said.get("of", said.get("trim", said.get("paused")))
        if number is not None and "tokens" in said:
            yield number, said["tokens"]


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
        skip_zeroing=tuple(event.get("unzeroed", ())),
    )
