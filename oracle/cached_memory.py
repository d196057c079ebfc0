"""The model of the physical cache with prefix caching on.

It still knows no rule: not what a name is, nor when a block may be shared. A request that begins with a hit simply
reads what is there, and what it reads must have been written for exactly its prefix, whoever wrote it. So identities
are the nodes of the tree of contents, the same for all requests. New are the copies of blocks, which run before the
forward pass of their step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from oracle.call import Call, Rows
from oracle.draft_memory import DRAFTER, DraftLayers
from oracle.groups import Mamba
from oracle.ledger import Batch, Request, Settled, Step
from oracle.memory import COMPUTED, LOADED, Contents, Memory
from oracle.setting import Setting
from oracle.violation import Violation

HIT, DROPPED = frozenset({"hit"}), frozenset({"dropped step"})
AGAIN, EARLY = frozenset({"prefilled again"}), frozenset({"copied too early"})
PASSED, DIVERGED = frozenset({"passed border"}), frozenset({"diverged hit"})
DISCARDED, SHORT, COPY = frozenset({"discarded token"}), frozenset({"short drop"}), frozenset({"another copy"})
TAIL, MOVED = frozenset({"tail of a prompt"}), frozenset({"exported into a moved block"})
RACED = frozenset({"load before its copy"})

Pairs = tuple[tuple[int, int], ...]


class CachingMemory(Memory):
    """The physical cache under one trace with caching on."""

    def __init__(self, setting: Setting, report: Callable[[Violation, Contents], None]) -> None:
        super().__init__(setting, report)
        #: copies of the steps that were launched and have not run, oldest first
        self.copying: deque[tuple[Batch, Pairs]] = deque()
        self.guesses = -1
        readers = [(group, reads) for group, _, reads in self.read]
        self.drafter = DraftLayers(setting, readers, self.sizes, self.pages)
        #: blocks that a step would have written that was taken back before it was launched, with that step's index; no
        #: later step has written them
        self.unwritten: dict[int, int] = {}
        #: blocks that were filled by a copy of what its own step was still to write
        self.early: set[int] = set()
        #: blocks that a load fills although the copy into them waits for its step
        self.raced: set[int] = set()
        #: blocks of diverged hits that nobody filled (P26), and copies of them
        self.lacking: set[int] = set()
        #: blocks with the state at the start of a chunk that went past the next border without stopping there
        self.passed: set[int] = set()
        #: blocks with a running state that an export has overwritten, since they stood in an earlier column before
        self.moved: set[int] = set()

    # ---------------------------------------------------------------------------------- what happens

    def scheduled(self, call: Call, request: Request, step: Step | None, rows: Rows) -> None:
        contents = self.known.get(request)
        if contents is None:
            contents = self.known[request] = Contents(request, [], [], {}, {})
        contents.truth = _truth(request)
        if self.drafter.layers and request.content is not contents.content:
            contents.content = request.content
            self.drafter.discards(contents, request.content.kept if request.content else 0, rows)
        if self.lacking:  # whoever takes a block anew writes it
            start = call.local if request.calls == 1 else call.computed
            for group, row in enumerate(rows):
                self.lacking.difference_update(
                    row[-(-start // self.sizes[group]) :] if group in self.positional else row
                )
        if request.calls == 1:
            contents.own, contents.misdrafted = call.computed + call.external, False
            contents.rings, contents.states = {}, {}
            contents.tags = (LOADED if call.external else COMPUTED) | (HIT if call.local else COMPUTED)
            if request.diverged:
                contents.tags |= DIVERGED
                self._note_lacking(contents, call.local, rows)
            if call.local:
                self._take_over(contents, call.local, rows)
        if step is None:
            self._bring(contents, call.computed, call.external, rows)
            inside = [(row, size) for row, size in zip(rows, self.sizes, strict=True) if call.local % size]
            self.raced.update(row[call.local // size] for row, size in inside if call.local // size < len(row))
            return
        if call.in_flight == 0:
            contents.done = call.computed + call.external

    def _note_lacking(self, contents: Contents, local: int, rows: Rows) -> None:
        """Which blocks before a diverged hit's end hold something else: nobody brings it, and names will say so."""
        for group in self.positional:
            size, pages = self.sizes[group], self.pages[group]
            for column, block in enumerate(rows[group][: local // size]):
                if block and pages.get(block) != contents.truth[column * size : (column + 1) * size]:
                    self.lacking.add(block)

    def launched(self, batch: Batch, copies: Pairs) -> None:
        """A step begins to run."""
        self.copying.append((batch, copies))

    def dropped(self, step: Step) -> None:
        """A scheduled step was taken back, because its request was preempted in the same pass."""
        self.unwritten.update({block: step.index for row in step.rows for block in row if block})

    def settled(self, settled: Settled) -> None:
        """A step has run: copies, loads, states taken over, all writes, all reads, states, the drafter."""
        copies = self._run_copies(settled.batch)
        runs = [
            (self.known[step.request], step, accepted)
            for step, accepted in zip(settled.batch.steps, settled.accepted, strict=True)
        ]
        for contents, step, _ in runs:
            contents.truth = _truth(step.request)
            if step.external:
                self._bring(contents, contents.done - step.external, step.external, step.rows)
        if copies:
            self._note_early(copies, [(contents.done, step) for contents, step, _ in runs])
        if self.others:
            for contents, step, _ in runs:
                self._read_states(contents, step)
        written = [self._write_step(contents, step, accepted) for contents, step, accepted in runs]
        for (contents, step, _), values in zip(runs, written, strict=True):
            self._read_target(contents, step, values)
        for (contents, step, accepted), values in zip(runs, written, strict=True):
            if self.others:
                self._write_states(contents, step, accepted, values)
            if self.lookahead:
                self._draft(contents, step)
            if self.unwritten:
                self._note_written(step, contents.done)
            contents.done += step.new - step.drafts + accepted
        if self.drafter.layers:
            self._run_drafter(runs)

    def _run_drafter(self, runs: list[tuple[Contents, Step, int]]) -> None:
        """All of the batch is written before anything is read."""
        for back in (True, False):
            for contents, step, accepted in runs:
                good = step.new - step.drafts + accepted
                contents.done -= good
                if back:
                    self.drafter.written(contents, step, contents.done + good)
                elif not (contents.tainted or contents.misdrafted):
                    self.drafter.read(contents, step, self._misdrafted)
                contents.done += good

    # ------------------------------------------------------------------------------------------ parts

    def _wrong(
        self, contents: Contents, step: Step, group: int, law: str, what: str, text: str, column: int = -1
    ) -> None:
        if self.unwritten.keys() & set(step.rows[group]):
            contents.tags = contents.tags | DROPPED
        if self.lacking.intersection(step.rows[group]):
            contents.tags = contents.tags | DIVERGED
        if self.early.intersection(step.rows[group]):
            contents.tags = contents.tags | EARLY
        if what == "state" and self.moved.intersection(step.rows[group]):
            contents.tags = contents.tags | MOVED
        if self.raced.intersection(step.rows[group]):
            contents.tags = contents.tags | RACED
        if what == "state" and self.passed.intersection(step.rows[group]):
            contents.tags = contents.tags | PASSED
        if what == "state" and self.setting.num_prefill_lookahead_tokens > 1:
            contents.tags = contents.tags | AGAIN
        if what == "state" and self.setting.choices.tail != "resume" and contents.done % self.sizes[group]:
            contents.tags = contents.tags | TAIL
        super()._wrong(contents, step, group, law, what, text, column)

    def _misdrafted(self, contents: Contents, step: Step, group: int, position: int) -> None:
        contents.misdrafted = True
        row, size = step.rows[group], self.sizes[group]
        block = row[position // size] if position // size < len(row) else 0
        if block in self.unwritten:
            contents.tags |= DROPPED
        elif (block, position) in self.drafter.stale:
            contents.tags |= DISCARDED
        elif group in self.drafter.short:
            contents.tags |= SHORT
        elif self.setting.use_eagle:
            contents.tags |= COPY
        text = f"the drafter reads position {position} (block {block}) that was not computed from the tokens behind it"
        self.report(Violation(step.index, group, "M12", DRAFTER, text), contents)

    def _take_over(self, contents: Contents, hit: int, rows: Rows) -> None:
        """Where the state after the hit lies."""
        for group, kind in self.others:
            if isinstance(kind, Mamba):
                row, column = rows[group], (hit - 1) // self.sizes[group]
                contents.states[group] = row[column] if column < len(row) else 0

    def _note_early(self, copies: list[tuple[int, int]], runs: list[tuple[int, Step]]) -> None:
        """Which copies took a block that this step writes where it was to be read."""
        written: set[int] = set()
        for start, step in runs:
            for group, row in enumerate(step.rows):
                size = self.sizes[group]
                written.update(row[(start - step.external) // size : -(-(start + step.new) // size)])
        self.early.update(target for source, target in copies if source in written)

    def _run_copies(self, until: Batch) -> list[tuple[int, int]]:
        """The copies up to those of a step; returns the step's own."""
        own: list[tuple[int, int]] = []
        while self.copying:
            batch, copies = self.copying.popleft()
            own += copies if batch is until else ()
            for source, target in copies:
                self.early.discard(target)
                self.lacking.discard(target)
                if source in self.lacking:
                    self.lacking.add(target)
                owner = self.owner.get(source)
                if owner is not None:
                    self._page(target, owner)[:] = self.pages[owner][source]
                    self.drafter.copied(source, target, owner)
                if source in self.unwritten:
                    self.unwritten[target] = self.unwritten[source]
            if batch is until and not (self.copying and self.copying[0][0] is until):
                break
        return own

    def _write_step(self, contents: Contents, step: Step, accepted: int) -> list[int]:
        """The target writes its positions: what is true, and guesses for the drafts that were rejected."""
        start = contents.done
        good = step.new - step.drafts + accepted
        written = contents.truth[start : start + good]
        for _ in range(step.drafts - accepted):
            written.append(self.guesses)
            self.guesses -= 1
        if not contents.tainted:
            self._write(contents, step, self.positional, start, written, "target")
        return written

    def _note_written(self, step: Step, start: int) -> None:
        for group, row in enumerate(step.rows):
            size = self.sizes[group]
            for block in row[start // size : -(-(start + step.new) // size)]:
                if self.unwritten.get(block, step.index) < step.index:
                    del self.unwritten[block]

    def _write_mamba(
        self, contents: Contents, step: Step, group: int, kind: Mamba, accepted: int, written: list[int]
    ) -> None:
        start, size, row = contents.done, self.sizes[group], step.rows[group]
        block = contents.states.get(group, 0)
        if block and block in row and start < (row.index(block) + 1) * size < start + step.new - step.drafts:
            self.passed.add(block)
        super()._write_mamba(contents, step, group, kind, accepted, written)
        self.moved.difference_update(row[-(-(start + step.new) // size) - 1 :])
        self.passed.discard(contents.states.get(group, 0))
        if self.setting.num_speculative_tokens:
            self._settle_border(contents, step, group, accepted, written)
        if not kind.checkpoint_blocks or kind.checkpoint_alignment is None or step.new - step.drafts < 2:
            return
        position, column = self._exported(start, start + step.new, size, kind.checkpoint_alignment)
        if position and column < len(row) and row[column]:
            self._page(row[column], group)[0] = written[position - start - 1]
            self.moved.update({row[column]}.intersection(row[column + 1 :]))

    def _settle_border(self, contents: Contents, step: Step, group: int, accepted: int, written: list[int]) -> None:
        """With drafts the worker copies the accepted state of a border that was passed to the border's own column."""
        size, row = self.sizes[group], step.rows[group]
        running = contents.done + step.new - step.drafts
        border = (running + accepted) // size * size
        column = border // size - 1
        if border < running or column >= len(row) or not row[column]:
            return
        self._page(row[column], group)[0] = written[border - contents.done - 1]
        if column == -(-(contents.done + step.new) // size) - 1:
            contents.states[group] = row[column]

    def _exported(self, start: int, end: int, size: int, alignment: int) -> tuple[int, int]:
        """Position and column of the state that a backend also saves in a chunk of a prefill; position 0: none.

        From the backend's side: the last position that a later request can resume from, where the chunk's kernel can
        cut, in a column of its own between the start state's and the running state's.
        """
        setting = self.setting
        unit = setting.hit_unit
        if setting.use_eagle:
            position = end // unit * unit - unit
        else:
            position = (end - max(1, setting.num_hash_lookahead_tokens)) // unit * unit
        column = -(-end // size) - 2
        cut = start % setting.hash_size == 0 and (position - start) % alignment == 0
        apart = column > (start - 1) // size and start + setting.hash_size <= position < end
        return (position, column) if cut and apart and position > 0 else (0, 0)

    def _bring(self, contents: Contents, first: int, count: int, rows: Rows) -> None:
        """The connector writes positions first .. first+count-1 to the blocks that the row holds."""
        last = first + count
        for group, kind in enumerate(self.setting.groups):
            size, row = self.sizes[group], rows[group]
            if kind.positional:
                for column in range(first // size, min(len(row), -(-last // size))):
                    if row[column]:
                        begin, end = max(first, column * size), min(last, (column + 1) * size)
                        page = self._page(row[column], group)
                        page[begin - column * size : end - column * size] = contents.truth[begin:end]
            elif isinstance(kind, Mamba):
                column = (last - 1) // size
                if column < len(row) and row[column]:
                    self._page(row[column], group)[0] = contents.truth[last - 1]
                    contents.states[group] = row[column]
        if self.drafter.layers and count > 0:
            self.drafter.loaded(contents, first, count, rows)


def _truth(request: Request) -> list[int]:
    """The node of the prefix that ends with each of the request's tokens."""
    assert request.content is not None
    return request.content.path[1:]
