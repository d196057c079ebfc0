"""A workload on a scheduler, beside no oracle: what it is told, and what it answers, note by note.

Nothing that is checked changes what the scheduler is told: a workload is driven by its operations, by what was
scheduled and by what was delivered. So the notes can be judged while they are made, or afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import define, field

from harness.workload_loads import Load, UnderWay
from harness.workload_outcome import MakeScheduler
from oracle.client import Client
from oracle.content import Content, Item, Prefixes
from oracle.errors import SlotcheckError
from oracle.scheduled import (
    LOOK,
    Event,
    Planned,
)
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import (
    STOP,
    UNPAUSED,
    Abort,
    Delivered,
    Pause,
    Reset,
    SchedulerOperation,
    SchedulerTrace,
    Step,
    Submit,
    Transfers,
    Update,
)

#: what is sampled counts from FIRST_TOKEN, but for STOP
FIRST_TOKEN, TOKENS = 2, 100
#: how often the state of the requests is looked at, and that of the waiting ones too (operations): the asks of the next
#: step show most of it
STATES_EVERY, EVERYTHING_EVERY = 3, 9

SUBMIT, UPDATE, ABORT, RESET, PAUSE = "submit", "update", "abort", "reset", "pause"
SCHEDULE, OUTPUT, SITUATION = "schedule", "output", "situation"
#: methods that have the manager do something
MOVING = frozenset({UPDATE, ABORT, RESET, SCHEDULE, OUTPUT})
#: the scheduler was made: noted only where it could not be
BUILD = "build"
#: the end of a workload, not of the scheduler: told who never finishes; the answer is the situation that is left
END = "end"


@define(slots=True)
class Note:
    """One method of the scheduler in operation `index`: what it was told and answered.

    events: what it did to its manager and its connector meanwhile. error: what it raised; it is the last note then.
    """

    index: int
    method: str
    arguments: tuple[Any, ...]
    answer: Any
    events: list[Event]
    error: Exception | None = None
    contents: dict[int, Content] = field(factory=dict)
    """With caching on: what sessions say from then on."""


class _Raised(Exception):  # noqa: N818  # the end of a workload, no error of ours
    """The scheduler raised."""


class Drive:
    """One workload under way. everything: every request is looked at after each operation."""

    def __init__(self, setting: SchedulerSetting, make: MakeScheduler, *, everything: bool = False) -> None:
        self.setting, self.everything = setting, everything
        self.unbuilt: Exception | None = None
        try:
            self.target = make(setting)
        except SlotcheckError:
            raise
        except Exception as error:  # the scheduler's own: whatever it raises is its answer
            self.unbuilt = error
        self.depth, self.drafts = setting.in_flight_depth, setting.num_speculative_tokens
        self.proposes = self.depth == 1 and setting.facts.drafts > 0
        #: most tokens that steps in flight sample for who has been answered: they go on from all that was sampled
        self.flown = self.depth * (1 + self.drafts)
        self.prefixes = Prefixes() if setting.enable_caching else None
        #: with caching on, what each request says
        self.contents: dict[int, Content] = {}
        #: ... a session, with each of its pieces: by its prompt, of all pieces together (tokens)
        self.turns: dict[tuple[int, int], Content] = {}
        #: tokens and items of the pieces that are not taken yet
        self.pieces: dict[int, list[tuple[list[int], tuple[Item, ...]]]] = {}
        self.clients: dict[int, Client] = {}
        #: those that have not ended
        self.live: dict[int, Client] = {}
        self.grammars: set[int] = set()
        self.flights: list[tuple[Planned, dict[int, bool], dict[int, Load]]] = []
        self.transfers = UnderWay(setting)
        self.index = -1
        self.arrivals = 0
        self.serial = 0
        self.paused = UNPAUSED
        #: notes that nobody has taken yet
        self.notes: list[Note] = []

    def run(self, trace: SchedulerTrace) -> Iterator[Note]:
        """The operations of a workload, then plain steps until everything has finished."""
        if self.unbuilt is not None:
            yield Note(0, BUILD, (), None, [], self.unbuilt)
            return
        for operation in self._operations(trace):
            self.index += 1
            try:
                self._apply(operation)
            except _Raised:
                yield from self.notes
                return
            yield from self.notes
            self.notes.clear()
        yield Note(self.index, END, tuple(self.live), self.target.situation(False), [])

    @property
    def stands(self) -> bool:
        """Whether somebody waits for the scheduler alone."""
        held = self.paused != UNPAUSED or self.transfers.loading or self.transfers.sending
        return bool(self.live) and not held

    def _operations(self, trace: SchedulerTrace) -> Iterator[SchedulerOperation]:
        """Those of the workload, and what ends it: whoever is there finishes."""
        yield from trace.operations
        if self.live and self.paused != UNPAUSED:
            yield Pause()
        for name in [name for name, client in self.live.items() if client.session and not client.told]:
            yield Update(request=name)
        left = 64 + 4 * sum(client.most() for client in self.live.values())
        transfers = self.transfers
        while (self.live or self.flights or transfers.loading or transfers.sending) and left:
            left -= 1
            yield transfers.rest()

    # ------------------------------------------------------------------------------------------ operations

    def _apply(self, operation: SchedulerOperation) -> None:
        if isinstance(operation, Step):
            self._step(operation)
        elif isinstance(operation, Submit):
            if operation.request not in self.clients:
                self._submit(operation)
        elif isinstance(operation, Update):
            client = self.live.get(operation.request)
            if client is not None and client.takes(operation, self.setting.max_model_len):
                self._update(operation, client)
        elif isinstance(operation, Abort):
            if operation.request in self.live:
                self._call(ABORT, self.target.abort, operation.request)
                del self.live[operation.request]
                self._situation()
        elif isinstance(operation, Reset):
            self._call(RESET, self.target.reset, operation.running, operation.connector)
            self._situation()
        elif isinstance(operation, Pause):
            self._call(PAUSE, self.target.pause, operation.state)
            self.paused = operation.state

    def _submit(self, operation: Submit) -> None:
        content = None
        if self.prefixes is not None:
            content = self.contents[operation.request] = self.prefixes.begin(operation.forks, items=operation.items)
            self.prefixes.grow(content, operation.prompt)
            if operation.session:
                self.turns[operation.request, operation.prompt] = content
        client = Client(operation.prompt, operation.max_tokens, session=operation.session, items=operation.items)
        self.arrivals += 1
        self.clients[operation.request] = self.live[operation.request] = client
        if operation.grammar:
            self.grammars.add(operation.request)
        self._call(SUBMIT, self.target.submit, operation, self.arrivals, content)

    def _update(self, operation: Update, client: Client) -> None:
        name, tokens, waits = operation.request, None, client.waits
        self.arrivals += 1
        if self.prefixes is not None and operation.prompt:
            kept = client.leaves(self.setting.max_model_len)
            tokens = self.prefixes.piece(self.contents[name], kept, operation.prompt, operation.items)
            self.pieces.setdefault(name, []).append((tokens, operation.items))
        self._call(UPDATE, self.target.update, operation, self.arrivals, tokens)
        if client.update(operation):
            del self.live[name]
        elif waits:
            self._goes_on(name, client)
        self._situation()

    def _goes_on(self, name: int, client: Client) -> None:
        """A session has taken its next piece."""
        if self.prefixes is None:
            return
        keep, ahead = client.kept, self.setting.num_hash_lookahead_tokens
        border = keep + 1 - ahead  # of the name whose last token is the one that is discarded
        named = 0 < border <= keep and border % self.setting.hash_size == 0
        tokens, items = self.pieces[name].pop(0)
        content = self.prefixes.continued(self.contents[name], keep, tokens, named, items)
        self.contents[name] = self.turns[name, client.prompt] = self.notes[-1].contents[name] = content
        self.target.goes_on(name, content)

    def _step(self, operation: Step) -> None:
        planned = self._call(SCHEDULE, self.target.schedule)
        for event in self.target.events if self.turns else ():
            if event.what == LOOK:
                self.contents[event.request] = self.contents[event.request].renewed()
        self.flights.append((planned, self.target.samples(), self.transfers.joined))
        while len(self.flights) >= (1 if operation.early or not self.live else self.depth):
            self._output(operation)
        self._situation()

    def _output(self, operation: Step) -> None:
        """The oldest step in flight comes back."""
        planned, samples, joined = self.flights.pop(0)
        returned = self._returned(operation, planned, samples)
        proposed = None
        if self.proposes and planned.tokens and not planned.skip_drafts:
            wanted, most = dict(operation.drafts), planned.proposals
            proposed = {name: min(wanted.get(name, most), most) for name, _ in planned.tokens}
        transfers: Transfers = self.transfers.reported(operation, joined)
        delivered: list[Delivered] = self._call(OUTPUT, self.target.output, returned, proposed, transfers)
        for name, tokens, reason in delivered:
            client = self.live.get(name)
            if client is not None:
                client.out += len(tokens)
                if reason and client.session and self.prefixes is not None:
                    self.prefixes.grow(self.contents[name], client.prompt + client.out + self.flown)
                if reason and client.over(reason):
                    del self.live[name]
                elif reason and not client.waits:
                    self._goes_on(name, client)

    def _returned(self, operation: Step, planned: Planned, samples: dict[int, bool]) -> dict[int, list[int]]:
        """What is sampled for each request of a step; no tokens where its output is the pooler's."""
        drafts, stops, most = dict(planned.drafts), dict(operation.stops), self.drafts
        accepted, valid = (dict(operation.accepted), dict(operation.valid)) if drafts else ({}, {})
        returned: dict[int, list[int]] = {}
        for name, _ in planned.tokens:
            if not samples.get(name):
                continue
            if self.setting.pooling:
                returned[name] = []
                continue
            count = 1
            if name in drafts:
                allowed = valid.get(name, most) if name in self.grammars else most
                count += min(accepted.get(name, 0), drafts[name], allowed)
            stop = min(stops[name], count - 1) if name in stops else -1
            if self.prefixes is not None:
                returned[name] = self._sampled(self.prefixes, name, count, stop)
            else:
                made = [FIRST_TOKEN + (self.serial + place) % TOKENS for place in range(count)]
                if stop >= 0:
                    made[stop] = STOP
                returned[name] = made
            self.serial += count
        return returned

    def _sampled(self, prefixes: Prefixes, name: int, count: int, stop: int) -> list[int]:
        """With caching on what is sampled follows from the content; `stop`: place of a stop token, -1: none."""
        client, content = self.clients[name], self.contents[name]
        there = client.prompt + client.out
        if stop >= 0:
            prefixes.put(content, there + stop, STOP)
        gone = name not in self.live  # nothing of it is delivered any more
        prefixes.grow(content, there + (self.flown if gone else count))
        return content.tokens[there : there + count]

    def _situation(self) -> None:
        """State of every request that runs, now and then of all."""
        everything = self.everything or self.index % EVERYTHING_EVERY == 0
        if everything or self.index % STATES_EVERY == 0:
            seen = self.target.situation(everything)
            self.notes.append(Note(self.index, SITUATION, (everything,), seen, []))

    def _call(self, method: str, ask: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  # what it answers
        target = self.target
        try:
            answer = ask(*arguments)
        except SlotcheckError:
            raise
        except Exception as error:
            self.notes.append(Note(self.index, method, arguments, None, target.events, error))
            raise _Raised from None
        events = target.events if method in MOVING else []
        self.notes.append(Note(self.index, method, arguments, answer, events))
        if self.setting.kv_connector:
            self.transfers.follow(events)
        return answer
