"""A consumer of the cache's events, as a router keeps one: what it believes must be what can be found (P47)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import cast

from oracle.call import Event, Name, Row
from oracle.setting import Setting


class Consumer:
    """Adds on Stored, deletes on Removed. `report`: law's sign, group, text; each once a trace and group."""

    def __init__(self, setting: Setting, report: Callable[[str, int, str], None]) -> None:
        self.setting = setting
        self.report = report
        self.held: set[Name] = set()
        #: names that were told at any time, whatever the group
        self.told: set[int] = set()
        self.said: set[tuple[str, int]] = set()

    def _wrong(self, sign: str, group: int, text: str) -> None:
        if (sign, group) not in self.said:
            self.said.add((sign, group))
            self.report(sign, group, text)

    def drained(self, events: Collection[Event], findable: Collection[Name], reports: Collection[Event] = ()) -> None:
        """Take a step's events, then hold what is believed beside what can be found. `reports`: those of hits."""
        for event in events:
            if event[0] == "stored":
                self._stored(event)
            elif event[0] == "removed":
                self.held -= {(event[1], node) for node in event[2:]}
            else:
                self.held.clear()
        for lost in set(findable) - self.held:
            self._wrong("forgotten", lost[0], "a name that can be found was told to be removed, or never told")
        reported = {(event[1], node) for event in reports for node in cast("Row", event[2])}
        for kept in self.held - set(findable):
            if kept in reported:
                self._wrong("reported", kept[0], "a report of a hit tells a name that cannot be found")
                continue
            self._wrong("believed", kept[0], "a name that cannot be found any more was not told to be removed")
        self.held = set(findable)  # the next step is judged by itself

    def _stored(self, event: Event) -> None:
        _, group, nodes, parent, size, tokens = event
        assert isinstance(group, int)
        assert isinstance(nodes, tuple)
        assert isinstance(size, int)
        assert isinstance(tokens, tuple)
        if len(tokens) != len(nodes) * size:
            text = f"{len(nodes)} names of {size} tokens each come with {len(tokens)} tokens"
            self._wrong("tokens", group, text)
        if parent and parent not in self.told:
            self._wrong("parent", group, "the parent of an event was never told")
        self.told.update(nodes)
        self.held |= {(group, node) for node in nodes}
