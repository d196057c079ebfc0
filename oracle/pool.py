"""The block pool with caching off: a free queue used from its front (A1 to A5)."""

from __future__ import annotations

from collections.abc import Iterable


class Pool:
    """Ids 1 .. num_blocks-1; id 0 is the null block, never free and never handed out.

    to_front: whether a freed block goes to the front of the queue or to its end, a choice of the release.

    The queue is kept back to front, so that both ends of a call, taking and giving back, are the end of a list: with
    caching off a freed block can never be found again and is the first to be used (A4).
    """

    def __init__(self, num_blocks: int, to_front: bool = True) -> None:
        self.to_front = to_front
        self._queue = list(range(num_blocks - 1, 0, -1))
        #: free blocks
        self.free = len(self._queue)

    def take(self, blocks: int) -> list[int]:
        """The first `blocks` ids of the queue, in order (A3). The caller has tested that they are there."""
        queue = self._queue
        if blocks > len(queue):
            raise AssertionError(f"the oracle took {blocks} blocks of {len(queue)}: count and use differ (A21)")
        cut = self.free = len(queue) - blocks
        taken = queue[cut:]
        del queue[cut:]
        taken.reverse()
        return taken

    def give(self, batch: Iterable[int]) -> None:
        """Give a batch back; its first id goes to the very front, nulls are ignored (A4)."""
        given = [block for block in batch if block]
        given.reverse()
        if self.to_front:
            self._queue += given
        else:
            self._queue[:0] = given
        self.free = len(self._queue)

    def order(self) -> tuple[int, ...]:
        """The queue from its front."""
        return tuple(reversed(self._queue))

    def restore(self, order: Iterable[int]) -> None:
        """Begin with this queue, from its front."""
        self._queue = [*order][::-1]
        self.free = len(self._queue)
