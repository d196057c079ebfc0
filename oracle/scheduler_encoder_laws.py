"""What must hold of the encoder's outputs in every step of any scheduler: from the side of the worker.

The worker drops the outputs that it is told to, has the encoder make those of the step, and then computes the step's
tokens: the embedding of a position inside an item is taken from the item's output, or the engine ends. No prediction:
judged from what the worker is sent. Sizes in tokens.
"""

from __future__ import annotations

from collections.abc import Callable

from oracle.call import GRANTED
from oracle.content import Item, item_length
from oracle.scheduled import ASK, FREE, Event, Planned, Situation
from oracle.scheduler_block_laws import Known
from oracle.scheduler_setting import SchedulerSetting

#: an output is taken for one that is there, but its encoding was taken back with a victim's part of that step
TAKEN_BACK = "its encoding went with a victim"


class EncoderLaws:
    """The laws of one workload. live: who has not ended. `broken` receives what is broken: law, sign, text."""

    def __init__(
        self, setting: SchedulerSetting, live: dict[int, Known], broken: Callable[[str, str, str], None]
    ) -> None:
        self.live, self.broken = live, broken
        self.size, self.budget = setting.encoder_cache_size, setting.encoder_budget
        self.ahead = setting.facts.prefill_lookahead
        #: outputs that the worker has; items whose encoding was planned and taken back
        self.outputs: set[int] = set()
        self.taken_back: set[int] = set()

    def _items(self, name: int) -> tuple[Item, ...]:
        """Those of a request; none of one that nobody knows."""
        known = self.live.get(name)
        return () if known is None else known.items

    def planned(self, planned: Planned, events: list[Event]) -> None:
        """S52: what a step computes was encoded before or is in it; within the budget, and the place."""
        self.outputs.difference_update(planned.dropped)
        self._victims(events)
        encoded = [self._items(name)[place][0] for name, places in planned.encoded for place in places]
        self.outputs.update(encoded)
        self.taken_back -= self.outputs
        total, held = sum(map(item_length, encoded)), sum(map(item_length, self.outputs))
        if total > self.budget:
            self.broken("budget", "encoder", f"{total} encoder tokens in {self.budget}")
        if held > self.size:
            self.broken("encoder", "more than its place", f"outputs of {held} tokens in a place of {self.size}")
        computed = {name: at for name, at, _, _ in (*planned.cached, *planned.new)}
        for name, tokens in planned.tokens:
            at = computed.get(name, 0)
            for item in needed(self._items(name), at, at + tokens):
                if item not in self.outputs:
                    what = TAKEN_BACK if item in self.taken_back else "not encoded"
                    text = f"request {name} computes {at} to {at + tokens - 1}, item {item} has no output"
                    self.broken("encoder", what, text)

    def _victims(self, events: list[Event]) -> None:
        """Items of whom was granted a part of this step and then preempted."""
        parts = {e.request: e.call for e in events if e.what == ASK and e.seen and e.seen.outcome == GRANTED}
        for event in events:
            call = parts.get(event.request) if event.what == FREE else None
            if call is not None:
                items = self._items(event.request)
                self.taken_back |= {*needed(items, call.computed, call.computed + call.new + self.ahead)} - self.outputs

    def drained(self, situation: Situation) -> None:
        """S53: everything has ended, so nobody holds an output, and all place can be had again."""
        held = [item for item, requests in situation.outputs if requests]
        if held:
            self.broken("drain", "outputs held", f"everything has ended, but items {held} are held")
        if situation.place[1] != self.size:
            self.broken("drain", "place", f"everything has ended, but {situation.place[1]} of {self.size} can be had")


def needed(items: tuple[Item, ...], start: int, end: int) -> list[int]:
    """The items with a position in start .. end - 1."""
    return [item for item, offset in items if offset < end and offset + item_length(item) > start]
