"""The second oracle: a model of the physical KV cache that knows no allocation rule.

It asks one thing of every read: was what I find here written for exactly this prefix? A block is a page of cells; a
cell holds the identity of the content last written. The steps of a trace are executed as the worker would: loads, then
the state copies, then all writes of the batch, then all reads, then the drafter, which writes past the target's range.
A step runs when its outcome is known (drafts and their rejection included), with the rows that it was scheduled with;
a block that was given to somebody else too early is then found overwritten.

It borrows nothing from `reservation` or `allocator`: what a kernel reads is written here again, from the kernel's side.
Identities: each token of a request has a number of its own, which stands for the prefix that ends with it. Two
positions hold the same content only if the numbers are equal; 0 is garbage (a draft's guess, or never written).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from itertools import chain

from attrs import define, evolve

from oracle.call import Call, Row, Rows
from oracle.content import Content
from oracle.groups import (
    RSWA,
    ChunkedLocal,
    CircularBuffer,
    CrossAttention,
    Group,
    Mamba,
    SlidingWindow,
)
from oracle.ledger import Request, Settled, Step
from oracle.setting import Setting
from oracle.violation import Violation

GARBAGE = 0
joined = chain.from_iterable
LOADED, COMPUTED = frozenset({"loaded"}), frozenset[str]()
#: a session goes on; was answered while a step of it was in flight; with drafts accepted beyond its answer
SESSION, FLOWN = frozenset({"session"}), frozenset({"answered in flight"})
BEYOND = frozenset({"accepted beyond the answer"})
#: ... and drafts have left its state in a column where no new request looks
ELSEWHERE = frozenset({"state among those of drafts"})


@define(eq=False)
class Contents:
    """What the model knows of one request."""

    identity: Request
    truth: list[int]
    """Number of the token at each known position."""
    encoder: list[int]
    rings: dict[int, list[int]]
    states: dict[int, int]
    """Per Mamba group the block with the state after `done` tokens."""
    done: int = 0
    """Tokens whose outcome is known: where the next step really begins."""
    tainted: bool = False
    """A violation was reported: what follows from it is not reported again."""
    encoder_written: bool = False
    tags: frozenset[str] = COMPUTED
    content: Content | None = None
    own: int = 0
    """Where the request itself began to compute its row."""
    discarded: frozenset[int] = frozenset()
    """Positions whose drafter's cells were computed from a token that the session discarded."""
    misdrafted: bool = False
    """The drafter found a wrong cell: told once."""


class Memory:
    """The physical cache under one trace. `report` receives each violation."""

    def __init__(self, setting: Setting, report: Callable[[Violation, Contents], None]) -> None:
        self.setting = setting
        self.report = report
        self.sizes = [group.tokens_per_column(setting.dcp_size) for group in setting.groups]
        #: cells a block: one a position, or the one state
        self.blank = [
            [GARBAGE] * (1 if isinstance(group, Mamba) else size)
            for group, size in zip(setting.groups, self.sizes, strict=True)
        ]
        #: per group the cells of the blocks that it was the last to write: another group's bytes are garbage to it
        self.pages: list[dict[int, list[int]]] = [{} for _ in setting.groups]
        self.page_of = [pages.__getitem__ for pages in self.pages]
        self.owner: dict[int, int] = {}
        self.lookahead, self.max_model_len = setting.lookahead, setting.max_model_len
        self.known: dict[Request, Contents] = {}
        self.next = 1
        self.read = [(index, group, _reader(group)) for index, group in enumerate(setting.groups) if group.positional]
        self.positional = [index for index, _, _ in self.read]
        #: groups that the drafter writes
        self.drafted = [index for index in self.positional if setting.groups[index].drafts] if setting.lookahead else []
        self.others = [(index, group) for index, group in enumerate(setting.groups) if not group.positional]

    # ---------------------------------------------------------------------------------- what happens

    def scheduled(self, call: Call, request: Request, step: Step | None, rows: Rows) -> None:
        """A call was granted. An async load writes at once: nothing orders it behind a step in flight."""
        contents = self.known.get(request)
        if contents is None:
            contents = self.known[request] = Contents(request, [], [], {}, {})
        missing = call.tokens - len(contents.truth)
        if missing > 0:
            contents.truth += range(self.next, self.next + missing)
            self.next += missing
        if call.encoder:
            contents.encoder = list(range(self.next, self.next + call.encoder))
            contents.encoder_written = False
            self.next += call.encoder
        if request.calls == 1:  # a row begins
            contents.rings, contents.states, contents.encoder_written = {}, {}, False
            contents.tags = LOADED if call.external else COMPUTED
        if step is None:
            self._load(contents, call.external, rows)
            return
        if call.in_flight == 0:
            contents.done = call.computed + call.external

    def settled(self, settled: Settled) -> None:
        """A batch's outcome is known: run it."""
        runs = [(self.known[step.request], step) for step in settled.batch.steps]
        for contents, step in runs:
            if step.external:
                self._load(contents, step.external, step.rows)
        if self.others:
            for contents, step in runs:
                self._read_states(contents, step)
        written = [self._write_target(contents, step) for contents, step in runs]
        for (contents, step), values in zip(runs, written):  # noqa: B905  # as long by construction, and a hot path
            self._read_target(contents, step, values)
        for (contents, step), values, accepted in zip(runs, written, settled.accepted):  # noqa: B905  # the same
            if self.others:
                self._write_states(contents, step, accepted, values)
            if self.drafted:
                self._draft(contents, step)
            first = step.new - step.drafts
            contents.done += first + accepted
            if step.samples:
                contents.truth += values[first : first + accepted]
                contents.truth.append(self.next)
                self.next += 1

    # ----------------------------------------------------------------------------------------- cells

    def _page(self, block: int, group: int) -> list[int]:
        """The cells of a block that `group` is about to write."""
        return self.pages[group].get(block) or self._fresh(block, group)

    def _fresh(self, block: int, group: int) -> list[int]:
        """A page of garbage for a block that `group` has not been the last to write."""
        before = self.owner.get(block)
        if before is not None:
            del self.pages[before][block]
        self.owner[block] = group
        page = self.pages[group][block] = self.blank[group][:]
        return page

    def _wrong(
        self, contents: Contents, step: Step, group: int, law: str, what: str, text: str, column: int = -1
    ) -> None:
        if not contents.tainted:
            contents.tainted = True
            self.report(Violation(step.index, group, law, what, text, column), contents)

    def _write(
        self, contents: Contents, step: Step, groups: list[int], first: int, values: list[int], who: str
    ) -> None:
        """Write `values` to the positions from `first` on, through the step's rows."""
        last, sizes, rows = first + len(values), self.sizes, step.rows
        for group in groups:
            size, pages = sizes[group], self.pages[group]
            column = first // size
            blocks = rows[group][column : -(-last // size)]
            if 0 in blocks or (column + len(blocks)) * size < last:
                blocks = self._misdirected(contents, step, group, first, blocks, who)
            if len(blocks) == 1:
                page = pages.get(blocks[0]) or self._fresh(blocks[0], group)
                offset = first - column * size
                page[offset : last - column * size] = values[: size - offset]
                continue
            done = column * size - first  # values that lie before the column
            for block in blocks:
                page = pages.get(block) or self._fresh(block, group)
                part = values[done : done + size] if done >= 0 else values[: done + size]
                offset = -done if done < 0 else 0
                page[offset : offset + len(part)] = part
                done += size

    def _misdirected(self, contents: Contents, step: Step, group: int, first: int, blocks: Row, who: str) -> Row:
        """Report the first column without a block, of those from position `first` on; the blocks before it."""
        size = self.sizes[group]
        good = blocks.index(0) if 0 in blocks else len(blocks)
        column = first // size + good
        what = "null block" if good < len(blocks) else "outside the row"
        where = f"position {max(first, column * size)}, column {column}"
        self._wrong(contents, step, group, "W1", f"{who} {what}", f"{who} writes {where}")
        return blocks[:good]

    def _check(self, contents: Contents, step: Step, group: int, first: int, expected: list[int]) -> None:
        """Every position from `first` on must hold `expected`."""
        size = self.sizes[group]
        column = first // size
        offset = first - column * size
        end = offset + len(expected)
        blocks = step.rows[group][column : column - (-end // size)]
        try:
            cells = [*joined(map(self.page_of[group], blocks))]
        except KeyError:  # a null block, or one that another group has written
            cells = []
        if cells[offset:end] != expected:
            self._first_wrong(contents, step, group, first, expected)

    def _first_wrong(self, contents: Contents, step: Step, group: int, first: int, expected: list[int]) -> None:
        """Report the first column that does not hold what is expected."""
        size = self.sizes[group]
        row = step.rows[group]
        position, last = first, first + len(expected)
        while position < last:
            column, offset = divmod(position, size)
            block = row[column] if column < len(row) else -1
            stop = min(last, (column + 1) * size)
            page = self.pages[group].get(block, [])
            if page[offset : offset + stop - position] != expected[position - first : stop - first]:
                what = "other content" if block > 0 else "null block" if block == 0 else "outside the row"
                where = f"positions {position}..{stop - 1} in column {column} (block {max(block, 0)})"
                self._wrong(contents, step, group, "M12", what, f"reads {where}: {what}", column)
                return
            position = stop

    # ------------------------------------------------------------------------------------- attention

    def _write_target(self, contents: Contents, step: Step) -> list[int]:
        """The target writes its positions; returns the numbers written, drafts with numbers of their own."""
        start = contents.done
        known = step.new - step.drafts
        written = contents.truth[start : start + known]
        if step.drafts:
            written += range(self.next, self.next + step.drafts)
            self.next += step.drafts
        if not contents.tainted:
            self._write(contents, step, self.positional, start, written, "target")
        return written

    def _read_target(self, contents: Contents, step: Step, written: list[int]) -> None:
        if contents.tainted:
            return
        start = contents.done
        prefix = contents.truth[:start] + written
        end, prompt = start + step.new, step.request.prompt
        for group, kind, reads in self.read:
            if reads is _everything:
                self._check(contents, step, group, 0, prefix)
                continue
            for first, last in reads(kind, start, end, prompt):
                self._check(contents, step, group, first, prefix[first:last])

    def _draft(self, contents: Contents, step: Step) -> None:
        """The drafter writes guesses behind the target's range, never at or past max_model_len."""
        end = contents.done + step.new
        room = self.max_model_len - end
        count = self.lookahead if self.lookahead < room else room
        if count <= 0 or contents.tainted:
            return
        self._write(contents, step, self.drafted, end, [GARBAGE] * count, "drafter")

    def _load(self, contents: Contents, external: int, rows: Rows) -> None:
        """The connector writes what it loads to the blocks that the row holds."""
        for group, kind in enumerate(self.setting.groups):
            size, row = self.sizes[group], rows[group]
            if kind.positional:
                for column in range(min(len(row), -(-external // size))):
                    if row[column]:
                        last = min(external, (column + 1) * size)
                        self._page(row[column], group)[: last - column * size] = contents.truth[column * size : last]
            elif isinstance(kind, Mamba):
                column = 0 if kind.mode == "none" else (external - 1) // size
                if column < len(row) and row[column]:
                    self._page(row[column], group)[0] = contents.truth[external - 1]
                    contents.states[group] = row[column]

    def parted(self, request: Request) -> Request:
        """Who the steps of `request` that are in flight run for from here on: they write and read, and nobody waits."""
        nobody, contents = copy(request), self.known[request]
        self.known[nobody] = evolve(contents, identity=nobody, truth=[*contents.truth], states={**contents.states})
        return nobody

    def answered(self, request: Request, kept: int, flown: bool) -> frozenset[str]:
        """A session goes on behind `kept` tokens; flown: steps of it were in flight when its answer ended.

        What may be wrong with the step that it goes on with.
        """
        contents = self.known[request]
        del contents.truth[kept:]
        return SESSION | (FLOWN if flown else COMPUTED) | (BEYOND if contents.done > kept else COMPUTED)

    def rewound(self, contents: Contents, rows: Rows, tokens: int) -> frozenset[str]:
        """The worker takes a session for a new request with `tokens` computed: its state is where chunks leave it.

        Drafts leave theirs in other columns; what is wrong if the right one is there.
        """
        wrong = COMPUTED
        for group, row in enumerate(rows):
            kind = self.setting.groups[group]
            if isinstance(kind, Mamba) and kind.mode != "all":
                pages, last = self.pages[group], contents.truth[tokens - 1]
                column = (tokens - 1) // self.sizes[group] if kind.mode == "align" else 0
                block = contents.states[group] = row[column] if column < len(row) else 0
                right = {one for one in row if one and pages.get(one, [GARBAGE])[0] == last}
                if right and block not in right:
                    wrong = ELSEWHERE
        return wrong

    def given(self, request: Request, done: int, rows: Rows) -> None:
        """A request that was there before the trace began: what its row holds of `done` tokens is taken to be right.

        A prompt of R-SWA with a null column was not kept whole; that was before, and is not told of what follows.
        """
        truth = [*range(self.next, self.next + request.tokens)]
        contents = self.known[request] = Contents(request, truth, [], {}, {}, done)
        self.next += request.tokens
        if done and any(rows):
            self._load(contents, done, rows)
            for kind, size, row in zip(self.setting.groups, self.sizes, rows, strict=True):
                contents.tainted |= isinstance(kind, RSWA) and 0 in row[: min(done, request.prompt) // size]

    def brought(self, request: Request, external: int, rows: Rows) -> None:
        """A load that is part of a step, which does not run itself."""
        self._load(self.known[request], external, rows)

    def spoil(self, first: int, end: int, rows: Rows) -> None:
        """A load up to `end` (tokens) failed: what it brought is garbage from the column of `first` on."""
        for group, kind in enumerate(self.setting.groups):
            if kind.positional:
                for block in rows[group][first // self.sizes[group] : -(-end // self.sizes[group])]:
                    if block:
                        page = self._page(block, group)
                        page[:] = [GARBAGE] * len(page)

    # --------------------------------------------------------------- states, rings, encoder output

    def _read_states(self, contents: Contents, step: Step) -> None:
        """What a step takes over from before its batch: states, rings, the encoder's output."""
        start = contents.done
        for group, kind in self.others:
            row = step.rows[group]
            if isinstance(kind, Mamba):
                if start == 0:
                    continue
                block = contents.states.get(group, 0)
                if kind.mode == "all":
                    column = (start - 1) // self.sizes[group]
                    block = row[column] if column < len(row) else 0
                state = self.pages[group].get(block)
                if state is None or state[0] != contents.truth[start - 1]:
                    text = f"starts from the state after {start} tokens (block {block})"
                    self._wrong(contents, step, group, "M12", "state", text)
            elif isinstance(kind, CircularBuffer):
                ring = contents.rings.get(group)
                if ring is not None and row and self.pages[group].get(row[0]) != ring:
                    self._wrong(contents, step, group, "M12", "other content", f"reads its ring (block {row[0]})")

    def _write_states(self, contents: Contents, step: Step, accepted: int, written: list[int]) -> None:
        if contents.tainted:
            return
        start = contents.done
        for group, kind in self.others:
            size, row = self.sizes[group], step.rows[group]
            if isinstance(kind, Mamba):
                self._write_mamba(contents, step, group, kind, accepted, written)
            elif isinstance(kind, CircularBuffer):
                if not row or row[0] == 0:
                    self._wrong(contents, step, group, "W1", "target null block", "writes its ring without a block")
                    continue
                page = self._page(row[0], group)
                for offset, value in enumerate(written):
                    page[(start + offset) % size] = value
                contents.rings[group] = page[:]
            elif isinstance(kind, CrossAttention) and contents.encoder:
                if not contents.encoder_written:
                    self._write(contents, step, [group], 0, contents.encoder, "encoder")
                self._check(contents, step, group, 0, contents.encoder)
        contents.encoder_written = True

    def _write_mamba(
        self, contents: Contents, step: Step, group: int, kind: Mamba, accepted: int, written: list[int]
    ) -> None:
        """One running state and one state a draft; the accepted one is where the next step starts."""
        size, row = self.sizes[group], step.rows[group]
        end = contents.done + step.new
        if kind.mode == "none":
            first = 0
        elif kind.mode == "align":
            first = -(-end // size) - 1
        else:
            first = (end - step.drafts + accepted - 1) // size
        count = 1 + kind.speculative_blocks
        blocks = row[first : first + count]
        if 0 in blocks or len(set(blocks)) != count:
            shown = [*blocks, *[0] * (count - len(blocks))]
            text = f"writes states to columns {first}..{first + count - 1}: {shown}"
            self._wrong(contents, step, group, "W1", "state null block", text)
            return
        base = step.new - step.drafts - 1
        if kind.mode == "all":
            self._page(blocks[0], group)[0] = written[base + accepted]
            return
        for draft in range(step.drafts + 1):
            self._page(blocks[draft], group)[0] = written[base + draft]
        contents.states[group] = blocks[accepted]


Reader = Callable[[Group, int, int, int], list[tuple[int, int]]]


def _everything(group: Group, start: int, end: int, prompt: int) -> list[tuple[int, int]]:
    return [(0, end)]


def _window(group: Group, start: int, end: int, prompt: int) -> list[tuple[int, int]]:
    assert isinstance(group, SlidingWindow)
    first = start - group.window + 1
    return [(first if first > 0 else 0, end)]


def _chunk(group: Group, start: int, end: int, prompt: int) -> list[tuple[int, int]]:
    assert isinstance(group, ChunkedLocal)
    return [(start - start % group.chunk, end)]


def _reference(group: Group, start: int, end: int, prompt: int) -> list[tuple[int, int]]:
    assert isinstance(group, RSWA)
    if start <= prompt:
        return [(0, end)]
    return [(0, prompt), (max(prompt, start - group.window + 1), end)]


def _reader(group: Group) -> Reader:
    """Which positions (half-open ranges) the tokens start .. end-1 of a step read, from the kernel's mask."""
    if isinstance(group, SlidingWindow):
        return _window
    if isinstance(group, ChunkedLocal):
        return _chunk
    if isinstance(group, RSWA):
        return _reference
    return _everything
