"""Defects of the real manager that change what stands in a row: windows, gaps, states.

The docstrings name the rule of the allocation spec and, where there was one, the defect of vLLM (its issue or change).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oracle.groups import RSWA, ChunkedLocal, Mamba, SlidingWindow
from oracle.setting import Setting
from tests.quality.planting import planted, replace, singles

# ----------------------------------------------------------------------------------------------------- windows


@planted("nulls/A14/more", tight="granted")
def removal_on_the_computed_basis(target: Any, setting: Setting) -> None:
    """A14. Until 0.24 blocks that a step in flight still reads were recycled."""

    @replace(target.manager, "allocate_slots")
    def allocate_slots(original: Callable[..., Any], request: Any, new: int, **arguments: Any) -> Any:
        request.num_in_flight_tokens = 0
        return original(request, new, **arguments)


@planted("nulls/A14/more", tight="granted")
def window_removed_one_column_early(target: Any, setting: Setting) -> None:
    """A14, A31: the column that holds the first position of the window goes too."""
    for single in singles(target, setting, SlidingWindow):

        @replace(single, "_remove_blocks_in_range")
        def remove(original: Callable[..., Any], request_id: str, first: int, last: int) -> None:
            original(request_id, first, last + 1)


@planted("nulls/A14/more", "ids/A3/other", "ids/A20/other", tight="granted")
def window_one_token_narrow(target: Any, setting: Setting) -> None:
    """A31: a token at q reads q-W+1 .. q, but q-W+2 .. q are kept."""
    for single in singles(target, setting, SlidingWindow):
        single.sliding_window -= 1


@planted("nulls/A14/more", "ids/A3/other", "ids/A20/other", tight="granted")
def retained_tokens_dropped(target: Any, setting: Setting) -> None:
    """A31. #50062: the window of a drafter that runs its prefill again was freed too early."""
    for single in singles(target, setting, SlidingWindow):
        single.extra_retained_tokens = 0


@planted("nulls/A14/more", "columns/A19/more", tight="granted")
def chunk_border_one_token_early(target: Any, setting: Setting) -> None:
    """A34: the last token of a chunk is taken for the first of the next one."""
    for single in singles(target, setting, ChunkedLocal):

        @replace(single, "get_num_skipped_tokens")
        def skipped(original: Callable[[int], int], tokens: int) -> int:
            return original(tokens + 1)


@planted("nulls/A14/more", tight="granted")
def gap_one_token_early(target: Any, setting: Setting) -> None:
    """A36: one generated token less is kept than the gap rule says."""
    for single in singles(target, setting, RSWA):
        single.rswa_window -= 1


@planted("nulls/A14/less", tight="refused")
def gap_one_token_late(target: Any, setting: Setting) -> None:
    """A36: one generated token more is kept than the gap rule says."""
    for single in singles(target, setting, RSWA):
        single.rswa_window += 1


@planted("nulls/A14/less", tight="refused")
def gap_freed_only_once(target: Any, setting: Setting) -> None:
    """A36. #46564: a progress marker was not advanced, blocks of the gap piled up."""
    for single in singles(target, setting, RSWA):
        done: set[str] = set()

        @replace(single, "_remove_blocks_in_range")
        def remove(original: Callable[..., Any], request_id: str, first: int, last: int, done: set[str] = done) -> None:
            if request_id not in done:
                original(request_id, first, last)
            if first < last:
                done.add(request_id)


@planted("nulls/A14/less")
def trim_forgets_the_prompt(target: Any, setting: Setting) -> None:
    """A14, A36: removal without an allocation leaves the gap alone."""

    @replace(target.manager, "remove_skipped_blocks")
    def remove(original: Callable[..., None], request_id: str, processed: int, prompt: int) -> None:
        original(request_id, processed)


@planted("nulls/A14/less", tight="refused")
def second_window_never_removed(target: Any, setting: Setting) -> None:
    """A6, A14: removal goes through all groups, not to the first window alone."""
    for single in [*singles(target, setting, SlidingWindow)][1:]:
        single._remove_blocks_in_range = lambda request_id, first, last: None


@planted("order/A5/other", "ids/A3/other")
def removal_lowest_column_first(target: Any, setting: Setting) -> None:
    """A5: the lowest of the dead columns comes to the front of the queue."""
    for single in singles(target, setting, SlidingWindow):
        single.block_pool = _Upwards(target.pool)


class _Upwards:
    """A pool that is given its batches back to front."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def free_blocks(self, blocks: Any) -> None:
        """A removal's batch is a list, a release's is not."""
        self._pool.free_blocks(blocks[::-1] if isinstance(blocks, list) else blocks)


@planted("free/A2/less", tight="refused")
def removed_blocks_leak(target: Any, setting: Setting) -> None:
    """A2, A14: a block that left the window is null in the row but never free again."""
    for single in singles(target, setting, SlidingWindow):

        @replace(single, "_remove_blocks_in_range")
        def remove(original: Callable[..., Any], request_id: str, first: int, last: int, single: Any = single) -> None:
            row = single.req_to_blocks[request_id]
            if first < last and row and not row[first].is_null:
                row[first].ref_cnt += 1
            original(request_id, first, last)


# ------------------------------------------------------------------------------------------------------- Mamba


@planted("columns/A42/more", tight="refused")
def align_counts_lookahead(target: Any, setting: Setting) -> None:
    """A42: drafters have no Mamba layer; lookahead breaks the alignment of the states."""
    for single in singles(target, setting, Mamba, mode="align"):

        @replace(single, "get_num_blocks_to_allocate")
        def count(original: Callable[..., int], request_id: str, num_tokens: int, *rest: Any, **more: Any) -> int:
            *others, _ = rest
            return original(request_id, num_tokens, *others, num_tokens, **more)

        @replace(single, "allocate_new_blocks")
        def allocate(original: Callable[..., Any], request_id: str, num_tokens: int, main: int) -> Any:
            return original(request_id, num_tokens, num_tokens)


@planted("columns/A42/less", tight="granted")
def align_without_speculative_blocks(target: Any, setting: Setting) -> None:
    """A42. vllm-ascend #11466: a Mamba row had no room for the states of the drafts."""
    for single in singles(target, setting, Mamba, mode="align"):
        single.num_speculative_blocks = 0


@planted("columns/A19/less", tight="granted")
def all_mode_without_speculative_blocks(target: Any, setting: Setting) -> None:
    """A41. #41233: mode all did not own the slots of the drafts."""
    for single in singles(target, setting, Mamba, mode="all"):
        single.num_speculative_blocks = 0


@planted("nulls/A14/more", "ids/A3/other", "ids/A20/other", tight="granted")
def last_state_removed(target: Any, setting: Setting) -> None:
    """A41: the state behind the last computed token is what the next step starts from."""
    for single in singles(target, setting, Mamba, mode="all"):

        @replace(single, "get_num_skipped_tokens")
        def skipped(original: Callable[[int], int], tokens: int) -> int:
            return original(tokens + 1)


@planted("nulls/A14/less", "outcome/A16/error:ValueError")
def align_scratch_taken_anew(target: Any, setting: Setting) -> None:
    """A45: scratch states that a step leaves behind move along, they are not taken again."""
    for single in singles(target, setting, Mamba, mode="align"):

        @replace(single, "_relocate_speculative_block")
        def relocate(original: Callable[..., None], row: list[Any], column: int) -> None:
            row += target.pool.get_new_blocks(1)


@planted("nulls/A14/less", "ids/A3/other", "order/A5/other", tight="refused")
def align_removal_stops_at_a_null(target: Any, setting: Setting) -> None:
    """A43: removal went down to the first null only, states between nulls were held to the end."""
    for single in singles(target, setting, Mamba, mode="align"):
        single._remove_blocks_in_range = super(type(single), single)._remove_blocks_in_range


@planted(
    *(f"outcome/{rule}/error:{error}" for rule in ("A16", "A15", "A13") for error in ("IndexError", "AssertionError")),
    "nulls/A14/more",
    tight="granted",
)
def align_scratch_remembered_after_release(target: Any, setting: Setting) -> None:
    """A45: the new row of a preempted request has no scratch yet, but is counted as if it had."""
    for single in singles(target, setting, Mamba, mode="align"):

        @replace(single, "pop_blocks_for_free")
        def pop(original: Callable[..., Any], request_id: str, single: Any = single) -> Any:
            known = request_id in single._allocated_block_reqs
            blocks = original(request_id)
            if known:
                single._allocated_block_reqs.add(request_id)
            return blocks


@planted(*(f"outcome/{rule}/error:IndexError" for rule in ("A13", "A15", "A16")), "nulls/A14/more", tight="granted")
def states_of_two_requests_mixed(target: Any, setting: Setting) -> None:
    """A43: the column of the state before is remembered for the last request alone."""

    class Last(dict[str, int]):
        def __setitem__(self, key: str, column: int) -> None:
            super().__setitem__("", column)

        def get(self, key: str, default: Any = None) -> Any:
            return super().get("", default)

        def pop(self, key: str, default: Any = None) -> Any:
            return super().pop("", default)

    for single in singles(target, setting, Mamba, mode="align"):
        single.last_state_block_idx = Last()


@planted("nulls/A14/more", tight="granted")
def checkpoint_skipped(target: Any, setting: Setting) -> None:
    """A44. #53614: a chunk's inner state had no block of its own."""
    for single in singles(target, setting, Mamba, mode="align"):
        single.has_prefill_checkpoint_blocks = False
