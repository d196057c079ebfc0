"""The real `Scheduler` behind the SchedulerTarget protocol, on a CPU and without weights.

It is built by `targets.engine`. A spy sits on the scheduler's `KVCacheManager`: each ask is kept as a `Call` with its
answer, each return of blocks as an event. What the model would have sampled is given by the workload.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from harness.targets import compat
from harness.targets.engine import Compiling, Grammars, encoders, engine_config, features, modules, pooled, sampling
from oracle.call import DONE, GRANTED, REFUSED, Call, Observation, Rows
from oracle.content import Content
from oracle.remote import FarSide
from oracle.scheduled import (
    ASK,
    COMPILING,
    FREE,
    GIVE,
    LOADING,
    LOOK,
    NAME,
    PAUSED_SESSION,
    POP,
    PREEMPTED,
    RUNNING,
    TRIM,
    WAITING,
    Event,
    Planned,
    Situation,
    State,
)
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import (
    NOTHING_MOVED,
    Delivered,
    Submit,
    Transfers,
    Update,
)

BLOCK_ID = attrgetter("block_id")
#: a token that stops nobody
TOKEN = 2
#: in place of a pooler's output, which nobody looks at
POOLED = object()
#: what `allocate_slots` takes behind the request and its new tokens, in order
ARGUMENTS = (
    "num_new_computed_tokens",
    "new_computed_blocks",
    "num_lookahead_tokens",
    "num_external_computed_tokens",
    "delay_cache_blocks",
    "num_encoder_tokens",
    "full_sequence_must_fit",
    "reserved_blocks",
    "has_scheduled_reqs",
)


class Scheduler:
    """A scheduler of the installed release, or of a fork: any class with `Scheduler`'s methods."""

    def __init__(self, setting: SchedulerSetting, scheduler_class: Any = None) -> None:
        vllm, self.pools = modules(), setting.pooling
        found = scheduler_class or (vllm.overlapping if setting.in_flight_depth > 1 else vllm.scheduler)
        self.config, self.grammars = engine_config(setting), Grammars()
        with compat.environment(setting.prefix_cache_retention_interval):
            self.scheduler = found(
                self.config,
                compat.build_config(setting),
                self.grammars,
                block_size=setting.scheduler_block_size,
                hash_block_size=setting.hash_size,
            )
        encoders(setting, self.scheduler)
        self.encoded = self.scheduler.encoder_cache_manager if setting.encoder_cache_size else None
        #: beside `waiting`: who holds blocks; in old releases whoever was set aside
        holding = getattr(self.scheduler, "kv_holding_waiting", None)
        self.apart = self.scheduler.skipped_waiting if holding is None else holding
        self.overlaps = setting.in_flight_depth > 1
        self.proposes = setting.num_speculative_tokens > 0 and setting.in_flight_depth == 1
        self.steps: list[tuple[Any, dict[int, bool]]] = []
        self.events: list[Event] = []
        self.hasher = compat.block_hasher(setting) if setting.enable_caching else None
        self.contents: dict[int, Content] = {}
        self.far, self.by_block = FarSide(setting), setting.fails_by_block
        self.manager = self.scheduler.kv_cache_manager
        self.queue = self.manager.block_pool.free_block_queue
        self.rows_of = [single.req_to_blocks.get for single in self.manager.coordinator.single_type_managers]
        self._spy()
        status = vllm.status
        self.words = {status.WAITING: WAITING, status.RUNNING: RUNNING, status.PREEMPTED: PREEMPTED}
        self.words[status.WAITING_FOR_REMOTE_KVS] = LOADING
        self.words[status.WAITING_FOR_STREAMING_REQ] = PAUSED_SESSION
        self.words[status.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR] = COMPILING

    # -------------------------------------------------------------------------------------------- the spy

    def _spy(self) -> None:
        manager = self.manager
        self.nothing: Rows = tuple(() for _ in self.rows_of)
        self.allocate, self.give = manager.allocate_slots, manager.free
        self.preempted, self.waiting = modules().status.PREEMPTED, modules().status.WAITING
        manager.allocate_slots, manager.free = self._ask, self._free
        self.look, self.publish = manager.get_computed_blocks, manager.cache_blocks
        if self.hasher is not None:
            manager.get_computed_blocks, manager.cache_blocks = self._look, self._name
        if self.scheduler.connector is not None:
            self._spy_transfers()

    def _spy_transfers(self) -> None:
        """The connector, blocks that are kept back and returned later, dead columns that return at the end."""
        manager, pool = self.manager, self.manager.block_pool
        self.scheduler.connector.far, self.scheduler.connector.tell = self.far, self._told
        self.pop, self.trim, self.give_back = (
            manager.pop_blocks_for_free,
            manager.remove_skipped_blocks,
            pool.free_blocks,
        )
        #: whether the manager itself is at work: what it returns is part of its call
        self.inside = False
        manager.pop_blocks_for_free, manager.remove_skipped_blocks = self._pop, self._trim
        pool.free_blocks = self._given

    def _told(self, event: Event) -> None:
        self.events.append(event)

    def _pop(self, request: Any) -> Any:
        blocks = self.pop(request)
        self.events.append(Event(POP, int(request.request_id), None, None, self.queue.num_free_blocks))
        return blocks

    def _trim(self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None) -> None:
        outer, self.inside = self.inside, True
        self.trim(request_id, processed_computed_tokens, num_prompt_tokens)
        self.inside = outer
        if not outer:
            seen = self._seen(DONE, request_id)
            self.events.append(Event(TRIM, int(request_id), None, seen, seen.free, processed_computed_tokens))

    def _given(self, blocks: Any) -> None:
        self.give_back(blocks)
        if not self.inside:
            self.events.append(Event(GIVE, -1, None, None, self.queue.num_free_blocks))

    def _ask(self, request: Any, num_new_tokens: int, *more: Any, **named: Any) -> Any:
        """`allocate_slots`, with what it was asked and what it answered."""
        asked = (dict(zip(ARGUMENTS, more, strict=False)) | named).get if more else named.get
        status = request.status
        preempted = status is self.preempted
        name = request.request_id
        number = int(name)
        local = asked("num_new_computed_tokens", 0)
        call = Call(
            number,
            request.num_computed_tokens + local,
            request.num_in_flight_tokens,
            request.num_prompt_tokens,
            request.num_tokens,
            preempted or status is self.waiting,
            preempted,
            num_new_tokens,
            asked("num_lookahead_tokens", 0),
            asked("num_external_computed_tokens", 0),
            asked("num_encoder_tokens", 0),
            asked("full_sequence_must_fit", False),
            asked("reserved_blocks", 0),
            asked("has_scheduled_reqs", True),
            tuple(asked("skip_zeroing_group_ids", ())),
            local,
            request.shared_prefix_boundary,
            self.contents.get(number),
        )
        self.inside = True
        try:
            blocks = self.allocate(request, num_new_tokens, *more, **named)
        except Exception as error:
            self.events.append(Event(ASK, number, call, self._seen(f"error:{type(error).__name__}", name), 0))
            raise
        finally:
            self.inside = False
        if blocks is None:
            seen = self._seen(REFUSED, name)
        else:
            new = tuple([tuple(map(BLOCK_ID, group)) if group else () for group in blocks.blocks])
            seen = Observation(GRANTED, new, self._rows(name), self.queue.num_free_blocks)
        self.events.append(Event(ASK, number, call, seen, seen.free))
        return blocks

    def _look(self, request: Any, *more: Any) -> Any:
        number = int(request.request_id)
        found = self.look(request, *more)
        self.contents[number] = self.contents[number].renewed()
        self.events.append(Event(LOOK, number, None, None, 0, found[1], found[2]))
        return found

    def _name(self, request: Any, tokens: int) -> None:
        self.publish(request, tokens)
        self.events.append(Event(NAME, int(request.request_id), None, None, 0, tokens))

    def _free(self, request: Any) -> None:
        self.inside = True
        self.give(request)
        self.inside = False
        self.events.append(Event(FREE, int(request.request_id), None, None, self.queue.num_free_blocks))

    def _seen(self, outcome: str, name: str) -> Observation:
        return Observation(outcome, self.nothing, self._rows(name), self.queue.num_free_blocks)

    def _rows(self, name: str) -> Rows:
        return tuple([tuple(map(BLOCK_ID, row_of(name, ()))) for row_of in self.rows_of])

    def rows(self, request: int) -> Rows:
        return self._rows(str(request))

    # ---------------------------------------------------------------------------------------- the workload

    def submit(self, operation: Submit, arrival: int, content: Content | None) -> None:
        self.far.submitted(operation)
        if content is not None:
            self.contents[operation.request] = content
        request = modules().request(
            str(operation.request),
            [TOKEN] * operation.prompt if content is None else content.tokens[: operation.prompt],
            None if self.pools else sampling(operation.max_tokens, operation.skip),
            pooled(operation.skip) if self.pools else None,
            arrival_time=float(arrival),
            priority=operation.priority,
            block_hasher=self.hasher,
            mm_features=features(operation),
            resumable=operation.session,
        )
        if operation.grammar:
            request.structured_output_request = Compiling(operation.request, operation.grammar, self.grammars)
            request.status = modules().status.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        self.scheduler.add_request(request)

    def update(self, operation: Update, arrival: int, tokens: list[int] | None) -> None:
        """The next piece of a session's input, or its end: a request of the same name."""
        self.events = []
        piece = modules().request(
            str(operation.request),
            tokens or [TOKEN] * max(1, operation.prompt),
            sampling(operation.max_tokens),
            None,
            arrival_time=float(arrival),
            mm_features=features(operation),
            resumable=operation.prompt > 0,
        )
        self.scheduler.add_request(piece)

    def goes_on(self, request: int, content: Content) -> None:
        self.contents[request] = content

    def schedule(self) -> Planned:
        self.events = []
        out = self.scheduler.schedule()
        told, requests = planned(out), self.scheduler.requests
        if self.encoded is not None:
            told.encoded = tuple([(int(name), tuple(places)) for name, places in out.scheduled_encoder_inputs.items()])
            told.dropped = tuple(map(int, out.free_encoder_mm_hashes))
        self.steps.append((out, {name: not requests[str(name)].is_prefill_chunk for name, _ in told.tokens}))
        return told

    def samples(self) -> dict[int, bool]:
        return self.steps[-1][1]

    def output(
        self, returned: dict[int, list[int]], proposed: dict[int, int] | None, transfers: Transfers = NOTHING_MOVED
    ) -> list[Delivered]:
        self.events = []
        return [
            (int(one.request_id), tuple(one.new_token_ids), "" if one.finish_reason is None else str(one.finish_reason))
            for outputs in self._update(returned, proposed, transfers).values()
            for one in outputs.outputs
        ]

    def _update(
        self, returned: dict[int, list[int]], proposed: dict[int, int] | None, transfers: Transfers = NOTHING_MOVED
    ) -> Any:
        """What the engine core does with a step's output: the tokens, then the drafts of the next step."""
        vllm = modules()
        out, _ = self.steps.pop(0)
        names = list(out.num_scheduled_tokens)
        runner = vllm.output(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[list(returned.get(int(name), ())) for name in names],
            pooler_output=[POOLED if int(name) in returned else None for name in names] if self.pools else None,
            kv_connector_output=self._reported(transfers),
        )
        self.grammars.valid, self.grammars.refused = dict(transfers.valid), transfers.refused
        if self.overlaps and out.has_structured_output_requests:  # the real drafts take the place of the placeholders
            drafted = {name: [TOKEN] * len(drafts) for name, drafts in out.scheduled_spec_decode_tokens.items()}
            self.scheduler.update_draft_token_ids_in_output(vllm.drafts([*drafted], [*drafted.values()]), out)
        results = self.scheduler.update_from_output(out, runner)
        for name in transfers.loaded:
            self.far.arrived(name, transfers.failed is not None and transfers.failed[0] == name)
        for name in transfers.sent:
            self.far.sent(name)
        if proposed is not None and names:
            made = [[TOKEN] * proposed.get(int(name), 0) for name in names]
            self.scheduler.update_draft_token_ids(vllm.drafts(names, made))
        return results

    def _reported(self, transfers: Transfers) -> Any:
        """What the worker's side of the connector says; in the order given, which is any to a real one."""
        if not (transfers.loaded or transfers.sent or transfers.failed):
            return None
        said: dict[str, Any] = {
            "finished_recving": [str(name) for name in transfers.loaded],
            "finished_sending": [str(name) for name in transfers.sent],
        }
        if transfers.failed is not None:
            name, column = transfers.failed
            if self.by_block:
                said["invalid_block_ids"] = {self._rows(str(name))[0][column]}
            else:
                said["failed_recving"] = {str(name)}
            self.far.failures[name] += name not in self.far.loading
        return modules().transfers(**said)

    def abort(self, request: int) -> bool:
        self.events = []
        return bool(self.scheduler.finish_requests(str(request), modules().status.FINISHED_ABORTED))

    def reset(self, running: bool, connector: bool) -> bool:
        self.events = []
        try:
            return bool(self.scheduler.reset_prefix_cache(running, connector))
        except RuntimeError as error:  # the caller is told so; the engine goes on
            if running and "Failed to reset KV cache" in str(error):
                return False
            raise

    def pause(self, state: str) -> None:
        self.scheduler.set_pause_state(modules().pause[state.upper()])

    # ------------------------------------------------------------------------------------------ observation

    def situation(self, everything: bool) -> Situation:
        scheduler = self.scheduler
        running = scheduler.running
        waiting, holding = list(scheduler.waiting), list(self.apart)
        seen = [*running, *waiting, *holding] if everything else running
        return Situation(
            [int(request.request_id) for request in running],
            [int(request.request_id) for request in waiting],
            [int(request.request_id) for request in holding],
            [self._state(request) for request in seen],
            self.queue.num_free_blocks,
            bool(scheduler.has_requests()),
            *(() if self.encoded is None else _outputs(self.encoded)),
        )

    def _state(self, request: Any) -> State:
        return State(
            int(request.request_id),
            self.words.get(request.status) or request.status.name.lower(),
            request.num_computed_tokens,
            len(request._all_token_ids),
            request.num_output_placeholders,
            request.num_in_flight_tokens,
            getattr(request, "num_stale_output_tokens", 0),
            len(request.spec_token_ids),
            request.num_preemptions,
            request.is_prefill_chunk,
        )


class Bare(Scheduler):
    """The same without the spy and with nothing observed: what the harness costs is measured against it."""

    def _spy(self) -> None:
        if self.scheduler.connector is not None:
            self.scheduler.connector.far, self.scheduler.connector.tell = self.far, lambda *told: None

    def schedule(self) -> Any:
        self.steps.append((self.scheduler.schedule(), {}))

    def output(
        self, returned: dict[int, list[int]], proposed: dict[int, int] | None, transfers: Transfers = NOTHING_MOVED
    ) -> Any:
        self._update(returned, proposed, transfers)


def planned(out: Any) -> Planned:
    """A `SchedulerOutput` as plain data."""
    cached = out.scheduled_cached_reqs
    return Planned(
        [(int(name), tokens) for name, tokens in out.num_scheduled_tokens.items()],
        [(int(name), len(drafts)) for name, drafts in out.scheduled_spec_decode_tokens.items()],
        [
            (
                int(new.req_id),
                new.num_computed_tokens,
                len(new.prompt_token_ids if new.prefill_token_ids is None else new.prefill_token_ids),
                tuple(map(tuple, new.block_ids)),
            )
            for new in out.scheduled_new_reqs
        ],
        [
            (int(name), computed, outputs, None if blocks is None else tuple(map(tuple, blocks)))
            for name, computed, outputs, blocks in zip(
                cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, cached.new_block_ids, strict=True
            )
        ],
        _sorted(cached.resumed_req_ids),
        _sorted(out.preempted_req_ids),
        _sorted(out.finished_req_ids),
        tuple(out.new_block_ids_to_zero or ()),
        out.num_spec_tokens_to_schedule,
        getattr(out, "skip_drafts", False),
        tuple([(copy.src_block_id, copy.dst_block_id) for copy in out.kv_cache_block_copies or ()]),
        again=tuple([(int(name), len(tokens)) for name, tokens in cached.all_token_ids.items()]),
        has_structured_output_requests=out.has_structured_output_requests,
        pending_structured_output_tokens=out.pending_structured_output_tokens,
        has_sync_kv_loads=getattr(out, "has_sync_kv_loads", False),
    )


def _outputs(cache: Any) -> tuple[Any, ...]:
    """An encoder cache's outputs with the requests that hold them, those that nobody holds, and its place."""
    held = sorted((int(item), tuple(sorted(map(int, names)))) for item, names in cache.cached.items())
    return tuple(held), tuple(map(int, cache.freeable)), (cache.num_free_slots, cache.num_freeable_slots)


def _sorted(names: Any) -> list[int]:
    return sorted(map(int, names)) if names else []
