"""What a workload crossed: counters of planned steps and of outputs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from oracle.groups import Mamba
from oracle.trace import GRANTED
from oracle.workload import ASK, FREE, LOOK, Delivered, Event, Planned, SchedulerSetting


def count_step(
    reach: Counter[str], setting: SchedulerSetting, planned: Planned, events: list[Event], flying: int
) -> None:
    """Count the crossings of one planned step."""
    asks = [event for event in events if event.what == ASK]
    frees = sum([event.what == FREE for event in events])
    speculates = setting.num_speculative_tokens > 0
    if setting.enable_caching:
        states = any(isinstance(group, Mamba) for group in setting.groups)
        reach["hit"] += sum([event.what == LOOK and event.tokens > 0 for event in events])
        reach["hit of a state"] += states * sum([event.what == LOOK and event.tokens > 0 for event in events])
        reach["junction"] += sum([event.junction > 0 for event in events])
        reach["block copied"] += len(planned.copies)
    if frees:
        reach["preemption"] += frees
        reach["speculation x preemption"] += frees * speculates
        reach["speculation x preemption x caching"] += frees * speculates * setting.enable_caching
        reach["overlap x preemption"] += frees * (setting.in_flight_depth > 1)
        if len(setting.groups) > 1:
            reach["speculation x hybrid x preemption"] += frees * speculates
        reach["preempted in flight"] += frees * (flying > 0)
        if setting.policy == "priority":
            reach["priority x preemption"] += frees
            names = {event.request for event in asks if event.seen and event.seen.outcome == GRANTED}
            reach["refund"] += sum(1 for event in events if event.what == FREE and event.request in names)
    for event in asks:
        if event.seen and event.seen.outcome != GRANTED:
            reach["refused at admission" if event.call and event.call.waiting else "refused while running"] += 1
        elif event.call and event.call.preempted:
            reach["resumed"] += 1
            reach["resumed with output"] += event.call.tokens > event.call.prompt
    if not planned.tokens:
        reach["empty step"] += 1
        return
    total = sum(tokens for _, tokens in planned.tokens)
    reach["full step"] += total == setting.budget
    reach["draft table"] += setting.draft_counts is not None
    reach["drafts verified"] += len(planned.drafts)
    newcomers = {name for name, *_ in planned.new}
    reach["padded newcomer"] += any(name in newcomers for name, _ in planned.drafts)
    reach["mixed batch"] += bool(planned.new and len(planned.tokens) > len(planned.new))
    reach["drafts skipped"] += planned.skip_drafts


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
