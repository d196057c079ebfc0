"""The release's own warmup, run with a stand-in model runner and worker functions that record.

The stand-in has what the warmup reads of a runner (../shared/vllm/api-drift.md, section 6) and nothing else; no model
and no kernel is run. Every scheduler output is kept as plain data. One stand-in serves all the warmups of a trace, as
one runner does, so that what a warmup leaves behind is met by the next.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Protocol

from attrs import evolve

from harness.targets import compat
from oracle.call import Rows
from oracle.warmup import Kernels, Left, Mixed, Part, Ran, Recorded, WarmupOperation, WarmupSetting

VOCABULARY = 64


class WarmupFunctions(Protocol):
    """The module `vllm.v1.worker.gpu.warmup`, or anything with its two entry points."""

    def warmup_kernels(self, runner: Any, execute: Any, sample: Any) -> None: ...

    def run_mixed_prefill_decode_warmup(self, runner: Any, execute: Any, sample: Any, num_tokens: int) -> bool: ...


class WarmupTarget(Protocol):
    """A party that can warm up: built from a WarmupSetting."""

    def run(self, operation: WarmupOperation) -> Ran: ...


class WorkerFailure(Exception):  # noqa: N818  # its name is what an observation shows
    """Raised by a worker function because the operation asks for it."""


def functions() -> Any:
    """The installed release's warmup module; TargetError when it has none."""
    compat.import_vllm()
    try:
        return importlib.import_module("vllm.v1.worker.gpu.warmup")
    except Exception as error:
        release = compat.installed_release()
        raise compat.TargetError(f"vLLM {release}: no warmup: {type(error).__name__}: {error}") from error


class Connector:
    """Stands for the runner's KV connector."""

    def __init__(self) -> None:
        self.enabled = True

    def set_disabled(self, disabled: bool) -> None:
        self.enabled = not disabled


class Zeroer:
    """Stands for the kernel that zeroes blocks."""

    def __init__(self) -> None:
        self.zeroed: list[int] = []

    def warmup(self, num_blocks: int) -> None:
        self.zeroed.clear()

    def zero_block_ids(self, block_ids: list[int]) -> None:
        self.zeroed += block_ids


def _stand_in(setting: WarmupSetting) -> SimpleNamespace:
    """What the warmup reads of a model runner."""
    drafts = setting.num_speculative_tokens
    groups = [SimpleNamespace(kv_cache_spec=compat.build_spec(group)) for group in setting.groups]
    return SimpleNamespace(
        num_speculative_steps=drafts,
        decode_query_len=setting.decode_query_len,
        kv_cache_config=SimpleNamespace(num_blocks=setting.num_blocks, kv_cache_groups=groups),
        scheduler_config=SimpleNamespace(
            max_num_seqs=setting.max_num_seqs, max_num_batched_tokens=setting.max_num_batched_tokens
        ),
        max_num_reqs=setting.max_num_seqs,
        max_model_len=setting.max_model_len,
        is_pooling_model=setting.pooling,
        is_last_pp_rank=setting.last_pp_rank,
        is_encoder_decoder=setting.encoder_decoder,
        is_encoder_only=setting.mm_encoder_only,
        model_config=SimpleNamespace(
            get_vocab_size=lambda: VOCABULARY, get_pooling_task=lambda tasks: tasks[0], pooler_config=None
        ),
        get_supported_tasks=lambda: ("embed",),
        model_state=SimpleNamespace(
            **({"max_encoder_len": setting.max_encoder_len} if setting.max_encoder_len else {})
        ),
        vllm_config=SimpleNamespace(num_lookahead_tokens=setting.lookahead, is_mm_encoder_only=setting.mm_encoder_only),
        kv_connector=Connector(),
        kv_block_zeroer=Zeroer() if setting.zeroes_blocks else None,
        adaptive_verification=object() if setting.adaptive_verification else None,
        rejection_sampler=(
            SimpleNamespace(enable_adaptive_verification=setting.adaptive_verification) if drafts else None
        ),
        speculative_config=SimpleNamespace(num_speculative_tokens=drafts) if drafts else None,
        block_tables=SimpleNamespace(redirect_writes_to_null_block=setting.null_block_redirect),
    )


class Recorder:
    """The worker's two functions: keeps what they are given."""

    def __init__(self, runner: Any, fail: int) -> None:
        self.runner = runner
        self.fail = fail
        self.calls = 0
        self.steps: list[Recorded] = []
        self.prompts: dict[int, int] = {}
        self.names: dict[str, int] = {}
        self.following = 0

    def _called(self) -> None:
        self.calls += 1
        if self.calls == self.fail:
            raise WorkerFailure

    def _number(self, name: str) -> int:
        if name not in self.names:
            self.names[name] = self.following
            self.following += 1
        return self.names[name]

    def execute(self, output: Any) -> None:
        """`execute_model`: note the scheduler output."""
        self._called()
        scheduled = output.num_scheduled_tokens
        drafts = output.scheduled_spec_decode_tokens
        parts: list[Part] = []
        blocks: list[Rows | None] = []
        greedy: bool | None = None

        def add(name: str, computed: int, new_blocks: Any) -> None:
            request = self._number(name)
            count = len(drafts.get(name, ()))
            parts.append(Part(request, computed, scheduled.get(name, 0), count, self.prompts[request]))
            blocks.append(None if new_blocks is None else tuple(tuple(ids) for ids in new_blocks))

        cached = output.scheduled_cached_reqs
        for name, computed, new_blocks in zip(
            cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
        ):
            add(name, computed, new_blocks)
        for new in output.scheduled_new_reqs:
            self.prompts[self._number(new.req_id)] = len(new.prompt_token_ids or ())
            greedy = None if new.sampling_params is None else new.sampling_params.temperature == 0
            add(new.req_id, new.num_computed_tokens, new.block_ids)
        runner = self.runner
        sampler = runner.rejection_sampler
        self.steps.append(
            Recorded(
                parts=tuple(parts),
                blocks=tuple(blocks),
                finished=tuple(sorted(self._number(name) for name in output.finished_req_ids)),
                total=output.total_num_scheduled_tokens,
                announced=getattr(output, "num_spec_tokens_to_schedule", None),
                greedy=greedy,
                connector_enabled=getattr(runner.kv_connector, "enabled", False),  # the real one does not say
                adaptive=runner.adaptive_verification is not None
                or (sampler is not None and sampler.enable_adaptive_verification),
            )
        )
        for name in output.finished_req_ids:  # the next pass uses the names again
            self.prompts.pop(self.names.pop(name), None)
        if not self.names:
            self.following = 0

    def sample(self, grammar: Any) -> None:
        """`sample_tokens`: belongs to the step before."""
        self._called()
        rows = None if grammar is None else len(grammar.grammar_bitmask)
        if self.steps:
            self.steps[-1] = evolve(self.steps[-1], sampled=True, grammar_rows=rows)


class Warmup:
    """The warmup of the installed release, or `module`'s."""

    def __init__(self, setting: WarmupSetting, module: Any = None) -> None:
        self.module = functions() if module is None else module
        self.setting = setting
        self.runner = _stand_in(setting)

    def run(self, operation: WarmupOperation) -> Ran:
        """One warmup on the stand-in as the one before left it."""
        recorder = Recorder(self.runner, operation.fail)
        zeroer = self.runner.kv_block_zeroer
        if zeroer is not None:
            zeroer.zeroed.clear()
        answer: bool | None = None
        error = ""
        try:
            with _without_accelerator():
                answer = self._call(operation, recorder.execute, recorder.sample)
        except Exception as raised:
            error = type(raised).__name__
        sampler = self.runner.rejection_sampler
        left = Left(
            connector_enabled=self.runner.kv_connector.enabled,
            adaptive=self.runner.adaptive_verification is not None,
            sampler_adaptive=sampler is not None and sampler.enable_adaptive_verification,
            zeroed=() if zeroer is None else tuple(zeroer.zeroed),
        )
        return Ran(answer, error, tuple(recorder.steps), left)

    def _call(
        self, operation: WarmupOperation, execute: Callable[..., None], sample: Callable[..., None]
    ) -> bool | None:
        if isinstance(operation, Kernels):
            self.module.warmup_kernels(self.runner, execute, sample)
            return None
        assert isinstance(operation, Mixed)
        done: bool = self.module.run_mixed_prefill_decode_warmup(self.runner, execute, sample, operation.num_tokens)
        return done


@contextlib.contextmanager
def _without_accelerator() -> Iterator[None]:
    """Where there is no accelerator, waiting for it is left out."""
    accelerator = importlib.import_module("torch").accelerator
    if accelerator.is_available():
        yield
        return
    original = accelerator.synchronize
    accelerator.synchronize = lambda device=None: None
    try:
        yield
    finally:
        accelerator.synchronize = original


def real_row_width(setting: WarmupSetting, index: int) -> int:
    """The width that the release's model runner gives to the rows of a group, from its own two functions."""
    spec = compat.build_spec(setting.groups[index])
    modes = [getattr(group, "mode", "none") for group in setting.groups if group.kind == "mamba"]
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(decode_context_parallel_size=setting.dcp_size, prefill_context_parallel_size=1),
        cache_config=SimpleNamespace(mamba_cache_mode=modes[0] if modes else "none"),
    )
    longest = setting.max_model_len
    if setting.encoder_decoder:
        longest = max(longest, setting.max_encoder_len, setting.max_num_batched_tokens)
    columns = spec.max_num_blocks_per_req(config, longest)
    width = importlib.import_module("vllm.v1.worker.block_table").get_block_table_width
    return int(width(columns, spec.block_size, token_alignment=spec.block_table_token_alignment))
