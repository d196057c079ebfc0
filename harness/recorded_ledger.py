"""The accounting of a recording: what its scheduler asked for is a fact, however it came to it.

A trace's ledger refuses or cuts what no scheduler would ask; here a scheduler has asked. What stays is arithmetic: a
step begins where the last one ended, and is made of known tokens and drafts.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from oracle.cached_ledger import CachingLedger
from oracle.call import Call
from oracle.content import Content, Item, Prefixes
from oracle.ledger import Batch, Ledger, Request, Settled, Step
from oracle.setting import Setting
from oracle.trace import Extend, Loaded, Release, Resume, Settle


class Facts:
    """What a recording's accounting knows beyond a trace's."""

    def __init__(self) -> None:
        #: known tokens of requests that ended inside what their last output brought
        self.cut: dict[int, int] = {}
        #: steps of requests that go on without their output: it is thrown away
        self.dropped: set[Step] = set()
        #: requests that were preempted in flight
        self.stale: set[int] = set()
        #: requests that have ended and keep their blocks until a connector has sent them
        self.ended: set[int] = set()
        #: who the steps of such sessions run for, that were in flight
        self.nobody: dict[Step, Request] = {}
        #: computed tokens of requests whose load within the step failed
        self.spoilt: dict[int, int] = {}

    def admitted(self, request: Request, launched: Iterable[Batch]) -> None:
        """A request that was preempted in flight is admitted again."""
        if request.in_flight:
            self.dropped.update(step for batch in launched for step in batch.steps if step.request is request)

    def settled(self, settled: Settled, requests: dict[int, Request]) -> None:
        """An output is back: whose tokens are not kept."""
        for step, accepted in zip(settled.batch.steps, settled.accepted, strict=True):
            request = step.request
            spoilt = request.id in self.spoilt
            if step.samples and (step in self.dropped or request.id in self.ended or spoilt):
                request.tokens -= 1 + accepted
            if spoilt:
                request.computed, step.stale = self.spoilt[request.id], True
            self.dropped.discard(step)
        stale = {step.request.id for step in settled.batch.steps if step.stale}
        for number, tokens in self.cut.items():
            beyond = requests[number].tokens - tokens if number in requests else 0
            if beyond > 0:
                requests[number].tokens = tokens
                requests[number].computed -= 0 if number in stale else beyond
        self.cut.clear()

    def ran_for(self, settled: Settled) -> Settled:
        """What became of it: a step whose load failed does not count, one of a session that has gone on is nobody's."""
        if not (self.nobody or self.spoilt):
            return settled
        steps, accepted = [], []
        for step, taken in zip(settled.batch.steps, settled.accepted, strict=True):
            if step.request.id not in self.spoilt:
                nobody = self.nobody.pop(step, None)
                steps.append(step if nobody is None else evolve(step, request=nobody))
                accepted.append(taken)
        self.spoilt.clear()
        return Settled(Batch(steps, settled.batch.new), accepted)


class _Recorded(Ledger):
    """What both accountings do: keep the facts."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.facts = Facts()

    def _may_release(self, request: Request, op: Release) -> bool:
        return request.holds or not op.preempt

    def _may_keep(self, valid: int, loading: int) -> bool:
        return True

    def _may_resume(self, request: Request, op: Resume) -> bool:
        return not request.loading

    def pause(self, request: Request) -> list[Step]:
        """The answer of a session has ended; its steps that are in flight, whose outputs are thrown away."""
        flown = [step for batch in self.launched for step in batch.steps if step.request is request]
        self.facts.dropped.update(flown)
        for step in flown:
            step.stale = True
        request.computed -= request.placeholders
        request.placeholders = 0
        return flown

    def granted(self, call: Call) -> Step | None:
        if call.waiting:
            self.facts.admitted(self.requests[call.request], self.launched)
        return super().granted(call)

    def settle(self, op: Settle) -> Settled | None:
        settled = super().settle(op)
        if settled is None:
            return None
        self.facts.settled(settled, self.requests)
        return self.facts.ran_for(settled)


class RecordedLedger(_Recorded):
    """The accounting with caching off."""

    def _may_admit(self, request: Request, op: Extend) -> bool:
        start = request.computed + op.external
        if request.loading or start > request.tokens:
            return False
        left = request.tokens - start
        return (op.new == 0 and op.external > 0) or 1 <= op.new <= max(left, 1 + self.drafts)

    def _may_go_on(self, request: Request, op: Extend) -> bool:
        return 1 <= op.new <= request.tokens + request.placeholders - request.computed + self.drafts


class RecordedCachingLedger(_Recorded, CachingLedger):
    """The accounting with caching on."""

    def asks(self, op: Extend) -> Request | None:
        request = self.requests.get(op.request)
        if request is not None:
            return None if request.loading else request
        return super().asks(op)

    def _has_room(self, request: Request) -> bool:
        return True

    def _new(self, op: Extend, request: Request, start: int, waiting: bool) -> int:
        known = request.tokens + (0 if waiting else request.placeholders) - start
        return min(op.new, known + self.drafts) if known > 0 else 0

    def loaded(self, op: Loaded) -> str | None:
        """The end of an async load; of one that failed as a whole not even what was found locally is left (S48)."""
        request = self.requests.get(op.request)
        if request is not None and op.valid == 0:
            request.found = 0
        return super().loaded(op)

    def publishes(self, settled: Settled) -> list[Request]:
        """S40: an output gives names as in the recorded release, whose drafts alone may give none."""
        if not (self.setting.choices.named_after_drafts or self.setting.in_flight_depth > 1):
            return []
        return [request for request in super().publishes(settled) if request.id not in self.facts.ended]


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
        content = _content([0])
        self.tell(content, self.coming)
        return content

    def grow(self, content: Content, length: int) -> None:
        while len(content.tokens) < length:
            content.tokens.append(0)
            self.unknown -= 1
            content.path.append(self.unknown)

    def discarded(self, content: Content, keep: int, boundary: bool) -> Content:
        """The digests say what is named, also where a name holds the token that was discarded."""
        return _content(content.path[: keep + 1], content.tokens[:keep])

    def tell(self, content: Content, digests: list[int]) -> None:
        """What the hash blocks of a content are, as far as they are known."""
        self.grow(content, len(digests) * self.size + self.ahead)
        for index, digest in enumerate(digests, 1):
            content.path[index * self.size + self.ahead] = digest


def _content(path: list[int], tokens: list[int] | None = None) -> Content:
    return Content((), 0, 0, (), path, path, {}, tokens=tokens or [])
