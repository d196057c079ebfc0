"""A real engine start on a CUDA device with its V2 warmup recorded: the release's own `GPUModelRunner`, dummy weights.

The model is a config.json of a few layers in a local folder; nothing is downloaded. The engine runs in this process, so
that `warmup_kernels` can be given worker functions that record what they pass on. Beside each step the rows that the
worker's own block tables hold afterwards are kept.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from attrs import field, frozen

from harness.targets import compat, config
from harness.targets.warmup import Recorder
from oracle.call import Rows
from oracle.groups import FullAttention
from oracle.warmup import Left, Ran, WarmupOperation, WarmupSetting

#: what the engine is started with, whatever is drafted
ENGINE: dict[str, Any] = {
    "load_format": "dummy",
    "skip_tokenizer_init": True,
    "enforce_eager": True,
    "max_model_len": 256,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 256,
    "num_gpu_blocks_override": 128,
    "gpu_memory_utilization": 0.2,
    "enable_prefix_caching": False,
    "seed": 0,
}


@frozen
class Live:
    """A recorded start. held: per step, request -> its rows in the worker's block tables. llm: the engine, ready."""

    setting: WarmupSetting
    ran: Ran
    held: list[dict[int, Rows]] = field(factory=list)
    llm: Any = None

    def run(self, operation: WarmupOperation) -> Ran:
        """The recording as a party: `run_warmups` judges it as it does the stand-in's."""
        return self.ran


def start(drafts: int, method: str = "draft_model") -> Live:
    """Start an engine, with `drafts` draft tokens of a method or without a drafter; TargetError without a device."""
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_USE_V2_MODEL_RUNNER="1")
    compat.import_vllm()
    if not importlib.import_module("torch").cuda.is_available():
        raise compat.TargetError("no CUDA device: a real engine cannot be started")
    models = config.MODELS[method if drafts else "none"]
    more: dict[str, Any] = {}
    if drafts:
        more["speculative_config"] = {"method": method, "num_speculative_tokens": drafts}
        if models.drafter is not None:
            more["speculative_config"]["model"] = config._folder(models.drafter)
    worker: Any = importlib.import_module("vllm.v1.worker.gpu_worker")
    original, kept = worker.warmup_kernels, _Kept(drafts, method if drafts else "none")

    def recorded(runner: Any, execute: Any, sample: Any) -> None:
        kept.warm(original, runner, execute, sample)

    worker.warmup_kernels = recorded
    try:
        llm = importlib.import_module("vllm").LLM(model=config._folder(models.target), **ENGINE, **more)
    finally:
        worker.warmup_kernels = original
    if kept.live is None:
        raise compat.TargetError("the engine started without warmup_kernels: is it on the V2 runner, with JIT warmup?")
    return Live(kept.live.setting, kept.live.ran, kept.live.held, llm)


class _Kept:
    """Runs the real warmup with worker functions that record and pass on."""

    def __init__(self, drafts: int, method: str) -> None:
        self.drafts, self.method = drafts, method
        self.live: Live | None = None

    def warm(self, warmup: Any, runner: Any, execute: Any, sample: Any) -> None:
        recorder, held = Recorder(runner, 0), list[dict[int, Rows]]()

        def execute_model(output: Any) -> Any:
            recorder.execute(output)
            result = execute(output)
            held.append({recorder.names[name]: _rows(runner, name) for name in output.num_scheduled_tokens})
            return result

        def sample_tokens(grammar: Any) -> Any:
            recorder.sample(grammar)
            return sample(grammar)

        warmup(runner, execute_model, sample_tokens)
        zeroed = (0,) if runner.kv_block_zeroer is not None else ()
        ran = Ran(None, "", tuple(recorder.steps), Left(zeroed=zeroed))
        self.live = Live(_setting(runner, self.drafts, self.method), ran, held)


def _rows(runner: Any, name: str) -> Rows:
    """What the worker's block tables hold for a request."""
    tables, index = runner.block_tables, runner.req_states.req_id_to_index[name]
    lengths = [int(tables.num_blocks.np[group, index]) for group in range(tables.num_kv_cache_groups)]
    rows = [table.gpu[index, :length].tolist() for table, length in zip(tables.block_tables, lengths, strict=True)]
    return tuple(tuple(row) for row in rows)


def _setting(runner: Any, drafts: int, method: str) -> WarmupSetting:
    """The runner's configuration as a setting of ours; TargetError for a group that a tiny Llama does not have."""
    groups = []
    for group in runner.kv_cache_config.kv_cache_groups:
        spec = getattr(group.kv_cache_spec, "first_spec", group.kv_cache_spec)
        if type(spec).__name__ != "FullAttentionSpec":
            raise compat.TargetError(f"the tiny model has a {type(spec).__name__}, expected FullAttentionSpec")
        groups.append(FullAttention(block_size=spec.block_size))
    return WarmupSetting(
        groups=tuple(groups),
        num_blocks=runner.kv_cache_config.num_blocks,
        max_model_len=runner.max_model_len,
        max_num_seqs=runner.scheduler_config.max_num_seqs,
        max_num_batched_tokens=runner.scheduler_config.max_num_batched_tokens,
        method=method,
        num_speculative_tokens=drafts,
    )
