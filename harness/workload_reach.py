"""What a workload crossed: counters of planned steps and of outputs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from oracle.content import Item, item_length
from oracle.groups import Mamba
from oracle.scheduler_setting import SchedulerSetting
from oracle.trace import GRANTED, Call
from oracle.workload import ASK, ENDED, FREE, LOOK, MATCH, POP, START, Delivered, Event, Planned, Transfers


def count_step(
    reach: Counter[str],
    setting: SchedulerSetting,
    planned: Planned,
    events: list[Event],
    flying: int,
    sending: bool = False,
) -> None:
    """Count the crossings of one planned step. sending: whether a connector sends blocks of who has ended."""
    frees = 0
    for event in events:
        if event.what == FREE:
            frees += 1
        elif event.what == ASK:
            _count_ask(reach, event)
        elif event.what == LOOK:
            reach["junction"] += event.junction > 0
            if event.tokens:
                reach["hit"] += 1
                reach["hit of a state"] += any(isinstance(group, Mamba) for group in setting.groups)
    if frees:
        _count_preemptions(reach, setting, events, frees, flying)
    elif setting.spares_for_sending and sending:
        reach["refused while blocks are sent"] += any(_refused_running(event) for event in events)
    if planned.copies:
        reach["block copied"] += len(planned.copies)
    if not planned.tokens:
        reach["empty step"] += 1
        return
    if setting.max_encoder_len:
        calls = [event.call for event in events if event.call and event.seen and event.seen.outcome == GRANTED]
        reach["encoder input"] += sum(call.encoder > 0 for call in calls)
        reach["encoder budget full"] += sum(call.encoder for call in calls) == setting.encoder_budget
    reach["DCP"] += setting.dcp_size > 1
    reach["DCP x caching"] += setting.dcp_size > 1 and setting.enable_caching
    reach["full step"] += sum([tokens for _, tokens in planned.tokens]) == setting.budget
    reach["draft table"] += setting.draft_counts is not None
    if planned.drafts:
        reach["drafts verified"] += len(planned.drafts)
    if planned.new:
        reach["mixed batch"] += len(planned.tokens) > len(planned.new)
        newcomers = {name for name, *_ in planned.new}
        reach["padded newcomer"] += any(name in newcomers for name, _ in planned.drafts)
    reach["drafts skipped"] += planned.skip_drafts
    reach["grammar masks a step"] += planned.has_structured_output_requests
    reach["mask waits for tokens in flight"] += planned.pending_structured_output_tokens


def count_items(
    reach: Counter[str],
    setting: SchedulerSetting,
    planned: Planned,
    events: list[Event],
    items: dict[int, tuple[Item, ...]],
) -> None:
    """Count the crossings of one planned step with multimodal items (`items`: of each request)."""
    encoded, total = dict(planned.encoded), 0
    for name, places in planned.encoded:
        total += sum(item_length(items[name][place][0]) for place in places)
        reach["item encoded"] += len(places)
    reach["encoder budget full of items"] += total == setting.encoder_budget
    reach["output dropped"] += len(planned.dropped)
    computed = {name: at for name, at, _, _ in (*planned.cached, *planned.new)}
    ahead = setting.facts.prefill_lookahead
    for name, tokens in planned.tokens:
        at = computed[name]
        for place, (item, start) in enumerate(items.get(name, ())):
            end = start + item_length(item)
            if at <= start < at + tokens and place not in encoded.get(name, ()):
                reach["output found"] += 1
            reach["part ends before an item"] += at + tokens == start
            reach["part ends inside an item"] += start < at + tokens < end
            reach["item encoded for the drafter alone"] += start >= at + tokens and place in encoded.get(name, ())
            overlaps = bool(ahead) and setting.in_flight_depth > 1
            reach["item x speculation x overlap"] += overlaps and at <= start < at + tokens
    for event in events:
        owned = items.get(event.request, ())
        if event.what == LOOK:
            reach["hit inside an item"] += any(at < event.tokens < at + item_length(item) for item, at in owned)
            reach["hit behind an item"] += any(at + item_length(item) <= event.tokens for item, at in owned)
        elif event.what == FREE:
            reach["item x preemption"] += bool(owned)


def _refused_running(event: Event) -> bool:
    """Whether a request that runs was refused."""
    refused = event.what == ASK and event.seen is not None and event.seen.outcome != GRANTED
    return refused and event.call is not None and not event.call.waiting


def _count_ask(reach: Counter[str], event: Event) -> None:
    if event.seen and event.seen.outcome != GRANTED:
        reach["refused at admission" if event.call and event.call.waiting else "refused while running"] += 1
    elif event.call and event.call.preempted:
        reach["resumed"] += 1
        reach["resumed with output"] += event.call.tokens > event.call.prompt


def _count_preemptions(
    reach: Counter[str], setting: SchedulerSetting, events: list[Event], frees: int, flying: int
) -> None:
    reach["preemption"] += frees
    if setting.num_speculative_tokens:
        reach["speculation x preemption"] += frees
        reach["speculation x preemption x caching"] += frees * setting.enable_caching
        reach["speculation x hybrid x preemption"] += frees * (len(setting.groups) > 1)
    reach["pooled x preemption"] += frees * setting.pooling
    reach["overlap x preemption"] += frees * (setting.in_flight_depth > 1)
    reach["preempted in flight"] += frees * (flying > 0)
    if setting.policy == "priority":
        reach["priority x preemption"] += frees
        names = {event.request for event in events if event.seen and event.seen.outcome == GRANTED}
        reach["refund"] += sum(1 for event in events if event.what == FREE and event.request in names)


def count_output(
    reach: Counter[str],
    planned: Planned,
    returned: dict[int, list[int]],
    delivered: list[Delivered],
    live: dict[int, Any],
) -> None:
    """Count the crossings of one output."""
    drafts = dict(planned.drafts)
    for name, tokens in returned.items():
        if name in drafts:
            accepted = len(tokens) - 1
            reach["draft rejected"] += accepted < drafts[name]
            reach["draft accepted"] += accepted > 0
            reach["all drafts accepted"] += accepted == drafts[name]
    for name, kept, reason in delivered:
        if reason:
            reach[f"finished by {reason}"] += 1
            reach["ended inside drafts"] += len(kept) < len(returned.get(name, ()))
    reach["chunk"] += len(planned.tokens) - len(returned)


def count_pooled(
    reach: Counter[str],
    setting: SchedulerSetting,
    planned: Planned,
    returned: dict[int, list[int]],
    live: dict[int, Any],
) -> None:
    """Count the crossings of one output of a model that pools."""
    reach["pooled"] += len(returned)
    reach["pooled after chunks"] += len(planned.tokens) - len(returned)
    reach["pooled x overlap"] += len(returned) * (setting.in_flight_depth > 1)
    longest = setting.max_model_len
    reach["pooled up to max_model_len"] += sum(name in live and live[name].prompt == longest for name in returned)


def count_transfers(reach: Counter[str], events: list[Event], failed: set[int]) -> None:
    """Count what a connector did in one step. failed: requests whose last load did."""
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
            reach["failed load tried again"] += event.request in failed
            reach["load beside reserved blocks"] += call.reserved_blocks > 0
        elif what == MATCH:
            reach["match not known yet"] += event.tokens < 0
        elif what == ENDED:
            reach["blocks kept until sent"] += event.tokens > 0
        elif what == POP:
            reach["blocks kept back for a step"] += 1


def count_loaded(reach: Counter[str], transfers: Transfers, failed: set[int], zeroed: bool) -> None:
    """Count loads that ended. failed: requests whose last load did, kept here; zeroed: whether fresh blocks are."""
    bad = transfers.failed
    for name in transfers.loaded:
        if name in failed and (bad is None or bad[0] != name):
            reach["failed load ends well"] += 1
            reach["failed load ends well x zero list"] += zeroed
            failed.remove(name)
    if bad is not None:
        failed.add(bad[0])
        reach["failed load"] += 1
        reach["load failed in part"] += bad[1] > 0
