"""Defects of the real manager about who holds a block: giving back, taking, the zero list.

The docstrings name the rule of the allocation spec and, where there was one, the defect of vLLM (its issue or change).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oracle.call import Observation
from oracle.setting import Setting
from tests.quality.planting import ask, has_row, planted, replace

# ------------------------------------------------------------------------------------------------ giving back


@planted("outcome/A16/error:AssertionError")
def first_block_freed_twice(target: Any, setting: Setting) -> None:
    """A2. #42571: a block was released twice, its reference count went below zero."""

    @replace(target.pool, "free_blocks")
    def free_blocks(original: Callable[..., None], blocks: Any) -> None:
        blocks = list(blocks)
        original(blocks + blocks[-1:])


@planted("free/A2/less")
def release_leaks_the_first_column(target: Any, setting: Setting) -> None:
    """A2, A7: the last block of a batch stays out of the queue."""

    @replace(target.manager.coordinator, "free")
    def free(original: Callable[..., None], request_id: str) -> None:
        for table in target.tables[-1:]:
            for block in table.get(request_id, ())[:1]:
                block.ref_cnt += 1
        original(request_id)


@planted("order/A5/other")
def release_head_first(target: Any, setting: Setting) -> None:
    """A5: the first columns come to the front, so the next request takes the head first."""
    for single in target.manager.coordinator.single_type_managers:

        @replace(single, "free")
        def free(original: Callable[..., None], request_id: str, single: Any = single) -> None:
            target.pool.free_blocks(single.pop_blocks_for_free(request_id))


@planted("order/A5/other")
def groups_released_in_reverse(target: Any, setting: Setting) -> None:
    """A6: the first group's tail ends in front instead of the last one's."""

    @replace(target.manager.coordinator, "free")
    def free(original: Callable[..., None], request_id: str) -> None:
        for single in reversed(target.manager.coordinator.single_type_managers):
            single.free(request_id)


@planted("order/A5/other", "ids/A3/other")
def freed_blocks_queue_at_the_end(target: Any, setting: Setting) -> None:
    """A4. #42656: blocks without a hash went to the tail of the queue."""
    target.queue.prepend_n = target.queue.append_n


@planted("order/A5/other")
def deferred_blocks_given_back_unreversed(target: Any, setting: Setting) -> None:
    """A8: a deferred release leads to another order than a direct one."""

    @replace(target, "give_back")
    def give_back(original: Callable[[], Observation]) -> Observation:
        if target.popped:
            target.popped[0].reverse()
        return original()


@planted("free/A2/more")
def deferred_release_frees_at_once(target: Any, setting: Setting) -> None:
    """A8. #45357: blocks of an aborted request were reused while a step in flight still wrote them."""

    @replace(target.manager, "pop_blocks_for_free")
    def pop(original: Callable[..., Any], request: Any) -> Any:
        blocks = original(request)
        target.pool.free_blocks(reversed(blocks))
        for block in blocks:
            block.ref_cnt += not block.is_null
        return blocks


@planted("ids/A20/other", "ids/A3/other", "nulls/A14/less", "nulls/A14/more", tight="refused")
def release_remembers_adoption(target: Any, setting: Setting) -> None:
    """A7: the next call of the request is a first one, but the manager still knows its row."""

    @replace(target.manager.coordinator, "free")
    def free(original: Callable[..., None], request_id: str) -> None:
        known = [single.num_cached_block.get(request_id) for single in target.manager.coordinator.single_type_managers]
        original(request_id)
        for single, cached in zip(target.manager.coordinator.single_type_managers, known, strict=True):
            if cached is not None:
                single.num_cached_block[request_id] = cached


@planted("free/A2/less")
def failed_load_leaks(target: Any, setting: Setting) -> None:
    """A7, A50: the first block of a load that failed never comes back."""
    loading: set[str] = set()

    @replace(target.manager, "allocate_slots")
    def allocate_slots(original: Callable[..., Any], request: Any, new: int, **arguments: Any) -> Any:
        blocks = original(request, new, **arguments)
        if blocks is not None:
            (loading.add if new == 0 else loading.discard)(request.request_id)
        return blocks

    @replace(target.manager.coordinator, "free")
    def free(original: Callable[..., None], request_id: str) -> None:
        for table in target.tables if request_id in loading else ():
            for block in table.get(request_id, ())[:1]:
                block.ref_cnt += 1
        original(request_id)


# ------------------------------------------------------------------------------------------------------ taking


@planted("ids/A3/other")
def one_id_in_two_groups(target: Any, setting: Setting) -> None:
    """A2: a later group gets the block that the first group has just taken."""
    first, *others = target.manager.coordinator.single_type_managers
    for single in others:

        @replace(single, "allocate_new_blocks")
        def allocate(original: Callable[..., Any], request_id: str, *numbers: int, single: Any = single) -> Any:
            blocks = original(request_id, *numbers)
            theirs = first.req_to_blocks[request_id]
            if blocks and theirs and not theirs[-1].is_null:
                blocks[-1] = single.req_to_blocks[request_id][-1] = theirs[-1]
            return blocks


@planted("nulls/A14/more")
def null_block_handed_out(target: Any, setting: Setting) -> None:
    """A1: the null block stands in a column that somebody will write."""

    @replace(target.pool, "get_new_blocks")
    def get(original: Callable[..., Any], count: int) -> Any:
        blocks = original(count)
        if count > 1:
            blocks[-1] = target.pool.null_block
        return blocks


@planted("ids/A20/other")
def adopted_blocks_in_the_result(target: Any, setting: Setting) -> None:
    """A20: what a load brings is not among the entries that extension added."""

    @replace(target.manager, "allocate_slots")
    def allocate_slots(original: Callable[..., Any], request: Any, new: int, **arguments: Any) -> Any:
        first = not has_row(target, request)
        blocks = original(request, new, **arguments)
        if blocks is None or not first:
            return blocks
        return type(blocks)(tuple(table.get(request.request_id, []) for table in target.tables))


# ---------------------------------------------------------------------------------------------------- zero list


@planted("zeroing/A60/other")
def zero_list_forgets_the_last_group(target: Any, setting: Setting) -> None:
    """A60. #51749: recording was switched on by kind, windowed groups kept stale values."""
    target.manager.coordinator.single_type_managers[-1]._record_new_block_ids = False


@planted("zeroing/A60/other")
def adopted_blocks_listed_for_zeroing(target: Any, setting: Setting) -> None:
    """A60. Until 0.32 zeroing was skipped by range: blocks that an async load writes were zeroed meanwhile."""
    ask(target, lambda request, new, arguments: arguments.pop("skip_zeroing_group_ids", None))


@planted("zeroing/A60/other")
def zero_list_never_cleared(target: Any, setting: Setting) -> None:
    """A60. #44490: the list grew when nobody drained it."""
    for single in target.manager.coordinator.single_type_managers:

        @replace(single, "take_new_block_ids")
        def take(original: Callable[[], list[int]], single: Any = single) -> list[int]:
            return list(single.new_block_ids)
