"""The planted defects: each breaks one rule that a release of vLLM has broken, or could.

Two sorts, in one table. `@planted` ones sit in the real manager: a function patches methods or numbers of one manager,
of its pool or of the manager of one group, never of a class, so that tests in one process do not disturb each other.
`@edited` ones are the oracle with one rule changed; they need no vLLM. F-, O- and R- numbers are those of
known-defects.md, A numbers the rules of the allocation spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from attrs import evolve, frozen

from oracle.align import AlignRows
from oracle.allocator import Allocator
from oracle.groups import RSWA, ChunkedLocal, CircularBuffer, Group, Mamba, SlidingWindow, ceil_div
from oracle.pool import Pool
from oracle.reservation import Positional, RingRows, RSWARows, Work
from oracle.setting import Setting
from oracle.speculation import method
from oracle.trace import Call, Observation, Target

MakeTarget = Callable[[Setting], Target]


#: what a tight pool makes of a count that is too small (the target goes on) or too large (it gives up)
TIGHT = {
    "": (),
    "granted": ("outcome/A13/granted", "outcome/A15/granted", "outcome/A15/error:ValueError"),
    "refused": ("outcome/A16/refused",),
}


@frozen
class Defect:
    """One planted defect. `shows`: the differences that it may make, as "aspect/rule/sign", the usual one first."""

    name: str
    make: MakeTarget
    shows: tuple[str, ...]
    real: bool

    def __str__(self) -> str:
        return self.name


DEFECTS: dict[str, Defect] = {}


def planted(*shows: str, tight: str = "") -> Callable[[Callable[[Any, Setting], None]], Callable[[Any, Setting], None]]:
    """Add a defect of the real manager: the function changes a manager that was just built."""

    def add(change: Callable[[Any, Setting], None]) -> Callable[[Any, Setting], None]:
        def make(setting: Setting) -> Target:
            from harness.targets.manager import Manager

            target = Manager(setting)
            change(target, setting)
            return target

        DEFECTS[change.__name__] = Defect(change.__name__, make, shows + TIGHT[tight], real=True)
        return change

    return add


def edited(*shows: str, tight: str = "") -> Callable[[type[Any]], type[Any]]:
    """Add an edit of the oracle: a subclass of its allocator, or of the rules of a family of kinds."""

    def add(edit: type[Any]) -> type[Any]:
        family = edit.__bases__[0]

        def make(setting: Setting) -> Target:
            if issubclass(edit, Allocator):
                return edit(setting)
            target = Allocator(setting)
            target.rules = [edit(rule.group, setting) if type(rule) is family else rule for rule in target.rules]
            return target

        DEFECTS[edit.__name__] = Defect(edit.__name__, make, shows + TIGHT[tight], real=False)
        return edit

    return add


def replace(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace a method of one object; the replacement gets the original as its first argument."""

    def install(replacement: Callable[..., Any]) -> None:
        setattr(owner, name, partial(replacement, getattr(owner, name)))

    return install


def ask(target: Any, change: Callable[[Any, int, dict[str, Any]], None]) -> None:
    """Change the arguments of each `allocate_slots` before the manager sees them."""

    @replace(target.manager, "allocate_slots")
    def allocate_slots(original: Callable[..., Any], request: Any, new: int, **arguments: Any) -> Any:
        change(request, new, arguments)
        return original(request, new, **arguments)


def singles(target: Any, setting: Setting, kind: type[Group], **fields: Any) -> Iterator[Any]:
    """The real managers of the groups of a kind (with these field values), in configuration order."""
    for single, group in zip(target.manager.coordinator.single_type_managers, setting.groups, strict=True):
        if isinstance(group, kind) and all(getattr(group, name) == value for name, value in fields.items()):
            yield single


def has_row(target: Any, request: Any) -> bool:
    """Whether the real manager has a row for a request."""
    return any(table.get(request.request_id) for table in target.tables)


# ------------------------------------------------------------------------------------------------ slots needed


@planted("columns/A19/less", tight="granted")
def lookahead_lost_on_first_calls(target: Any, setting: Setting) -> None:
    """A23. F-47 (#42971): the first prefill of a DFlash producer had no lookahead."""

    def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
        if not has_row(target, request):
            arguments["num_lookahead_tokens"] = 0

    ask(target, change)


@planted("columns/A19/less", tight="granted")
def lookahead_one_short(target: Any, setting: Setting) -> None:
    """A23. F-05 (#48909): K slots for drafters that write K + 1 positions."""
    extra = method(setting.method, setting.parallel_drafting).extra or 0

    def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
        arguments["num_lookahead_tokens"] = max(0, arguments["num_lookahead_tokens"] - extra)

    ask(target, change)


@planted("columns/A19/less", tight="granted")
def lookahead_from_the_confirmed_position(target: Any, setting: Setting) -> None:
    """A23. F-39 (#46694): tokens in flight were taken out of the lookahead, drafts had no slot behind them."""

    def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
        lookahead = arguments["num_lookahead_tokens"]
        arguments["num_lookahead_tokens"] = max(0, lookahead - request.num_in_flight_tokens)

    ask(target, change)


@planted("columns/A19/more", tight="refused")
def slots_beyond_max_model_len(target: Any, setting: Setting) -> None:
    """A23. F-82 (#10730): lookahead was not clipped at max_model_len."""
    target.manager.max_model_len = 1 << 20


@planted("columns/A19/more", tight="refused")
def lookahead_added_to_async_loads(target: Any, setting: Setting) -> None:
    """A50. F-78 (#22317): the side that loads had a block more than the side that computed."""

    def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
        if new == 0:
            arguments["num_lookahead_tokens"] = setting.lookahead

    ask(target, change)


# ----------------------------------------------------------------------------------------------------- windows


@planted("nulls/A14/more", tight="granted")
def removal_on_the_computed_basis(target: Any, setting: Setting) -> None:
    """A14. O-59 (fixed upstream in 0.24): blocks that a step in flight still reads were recycled."""

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
    """A31. F-29 (#50062): the window of a drafter that runs its prefill again was freed too early."""
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
    """A36. F-51 (#46564): a progress marker was not advanced, blocks of the gap piled up."""
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


# ------------------------------------------------------------------------------------------ gate, test, watermark


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
    """A16. F-43 (#44560): async loads filled the pool and none could go on."""
    ask(target, lambda request, new, arguments: arguments.update(reserved_blocks=0))


@planted("outcome/A13/granted", "nulls/A13/passed the gate")
def gate_ignored(target: Any, setting: Setting) -> None:
    """A12: chunked prefill admits on the first chunk alone and runs dry later."""
    ask(target, lambda request, new, arguments: arguments.update(full_sequence_must_fit=False))


@planted("outcome/A16/refused")
def gate_without_admission_cap(target: Any, setting: Setting) -> None:
    """A13. F-56 (#40946): a windowed group was charged the whole prompt, a long one was never admitted."""
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


@planted("outcome/A13/granted", "nulls/A13/passed the gate")
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


# ------------------------------------------------------------------------------------------------ giving back


@planted("outcome/A16/error:AssertionError")
def first_block_freed_twice(target: Any, setting: Setting) -> None:
    """A2. F-60 (#42571): a block was released twice, its reference count went below zero."""

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
    """A4. F-45 (#42656): blocks without a hash went to the tail of the queue."""
    target.queue.prepend_n = target.queue.append_n


@planted("order/A5/other")
def deferred_blocks_given_back_unreversed(target: Any, setting: Setting) -> None:
    """A8: a deferred release leads to another order than a direct one."""

    @replace(target.manager, "pop_blocks_for_free")
    def pop(original: Callable[..., Any], request: Any) -> Any:
        class Unreversed(list[Any]):
            def __reversed__(self) -> Iterator[Any]:
                return iter(self)

        return Unreversed(original(request))

    target.popped = _Kept(target.popped)


class _Kept(list[Any]):
    """A list of popped blocks that keeps the lists it is given as they are."""

    def append(self, blocks: Any) -> None:
        super().append(blocks[::-1])


@planted("free/A2/more")
def deferred_release_frees_at_once(target: Any, setting: Setting) -> None:
    """A8. F-41 (#45357): blocks of an aborted request were reused while a step in flight still wrote them."""

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


# --------------------------------------------------------------------------------- cross-attention, rings, DCP


@planted("columns/A39/more", "columns/A39/less", "outcome/A16/refused", tight="granted")
def cross_attention_sized_by_decoder_tokens(target: Any, setting: Setting) -> None:
    """A39. F-38: rows of cross-attention grew with the decoder."""
    if setting.max_encoder_len:

        def change(request: Any, new: int, arguments: dict[str, Any]) -> None:
            arguments["num_encoder_tokens"] = request.num_computed_tokens + new

        ask(target, change)


@planted("columns/A39/more", tight="refused")
def cross_attention_sized_by_the_budget(target: Any, setting: Setting) -> None:
    """A39. F-72 (#31058): the encoder's limit was charged, not the length of the item."""

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
    """A62. F-77: a sharded group covers a position on one rank only."""
    single = target.manager.coordinator.single_type_managers[0]
    single.block_size = single.kv_cache_spec.block_size


@planted("columns/A19/less", "columns/A39/less", "columns/A42/less", tight="granted")
def dcp_factor_applied_to_replicated_groups(target: Any, setting: Setting) -> None:
    """A62. R31-3: one scale for all groups, also for those that every rank keeps whole."""
    for single in singles(target, setting, Group, dcp_sharded=False):
        single.block_size *= setting.dcp_size


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
    """A42. F-66: a Mamba row had no room for the states of the drafts."""
    for single in singles(target, setting, Mamba, mode="align"):
        single.num_speculative_blocks = 0


@planted("columns/A19/less", tight="granted")
def all_mode_without_speculative_blocks(target: Any, setting: Setting) -> None:
    """A41. F-58 (#41233): mode all did not own the slots of the drafts."""
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
    "nulls/A14/more",
    *(f"outcome/{rule}/error:{error}" for rule in ("A15", "A16") for error in ("AssertionError", "IndexError")),
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


@planted("outcome/A15/error:IndexError", "outcome/A16/error:IndexError", "nulls/A14/more", tight="granted")
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
    """A44. F-24 (#53614): a chunk's inner state had no block of its own."""
    for single in singles(target, setting, Mamba, mode="align"):
        single.has_prefill_checkpoint_blocks = False


@edited("nulls/A14/less", tight="refused")
class CheckpointInEveryChunk(AlignRows):
    """A44: with retention interval 0 only the chunk that ends the prompt saves an inner state."""

    def __init__(self, group: Mamba, setting: Setting) -> None:
        super().__init__(group, setting)
        self.only_last = False


@edited("nulls/A14/less", tight="refused")
class CheckpointAnywhere(AlignRows):
    """A44: an inner state is saved at multiples of the group's checkpoint alignment only."""

    def __init__(self, group: Mamba, setting: Setting) -> None:
        super().__init__(group, setting)
        self.alignment = 1


# ---------------------------------------------------------------------------------------------------- zero list


@planted("zeroing/A60/other")
def zero_list_forgets_the_last_group(target: Any, setting: Setting) -> None:
    """A60. F-31 (#51749): recording was switched on by kind, windowed groups kept stale values."""
    target.manager.coordinator.single_type_managers[-1]._record_new_block_ids = False


@planted("zeroing/A60/other")
def adopted_blocks_listed_for_zeroing(target: Any, setting: Setting) -> None:
    """A60. F-07: the blocks that an async load writes are zeroed meanwhile."""
    ask(target, lambda request, new, arguments: arguments.pop("skip_zeroing_group_ids", None))


@planted("zeroing/A60/other")
def zero_list_never_cleared(target: Any, setting: Setting) -> None:
    """A60. F-42 (#44490): the list grew when nobody drained it."""
    for single in target.manager.coordinator.single_type_managers:

        @replace(single, "take_new_block_ids")
        def take(original: Callable[[], list[int]], single: Any = single) -> list[int]:
            return list(single.new_block_ids)


# ------------------------------------------------------------------------------------------ edits of the oracle


@edited("order/A5/other", "ids/A3/other")
class PoolUsedFromTheEnd(Allocator):
    """A4: what is given back waits for its turn at the end of the queue."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)

        class Fair(Pool):
            def give(self, batch: Iterable[int]) -> None:
                self._queue[:0] = [block for block in reversed(list(batch)) if block]

        self.pool = Fair(setting.num_blocks)


@edited("outcome/A16/refused")
class ExactFitRefused(Allocator):
    """A16: the last free block is never used."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        return super().extend(evolve(call, reserved_blocks=call.reserved_blocks + 1), gate, test)


@edited("nulls/A14/less", tight="refused")
class RemovalAfterTheTest(Allocator):
    """A11: what nobody reads any more serves the next call only."""

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        removals = [(rule, rule.remove) for rule in self.rules]
        for rule in self.rules:
            rule.remove = lambda work, row, pool: None  # type: ignore[method-assign]
        seen = super().extend(call, gate, test)
        for rule, remove in removals:
            rule.remove = remove  # type: ignore[method-assign]
        if call.request in self.rows:
            self.trim(call.request, max(0, call.computed - call.in_flight), call.prompt)
        return seen


@edited("ids/A20/other")
class LeadingNullsPopped(Allocator):
    """A8: a deferred release gives the row as it is, dead columns included."""

    def release(self, request: int, deferred: bool) -> Observation:
        rows = self.rows.get(request, [])
        seen = super().release(request, deferred)
        return evolve(seen, new=(tuple(block for row in rows for block in row),)) if deferred else seen


@edited("zeroing/A60/other")
class ReleaseShortensTheZeroList(Allocator):
    """A60: a released block leaves the list, so its next owner reads what the last one left."""

    def release(self, request: int, deferred: bool) -> Observation:
        gone = {block for row in self.rows.get(request, []) for block in row}
        self.to_zero = [[block for block in taken if block not in gone] for taken in self.to_zero]
        return super().release(request, deferred)


@edited("columns/A19/less", tight="granted")
class RowShrinks(Positional):
    """A19: after a rejection the columns of the drafts are given back, and taken again by the next step."""

    def extend(self, work: Work, row: list[int], pool: Pool) -> list[int]:
        surplus = row[ceil_div(work.need, self.size) :]
        if surplus:
            del row[-len(surplus) :]
            pool.give(reversed(surplus))
        return super().extend(work, row, pool)

    def count(self, work: Work, row: list[int]) -> int:
        return super().count(work, row) if work.first else ceil_div(work.need, self.size) - len(row)


@edited("nulls/A14/less", tight="refused")
class DeadColumnsAdopted(Positional):
    """A18: an adopted row takes blocks for columns that no token reads any more."""

    def count(self, work: Work, row: list[int]) -> int:
        return max(0, ceil_div(work.need, self.size) - len(row))

    def begin(self, work: Work) -> list[int]:
        return []


@edited("nulls/A14/more", tight="granted")
class GapBeginsInThePrompt(RSWARows):
    """A36: the block that holds the prompt's end and the first generated tokens goes with the gap."""

    def remove(self, work: Work, row: list[int], pool: Pool) -> None:
        super().remove(evolve(work, prompt=max(0, work.prompt - self.size + 1)), row, pool)


@edited("columns/A38/more", tight="refused")
class RingByTokens(RingRows):
    """A38: a ring grows with its request."""

    count, extend = Positional.count, Positional.extend


@edited("columns/A42/more", tight="refused")
class AlignOpensTheNextColumn(AlignRows):
    """A42: at m = b * j the running state is put in column j, where the next token's would be."""

    def count(self, work: Work, row: list[int]) -> int:
        return super().count(evolve(work, end=work.end + 1), row)

    def extend(self, work: Work, row: list[int], pool: Pool) -> list[int]:
        return super().extend(evolve(work, end=work.end + 1), row, pool)
