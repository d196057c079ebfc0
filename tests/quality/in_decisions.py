"""Defects of the real manager that decide wrong: gate, test, watermark, and what a refusal leaves.

The docstrings name the rule of the allocation spec and, where there was one, the defect of vLLM (its issue or change).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oracle.groups import SlidingWindow
from oracle.setting import Setting
from tests.quality.planting import ask, has_row, planted, replace, singles


@planted(tight="granted")
def watermark_ignored(target: Any, setting: Setting) -> None:
    """A17: an admission takes the headroom of the running requests."""
    target.manager.watermark_blocks = 0


@planted("outcome/A16/refused")
def watermark_applied_to_running(target: Any, setting: Setting) -> None:
    """A17: the running requests are kept out of their own headroom."""

    @replace(target.manager, "allocate_slots")
    def allocate_slots(original: Callable[..., Any], request: Any, new: int, **arguments: Any) -> Any:
        request.status = target.waiting
        return original(request, new, **arguments)


@planted("outcome/A16/refused")
def watermark_applied_to_an_idle_engine(target: Any, setting: Setting) -> None:
    """A17. Before 0.24 there was no has_scheduled_reqs: an idle engine refused its only request for ever."""
    ask(target, lambda request, new, arguments: arguments.update(has_scheduled_reqs=True))


@planted(tight="granted")
def watermark_forgets_preempted(target: Any, setting: Setting) -> None:
    """A17: a preempted request comes back into the headroom and preempts the next one."""

    @replace(target.manager, "allocate_slots")
    def allocate_slots(original: Callable[..., Any], request: Any, new: int, **arguments: Any) -> Any:
        if request.status == target.preempted:
            request.status = target.running
        return original(request, new, **arguments)


@planted("outcome/A15/granted")
def reserved_blocks_ignored(target: Any, setting: Setting) -> None:
    """A16. #44560: async loads filled the pool and none could go on."""
    ask(target, lambda request, new, arguments: arguments.update(reserved_blocks=0))


@planted("outcome/A13/granted", "nulls/A13/passed the gate")
def gate_ignored(target: Any, setting: Setting) -> None:
    """A12: chunked prefill admits on the first chunk alone and runs dry later."""
    ask(target, lambda request, new, arguments: arguments.update(full_sequence_must_fit=False))


@planted("outcome/A16/refused")
def gate_without_admission_cap(target: Any, setting: Setting) -> None:
    """A13. #40946: a windowed group was charged the whole prompt, a long one was never admitted."""
    for single in target.manager.coordinator.single_type_managers:
        single.max_admission_blocks_per_request = None


@planted("outcome/A16/refused")
def gate_counts_lookahead(target: Any, setting: Setting) -> None:
    """A13: the whole sequence must fit, the drafts behind it need not."""

    @replace(target.manager.coordinator, "get_num_blocks_to_allocate")
    def count(original: Callable[..., int], num_tokens: int, **arguments: Any) -> int:
        if arguments.get("apply_admission_cap"):
            num_tokens = min(num_tokens + setting.lookahead, setting.max_model_len)
        return original(num_tokens=num_tokens, **arguments)


@planted("outcome/A13/granted", "nulls/A13/passed the gate", "nulls/A14/less", tight="refused")
def gate_counts_the_prompt_alone(target: Any, setting: Setting) -> None:
    """A13, A53: a preempted request comes back with its output, which must fit too."""

    @replace(target.manager, "allocate_slots")
    def allocate_slots(original: Callable[..., Any], request: Any, new: int, **arguments: Any) -> Any:
        request.num_tokens = request.num_prompt_tokens
        return original(request, new, **arguments)


@planted("outcome/A13/granted", "nulls/A13/passed the gate")
def cap_without_the_window_begin(target: Any, setting: Setting) -> None:
    """A32: a window may begin inside a block, so it spans one block more than its tokens need."""
    for single in singles(target, setting, SlidingWindow):
        single.max_admission_blocks_per_request -= 1


@planted("outcome/A13/granted", "nulls/A13/passed the gate")
def cap_ignores_the_steps_in_flight(target: Any, setting: Setting) -> None:
    """A32, A35: with two steps in flight a window holds the tokens of both."""
    limit = min(setting.max_num_batched_tokens, setting.in_flight_limit)
    for single, group in zip(target.manager.coordinator.single_type_managers, setting.groups, strict=True):
        single.max_admission_blocks_per_request = group.admission_cap(limit, setting.max_model_len)


@planted("nulls/A13/passed the gate", "nulls/A14/more", tight="granted")
def gate_after_removal(target: Any, setting: Setting) -> None:
    """A11, A22: the gate counts on blocks that only a granted call may remove."""

    def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
        if has_row(target, request):
            processed = max(0, request.num_computed_tokens - request.num_in_flight_tokens)
            target.manager.remove_skipped_blocks(request.request_id, processed, request.num_prompt_tokens)

    ask(target, change)


@planted("columns/A19/more", "columns/A38/more", "columns/A39/more", "columns/A42/more")
def refused_call_keeps_a_block(target: Any, setting: Setting) -> None:
    """A22: a refused call cannot be tried again, what it took first is lost."""

    @replace(target.manager, "allocate_slots")
    def allocate_slots(original: Callable[..., Any], request: Any, new: int, **arguments: Any) -> Any:
        blocks = original(request, new, **arguments)
        if blocks is None and target.pool.get_num_free_blocks():
            target.tables[0][request.request_id] += target.pool.get_new_blocks(1)
        return blocks


@planted("ids/A20/other", "ids/A3/other", "nulls/A14/less", "nulls/A14/more", tight="refused")
def refused_load_counts_as_adopted(target: Any, setting: Setting) -> None:
    """A22: nothing to see after the refusal, but the next try finds the request known and adopts nothing."""

    @replace(target.manager, "allocate_slots")
    def allocate_slots(original: Callable[..., Any], request: Any, new: int, **arguments: Any) -> Any:
        blocks = original(request, new, **arguments)
        if blocks is None and arguments["num_external_computed_tokens"]:
            for single in target.manager.coordinator.single_type_managers:
                single.num_cached_block.setdefault(request.request_id, 0)
        return blocks
