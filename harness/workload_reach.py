"""What a workload crossed: counters of planned steps and of outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from oracle.call import GRANTED, Call
from oracle.client import Client
from oracle.content import Item, item_length
from oracle.groups import Mamba
from oracle.scheduled import ASK, ENDED, FREE, LOOK, MATCH, POP, START, Event, Planned
from oracle.scheduler_setting import PRIORITY, SchedulerSetting
from oracle.workload import Delivered, Transfers


class Crossings:
    """The counters of one workload, in `reach`."""

    def __init__(self, setting: SchedulerSetting, reach: Counter[str]) -> None:
        self.setting, self.reach = setting, reach
        self.budget, self.encoder_budget = setting.budget, setting.encoder_budget
        self.states = any(isinstance(group, Mamba) for group in setting.groups)
        self.hybrid, self.drafts = len(setting.groups) > 1, setting.num_speculative_tokens > 0
        self.dcp, self.caching = setting.dcp_size > 1, setting.enable_caching
        self.overlap, self.pools = setting.in_flight_depth > 1, setting.pooling
        self.by_table, self.by_priority = setting.draft_counts is not None, setting.policy == PRIORITY
        self.encodes, self.spares = setting.max_encoder_len > 0, setting.spares_for_sending
        self.ahead = setting.facts.prefill_lookahead > 0
        #: requests whose last load failed
        self.failed: set[int] = set()

    def step(self, planned: Planned, events: list[Event], flying: int, sending: bool) -> None:
        """One planned step. sending: whether a connector sends blocks of who has ended."""
        reach = self.reach
        frees = 0
        for event in events:
            what = event.what
            if what == FREE:
                frees += 1
            elif what == ASK:
                self._ask(event)
            elif what == LOOK:
                if event.junction:
                    reach["junction"] += 1
                if event.tokens:
                    reach["hit"] += 1
                    reach["hit of a state"] += self.states
        if frees:
            self._preemptions(events, frees, flying)
        elif sending and self.spares:
            reach["refused while blocks are sent"] += any(_refused_running(event) for event in events)
        if planned.copies:
            reach["block copied"] += len(planned.copies)
        if planned.tokens:
            self._batch(planned, events)
        else:
            reach["empty step"] += 1

    def _batch(self, planned: Planned, events: list[Event]) -> None:
        reach = self.reach
        if self.encodes:
            calls = [event.call for event in events if event.call and event.seen and event.seen.outcome == GRANTED]
            reach["encoder input"] += sum(call.encoder > 0 for call in calls)
            reach["encoder budget full"] += sum(call.encoder for call in calls) == self.encoder_budget
        if self.dcp:
            reach["DCP"] += 1
            reach["DCP x caching"] += self.caching
        if self.by_table:
            reach["draft table"] += 1
        if sum([tokens for _, tokens in planned.tokens]) == self.budget:
            reach["full step"] += 1
        if planned.drafts:
            reach["drafts verified"] += len(planned.drafts)
        if planned.new:
            reach["mixed batch"] += len(planned.tokens) > len(planned.new)
            newcomers = {name for name, *_ in planned.new}
            reach["padded newcomer"] += any(name in newcomers for name, _ in planned.drafts)
        if planned.skip_drafts:
            reach["drafts skipped"] += 1
        if planned.has_structured_output_requests:
            reach["grammar masks a step"] += 1
            reach["mask waits for tokens in flight"] += planned.pending_structured_output_tokens

    def items(self, planned: Planned, events: list[Event], live: Mapping[int, Client]) -> None:
        """One planned step with multimodal items."""
        reach = self.reach
        items = {name: client.items for name, client in live.items() if client.items}
        encoded, total = dict(planned.encoded), 0
        for name, places in planned.encoded:
            total += sum([item_length(items[name][place][0]) for place in places])
            reach["item encoded"] += len(places)
        if total == self.encoder_budget:
            reach["encoder budget full of items"] += 1
        if planned.dropped:
            reach["output dropped"] += len(planned.dropped)
        computed = {name: at for name, at, _, _ in (*planned.cached, *planned.new)}
        for name, tokens in planned.tokens:
            if name in items:
                self._items_of(items[name], computed[name], tokens, encoded.get(name, ()))
        for event in events:
            owned = items.get(event.request, ())
            if event.what == LOOK:
                reach["hit inside an item"] += any(at < event.tokens < at + item_length(item) for item, at in owned)
                reach["hit behind an item"] += any(at + item_length(item) <= event.tokens for item, at in owned)
            elif event.what == FREE:
                reach["item x preemption"] += bool(owned)

    def _items_of(self, items: tuple[Item, ...], at: int, tokens: int, encoded: tuple[int, ...]) -> None:
        """A request's part of `tokens` from `at` on. encoded: which of its items the encoder takes."""
        reach, upto = self.reach, at + tokens
        for place, (item, start) in enumerate(items):
            end = start + item_length(item)
            if at <= start < upto:
                reach["output found"] += place not in encoded
                reach["item x speculation x overlap"] += self.ahead and self.overlap
            if upto == start:
                reach["part ends before an item"] += 1
            elif start < upto < end:
                reach["part ends inside an item"] += 1
            if start >= upto and place in encoded:
                reach["item encoded for the drafter alone"] += 1

    def _ask(self, event: Event) -> None:
        if event.seen and event.seen.outcome != GRANTED:
            self.reach["refused at admission" if event.call and event.call.waiting else "refused while running"] += 1
        elif event.call and event.call.preempted:
            self.reach["resumed"] += 1
            self.reach["resumed with output"] += event.call.tokens > event.call.prompt

    def _preemptions(self, events: list[Event], frees: int, flying: int) -> None:
        reach = self.reach
        reach["preemption"] += frees
        if self.drafts:
            reach["speculation x preemption"] += frees
            reach["speculation x preemption x caching"] += frees * self.caching
            reach["speculation x hybrid x preemption"] += frees * self.hybrid
        reach["pooled x preemption"] += frees * self.pools
        reach["overlap x preemption"] += frees * self.overlap
        reach["preempted in flight"] += frees * (flying > 0)
        if self.by_priority:
            reach["priority x preemption"] += frees
            names = {event.request for event in events if event.seen and event.seen.outcome == GRANTED}
            reach["refund"] += sum(1 for event in events if event.what == FREE and event.request in names)

    def output(
        self, planned: Planned, returned: dict[int, list[int]], delivered: list[Delivered], live: Mapping[int, Client]
    ) -> None:
        """One output."""
        reach = self.reach
        if planned.drafts:
            for name, drafts in planned.drafts:
                if name in returned:
                    accepted = len(returned[name]) - 1
                    reach["draft rejected"] += accepted < drafts
                    reach["draft accepted"] += accepted > 0
                    reach["all drafts accepted"] += accepted == drafts
        for name, kept, reason in delivered:
            if reason:
                reach[f"finished by {reason}"] += 1
                reach["ended inside drafts"] += len(kept) < len(returned.get(name, ()))
        chunks = len(planned.tokens) - len(returned)
        if chunks:
            reach["chunk"] += chunks
        if self.pools:
            longest = self.setting.max_model_len
            reach["pooled"] += len(returned)
            reach["pooled after chunks"] += chunks
            reach["pooled x overlap"] += len(returned) * self.overlap
            reach["pooled up to max_model_len"] += sum(
                name in live and live[name].prompt == longest for name in returned
            )

    def transfers(self, events: list[Event]) -> None:
        """What a connector did in one step."""
        reach = self.reach
        calls: dict[int, Call] = {}
        for event in events:
            what = event.what
            if what == ASK and event.call is not None:
                calls[event.request] = event.call
            elif what == START and event.tokens:
                call = calls[event.request]
                reach["async load" if call.new == 0 else "sync load"] += 1
                reach["load behind a hit"] += call.local > 0
                reach["load after a preemption"] += call.preempted
                reach["failed load tried again"] += event.request in self.failed
                reach["load beside reserved blocks"] += call.reserved_blocks > 0
            elif what == MATCH:
                reach["match not known yet"] += event.tokens < 0
            elif what == ENDED:
                reach["blocks kept until sent"] += event.tokens > 0
            elif what == POP:
                reach["blocks kept back for a step"] += 1

    def loaded(self, transfers: Transfers, zeroed: bool) -> None:
        """Loads that ended. zeroed: whether fresh blocks are."""
        reach, bad = self.reach, transfers.failed
        for name in transfers.loaded:
            if name in self.failed and (bad is None or bad[0] != name):
                reach["failed load ends well"] += 1
                reach["failed load ends well x zero list"] += zeroed
                self.failed.remove(name)
        if bad is not None:
            self.failed.add(bad[0])
            reach["failed load"] += 1
            reach["load failed in part"] += bad[1] > 0


def _refused_running(event: Event) -> bool:
    """Whether a request that runs was refused."""
    refused = event.what == ASK and event.seen is not None and event.seen.outcome != GRANTED
    return refused and event.call is not None and not event.call.waiting
