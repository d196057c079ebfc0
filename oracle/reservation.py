"""How many columns a request must hold in a group, and why: one class a family of kinds.

Each class answers four questions about one call, for one group. `gate`: blocks still to be taken until the whole known
sequence is done (A13). `dead`: the columns that nobody reads any more (A14). `count`: blocks that this call will take
(A15). `adopt` and `extend`: the new row (A18, A19). Lengths in tokens unless said; rows are lists of block ids, changed
in place.
"""

from __future__ import annotations

from attrs import define

from oracle.breakdown import Breakdown, formula
from oracle.call import Call
from oracle.groups import RSWA, CircularBuffer, CrossAttention, Group, Mamba
from oracle.pool import Pool
from oracle.rounding import ceil_div
from oracle.setting import Setting


@define(slots=True)
class Work:
    """The numbers of one call (spec section 1). Not frozen: one is made for each step."""

    start: int
    """t: where the call's work begins, capped at max_model_len."""
    loaded: int
    """c + e, not capped."""
    processed: int
    """p: nothing below it can be rolled back."""
    end: int
    """m: end of the target's work."""
    need: int
    """Slots needed, lookahead included, capped at max_model_len."""
    first: bool
    """The request has no row yet."""
    external: int
    encoder: int
    prompt: int
    tokens: int


def work_of(call: Call, first: bool, max_model_len: int) -> Work:
    """A23: the drafter writes `lookahead` positions behind the target's, none at or past max_model_len."""
    loaded = call.computed + call.external
    start = loaded if loaded < max_model_len else max_model_len
    processed = start - call.in_flight
    end = start + call.new
    need = end + call.lookahead
    return Work(
        start,
        loaded,
        processed if processed > 0 else 0,
        end,
        need if need < max_model_len else max_model_len,
        first,
        call.external,
        call.encoder,
        call.prompt,
        call.tokens,
    )


class Positional:
    """Attention whose positions lie in the row: full, MLA, hidden state, sink, windows, chunks (A30 to A35)."""

    #: takes part in adoption; a setting of rings and cross-attention alone never adopts
    adopts = True
    #: the last call saved a state at an inner boundary (align only)
    checkpointed = False

    def __init__(self, group: Group, setting: Setting) -> None:
        self.group = group
        self.size = group.tokens_per_column(setting.dcp_size)
        self.max_model_len = setting.max_model_len
        self.cap = group.admission_cap(setting.in_flight_limit, setting.max_model_len)
        self.keeps_all = type(group).live is Group.live
        #: columns beyond the tokens': states of a Mamba group
        self.more = 0
        #: tokens behind the processed ones that removal takes for rejected
        self.kept = 0
        #: an extension that takes no block may still change the row
        self.moves = False
        #: columns die while the request runs
        self.removes = not self.keeps_all or isinstance(group, RSWA)

    def dead_columns(self, position: int) -> int:
        """Leading columns that no token at or past `position` reads."""
        return 0 if self.keeps_all else self.group.live(position) // self.size

    def gate(self, work: Work, row: list[int]) -> int:
        """A13: blocks still to be taken, at the peak, until the known sequence is done."""
        columns = ceil_div(min(work.tokens, self.max_model_len), self.size) + self.more
        dead = self.dead_columns(work.start)
        if self.cap is None:
            return max(0, columns - max(dead, len(row)))
        if work.first:
            return max(0, min(self.cap, columns - dead))
        while dead < len(row) and row[dead] == 0:
            dead += 1
        held = sum(1 for block in row[dead:] if block)
        return max(0, min(self.cap, columns - dead) - held)

    def remaining(self, work: Work, more: int, row: list[int]) -> int:
        """S44: blocks still to be taken to hold what is known and `more`; of a group that recycles, up to its cap."""
        columns = ceil_div(min(work.tokens, self.max_model_len) + more, self.size) + self.more
        return max(0, (columns if self.cap is None else min(columns, self.cap)) - len(row))

    def remove(self, work: Work, row: list[int], pool: Pool) -> None:
        """A14: columns dead at the processed position become null, highest first. Not asked if none ever die."""
        dead = self.group.live(work.processed - self.kept) // self.size
        if dead == 0 or row.count(0) >= dead:
            return
        batch = []
        for column in range(min(dead, len(row)) - 1, -1, -1):
            if row[column] == 0:
                break  # nulls are a prefix of the row
            batch.append(row[column])
            row[column] = 0
        if batch:
            pool.give(batch)

    def count(self, work: Work, row: list[int]) -> int:
        """A15: blocks that adoption and extension will take."""
        there = self.dead_columns(work.loaded) if work.first and not self.keeps_all else len(row)
        fresh = -(-work.need // self.size) + self.more - there
        return fresh if fresh > 0 else 0

    def begin(self, work: Work) -> list[int]:
        """A18, first half: an adopted row begins with its dead columns, null."""
        return [0] * self.dead_columns(work.loaded)

    def adopt(self, work: Work, row: list[int], pool: Pool) -> list[int]:
        """A18, second half: blocks for the external tokens that are still read."""
        if min(work.loaded - self.group.live(work.loaded), work.external) <= 0:
            return []
        taken = pool.take(max(0, ceil_div(work.loaded, self.size) - len(row)))
        row.extend(taken)
        return taken

    def extend(self, work: Work, row: list[int], pool: Pool) -> list[int]:
        """A19: the row grows to its columns and never shrinks; returns the blocks taken."""
        fresh = -(-work.need // self.size) + self.more - len(row)
        if fresh <= 0:
            return []
        taken = pool.take(fresh)
        row.extend(taken)
        return taken

    def columns(self, call: Call, held: int) -> Breakdown:
        """Why the row has the length that it has."""
        return formula("A19 attention columns").of(
            computed=call.computed + call.external,
            new=call.new,
            lookahead=call.lookahead,
            max_model_len=self.max_model_len,
            tokens_per_column=self.size,
            speculative_blocks=self.more,
            held=held,
        )

    def gate_terms(self, work: Work, row: list[int]) -> Breakdown:
        """Why the gate asks for what it asks for."""
        name = "A13 gate, no cap" if self.cap is None else "A13 gate, capped"
        dead = self.dead_columns(work.start)
        if self.cap is not None and not work.first:
            while dead < len(row) and row[dead] == 0:
                dead += 1
        held = len(row) if self.cap is None else sum(1 for block in row[dead:] if block)
        return formula(name).of(
            tokens=work.tokens,
            max_model_len=self.max_model_len,
            tokens_per_column=self.size,
            speculative_blocks=self.more,
            dead=dead,
            held=held,
            **({} if self.cap is None else {"cap": self.cap}),
        )


class RSWARows(Positional):
    """Full attention but for the gap between the prompt and the last window of generated tokens (A36)."""

    def remove(self, work: Work, row: list[int], pool: Pool) -> None:
        group = self.group
        assert isinstance(group, RSWA)
        first = ceil_div(work.prompt, self.size)
        last = min(max(work.prompt, work.processed - group.window) // self.size, len(row))
        batch = [column for column in range(last - 1, first - 1, -1) if row[column]]
        if batch:
            pool.give([row[column] for column in batch])
            for column in batch:
                row[column] = 0


class RingRows(Positional):
    """One block, taken by the first granted call (A38)."""

    adopts = False

    def gate(self, work: Work, row: list[int]) -> int:
        return self.count(work, row)

    def remaining(self, work: Work, more: int, row: list[int]) -> int:
        return 0 if row else 1

    def count(self, work: Work, row: list[int]) -> int:
        return 0 if row else 1

    def begin(self, work: Work) -> list[int]:
        return []

    def adopt(self, work: Work, row: list[int], pool: Pool) -> list[int]:
        return self.extend(work, row, pool)

    def extend(self, work: Work, row: list[int], pool: Pool) -> list[int]:
        if row:
            return []
        row.extend(pool.take(1))
        return row[:]

    def columns(self, call: Call, held: int) -> Breakdown:
        return formula("A38 ring").of(block=1)

    def gate_terms(self, work: Work, row: list[int]) -> Breakdown:
        return formula("A38 ring to take").of(held=len(row))


class CrossRows(Positional):
    """Columns by encoder tokens; a call without any changes nothing (A39)."""

    adopts = False

    def gate(self, work: Work, row: list[int]) -> int:
        return self.count(work, row)

    def count(self, work: Work, row: list[int]) -> int:
        return max(0, -(-work.encoder // self.size) - len(row))

    def begin(self, work: Work) -> list[int]:
        return []

    def adopt(self, work: Work, row: list[int], pool: Pool) -> list[int]:
        return []

    def extend(self, work: Work, row: list[int], pool: Pool) -> list[int]:
        taken = pool.take(self.count(work, row))
        row.extend(taken)
        return taken

    def columns(self, call: Call, held: int) -> Breakdown:
        return formula("A39 cross-attention columns").of(encoder=call.encoder, tokens_per_column=self.size, held=held)

    def gate_terms(self, work: Work, row: list[int]) -> Breakdown:
        return formula("A39 cross-attention to take").of(
            encoder=work.encoder, tokens_per_column=self.size, held=len(row)
        )


class StateRows(Positional):
    """Mamba none and all: the tokens' columns and one more a draft (A40, A41)."""

    def __init__(self, group: Mamba, setting: Setting) -> None:
        super().__init__(group, setting)
        self.more = group.speculative_blocks
        self.kept = group.speculative_blocks if setting.choices.keeps_draft_states else 0


def rules_of(setting: Setting) -> list[Positional]:
    """The rules of each group of a setting, in configuration order."""
    from oracle.align import AlignRows  # it builds on this module

    rules: list[Positional] = []
    for group in setting.groups:
        if isinstance(group, Mamba):
            rules.append((AlignRows if group.mode == "align" else StateRows)(group, setting))
        elif isinstance(group, RSWA):
            rules.append(RSWARows(group, setting))
        elif isinstance(group, CircularBuffer):
            rules.append(RingRows(group, setting))
        elif isinstance(group, CrossAttention):
            rules.append(CrossRows(group, setting))
        else:
            rules.append(Positional(group, setting))
    return rules
