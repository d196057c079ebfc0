"""The encoder's outputs in the oracle's scheduler: which items a step encodes, who holds an output, when it goes.

An item is a range of a prompt whose tokens stand for an output of the encoder; it is known by its identifier, so that
requests share it. Sizes are in tokens. Three rules:

S52. A position of an item is computed in or after the step that encodes the item, and the encoder takes an item whole.
So a part of a request ends before the first item that its step cannot encode: the step's encoder budget or the
outputs' place is used up. The drafter reads some tokens past the part; an item that begins there is encoded with it if
it fits, else the drafter does without. Where chunks may not split items, a part that would do so ends before the item
as well, and before what the drafter would read of it [R].

S53. A request holds an output from the part that first needs it until the last of its places that needed it is
computed for sure (nothing in flight may be taken back), or until the request is preempted, refused or ends.

S54. An output that nobody holds stays until its place is needed; the one that has been free for longest goes first,
and only as many as must.
"""

from __future__ import annotations

from collections.abc import Iterator

from oracle.content import Item, item_length
from oracle.scheduler_request import Request
from oracle.scheduler_setting import SchedulerSetting

#: one place of a request: its name, and which of its items
Place = tuple[int, int]


class EncoderOutputs:
    """The outputs that there are, or will be with the step being planned. `held`: item -> the places that hold it."""

    def __init__(self, setting: SchedulerSetting) -> None:
        self.size, self.whole = setting.encoder_cache_size, setting.disable_chunked_mm_input
        self.ahead = setting.facts.prefill_lookahead
        self.held: dict[int, set[Place]] = {}
        #: items that nobody holds, the next one to go first; those that went since the last step
        self.unheld: list[int] = []
        self.gone: list[int] = []
        #: what the part of `part` needs beside what there is: places to encode, and places of the same items
        self.encodes: list[int] = []
        self.shares: list[int] = []

    @property
    def free(self) -> int:
        """Place (tokens) that no output takes."""
        return self.size - sum(map(item_length, self.held))

    def part(self, request: Request, comp: int, new: int, budget: int) -> int:
        """S52: how many of `new` tokens behind `comp` can be computed, with `budget` left for the encoder.

        What is there already the request holds from now on, even if it is refused the part (S53).
        """
        self.encodes, self.shares = [], []
        if new <= 0:
            return new
        planned: dict[int, int] = {}
        for place, (item, start) in _between(request.items, comp, comp + new + self.ahead):
            length = item_length(item)
            if self.whole and comp <= start and comp + new < start + length:
                return max(0, start - self.ahead - comp)
            if item in planned:
                self.shares.append(place)
            elif item in self.held:
                self._hold(request, place)
            elif length <= budget - sum(planned.values()) and self._room(length + sum(planned.values())):
                planned[item] = length
                self.encodes.append(place)
            else:
                return min(new, max(0, start - comp))
        return new

    def _room(self, length: int) -> bool:
        """S54: make place for outputs of so many tokens, if those that nobody holds suffice."""
        if length > self.free + sum(map(item_length, self.unheld)):
            return False
        while length > self.free:
            item = self.unheld.pop(0)
            del self.held[item]
            self.gone.append(item)
        return True

    def take(self, request: Request) -> list[int]:
        """The part is scheduled: its items are encoded, and held. Their places."""
        for place in (*self.encodes, *self.shares):
            self.held.setdefault(request.items[place][0], set())
            self._hold(request, place)
        return self.encodes

    def _hold(self, request: Request, place: int) -> None:
        item = request.items[place][0]
        self.held[item].add((request.id, place))
        if item in self.unheld:
            self.unheld.remove(item)

    def let_go(self, request: Request, sure: int | None = None) -> None:
        """S53: the request no longer holds what lies below `sure`, its tokens computed for sure; None: nothing."""
        for place, (item, start) in enumerate(request.items):
            holders = self.held.get(item, set())
            computed = sure is None or start + item_length(item) <= sure
            if computed and (request.id, place) in holders:
                holders.remove((request.id, place))
                if not holders:
                    self.unheld.append(item)

    def shown(self) -> tuple[tuple[tuple[int, tuple[int, ...]], ...], tuple[int, ...], tuple[int, int]]:
        """Outputs with the requests that hold them, those that nobody holds, free place without and with these."""
        outputs = tuple((item, tuple(sorted({name for name, _ in self.held[item]}))) for item in sorted(self.held))
        return outputs, tuple(self.unheld), (self.free, self.free + sum(map(item_length, self.unheld)))

    def leave(self) -> list[int]:
        """What the worker is told to drop: what has gone, and has not been encoded anew since."""
        gone, self.gone = self.gone, []
        return [item for item in gone if item not in self.held]


def _between(items: tuple[Item, ...], start: int, end: int) -> Iterator[tuple[int, Item]]:
    """The items with a position in start .. end - 1, each with its place among all of the request's."""
    for place, (item, offset) in enumerate(items):
        if offset < end and offset + item_length(item) > start:
            yield place, (item, offset)
