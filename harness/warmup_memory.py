"""The memory model beside a warmup: what the kernels write and read through the rows that the warmup handed out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import evolve

from oracle.call import Rows
from oracle.ledger import Batch, Request, Settled, Step
from oracle.memory import Contents, Memory
from oracle.violation import Violation
from oracle.warmup import Recorded, WarmupSetting, call_of

if TYPE_CHECKING:
    from oracle.setting import Setting


class WarmupMemory:
    """One pass of a warmup. Every step settles at once with all drafts accepted, as the warmup's next step assumes."""

    def __init__(self, setting: WarmupSetting, run: list[Recorded], report: Callable[[Violation], None]) -> None:
        ids = [block for step in run for blocks in step.blocks for row in blocks or () for block in row]
        pool: Setting = evolve(setting, num_blocks=max(2, *ids, setting.num_blocks - 1) + 1) if ids else setting
        self.setting = setting
        self.report = report
        self.memory = Memory(pool, self._told)
        self.requests: dict[int, Request] = {}
        self.index = 0
        self.over = False

    def _told(self, violation: Violation, contents: Contents) -> None:
        self.report(violation)

    def step(self, step: Recorded, rows: dict[int, Rows]) -> None:
        """Run one step. Positions past max_model_len have no place here: a law of their own tells them."""
        self.over = self.over or any(part.end > self.setting.max_model_len for part in step.parts)
        if self.over or not step.parts:
            return
        batch = Batch([])
        for part in step.parts:
            request = self.requests.setdefault(part.request, Request(part.request, part.prompt, part.prompt))
            request.calls += 1
            work = Step(request, part.new, part.drafts, True, self.index, rows=rows[part.request])
            self.memory.scheduled(call_of(self.setting, part), request, work, rows[part.request])
            batch.steps.append(work)
        self.memory.settled(Settled(batch, [part.drafts for part in step.parts]))
        self.index += 1
