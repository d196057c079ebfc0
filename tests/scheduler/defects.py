"""The defects that tests plant in the scheduler: one line changed each, with the rule or law that it breaks."""

from __future__ import annotations

from tests.scheduler.planting import Defect

_ASK = "num_lookahead_tokens=self.num_lookahead_tokens,\n                    )"
_CHARGE = "input_budget -= num_new_tokens + draft_slots\n"

DEFECTS = (
    Defect("no lookahead for running requests", _ASK, _ASK.replace("self.num_lookahead_tokens", "0"), "S5"),
    Defect(
        "no lookahead on admission",
        "0 if limit_lookahead_tokens else self.num_lookahead_tokens",
        "0 if limit_lookahead_tokens or True else self.num_lookahead_tokens",
        "S10",
    ),
    Defect(
        "draft slots of running requests not charged",
        f"{_CHARGE}            req_index",
        "input_budget -= num_new_tokens\n            req_index",
        "S1",
    ),
    Defect(
        "draft slots of newcomers not charged",
        f"{_CHARGE}                request.status",
        "input_budget -= num_new_tokens\n                request.status",
        "S1",
    ),
    Defect(
        "rejected drafts kept as computed", "num_computed_tokens -= num_rejected", "num_computed_tokens -= 0", "S19"
    ),
    Defect(
        "placeholders of rejected drafts kept",
        "num_output_placeholders -= num_rejected",
        "num_output_placeholders -= 0",
        "S19",
    ),
    Defect(
        "drafts survive preemption",
        "        if request.spec_token_ids:\n            request.spec_token_ids = []\n        # Async",
        "        # Async",
        "S7",
    ),
    Defect(
        "token budget one too many",
        "token_budget = self.max_num_scheduled_tokens\n",
        "token_budget = self.max_num_scheduled_tokens + 1\n",
        "S1",
    ),
    Defect(
        "input budget one too few",
        "input_budget = self.scheduler_config.max_num_batched_tokens\n",
        "input_budget = self.scheduler_config.max_num_batched_tokens - 1\n",
        "S1",
    ),
    Defect(
        "victim from the wrong end",
        "preempted_req = self.running.pop()\n",
        "preempted_req = self.running.pop(req_index - len(self.running))\n",
        "S6",
    ),
    Defect(
        "the most urgent is the victim",
        "preempted_req = max(\n                            self.running,",
        "preempted_req = min(\n                            self.running,",
        "S27",
    ),
    Defect(
        "blocks of a finished request kept",
        "        assert request.is_finished()\n        self._free_request_blocks(request)\n",
        "        assert request.is_finished()\n",
        "S12",
    ),
    Defect(
        "a victim's blocks come back later",
        "        self._free_request_blocks(request)\n        self.encoder_cache_manager",
        "        self.encoder_cache_manager",
        "S7",
    ),
    Defect(
        "stale outputs never drain",
        "request.num_stale_output_tokens -= num_tokens_scheduled",
        "request.num_stale_output_tokens -= 0",
        "S33",
    ),
    Defect(
        "a position past max_model_len",
        "- request.num_computed_tokens\n                - self.num_sampled_tokens_per_step,",
        "- request.num_computed_tokens + 1\n                - self.num_sampled_tokens_per_step,",
        "S3",
    ),
    Defect(
        "a preempted request queues at the end",
        "self.waiting.prepend_request(request)\n        self.reset",
        "self.waiting.add_request(request)\n        self.reset",
        "S7",
    ),
    Defect(
        "computed tokens survive preemption",
        "request.num_computed_tokens = 0\n        if request.spec",
        "if request.spec",
        "S7",
    ),
    Defect(
        "a victim's drafts stay in the step", "scheduled_spec_decode_tokens.pop(preempted_req_id, None)", "pass", "S28"
    ),
    Defect(
        "a useless step",
        ">= request.num_prompt_tokens + request.max_tokens",
        "> request.num_prompt_tokens + request.max_tokens",
        "S32",
    ),
    Defect(
        "newcomers after a preemption",
        "if not preempted_reqs and self._pause_state",
        "if self._pause_state",
        "S2, order",
    ),
    Defect(
        "one request too many",
        "if num_running >= self.max_num_active_reqs:",
        "if num_running > self.max_num_active_reqs:",
        "S8",
    ),
    Defect(
        "drafts skipped too early",
        "return min_num_output_tokens >= request",
        "return min_num_output_tokens + 1 >= request",
        "S23",
    ),
    Defect("a lone prompt is capped", "if num_eligible_reqs > 1", "if num_eligible_reqs > 0", "S4"),
    Defect("watermark of an idle engine", "has_scheduled_reqs=bool(self.running)", "has_scheduled_reqs=True", "S10"),
    Defect(
        "the gate is forgotten",
        "full_sequence_must_fit=self.scheduler_reserve_full_isl",
        "full_sequence_must_fit=False",
        "S10",
    ),
    Defect(
        "drafts that do not fit are kept", "if len(spec_token_ids) > num_scheduled_spec_tokens:", "if False:", "S18"
    ),
    Defect(
        "tokens behind a stop are delivered",
        "del new_token_ids[num_new:]",
        "pass",
        "S12",
    ),
    Defect(
        "in-flight tokens not settled",
        "request.num_in_flight_tokens -= num_tokens_scheduled",
        "request.num_in_flight_tokens -= num_tokens_scheduled - 1",
        "S12",
    ),
    Defect("a chunk ends in the lookahead", "if 0 < remaining < self.num_prefill_lookahead:", "if False:", "S22"),
    Defect(
        "chunks off the Mamba grid",
        "if self.need_mamba_block_aligned_split:\n                num_new_tokens = self._mamba",
        "if False:\n                num_new_tokens = self._mamba",
        "S41",
    ),
    Defect("a finish is not reported", "self.finished_req_ids.add(request_id)", "pass", "S12"),
    Defect(
        "new blocks are not sent",
        "req_to_new_blocks[request_id] = new_blocks\n",
        "req_to_new_blocks[request_id] = self.kv_cache_manager.empty_kv_cache_blocks\n",
        "S11",
    ),
    Defect(
        "drafts in flight are published",
        "request.num_computed_tokens - request.num_in_flight_tokens,\n                    )",
        "request.num_computed_tokens,\n                    )",
        "S40",
    ),
    Defect(
        "a resumed request is not looked up",
        "if request.num_computed_tokens == 0:\n                    if request.resumable",
        "if request.num_computed_tokens + request.num_preemptions == 0:\n                    if request.resumable",
        "S37",
    ),
    Defect(
        "lookahead on loads",
        "limit_lookahead_tokens = load_kv_async and",
        "limit_lookahead_tokens = False and",
        "S43",
    ),
    Defect(
        "a load is cached before it is there", "delay_cache_blocks=load_kv_async", "delay_cache_blocks=False", "S43"
    ),
    Defect(
        "nothing reserved for those that load",
        "self._inflight_prefill_reserved_blocks()\n                        + self._spec",
        "self._spec",
        "S44",
    ),
    Defect(
        "a load that has ended reserves on",
        "            if not request.is_prefill_chunk:\n                self._inflight_prefills.discard(request)",
        "            pass",
        "S44",
    ),
    Defect(
        "a whole match leaves nothing to compute",
        "request.num_computed_tokens = request.num_tokens - 1\n        self.finished",
        "request.num_computed_tokens = request.num_tokens - 2\n        self.finished",
        "S45",
    ),
    Defect(
        "a failed load counts as loaded",
        "request.num_computed_tokens = idx * self.block_size",
        "request.num_computed_tokens = (idx + 1) * self.block_size",
        "S48",
    ),
    Defect(
        "blocks of a failed load kept",
        "no handling.)\n                self.kv_cache_manager.free(request)",
        "no handling.)\n                pass",
        "S48",
    ),
    Defect(
        "external tokens not asked for",
        "num_external_computed_tokens=num_external_computed_tokens,\n                    delay_cache",
        "num_external_computed_tokens=0,\n                    delay_cache",
        "S46",
    ),
    Defect(
        "a deferred return is forgotten",
        "            self.deferred_frees.append((self.sched_step_seq, blocks))",
        "            pass",
        "S49",
    ),
    Defect(
        "a victim whose blocks stay",
        "if not self._request_blocks_can_be_freed(preempted_req):",
        "if False:",
        "S49",
    ),
    Defect(
        "an aborted load gives its blocks at once",
        "and request.request_id not in self.finished_recving_kv_req_ids\n                )",
        "and False\n                )",
        "S50",
    ),
    Defect(
        "blocks that are sent return at the end",
        "delay_free_blocks |= connector_delay_free_blocks",
        "pass",
        "S50",
    ),
    Defect(
        "copies are not sent",
        "pending_kv_cache_block_copies = kv_cache_block_copies or None",
        "pending_kv_cache_block_copies = None",
        "P36",
    ),
    Defect(
        "a junction is passed",
        "junction_stop if start < junction < end else 0,",
        "0,",
        "S41, P27",
    ),
    Defect(
        "a chunk forgets the hit before it",
        "+ num_new_local_computed_tokens\n            + num_external_computed_tokens\n        )\n        # Split",
        "+ num_external_computed_tokens\n        )\n        # Split",
        "S41",
    ),
    Defect(
        "a step does not begin for the manager",
        "self.kv_cache_manager.new_step_starts()",
        "pass",
        "P39",
    ),
    Defect(
        "the last state that can be resumed from is passed",
        "            last_cache_position,\n            # Stop at the prompt",
        "            0,\n            # Stop at the prompt",
        "S41, P34",
    ),
    Defect(
        "the ends of a copy are never given back",
        "self.kv_cache_manager.block_pool.free_blocks(blocks)\n            return",
        "return",
        "P36",
    ),
    Defect(
        "an encoder input is not charged",
        "                    encoder_compute_budget = new_encoder_compute_budget",
        "                    pass",
        "section 9",
    ),
    Defect(
        "encoder tokens not asked for",
        "num_encoder_tokens=num_encoder_tokens,\n                    full",
        "num_encoder_tokens=0,\n                    full",
        "A39",
    ),
    Defect(
        "drafts that a grammar refuses are kept",
        "            request.spec_token_ids = self.structured_output_manager.validate_tokens(\n"
        "                request, spec_token_ids\n            )",
        "            request.spec_token_ids = spec_token_ids",
        "S20",
    ),
    Defect(
        "who waits for a grammar runs",
        "if not struct_output_req or struct_output_req.grammar is None:\n                return False",
        "if not struct_output_req or struct_output_req.grammar is None:\n                pass",
        "S8",
    ),
    Defect(
        "a session that waits has no seat",
        "num_running = len(self.running) + self.num_waiting_for_streaming_input",
        "num_running = len(self.running)",
        "S8",
    ),
    Defect(
        "the last token of an answer is kept",
        "keep_end = session.num_tokens - 1",
        "keep_end = session.num_tokens",
        "S12",
    ),
    Defect(
        "what is in flight of an answered session is delivered",
        "request.drop_stale_output = True\n        request.num_stale_output_tokens",
        "request.num_stale_output_tokens",
        "S33",
    ),
    Defect(
        "drafts survive an answer",
        "request.num_computed_tokens = safe_frontier\n        request.spec_token_ids = []",
        "request.num_computed_tokens = safe_frontier",
        "S20",
    ),
    Defect(
        "the blocks of an answered session come back",
        "request.status = RequestStatus.WAITING_FOR_STREAMING_REQ\n            self.num",
        "request.status = RequestStatus.WAITING_FOR_STREAMING_REQ\n"
        "            self.kv_cache_manager.free(request)\n            self.num",
        "S7",
    ),
    Defect(
        "a session's next piece gets no names",
        "session.update_block_hashes()\n        session.num_prompt_tokens",
        "session.num_prompt_tokens",
        "P3",
    ),
    Defect(
        "items of a session's next piece lie at its beginning",
        "mm_feature.mm_position, offset=mm_feature.mm_position.offset + base",
        "mm_feature.mm_position, offset=mm_feature.mm_position.offset",
        "S52",
    ),
    Defect(
        "a reset leaves out the connector",
        "if reset_connector:\n",
        "if reset_connector and False:\n",
        "P12",
    ),
    Defect(
        "the engine sleeps while blocks are sent",
        "return len(self.requests) > (num_running + num_waiting)",
        "return False",
        "progress",
    ),
    Defect(
        "a paused engine counts who must wait",
        "num_waiting = len(self.kv_holding_waiting)\n",
        "pass\n",
        "S11",
    ),
    Defect(
        "a paused engine forgets who waits with blocks",
        "num_waiting = len(self.kv_holding_waiting)\n",
        "num_waiting = 0\n",
        "S11",
    ),
    Defect(
        "who runs is preempted while blocks are sent",
        "and self.connector.has_pending_block_frees()\n",
        "and False\n",
        "S49",
    ),
    Defect(
        "nobody is preempted beside a connector",
        "and self.connector.has_pending_block_frees()\n",
        "",
        "S49",
    ),
    Defect(
        "a session that waits keeps the engine awake",
        "num_waiting -= self.num_waiting_for_streaming_input\n",
        "pass\n",
        "S11",
    ),
    Defect(
        "who was in any step before is never sent again",
        "            self.prev_step_scheduled_req_ids.clear()\n            self.prev_step_scheduled_req_ids.update",
        "            self.prev_step_scheduled_req_ids.update",
        "S55",
    ),
    Defect(
        "a load that failed once has failed for ever",
        "self.failed_recving_kv_req_ids.remove(request.request_id)",
        "pass",
        "S45",
    ),
    Defect("padding ignores what runs", "and (scheduled_running_reqs or num_computed_tokens > 0)", "", "S21"),
    Defect(
        "a finished request holds its outputs",
        "        self.encoder_cache_manager.free(request)\n"
        "        self._pending_encoder_input_ids.pop(request.request_id, None)\n"
        "        request_id",
        "        request_id",
        "S53",
    ),
    Defect(
        "a victim holds its outputs",
        "        self.encoder_cache_manager.free(request)\n"
        "        self._pending_encoder_input_ids.pop(request.request_id, None)\n"
        "        self._inflight",
        "        self._inflight",
        "S53",
    ),
    Defect(
        "a refused newcomer holds outputs",
        "                        self.encoder_cache_manager.free(request)\n                    break",
        "                        pass\n                    break",
        "S53",
    ),
    Defect(
        "a running request's items are not charged",
        "                encoder_compute_budget = new_encoder_compute_budget\n            if encoder",
        "                pass\n            if encoder",
        "S52",
    ),
    Defect(
        "a part goes on into an item that is not encoded",
        "num_new_tokens, start_pos - num_computed_tokens\n",
        "num_new_tokens, start_pos - num_computed_tokens + 1\n",
        "S52",
    ),
    Defect(
        "what the drafter reads ahead is not encoded",
        "num_computed_tokens + num_new_tokens + shift_computed_tokens\n        )\n        lo, hi",
        "num_computed_tokens + num_new_tokens\n        )\n        lo, hi",
        "S52",
    ),
    Defect("an item is split", "self.scheduler_config.disable_chunked_mm_input\n", "False\n", "S52"),
    Defect(
        "an item that comes twice is encoded twice", "if item_identifier in mm_hashes_to_schedule:", "if False:", "S52"
    ),
    Defect(
        "an output is let go while its last token is in flight",
        "<= request.num_computed_tokens - request.num_output_placeholders\n            ):\n                # Processed",
        "<= request.num_computed_tokens\n            ):\n                # Processed",
        "S53",
    ),
    Defect(
        "a position is kept for a token that a pooled request never samples",
        'vllm_config.model_config.runner_type == "pooling"',
        'vllm_config.model_config.runner_type == "nobody"',
        "S56",
    ),
    Defect(
        "a pooled request ends with its first chunk",
        "elif request.pooling_params and pooler_output is not None:",
        "elif request.pooling_params:",
        "S56",
    ),
    Defect(
        "a chunk's drafts come back for a grammar",
        "request.use_structured_output and not request.is_prefill_chunk\n            )",
        "request.use_structured_output\n            )",
        "S57",
    ),
    Defect(
        "a mask waits for the last request alone",
        "scheduler_output.pending_structured_output_tokens |= (",
        "scheduler_output.pending_structured_output_tokens = (",
        "S58",
        "async_scheduler",
    ),
    Defect(
        "a mask is made with a token in flight",
        "request.num_output_placeholders > 0\n",
        "request.num_output_placeholders > 1\n",
        "S58",
        "async_scheduler",
    ),
    Defect("loads start in front of every step", "has_sync_kv_loads = False\n", "has_sync_kv_loads = True\n", "S59"),
    Defect("loads start behind every step", "has_sync_kv_loads = True\n", "has_sync_kv_loads = False\n", "S59"),
    Defect(
        "who reads no cache loads what a connector has",
        "if request.skip_reading_prefix_cache:\n                            ext_tokens",
        "if False:\n                            ext_tokens",
        "S42",
    ),
)
