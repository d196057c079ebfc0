"""Where a prefill chunk of a hybrid model ends (S41).

A Mamba state is saved at the end of a chunk, and one that is published for position q must stand after q tokens.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Align:
    """Mode align of a setting. size: tokens a block. most: the largest chunk there is (G, or T0 below it).

    drop: a hit loses its last block (EAGLE without lookahead hashes). ahead: hash lookahead.
    """

    size: int
    most: int
    drop: bool
    ahead: int

    def keep(self, known: int) -> int:
        """The last position whose state a later request can resume from."""
        if self.drop:
            return max(0, known // self.size * self.size - self.size)
        return max(0, (known - max(1, self.ahead)) // self.size * self.size)


def split(align: Align, prompt: int, known: int, start: int, new: int) -> int:
    """Tokens of the chunk that begins at `start` and may take `new`; 0: none that ends where a state may be kept.

    Without finer hash blocks and shared prefixes. Only prefill is split: from `last` on the running state advances.
    """
    size = align.size
    end, last = start + new, max(prompt, known - 1)
    if start >= last:
        return new
    if end < last:
        down = end // size * size
        if down > start or size <= align.most:
            end = down
    stops = [align.keep(known)]
    if start % size:
        stops.append((start // size + 1) * size)
    inside = [stop for stop in stops if start < stop < end]
    return max(0, min(inside, default=end) - start)
