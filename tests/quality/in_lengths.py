"""Defects of the real manager that change how long a row is.

The docstrings name the rule of the allocation spec and, where there was one, the defect of vLLM (its issue or change).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oracle.groups import CircularBuffer, Group
from oracle.methods import K_MORE_1, method
from oracle.setting import Setting
from tests.quality.planting import ask, has_row, planted, replace, singles

# ------------------------------------------------------------------------------------------------ slots needed


@planted("columns/A19/less", tight="granted")
def lookahead_lost_on_first_calls(target: Any, setting: Setting) -> None:
    """A23. #42971: the first prefill of a DFlash producer had no lookahead."""

    def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
        if not has_row(target, request):
            arguments["num_lookahead_tokens"] = 0

    ask(target, change)


@planted("columns/A19/less", tight="granted")
def lookahead_one_short(target: Any, setting: Setting) -> None:
    """A23. #48909: K slots for drafters that write K + 1 positions."""
    extra = int(method(setting.method, setting.parallel_drafting).reserved == K_MORE_1)

    def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
        arguments["num_lookahead_tokens"] = max(0, arguments["num_lookahead_tokens"] - extra)

    ask(target, change)


@planted("columns/A19/less", tight="granted")
def lookahead_from_the_confirmed_position(target: Any, setting: Setting) -> None:
    """A23. #46694: tokens in flight were taken out of the lookahead, drafts had no slot behind them."""

    def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
        lookahead = arguments["num_lookahead_tokens"]
        arguments["num_lookahead_tokens"] = max(0, lookahead - request.num_in_flight_tokens)

    ask(target, change)


@planted("columns/A19/more", tight="refused")
def slots_beyond_max_model_len(target: Any, setting: Setting) -> None:
    """A23. #10730: lookahead was not clipped at max_model_len."""
    target.manager.max_model_len = 1 << 20


@planted("columns/A19/more", tight="refused")
def lookahead_added_to_async_loads(target: Any, setting: Setting) -> None:
    """A50. #22317: the side that loads had a block more than the side that computed."""

    def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
        if new == 0:
            arguments["num_lookahead_tokens"] = setting.lookahead

    ask(target, change)


# --------------------------------------------------------------------------------- cross-attention, rings, DCP


@planted("columns/A39/more", "columns/A39/less", "outcome/A16/refused", tight="granted")
def cross_attention_sized_by_decoder_tokens(target: Any, setting: Setting) -> None:
    """A39. #47308: rows of cross-attention grew with the decoder."""
    if setting.max_encoder_len:

        def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
            arguments["num_encoder_tokens"] = request.num_computed_tokens + new

        ask(target, change)


@planted("columns/A39/more", tight="refused")
def cross_attention_sized_by_the_budget(target: Any, setting: Setting) -> None:
    """A39. #31058: the encoder's limit was charged, not the length of the item."""

    def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
        if arguments["num_encoder_tokens"]:
            arguments["num_encoder_tokens"] = setting.max_encoder_len

    ask(target, change)


@planted("columns/A38/more", "outcome/A16/error:ValueError")
def ring_takes_a_block_each_call(target: Any, setting: Setting) -> None:
    """A38: a ring is one block for the life of a request."""
    for single in singles(target, setting, CircularBuffer):

        @replace(single, "allocate_new_blocks")
        def allocate(original: Callable[..., Any], request_id: str, *numbers: int, single: Any = single) -> Any:
            blocks = original(request_id, *numbers)
            if not blocks and target.pool.get_num_free_blocks():
                blocks = target.pool.get_new_blocks(1)
                single.req_to_blocks[request_id] += blocks
            return blocks


@planted("columns/A19/more", "columns/A39/more", tight="refused")
def dcp_factor_ignored_by_the_first_group(target: Any, setting: Setting) -> None:
    """A62. #26296: a sharded group covers a position on one rank only."""
    single = target.manager.coordinator.single_type_managers[0]
    single.block_size = single.kv_cache_spec.block_size


@planted("columns/A19/less", "columns/A39/less", "columns/A42/less", tight="granted")
def dcp_factor_applied_to_replicated_groups(target: Any, setting: Setting) -> None:
    """A62. Until 0.31: one scale for all groups, also for those that every rank keeps whole."""
    for single in singles(target, setting, Group, dcp_sharded=False):
        single.block_size *= setting.dcp_size
