"""The operations of a packed trace with prefix caching on.

What makes hits is that contents repeat: a new request mostly repeats one of the last few, in full, longer, or up to a
fork near a border. Prompts of three related requests are what junctions, copies and late states need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from oracle.cached_ledger import CachingLedger
from oracle.content import Item, item_length
from oracle.groups import SlidingWindow
from oracle.ledger import RUNNING, Ledger, Request
from oracle.releases import Choices
from oracle.setting import Setting
from oracle.trace import Evict, Extend, Lookup, Operation, Pin, Release, Reset, Resume, Unpin
from strategies.packed import Operations, go_on, spread
from strategies.settings import Features, Reader

#: contents that new requests may repeat
REMEMBERED = 5


@frozen
class Plan:
    """What a request's content is, and how long its prompt was."""

    forks: tuple[int, ...] = ()
    salt: int = 0
    adapter: int = 0
    items: tuple[Item, ...] = ()
    embeds: int = 0
    tokens: int = 8


#: a decoder of this stream or of the one that it builds on
Decoder = Callable[[Any, Reader, Ledger], Operation | None]


class CachedOperations(Operations):
    """The stream of operations that the remaining bytes stand for."""

    def __init__(self, reader: Reader, setting: Setting, features: Features, choices: Choices) -> None:
        super().__init__(reader, setting, features)
        self.has = choices
        self.plans: list[Plan] = [Plan()]
        self.reporting = setting.enable_kv_cache_events
        found = [*self.borders, setting.hash_size, setting.hit_unit]
        found += [group.window for group in setting.groups if isinstance(group, SlidingWindow)]
        self.borders = tuple(found)
        more: tuple[tuple[str, Decoder, int], ...] = (
            ("connector", Operations._loaded, 4),  # noqa: SLF001  # the family of streams shares its decoders
            ("preempt", CachedOperations._preempt, 2),
            ("session", CachedOperations._resume, 1),
            ("evict", CachedOperations._evict, 1),
            ("evict" if choices.pins else "", CachedOperations._pin, 1),
            ("abort", Operations._finish, 1),  # noqa: SLF001
            ("connector", Operations._give_back, 2),  # noqa: SLF001
            ("deferred", Operations._give_back, 2),  # noqa: SLF001
        )
        always: list[tuple[Decoder, int]] = [
            (CachedOperations._go_on, 12),
            (CachedOperations._admit, 8),
            (Operations._finish, 3),  # noqa: SLF001
            (CachedOperations._look, 1),
            (Operations._new_step, 1),  # noqa: SLF001
        ]
        optional = [(decode, weight) for name, decode, weight in more if name in features]
        self.menu = spread([*always, *optional])
        short: list[tuple[Decoder, int]]
        short = [(CachedOperations._go_on, 9), (CachedOperations._admit, 2), (Operations._finish, 4)]  # noqa: SLF001
        if "preempt" in features:
            short.append((CachedOperations._preempt_last, 4))
        self.short = spread([*short, *optional])

    # -------------------------------------------------------------------------------------- contents

    def _plan(self, reader: Reader) -> Plan:
        """The content and prompt length of a new request."""
        choice = reader.byte()
        old = self.plans[(choice >> 4) % len(self.plans)]
        forks = old.forks
        how = choice & 7
        if how == 6:
            forks = tuple(sorted((*forks, self._length(reader, old.tokens))))[-3:]
        elif how == 7:
            forks = ((0,), (), (0, 0), (1,))[choice >> 4 & 3]
        elif how == 5:
            forks = (*forks[:-1], self._length(reader, old.tokens))
        salt, adapter, items, embeds = old.salt, old.adapter, old.items, old.embeds
        if "contents" in self.features:
            other = reader.byte()
            if other & 7 == 7:
                salt = other >> 3 & 1
            elif other & 7 == 6:
                adapter = other >> 3 & 3
                if adapter and not self.has.adapter_paths:
                    adapter = 2 * adapter - 1  # no two of one name
            elif other & 7 == 5:
                items, embeds = self._items(reader), 0
            elif other & 7 == 4:
                items, embeds = (), other >> 3 & 1
        tokens = old.tokens if how in (0, 1) else self._length(reader, old.tokens)
        plan = Plan(forks, salt, adapter, items, embeds, max(1, min(tokens, self.longest)))
        if plan in self.plans:
            self.plans.remove(plan)
        self.plans = [*self.plans[1 - REMEMBERED :], plan]
        return plan

    def _items(self, reader: Reader) -> tuple[Item, ...]:
        found, end = [], reader.below(6)
        for _ in range(1 + reader.below(2)):
            identifier = reader.below(3)
            found.append((identifier, end))
            end += item_length(identifier) + reader.below(4)
        return tuple(found) if self.has.items_resume else tuple(found[:1])

    def _length(self, reader: Reader, old: int) -> int:
        """A length at or beside a border, beside an old one, or any."""
        choice = reader.byte()
        how = choice & 3
        if how == 0:
            return max(1, old + (choice >> 2) % 12 - 3)
        if how == 3:
            return 1 + (choice >> 2) % self.longest
        border = self.borders[(choice >> 2) % len(self.borders)]
        return max(1, (1 + reader.below(max(1, self.longest // border))) * border + how - 1 - (choice >> 7))

    # ------------------------------------------------------------------------------------- operations

    def _go_on(self, reader: Reader, ledger: Ledger) -> Operation | None:
        choice = reader.byte()
        count = len(ledger.running)
        for turn in range(count):
            request = ledger.running[(choice + turn) % count]
            known = request.tokens + request.placeholders - request.computed
            twice = len(ledger.launched) + 1 < self.depth
            if known > 0 and request.computed < self.longest and (twice or not request.scheduled):
                break
        else:
            return self._settle(reader, ledger) if ledger.open.steps or ledger.launched else self._admit(reader, ledger)
        if len(ledger.launched) >= self.depth or self.batched - ledger.open.new < 1:
            return self._settle(reader, ledger)
        new = known
        if known == 1 and self.speculates:
            new += self.drafts[reader.byte() % len(self.drafts)]
        elif choice & 128:
            new = self._amount(reader, request.computed, known)
        return go_on(request.id, new)

    def _admit(self, reader: Reader, ledger: Ledger) -> Operation | None:
        assert isinstance(ledger, CachingLedger)
        if self._room(ledger) < 1 or len(ledger.launched) >= self.depth:
            return self._settle(reader, ledger)
        waiting = [r for r in ledger.requests.values() if r.status != RUNNING and not r.loading and not r.in_flight]
        which = reader.byte()
        flags = reader.byte() if self.flagged or self.connector else 0
        external = 0
        if self.connector and flags & 16:
            external = 1 + reader.below(self.longest)
        if waiting and (which & 3 or len(ledger.requests) >= self.seats + 3):
            request = waiting[(which >> 2) % len(waiting)]
            return self._first(reader, ledger, request, which, flags, 0 if request.holds else external, Plan())
        plan = self._plan(reader)
        self.next_id += 1
        request = Request(self.next_id - 1, plan.tokens, plan.tokens)
        return self._first(reader, ledger, request, which, flags, external, plan)

    def _first(
        self, reader: Reader, ledger: Ledger, request: Request, which: int, flags: int, external: int, plan: Plan
    ) -> Extend:
        fresh = request.id not in ledger.requests
        new = request.tokens if which & 64 else self._amount(reader, 0, request.tokens)
        if external and flags & 32:
            new = 0
        return Extend(
            request=request.id,
            new=new,
            prompt=request.prompt if fresh else 0,
            external=external,
            full_sequence_must_fit=self.gate and flags & 3 != 3,
            reserved_blocks=flags >> 6 if self.reserve and new == 0 else 0,
            has_scheduled_reqs=bool(ledger.running),
            forks=plan.forks if fresh else (),
            salt=plan.salt if fresh else 0,
            adapter=plan.adapter if fresh else 0,
            items=plan.items if fresh else (),
            embeds=plan.embeds if fresh else 0,
            report=fresh and self.reporting and which & 96 == 96,
            skip_lookup="contents" in self.features and which >> 4 == 15,
        )

    def _preempt(self, reader: Reader, ledger: Ledger) -> Operation | None:
        """Mostly a request that is not part of the step being put together: the other way is a finding of its own."""
        choice = reader.byte()
        running = [r for r in ledger.running if r.holds and (choice & 15 == 15 or not r.scheduled)]
        if not running:
            return None
        request = running[(choice >> 4) % len(running)]
        return Release(request=request.id, preempt=True, deferred=self._defer(reader, request))

    def _preempt_last(self, reader: Reader, ledger: Ledger) -> Operation | None:
        """The victim of a first-come first-served scheduler, which the pass has not come to."""
        for request in reversed(ledger.running):
            if request.holds and not request.scheduled:
                return Release(request=request.id, preempt=True, deferred=self._defer(reader, request))
        return self._settle(reader, ledger)

    def _look(self, reader: Reader, ledger: Ledger) -> Operation | None:
        """A lookup that changes nothing."""
        plan = self.plans[reader.below(len(self.plans))]
        tokens = min(self._length(reader, plan.tokens), self.longest)
        return Lookup(
            tokens=tokens,
            forks=plan.forks,
            salt=plan.salt,
            adapter=plan.adapter,
            items=plan.items,
            embeds=plan.embeds,
            bound=reader.below(tokens) if reader.byte() & 3 == 3 and self.has.bounded_lookup else None,
        )

    def _resume(self, reader: Reader, ledger: Ledger) -> Operation | None:
        """As upstream's scheduler does, mostly: the last sampled token is discarded."""
        resumed = super()._resume(reader, ledger)
        return evolve(resumed, discard=reader.byte() & 7 > 0) if isinstance(resumed, Resume) else resumed

    def _pin(self, reader: Reader, ledger: Ledger) -> Operation | None:
        """A connector reads what a request holds, or has read it."""
        assert isinstance(ledger, CachingLedger)
        which = reader.byte()
        held = [request for request in ledger.requests.values() if request.holds]
        if ledger.pins and (which & 1 or ledger.pins > 1 or not held):
            return Unpin(watched=which & 6 == 6)
        return Pin(request=held[(which >> 1) % len(held)].id) if held else None

    def _evict(self, reader: Reader, ledger: Ledger) -> Operation | None:
        which = reader.byte()
        if which & 7 == 7 or not any(request.holds for request in ledger.requests.values()):
            return Reset()
        first = 1 + which % (self.setting.num_blocks - 1)
        return Evict(blocks=(first,) if which & 8 else (first, 1 + reader.below(self.setting.num_blocks - 1)))
