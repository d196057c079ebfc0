"""The real `Scheduler` behind the SchedulerTarget protocol, on a CPU and without weights.

The engine's configuration comes from the release's own constructors, on the model folders of `targets.config`. A spy
sits on the scheduler's `KVCacheManager`: each ask is kept as a `Call` with its answer, each return of blocks as an
event. What the model would have sampled is given by the workload.
"""

from __future__ import annotations

import copy
import importlib
import logging
from functools import cache
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from harness.targets import compat, config, connector
from oracle.budget import Case
from oracle.content import Content
from oracle.groups import Mamba
from oracle.methods import METHODS
from oracle.remote import FarSide
from oracle.trace import DONE, GRANTED, REFUSED, Call, Observation, Rows
from oracle.workload import (
    ASK,
    COMPILING,
    FREE,
    GIVE,
    LOADING,
    LOOK,
    NAME,
    NOTHING_MOVED,
    POP,
    PREEMPTED,
    RUNNING,
    STOP,
    TRIM,
    WAITING,
    Delivered,
    Event,
    Planned,
    SchedulerSetting,
    Situation,
    State,
    Submit,
    Transfers,
)

BLOCK_ID = attrgetter("block_id")
#: a token that stops nobody
TOKEN = 2
NO_ROWS: Rows = ()


@cache
def modules() -> SimpleNamespace:
    """What of vLLM is used here, imported once; TargetError when it is missing."""
    settings = config.import_config()
    load = importlib.import_module
    logging.getLogger("vllm.v1.core.sched.scheduler").setLevel(logging.CRITICAL)  # failed loads are asked for
    return SimpleNamespace(
        config=settings,
        scheduler=load("vllm.v1.core.sched.scheduler").Scheduler,
        overlapping=load("vllm.v1.core.sched.async_scheduler").AsyncScheduler,
        request=load("vllm.v1.request").Request,
        status=load("vllm.v1.request").RequestStatus,
        sampling=load("vllm.sampling_params").SamplingParams,
        output=load("vllm.v1.outputs").ModelRunnerOutput,
        drafts=load("vllm.v1.outputs").DraftTokenIds,
        inputs=load("vllm.multimodal.inputs"),
        encoder_cache=load("vllm.v1.core.encoder_cache_manager").EncoderDecoderCacheManager,
        transfers=load("vllm.v1.outputs").KVConnectorOutput,
        pause=load("vllm.v1.core.sched.interface").PauseState,
    )


def prepare() -> None:
    """Import vLLM and inspect the model classes (cached on disk by vLLM), before anything is forked."""
    modules()
    for name in sorted({name for name, _ in METHODS} - {"diffusion"}):
        config.target_model(name)


class Grammars:
    """In place of the structured-output manager: what a grammar accepts is the workload's affair."""

    def __init__(self) -> None:
        self.valid: dict[int, int] = {}
        self.refused: tuple[int, ...] = ()

    def accept_tokens(self, request: Any, tokens: list[int]) -> bool:
        return not (request.use_structured_output and int(request.request_id) in self.refused)

    def validate_tokens(self, request: Any, tokens: list[int]) -> list[int]:
        return (
            tokens[: self.valid.get(int(request.request_id), len(tokens))] if request.use_structured_output else tokens
        )


class Compiling:
    """A request's grammar, which is there after some looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def grammar(self) -> Any:
        self.looks -= 1
        return None if self.looks > 0 else self


@cache
def _model(name: str, max_model_len: int) -> Any:
    """The real `ModelConfig` of a method's target, with another length: nothing else in it depends on it."""
    model = copy.copy(config.target_model(name))
    model.max_model_len = max_model_len
    return model


@cache
def _sampling(max_tokens: int) -> Any:
    return modules().sampling(max_tokens=max_tokens, stop_token_ids=[STOP])


def engine_config(setting: SchedulerSetting) -> Any:
    """The release's `VllmConfig` of a setting. Raises what its constructors raise."""
    settings = modules().config
    name, drafts = setting.method, setting.num_speculative_tokens
    if not drafts:
        name = "none"
    align = setting.align_size
    parallel = setting.parallel_drafting and bool(drafts)
    built = settings.VllmConfig(
        model_config=_model(name, setting.max_model_len),
        scheduler_config=settings.SchedulerConfig(
            max_model_len=setting.max_model_len,
            is_encoder_decoder=setting.max_encoder_len > 0,
            max_num_batched_tokens=setting.max_num_batched_tokens,
            max_num_seqs=setting.max_num_seqs,
            max_num_scheduled_tokens=setting.max_num_scheduled_tokens,
            max_num_active_seqs=setting.max_num_active_seqs,
            long_prefill_token_threshold=setting.long_prefill_token_threshold,
            long_prefill_token_threshold_adaptive=setting.long_prefill_token_threshold_adaptive,
            enable_chunked_prefill=setting.enable_chunked_prefill,
            policy=setting.policy,
            prefill_schedule_interval=setting.prefill_schedule_interval,
            scheduler_reserve_full_isl=setting.scheduler_reserve_full_isl,
            watermark=setting.watermark,
            async_scheduling=setting.in_flight_depth > 1,
        ),
        cache_config=settings.CacheConfig(block_size=16, enable_prefix_caching=setting.enable_caching),
        parallel_config=settings.ParallelConfig(),
        device_config=settings.DeviceConfig("cpu"),
        kv_transfer_config=_transfer(setting),
        speculative_config=config.drafter(Case(method=name, parallel=parallel, drafts=drafts), setting.draft_counts),
    )
    built.parallel_config.decode_context_parallel_size = setting.dcp_size  # whose ranks are devices, refused without
    # the engine writes these after it has sized the cache
    built.cache_config.num_gpu_blocks = setting.num_blocks
    built.cache_config.block_size = align or setting.scheduler_block_size
    if setting.enable_caching:
        built.cache_config.block_size = min(group.block_size for group in setting.groups if group.cacheable)
    built.cache_config.enable_mamba_shared_prefix_checkpoint = setting.enable_mamba_shared_prefix_checkpoint
    if any(isinstance(group, Mamba) for group in setting.groups):
        built.cache_config.mamba_cache_mode = "align" if align else "none"
    if bool(built.scheduler_config.async_scheduling) != (setting.in_flight_depth > 1):
        raise compat.TargetError("the release switched async scheduling off on this machine; see its platform")
    return built


def _features(operation: Submit) -> Any:
    """The encoder's input of a request: one item at the beginning, without data."""
    if not operation.encoder:
        return None
    vllm = modules()
    position = vllm.inputs.PlaceholderRange(offset=0, length=operation.encoder)
    name = str(operation.request)
    return [vllm.inputs.MultiModalFeatureSpec(data=None, modality="audio", identifier=name, mm_position=position)]


def _transfer(setting: SchedulerSetting) -> Any:
    if not setting.kv_connector:
        return None
    return modules().config.KVTransferConfig(
        kv_connector=connector.NAME,
        kv_connector_module_path=connector.__name__,
        kv_role=setting.kv_role,
        kv_load_failure_policy=setting.kv_load_failure_policy,
        engine_id="slotcheck",
    )


class Scheduler:
    """A scheduler of the installed release, or of a fork: any class with `Scheduler`'s methods."""

    def __init__(self, setting: SchedulerSetting, scheduler_class: Any = None) -> None:
        vllm = modules()
        found = scheduler_class or (vllm.overlapping if setting.in_flight_depth > 1 else vllm.scheduler)
        self.config, self.grammars = engine_config(setting), Grammars()
        self.scheduler = found(
            self.config,
            compat.build_config(setting),
            self.grammars,
            block_size=setting.scheduler_block_size,
            hash_block_size=setting.hash_size,
        )
        if setting.max_encoder_len:
            self._encoder(setting)
        self.overlaps = setting.in_flight_depth > 1
        self.proposes = setting.num_speculative_tokens > 0 and setting.in_flight_depth == 1
        self.steps: list[tuple[Any, dict[int, bool]]] = []
        self.events: list[Event] = []
        self.hasher = compat.block_hasher(setting) if setting.enable_caching else None
        self.contents: dict[int, Content] = {}
        self.far, self.by_block = FarSide(setting), setting.fails_by_block
        self._spy()
        status = vllm.status
        self.words = {status.WAITING: WAITING, status.RUNNING: RUNNING, status.PREEMPTED: PREEMPTED}
        self.words[status.WAITING_FOR_REMOTE_KVS] = LOADING
        self.words[status.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR] = COMPILING

    def _encoder(self, setting: SchedulerSetting) -> None:
        """What the constructor takes from the model class of an encoder-decoder, which no small folder has.

        The cache never binds: such a model keeps nothing in it, and its slots are given back after every step anew.
        """
        scheduler = self.scheduler
        scheduler.is_encoder_decoder = True
        scheduler.max_num_encoder_input_tokens = setting.encoder_budget
        scheduler.encoder_cache_manager = modules().encoder_cache(1 << 30)

    # -------------------------------------------------------------------------------------------- the spy

    def _spy(self) -> None:
        manager = self.manager = self.scheduler.kv_cache_manager
        self.queue = manager.block_pool.free_block_queue
        self.tables = [single.req_to_blocks for single in manager.coordinator.single_type_managers]
        self.rows_of = [table.get for table in self.tables]
        self.nothing: Rows = tuple(() for _ in self.tables)
        self.allocate, self.give = manager.allocate_slots, manager.free
        self.watched = modules().status
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

    def _ask(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
        **more: Any,
    ) -> Any:
        """`allocate_slots`, with what it was asked and what it answered."""
        status = request.status
        preempted = status is self.watched.PREEMPTED
        name = request.request_id
        call = Call(
            int(name),
            request.num_computed_tokens + num_new_computed_tokens,
            request.num_in_flight_tokens,
            request.num_prompt_tokens,
            request.num_tokens,
            preempted or status is self.watched.WAITING,
            preempted,
            num_new_tokens,
            num_lookahead_tokens,
            num_external_computed_tokens,
            num_encoder_tokens,
            full_sequence_must_fit,
            reserved_blocks,
            has_scheduled_reqs,
            tuple(more.get("skip_zeroing_group_ids", ())),
            num_new_computed_tokens,
            request.shared_prefix_boundary,
            self.contents.get(int(name)),
        )
        self.inside = True
        try:
            blocks = self.allocate(
                request,
                num_new_tokens,
                num_new_computed_tokens=num_new_computed_tokens,
                new_computed_blocks=new_computed_blocks,
                num_lookahead_tokens=num_lookahead_tokens,
                num_external_computed_tokens=num_external_computed_tokens,
                delay_cache_blocks=delay_cache_blocks,
                num_encoder_tokens=num_encoder_tokens,
                full_sequence_must_fit=full_sequence_must_fit,
                reserved_blocks=reserved_blocks,
                has_scheduled_reqs=has_scheduled_reqs,
                **more,
            )
        except Exception as error:
            self.events.append(Event(ASK, call.request, call, self._seen(f"error:{type(error).__name__}", name), 0))
            raise
        finally:
            self.inside = False
        if blocks is None:
            seen = self._seen(REFUSED, name)
        else:
            new = tuple([tuple(map(BLOCK_ID, group)) if group else () for group in blocks.blocks])
            seen = Observation(GRANTED, new, self._rows(name), self.queue.num_free_blocks)
        self.events.append(Event(ASK, call.request, call, seen, seen.free))
        return blocks

    def _look(self, request: Any, *more: Any) -> Any:
        found = self.look(request, *more)
        self.events.append(Event(LOOK, int(request.request_id), None, None, 0, found[1], found[2]))
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
            _sampling(operation.max_tokens),
            None,
            arrival_time=float(arrival),
            priority=operation.priority,
            block_hasher=self.hasher,
            mm_features=_features(operation),
        )
        if operation.grammar:
            request.structured_output_request = Compiling(operation.grammar)
            request.status = self.watched.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        self.scheduler.add_request(request)

    def schedule(self) -> Planned:
        self.events = []
        out = self.scheduler.schedule()
        requests = self.scheduler.requests
        samples = {int(name): not requests[name].is_prefill_chunk for name in out.num_scheduled_tokens}
        self.steps.append((out, samples))
        return planned(out)

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

    def reset(self, running: bool) -> bool:
        self.events = []
        return bool(self.scheduler.reset_prefix_cache(reset_running_requests=running))

    def pause(self, state: str) -> None:
        self.scheduler.set_pause_state(modules().pause[state.upper()])

    # ------------------------------------------------------------------------------------------ observation

    def situation(self, everything: bool) -> Situation:
        scheduler = self.scheduler
        running = scheduler.running
        waiting, holding = list(scheduler.waiting), list(scheduler.kv_holding_waiting)
        seen = [*running, *waiting, *holding] if everything else running
        return Situation(
            [int(request.request_id) for request in running],
            [int(request.request_id) for request in waiting],
            [int(request.request_id) for request in holding],
            [self._state(request) for request in seen],
            self.queue.num_free_blocks,
        )

    def _state(self, request: Any) -> State:
        return State(
            int(request.request_id),
            self.words.get(request.status) or request.status.name.lower(),
            request.num_computed_tokens,
            len(request._all_token_ids),
            request.num_output_placeholders,
            request.num_in_flight_tokens,
            request.num_stale_output_tokens,
            len(request.spec_token_ids),
            request.num_preemptions,
            request.is_prefill_chunk,
        )


class Bare(Scheduler):
    """The same without the spy and with nothing observed: what the harness costs is measured against it."""

    def _spy(self) -> None:
        self.queue = self.scheduler.kv_cache_manager.block_pool.free_block_queue
        self.watched = modules().status
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
        sorted(map(int, cached.resumed_req_ids)),
        sorted(map(int, out.preempted_req_ids or ())),
        sorted(map(int, out.finished_req_ids)),
        tuple(out.new_block_ids_to_zero or ()),
        out.num_spec_tokens_to_schedule,
        out.skip_drafts,
        tuple([(copy.src_block_id, copy.dst_block_id) for copy in out.kv_cache_block_copies or ()]),
    )
