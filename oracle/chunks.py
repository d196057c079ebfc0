"""Where the scheduler ends a prefill chunk with Mamba align groups (P40; scheduling spec, S41).

A state is saved at the end of a chunk, and one published for a position must stand after exactly that many tokens. So
chunks end where a state is worth saving: at block borders, at the prompt's last boundary, at a junction.
"""

from __future__ import annotations

from attrs import frozen

from oracle.groups import Mamba
from oracle.retention import resume_position
from oracle.setting import Setting


@frozen
class Chunks:
    """The chunk rule of one setting. Sizes in tokens; the plain rule by default, hits at block borders alone.

    size: tokens a block of the align groups, 0 without any. most: the largest chunk there is. use_eagle: a hit loses
    its last unit, of `unit` tokens (0: a block). ahead: hash lookahead. inner: hits may end inside a block, at
    multiples of hash_size. checkpoints: the chunk that ends a prefill also saves an inner state, at a multiple of
    `alignment` from its start. junctions: whether a chunk stops at one exactly. to_the_end: the last boundary of all
    tokens is kept even where none is behind it. tail_drops: the prompt's last boundary inside a block loses a unit too.
    loose: behind the last border that is kept a chunk ends anywhere.
    """

    size: int
    most: int
    use_eagle: bool = False
    ahead: int = 0
    hash_size: int = 1
    inner: bool = False
    checkpoints: bool = False
    alignment: int | None = None
    junctions: bool = False
    unit: int = 0
    to_the_end: bool = False
    tail_drops: bool = True
    loose: bool = False

    def end(self, start: int, end: int, prompt: int, tokens: int, junction: int = 0) -> int:
        """Where a chunk that begins at `start` and could go to `end` ends; `start` if it cannot be cut well."""
        last = max(prompt, tokens - 1)
        if not self.size or start >= last:
            return end
        size = self.size
        saved_inside = self._saved_inside(start, end, last)
        keep = 0 if saved_inside else self._kept(tokens, size)
        if self.loose:
            end = end // size * size if end < keep else end
        elif end < last:
            aligned = end // size * size
            if aligned > start or size <= self.most:
                end = aligned
        stops = [keep]
        border = (start // size + 1) * size
        if start % size and not saved_inside and not (self.loose and border > keep):
            stops.append(border)
        if self.inner and not saved_inside:
            tail = self._kept(prompt, self.hash_size)
            if self.use_eagle and not self.tail_drops:
                tail = prompt // self.hash_size * self.hash_size
            if keep < tail < prompt:
                stops.append(tail)
        if start < junction < end:
            exact = self.junctions and junction <= prompt
            stops.append(junction if exact else start + (junction - start) // size * size)
        return max(start, min((stop for stop in stops if start < stop < end), default=end))

    def _kept(self, tokens: int, unit: int) -> int:
        """The last multiple of `unit` in a sequence that is worth a state."""
        return resume_position(tokens + (self.to_the_end and not self.use_eagle), unit, self.ahead, self.use_eagle)

    def _saved_inside(self, start: int, end: int, last: int) -> bool:
        """The chunk that ends the prefill saves its inner boundary by itself (A44)."""
        if not self.checkpoints or self.alignment is None or end < last:
            return False
        position = resume_position(last, self.unit or self.size, self.ahead, self.use_eagle)
        return (
            position > 0
            and start % self.hash_size == 0
            and start + self.hash_size <= position < end
            and (position - start) % self.alignment == 0
            and -(-end // self.size) - 2 > (start - 1) // self.size
        )


def chunks_of(setting: Setting) -> Chunks:
    """The chunk rule of a manager-level setting."""
    states = [group for group in setting.groups if isinstance(group, Mamba) and group.mode == "align"]
    size = states[0].block_size if states else 0
    inner = bool(states) and setting.fine_hits and setting.hash_size < size
    marked = any(group.eagle for group in setting.groups) or setting.use_eagle
    again = setting.num_prefill_lookahead_tokens > 1
    return Chunks(
        size,
        setting.max_num_batched_tokens,
        setting.use_eagle,
        setting.num_hash_lookahead_tokens,
        setting.hash_size,
        inner,
        checkpoints=bool(states) and all(group.checkpoint_blocks > 0 for group in states),
        alignment=states[0].checkpoint_alignment if states else None,
        unit=setting.hit_unit,
        junctions=inner and setting.enable_mamba_shared_prefix_checkpoint and marked and not again,
    )
