"""A padded newcomer that reaches max_model_len is scheduled with -1 tokens.

Needs vLLM alone (written for 0.27.1): no GPU, weights or network. Exits 1 while the defect is there, 0 once
it is gone. Written by slotcheck 0.1.0. Fingerprint:
scheduler/law/scheduler/tokens/none.
"""

import json
import os
import sys
import tempfile

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
os.environ["TORCH_LOGS"] = "-all"  # no warnings of torch's own
if not any(map(os.path.exists, ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128"))):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # no GPU here, and none is needed

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.config import KVTransferConfig
from vllm.config import SpeculativeConfig
from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

STOP, TOKEN, DEPTH, DRAFTS = 120, 2, 2, 1


class Grammars:
    def accept_tokens(self, request, tokens):
        return True

    def validate_tokens(self, request, tokens):
        return tokens

    def should_advance(self, request, new_token_ids=None):
        return False


class FarConnector(base.KVConnectorBase_V1, base.SupportsHMA):
    """The scheduler's side of a KV connector: each request says what lies elsewhere, the steps say what has moved."""

    requests, loading, sending, handed = {}, set(), set(), ()

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        far = self.requests[request.request_id]
        if not far["remote"]:
            return 0, False
        far["looks"] += 1
        if far["looks"] <= far["unknown"]:
            return None, False
        if far["turn"] is not None and (not far["again"] or far["turn"] == far["failures"] + request.num_preemptions):
            return 0, False
        asynchronous = far["load"] == "async"
        most = request.num_tokens - (not asynchronous)
        external = max(0, min(far["remote"], most) - num_computed_tokens)
        return external, asynchronous and external > 0

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        far = self.requests[request.request_id]
        if num_external_tokens:
            far["turn"] = far["failures"] + request.num_preemptions
            if far["load"] == "async":
                self.loading.add(request.request_id)

    def build_connector_meta(self, scheduler_output):
        return base.KVConnectorMetadata()

    def request_finished_all_groups(self, request, block_ids):
        name = request.request_id
        FarConnector.handed = tuple(map(tuple, block_ids))
        if not self.requests[name]["keeps"] or name in self.loading or not request.num_computed_tokens:
            return False, None
        self.sending.add(name)
        return True, None

    def reported(self, loaded, sent, failed):
        """What the worker's side says of loads and sendings under way. failed: a request, its first column not loaded."""
        loaded = [str(name) for name in loaded if str(name) in self.loading]
        sent = [str(name) for name in sent if str(name) in self.sending]
        said = {"finished_recving": loaded, "finished_sending": sent}
        if failed:
            name, column = str(failed[0]), failed[1]
            said["invalid_block_ids"] = {scheduler.kv_cache_manager.get_block_ids(name)[0][column]}
            self.requests[name]["failures"] += 1
        return KVConnectorOutput(**said), loaded, sent

    def start_load_kv(self, forward_context, **more): ...

    def wait_for_layer_load(self, layer_name): ...

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **more): ...

    def wait_for_save(self): ...


def folder(config):
    path = tempfile.mkdtemp(prefix="repro-model-")
    with open(os.path.join(path, "config.json"), "w") as stream:
        json.dump(config, stream)
    return path


register_all_kvcache_specs(None)
model = ModelConfig(
    model=folder({'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 128, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 4, 'head_dim': 16, 'vocab_size': 128, 'max_position_embeddings': 4096, 'rms_norm_eps': 1e-05, 'hidden_act': 'silu', 'tie_word_embeddings': False, 'torch_dtype': 'float16'}),
    skip_tokenizer_init=True,
    dtype="float16",
    max_model_len=12,
)
drafter = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 128, 'num_hidden_layers': 1, 'num_attention_heads': 4, 'num_key_value_heads': 4, 'head_dim': 16, 'vocab_size': 128, 'max_position_embeddings': 4096, 'rms_norm_eps': 1e-05, 'hidden_act': 'silu', 'tie_word_embeddings': False, 'torch_dtype': 'float16', 'ptd_token_id': 127}
speculation = SpeculativeConfig(
    method="eagle",
    num_speculative_tokens=1,
    target_model_config=model,
    target_parallel_config=ParallelConfig(),
    **({} if drafter is None else {"model": folder(drafter)}),
)
config = VllmConfig(
    model_config=model,
    scheduler_config=SchedulerConfig(
        max_model_len=12,
        is_encoder_decoder=False,
        max_num_batched_tokens=4,
        max_num_seqs=2,
        max_num_scheduled_tokens=None,
        long_prefill_token_threshold=0,
        enable_chunked_prefill=True,
        policy="fcfs",
        prefill_schedule_interval=1,
        scheduler_reserve_full_isl=True,
        watermark=0.0,
        async_scheduling=True,
    ),
    cache_config=CacheConfig(block_size=16, enable_prefix_caching=False),
    parallel_config=ParallelConfig(),
    device_config=DeviceConfig("cpu"),
    kv_transfer_config=KVTransferConfig(
        kv_connector="FarConnector",
        kv_connector_module_path=__name__,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        engine_id="repro",
    ),
    speculative_config=speculation,
)
config.cache_config.num_gpu_blocks = 8
config.cache_config.block_size = 3
specs = [
    FullAttentionSpec(block_size=3, num_kv_heads=2, head_size=8, dtype=torch.float16),
]
grammars = Grammars()
scheduler = (AsyncScheduler if DEPTH > 1 else Scheduler)(
    config,
    KVCacheConfig(
        num_blocks=8,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(layer_names=[f"g{n}"], kv_cache_spec=spec) for n, spec in enumerate(specs)],
    ),
    grammars,
    block_size=3,
    hash_block_size=3,
)
flights = []
arrivals = 0
got = None


def submit(request, prompt, max_tokens=1, priority=0, **far):
    global arrivals
    arrivals += 1
    sampling = SamplingParams(max_tokens=max_tokens, stop_token_ids=[STOP])
    more = {"arrival_time": float(arrivals), "priority": priority}
    tokens = [TOKEN] * prompt
    made = Request(str(request), tokens, sampling, None, **more)
    nothing = {"remote": 0, "load": "async", "unknown": 0, "again": False, "keeps": False}
    FarConnector.requests[str(request)] = {**nothing, **far, "looks": 0, "turn": None, "failures": 0}
    scheduler.add_request(made)


def abort(request):
    scheduler.finish_requests(str(request), RequestStatus.FINISHED_ABORTED)


def reset(running=True):
    scheduler.reset_prefix_cache(reset_running_requests=running)


def pause(state="unpaused"):
    scheduler.set_pause_state(PauseState[state.upper()])


def step(accepted={}, stops={}, drafts={}, loaded=(), sent=(), failed=None, rest=False, early=False):
    """Plan a step; when as many are in flight as may be, the oldest one's output comes back."""
    global got
    far, FarConnector.handed = scheduler.connector, ()
    if rest:
        loaded, sent = sorted(map(int, far.loading)), sorted(map(int, far.sending))
    out = scheduler.schedule()
    cached = out.scheduled_cached_reqs
    rows = [(new.req_id, new.num_computed_tokens, tuple(map(tuple, new.block_ids))) for new in out.scheduled_new_reqs]
    rows += [
        (name, computed, tuple(map(tuple, blocks or ())))
        for name, computed, blocks in zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids)
    ]
    got = (
        dict(out.num_scheduled_tokens),
        {k: len(v) for k, v in out.scheduled_spec_decode_tokens.items()},
        rows,
        tuple((copy.src_block_id, copy.dst_block_id) for copy in out.kv_cache_block_copies or ()),
    )
    print("step:", got[0] or "nobody is scheduled", "drafts:", got[1])
    flights.append((out, [name for name in got[0] if not scheduler.requests[name].is_prefill_chunk]))
    while len(flights) >= (1 if early or all(one.is_finished() for one in scheduler.requests.values()) else DEPTH):
        out, sampling = flights.pop(0)
        names = list(out.num_scheduled_tokens)
        tokens = []
        for name in names:
            offered = len(out.scheduled_spec_decode_tokens.get(name, ()))
            made = [TOKEN] * (1 + min(accepted.get(int(name), 0), offered)) if name in sampling else []
            if made and int(name) in stops:
                made[min(stops[int(name)], len(made) - 1)] = STOP
            tokens.append(made)
        indices = {name: index for index, name in enumerate(names)}
        runner = ModelRunnerOutput(req_ids=names, req_id_to_index=indices, sampled_token_ids=tokens)
        runner.kv_connector_output, ended, gone = far.reported(loaded, sent, failed)
        failed = None
        scheduler.update_from_output(out, runner)
        far.loading.difference_update(ended)
        far.sending.difference_update(gone)
        if DRAFTS and DEPTH == 1 and names:
            most = out.num_spec_tokens_to_schedule
            made = [[TOKEN] * min(drafts.get(int(name), most), most) for name in names]
            scheduler.update_draft_token_ids(DraftTokenIds(names, made))
    got = (*got, FarConnector.handed)


def run():
    submit(request=0, prompt=5, max_tokens=2)
    step()
    step()
    submit(request=1, prompt=11, max_tokens=2, remote=10, load='sync')
    step(rest=True)
    step(rest=True)


run()
print("expected: the law holds")
print("recorded: request 1 is scheduled with -1 tokens")
if got == ({'1': -1}, {}, [('1', 12, ())], (), ()):
    print("the last step is the recorded one: the defect is there")
    sys.exit(1)
print("the defect is gone")
