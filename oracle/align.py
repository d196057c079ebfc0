"""Mamba in align mode: rows that jump (A42 to A47).

Column j is for the state after (j+1)*b tokens. A step ends at m; with q = ceil(m / b), *without lookahead and without
the cap at max_model_len* (drafters have no Mamba layer, and lookahead would break the alignment), it writes its running
state to column q-1 and one state per draft to the scratch columns q .. q-1+s. Everything between the last state and
these is null, and scratch is moved along instead of being taken anew.
"""

from __future__ import annotations

from oracle.breakdown import Breakdown, formula
from oracle.call import Call
from oracle.groups import Mamba
from oracle.pool import Pool
from oracle.reservation import Positional, Work
from oracle.rounding import ceil_div
from oracle.setting import Setting


class AlignRows(Positional):
    """The rules of one align group."""

    def __init__(self, group: Mamba, setting: Setting) -> None:
        super().__init__(group, setting)
        self.scratch = group.speculative_blocks
        self.kept = group.speculative_blocks if setting.choices.keeps_draft_states else 0
        self.moves = True
        self.checkpoints = group.checkpoint_blocks > 0 and group.checkpoint_alignment is not None
        self.alignment = group.checkpoint_alignment or 1
        self.hash_size = setting.hash_size
        self.scheduler_size = setting.scheduler_block_size
        #: where the last checkpoint that was looked at lies, and the column that it would take
        self.position = 0, 0
        self.only_last = setting.prefix_cache_retention_interval == 0

    def checkpoint(self, work: Work, end: int, row: list[int]) -> int:
        """A44: 1 if a chunk that ends at `end` also saves the state at an inner, reusable boundary, in column q-2."""
        if not self.checkpoints:
            return 0
        start = work.loaded
        position = self.inner_boundary(end)
        if position <= 0 or (self.only_last and end < max(work.prompt, work.tokens - 1)):
            return 0
        if start % self.hash_size or not start + self.hash_size <= position < end:
            return 0
        if (position - start) % self.alignment:
            return 0
        column = ceil_div(end, self.size) - 2
        if column <= (start - 1) // self.size:
            return 0
        scratch = not work.first and column >= len(row) - self.scratch
        self.position = position, column
        return int(column >= len(row) or row[column] == 0 or scratch)

    def inner_boundary(self, end: int) -> int:
        """The last boundary inside a chunk that ends at `end` to resume from (pos of A44); 0: none."""
        return max(0, (end - 1) // self.scheduler_size * self.scheduler_size)

    def gate(self, work: Work, row: list[int]) -> int:
        """A47: at most the running state, a checkpoint and, on a first call, the scratch."""
        end = min(work.tokens, self.max_model_len)
        kappa = self.checkpoint(work, end, row)
        missing = max(0, ceil_div(end, self.size) + self.scratch - len(row))
        return min(missing, 1 + kappa + (self.scratch if work.first else 0))

    def remaining(self, work: Work, more: int, row: list[int]) -> int:
        """S44: as the gate; no draft has a state beyond the scratch."""
        return self.gate(work, row)

    def remove(self, work: Work, row: list[int], pool: Pool) -> None:
        """A43: every held entry below the live state goes, also those between nulls."""
        dead = min(self.dead_columns(work.processed - self.kept), len(row))
        batch = [column for column in range(dead - 1, -1, -1) if row[column]]
        if batch:
            pool.give([row[column] for column in batch])
            for column in batch:
                row[column] = 0

    def count(self, work: Work, row: list[int]) -> int:
        """A15: the fresh blocks of the new row, and the adopted state."""
        if work.first and work.external:
            dead = self.dead_columns(work.loaded)
            adopted = ceil_div(work.loaded, self.size) - dead
            return adopted + self.fresh(work, [0] * dead + [-1] * adopted)
        return self.fresh(work, row)

    def fresh(self, work: Work, row: list[int]) -> int:
        """A45: blocks that the extension of `row` takes."""
        kappa = self.checkpoint(work, work.end, row)
        columns = ceil_div(work.end, self.size)
        length = len(row)
        if length >= columns + self.scratch and kappa == 0:
            return 0
        moved = 0 if work.first else self._moved(length, columns, kappa)
        length = max(length, columns - 1 - kappa) if length < columns - 1 else length
        return max(0, columns + self.scratch - length - moved)

    def _moved(self, length: int, columns: int, kappa: int) -> int:
        """How many scratch columns lie before the new running state and move to the end of the row."""
        return max(0, min(length, columns - 1 - kappa) - max(0, length - self.scratch))

    def extend(self, work: Work, row: list[int], pool: Pool) -> list[int]:
        """A45: nulls up to the running state, scratch moved along, then fresh blocks."""
        kappa = self.checkpoint(work, work.end, row)
        self.checkpointed = kappa > 0
        columns = ceil_div(work.end, self.size)
        length = len(row)
        if length >= columns + self.scratch and kappa == 0:
            return []
        if length < columns - 1:
            row.extend([0] * (columns - 1 - kappa - length))
        if not work.first:
            first = max(0, length - self.scratch)
            for column in range(first, first + self._moved(length, columns, kappa)):
                row.append(row[column])
                row[column] = 0
        taken = pool.take(max(0, columns + self.scratch - len(row)))
        row.extend(taken)
        return taken

    def columns(self, call: Call, held: int) -> Breakdown:
        return formula("A42 align columns").of(
            computed=call.computed + call.external,
            new=call.new,
            tokens_per_column=self.size,
            speculative_blocks=self.scratch,
            held=held,
        )

    def gate_terms(self, work: Work, row: list[int]) -> Breakdown:
        return formula("A47 align gate").of(
            tokens=work.tokens,
            max_model_len=self.max_model_len,
            tokens_per_column=self.size,
            speculative_blocks=self.scratch,
            checkpoint=self.checkpoint(work, min(work.tokens, self.max_model_len), row),
            first=int(work.first),
            held=len(row),
        )
