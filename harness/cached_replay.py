"""Runs one trace with prefix caching on: as `harness.replay`, with lookups, publications and step boundaries.

What a scheduler does between two calls belongs to the trace here, because it decides what can be found: a first call is
preceded by its lookup, an output that comes back publishes, and when a step is launched its copies are drained.
"""

from __future__ import annotations

from collections import deque
from typing import cast

from attrs import evolve

from harness import cached_compare, compare, suspects
from harness.outcome import MakeTarget, Options, TargetRaised
from harness.reach import Reach
from harness.replay import HANDLERS, Replay
from harness.report import words
from oracle.allocator import Allocator
from oracle.cached_allocator import CachingAllocator
from oracle.cached_laws import CachingLaws
from oracle.cached_ledger import CachingLedger
from oracle.cached_memory import CachingMemory
from oracle.call import (
    GRANTED,
    REFUSED,
    Call,
    Drained,
    Hit,
    Observation,
    Query,
)
from oracle.consumer import Consumer
from oracle.draft_memory import DRAFTER
from oracle.ledger import Batch
from oracle.lookup import UNCUT, UNSHARDED
from oracle.setting import Setting
from oracle.trace import (
    Audit,
    CachingTarget,
    Difference,
    Evict,
    Extend,
    GiveBack,
    Loaded,
    Lookup,
    NewStep,
    Operation,
    Pin,
    Release,
    Reset,
    Resume,
    Settle,
    Unpin,
)
from oracle.violation import Violation

#: the outputs that are still out when a trace ends
LAST = Settle()
#: known misses after which a row is no row: columns of others behind the hit, a block twice
PARTED = frozenset({UNCUT, UNSHARDED})


class CachedReplay(Replay):
    """One trace with caching on, being run on a target beside the oracle."""

    def __init__(
        self,
        setting: Setting,
        make_target: MakeTarget | None,
        options: Options,
        reach: Reach | None = None,
        oracle: Allocator | None = None,
    ) -> None:
        super().__init__(setting, make_target, options, reach, oracle or CachingAllocator(setting))
        if self.laws is not None:
            self.laws = CachingLaws(setting, self.laws.report)
        self.ledger: CachingLedger = CachingLedger(setting)
        note = self.broken.append
        ledger = self.ledger
        #: steps with copies whose ends are still held
        self.retaining: deque[Batch] = deque()
        #: blocks with an inner state of a step in flight whose request was refused more
        self.forgotten: set[int] = set()
        self.consumer = None
        if self.laws is not None and setting.enable_kv_cache_events:
            self.consumer = Consumer(
                setting, lambda sign, group, text: note((Violation(ledger.index, group, "P47", sign, text), ()))
            )
        if self.memory is not None:
            self.memory = CachingMemory(setting, lambda found, contents: note((found, tuple(sorted(contents.tags)))))

    @property
    def cached(self) -> CachingAllocator:
        """The oracle."""
        return cast("CachingAllocator", self.oracle)

    @property
    def real(self) -> CachingTarget | None:
        """The target."""
        return cast("CachingTarget | None", self.target)

    # ----------------------------------------------------------------------------------------- lookup

    def _find(self, query: Query) -> Hit | None:
        """What every party finds; None when the trace cannot go on."""
        expected = seen = self.cached.lookup(query)
        if self.real is not None:
            try:
                seen = self.real.lookup(query)
            except TargetRaised as error:
                self._differ(cached_compare.lookup_raised(error, query, expected, self.cached, self.ledger.index))
                self.over = True
                return None
            if seen != expected and "hits" in self.aspects:
                difference = cached_compare.hits(expected, seen, query, self.cached, self.real, self.ledger.index)
                if difference is not None:
                    if not self._differ(difference) or (query.request >= 0 and not PARTED.isdisjoint(difference.tags)):
                        self.over = True
                        return None
                    self.cached.follow_hit(query, seen)
        self.reach.found(self.setting, query, seen)
        return seen

    def _lookup(self, operation: Lookup) -> None:
        query = self.ledger.probe(operation)
        hit = None if query is None else self._find(query)
        self._keep(operation, None, (), None, None)
        if self.options.keep_entries and query is not None and hit is not None:
            self._say(words.looked_up(query, hit))

    def _say(self, said: str) -> None:
        """What the operation that was kept last did."""
        if self.options.keep_entries and self.entries:
            self.entries[-1].said = said

    # ----------------------------------------------------------------------------------------- extend

    def _extend(self, operation: Extend) -> None:
        ledger = self.ledger
        request = ledger.asks(operation)
        if request is None:
            self._void(operation)
            return
        if ledger.starts_a_step(request):
            self._boundary()
            if self.over:
                return
        query = ledger.query(operation, request)
        hit = None
        if query is not None:
            hit = self._find(query)
            if hit is None:
                return
        again = None if query is None or hit is None else ledger.together(operation, request, query, hit)
        if again is not None:
            hit = self._find(again)
            if hit is None:
                return
        call, local = ledger.resolve(operation, request, hit, again is None)
        if call is None:
            self._void(operation)
            return
        if hit is not None and local < hit.tokens:
            self.cached.cut(call.request, local)
            if self.real is not None:
                self.real.cut(call.request, local)
        self._ask(operation, call)

    def _void(self, operation: Operation) -> None:
        self.reach.hit("void")
        self._keep(operation, None, (), None, None)

    def _ask(self, operation: Extend, call: Call) -> None:
        """Ask every party for the slots."""
        ledger, oracle = self.ledger, self.oracle
        before = self.rows.get(call.request, oracle.nothing)
        owed = self.cached.owes_a_copy(call.request)
        seen = expected = oracle.extend(call)
        observed = self.target.extend(call) if self.target is not None else None
        self._keep(operation, call, before, expected, observed)
        if self.options.keep_entries:
            self._say(words.extend(call) + (words.described(call.content) if operation.prompt else ""))
        agreed_on = False
        if observed is not None:
            seen = observed
            difference = self._hold(expected, observed, call, before)
            if difference is not None and owed and suspects.NAMES.isdisjoint(difference.tags):
                difference = evolve(difference, tags=cached_compare.cause_of_copy(expected, observed, self.cached))
            if difference is not None:
                agreed = self._differ(difference)
                if not (agreed and expected.outcome == REFUSED and oracle.follow(call, observed.outcome) == observed):
                    self.over = True
                    return
                agreed_on = True
        self.rows[call.request] = seen.rows
        self.reach.extend(oracle, call, seen, before)
        if self.laws is not None:
            self.laws.extended(ledger.index, call, seen, before)
            if agreed_on or ledger.pins:
                self.laws.not_alone()
        if seen.outcome != expected.outcome and not agreed_on:
            self.over = True
            return
        if seen.outcome == GRANTED:
            if call.local:
                self.reach.adopted(self.setting, call)
            if owed:
                self.reach.hit("copy for the owner")
            step = ledger.granted(call)
            if step is not None:
                step.rows = seen.rows
            if isinstance(self.memory, CachingMemory):
                self.memory.scheduled(call, ledger.requests[call.request], step, seen.rows)
        elif seen.outcome == REFUSED:
            if self.cached.too_early:
                self.reach.hit("deferred to the next step")
            self.forgotten |= self.cached.exported(call.request)
            ledger.refused()
        else:
            self.over = True

    # ------------------------------------------------------------------------------------------ steps

    def _give_back(self, operation: GiveBack) -> None:
        super()._give_back(operation)
        if self.options.keep_entries and self.entries[-1].expected is not None:
            self._say(words.GIVE_BACK)

    def _resume(self, operation: Resume) -> None:
        request = self.ledger.requests.get(operation.request)
        before = None if request is None else request.content
        super()._resume(operation)
        if request is not None and request.content is not before:
            self.reach.hit("token discarded")
        if self.options.keep_entries:
            self._say(words.resume(operation))

    def _boundary(self) -> tuple[Observation, Observation | None]:
        """The step that was put together is launched: copies, zero list and events are drained."""
        batch = self.ledger.open
        self.ledger.launch()
        expected = self.oracle.new_step()
        observed = self.target.new_step() if self.target is not None else None
        difference = None
        if observed is not None and observed != expected:
            difference = cached_compare.drained(expected, observed, self.aspects, self.ledger.index, self.setting)
            if difference is not None:
                self._differ(difference)
        seen = observed or expected
        assert isinstance(seen, Drained)
        assert isinstance(expected, Drained)
        agreed = observed is None or difference is None or difference.aspect != "events"
        if seen.copies and self.setting.defers_copies:
            self.retaining.append(batch)
        if isinstance(self.memory, CachingMemory) and (batch.steps or seen.copies):
            self.memory.launched(batch, seen.copies)
        if self.consumer is not None:
            self.consumer.drained((seen if agreed else expected).events, self.cached.named.copies, expected.reported)
        self.reach.drained(self.setting, seen)
        self.reach.counts["name evicted"] += self.cached.named.evicted
        self.cached.named.evicted = 0
        return expected, observed

    def _new_step(self, operation: NewStep) -> None:
        expected, observed = self._boundary()
        self._keep(operation, None, (), expected, observed)
        self._say(words.NEW_STEP)

    def _settle(self, operation: Settle) -> None:
        if not self.ledger.launched:
            self._boundary()
            if self.over:
                return
        settled = self.ledger.settle(operation)
        if operation is not LAST:
            self._keep(operation, None, (), None, None)
        if settled is None:
            return
        if self.options.keep_entries and operation is not LAST:
            self._say(words.settled(settled))
        self.reach.settle(settled)
        if self.memory is not None:
            self.memory.settled(settled)
        for request in self.ledger.publishes(settled):
            self._publish(self.ledger.as_call(request), request.processed)
        while self.retaining and self.retaining[0] is settled.batch:
            self.retaining.popleft()
            expected = self.cached.return_copies()
            self._plain(expected, None if self.real is None else self.real.return_copies())

    def _publish(self, call: Call, tokens: int) -> None:
        expected = self.cached.publish(call, tokens)
        if self.real is not None:
            self._plain(expected, self.real.publish(call, tokens))

    def _loaded(self, operation: Loaded) -> None:
        request = self.ledger.requests.get(operation.request)
        end = 0 if request is None else request.found + request.loading
        result = self.ledger.loaded(operation)
        if result == "failed":
            self._free(operation, operation.request, False)
        else:
            self._keep(operation, None, (), None, None)
        if result is not None:
            self.reach.loaded(operation, result)
            if self.options.keep_entries:
                self._say(words.loaded(operation, end, request.computed if request else 0, result))
        if result == "kept" and request is not None:
            call = self.ledger.as_call(request)
            call.computed = end
            self._publish(call, end)

    def _release(self, operation: Release) -> None:
        if self.ledger.launches(operation):
            self._boundary()
            if self.over:
                return
        scheduled = self.ledger.open.steps
        entries = len(self.entries)
        known = operation.request in self.ledger.requests
        super()._release(operation)
        if known and len(self.entries) > entries and self.entries[-1].expected is not None:
            self._say(words.release(operation))
        if isinstance(self.memory, CachingMemory):
            for step in scheduled:
                if step not in self.ledger.open.steps and operation.preempt:
                    self.memory.dropped(step)

    def _laws_broken(self) -> None:
        """What was read and is not right ends the trace: others find it, and read it again."""
        broken = any(one.law in ("M12", "W1") and one.what != DRAFTER for one, _ in self.broken)
        super()._laws_broken()
        self.over = self.over or broken

    def _evict(self, operation: Evict) -> None:
        expected = self.cached.evict(operation.blocks)
        observed = self.real.evict(operation.blocks) if self.real is not None else None
        self._keep(operation, None, (), expected, observed)
        self._say(words.plain(operation))
        self._plain(expected, observed)
        self.reach.hit("evicted by id")

    def _reset(self, operation: Reset) -> None:
        expected = self.cached.reset()
        observed = self.real.reset() if self.real is not None else None
        self._keep(operation, None, (), expected, observed)
        self._say(words.plain(operation))
        self._plain(expected, observed)
        self.reach.hit(f"reset {expected.outcome}")

    def _pin(self, operation: Pin) -> None:
        named = self.cached.named.names
        blocks = tuple(block for row in self.rows.get(operation.request, ()) for block in row if block in named)
        if not blocks:
            self._void(operation)
            return
        self.ledger.pins += 1
        if self.laws is not None:
            self.laws.not_alone()
        self._pinned(operation, self.cached.pin(blocks), None if self.real is None else self.real.pin(blocks))

    def _unpin(self, operation: Unpin) -> None:
        if not self.ledger.pins:
            self._void(operation)
            return
        self.ledger.pins -= 1
        observed = None if self.real is None else self.real.unpin(operation.watched)
        self._pinned(operation, self.cached.unpin(operation.watched), observed)

    def _pinned(self, operation: Operation, expected: Observation, observed: Observation | None) -> None:
        self._keep(operation, None, (), expected, observed)
        self._say(words.plain(operation))
        self._plain(expected, observed)
        self.reach.hit("pinned" if isinstance(operation, Pin) else "pin ended")

    # ---------------------------------------------------------------------------------------- compare

    def _audits(self, expected: Audit, observed: Audit) -> Difference | None:
        step = self.ledger.index
        difference = compare.audits(expected, observed, self.aspects, step) or cached_compare.named(
            expected, observed, self.aspects, step
        )
        if difference is None or difference.aspect != "hashes":
            return difference
        if cached_compare.renamed(expected, observed, self.forgotten):
            return evolve(difference, tags=(*difference.tags, "checkpoint forgotten"))
        return difference

    def _known_cause(self, error: TargetRaised) -> tuple[str, ...]:
        return cached_compare.cause_of_raising(error, self.setting)

    def finish(self) -> None:
        """The end of the trace: what is in flight settles, everything is audited."""
        while not self.over and (self.ledger.launched or self.ledger.open.steps):
            try:
                self._settle(LAST)
            except TargetRaised as error:
                self._raised(error)
            self._laws_broken()
        if not self.over:
            self.audit()


CachedReplay.handlers = {
    **HANDLERS,
    Extend: CachedReplay._extend,  # noqa: SLF001  # the table belongs to the class
    Settle: CachedReplay._settle,  # noqa: SLF001
    Loaded: CachedReplay._loaded,  # noqa: SLF001
    Release: CachedReplay._release,  # noqa: SLF001
    GiveBack: CachedReplay._give_back,  # noqa: SLF001
    Resume: CachedReplay._resume,  # noqa: SLF001
    NewStep: CachedReplay._new_step,  # noqa: SLF001
    Lookup: CachedReplay._lookup,  # noqa: SLF001
    Evict: CachedReplay._evict,  # noqa: SLF001
    Reset: CachedReplay._reset,  # noqa: SLF001
    Pin: CachedReplay._pin,  # noqa: SLF001
    Unpin: CachedReplay._unpin,  # noqa: SLF001
}
