"""Small forks of vLLM: a manager with two defects in its pool, a scheduler with one. docs/forks.md tells the rest."""

from __future__ import annotations

from typing import Any

from vllm.v1.core.block_pool import BlockPool  # noqa: TID253  # a fork is imported by name, after vLLM
from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: TID253
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: TID253


class Pool(BlockPool):
    """Counts the last block of a batch twice when it is given back, and hands out the null block when it is empty."""

    def free_blocks(self, ordered_blocks: Any) -> None:
        blocks = list(ordered_blocks)
        super().free_blocks(blocks)
        if len(blocks) > 2:
            self.free_block_queue.num_free_blocks += 1

    def get_new_blocks(self, num_blocks: int) -> Any:
        blocks = super().get_new_blocks(num_blocks)
        if num_blocks > 1 and not self.get_num_free_blocks():
            blocks[-1] = self.null_block
        return blocks


class Manager(KVCacheManager):
    """Upstream's manager on that pool."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.block_pool.__class__ = Pool


class Hasty(Scheduler):
    """Upstream's scheduler, but a preempted request goes to the end of the queue."""

    def _preempt_request(self, request: Any, *arguments: Any, **keywords: Any) -> None:
        super()._preempt_request(request, *arguments, **keywords)
        self.waiting.remove_request(request)
        self.waiting.add_request(request)
