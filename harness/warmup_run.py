"""One shard of a warmup run: draw, run, judge, collect; with the reach counters and the canary of this level.

As at the manager level a run is a sequence of shards of its seed, whoever runs them. A warmup costs a millisecond, so
a trace is short and a shard's unit of count is the warmup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from attrs import define, evolve, field, frozen

from harness.targets.warmup import WarmupTarget
from harness.warmup_parties import ALL, NONE, sampled
from harness.warmups import MakeWarmup, WarmupOptions, WarmupOutcome, run_warmups
from harness.worker import Journal
from oracle.drafting import step_of
from oracle.groups import FullAttention
from oracle.releases import NEWEST, choices_of
from oracle.trace import Difference
from oracle.warmup import (
    AUTOREGRESSIVE,
    WORKER_FAILURE,
    Draft,
    Kernels,
    Mixed,
    Ran,
    Recorded,
    WarmupOperation,
    WarmupSetting,
    WarmupTrace,
    kernel_requests,
)
from oracle.warmup_laws import kind_of
from strategies.warmups import decode, draw

#: traces a shard
EXAMPLES = 50
#: crossings of the warmup level and how often a run must meet each
MINIMA: dict[str, int] = {
    **{
        f"kind {kind}": 5
        for kind in (
            "full_attention",
            "mla_attention",
            "hidden_state",
            "sliding_window",
            "sliding_window_mla",
            "chunked_local_attention",
            "rswa",
            "circular_buffer",
            "cross_attention",
            "mamba_none",
            "mamba_all",
            "mamba_align",
        )
    },
    "hybrid": 20,
    "uniform group": 5,
    "speculation": 20,
    "lookahead": 20,
    "lookahead takes a block": 20,
    "cap at max_model_len": 3,
    "dcp sharded": 5,
    "dcp interleaved": 3,
    "one request": 10,
    "two requests or more": 20,
    "the pool decides": 5,
    "pooling": 3,
    "other pipeline rank": 5,
    "adaptive verification": 5,
    "null-block redirect": 3,
    "mixed runs": 20,
    "mixed skipped": 10,
    "worker fails": 5,
    "two warmups": 10,
    "nulls at the scheduler": 3,
    "encoder alone": 3,
}
#: the same where the worker's kernels are run
KERNEL_MINIMA: dict[str, int] = {
    "kernels: block tables": 3,
    "kernels: autoregressive": 1,
    "kernels: dflash": 1,
    "kernels: drafts at max_model_len": 1,
}


@frozen
class Found:
    """A difference with the trace that showed it."""

    difference: Difference
    trace: WarmupTrace


@define
class WarmupShard:
    """What one shard gave. Differences once a fingerprint, with their number."""

    shard: int
    release: str = NEWEST
    warmups: int = 0
    steps: int = 0
    traces: int = 0
    kernels: int | None = 0
    """Traces whose kernels were run; None: none was to be."""
    reach: Counter[str] = field(factory=Counter)
    found: dict[str, Found] = field(factory=dict)
    counts: Counter[str] = field(factory=Counter)
    declared: Counter[str] = field(factory=Counter)

    def add(self, difference: Difference, trace: WarmupTrace) -> None:
        """One more difference; of each fingerprint the trace with fewest groups and warmups is kept."""
        name = difference.fingerprint
        self.counts[name] += 1
        kept = self.found.get(name)
        if kept is None or _size(trace) < _size(kept.trace):
            self.found[name] = Found(difference, trace)

    def missed(self) -> list[str]:
        """The crossings that were not met often enough."""
        return [name for name, least in self.minima.items() if self.reach[name] < least]

    @property
    def minima(self) -> dict[str, int]:
        """How often each crossing must be met."""
        return minima_of(self.release) | (KERNEL_MINIMA if self.kernels is not None else {})


def minima_of(release: str) -> dict[str, int]:
    """The crossings that a release has."""
    choices = choices_of(release)
    absent = {
        "kind rswa": not choices.rswa,
        "kind circular_buffer": not choices.rings,
        "adaptive verification": not choices.adaptive_verification,
        "null-block redirect": not choices.null_redirect,
        "encoder alone": not choices.encoder_alone,
        "mixed runs": not choices.mixed_warmup,
        "mixed skipped": not choices.mixed_warmup,
    }
    return {name: least for name, least in MINIMA.items() if not absent.get(name, False)}


def _size(trace: WarmupTrace) -> tuple[int, int, int]:
    return len(trace.setting.groups), len(trace.operations), trace.setting.num_speculative_tokens


def count(reach: Counter[str], outcome: WarmupOutcome) -> None:
    """Count the crossings of one trace."""
    setting, operations = outcome.trace.setting, outcome.trace.operations
    requests = kernel_requests(setting)
    ample = kernel_requests(evolve(setting, null_block_redirect=True))
    facts = {
        "hybrid": len(setting.groups) > 1,
        "uniform group": any(group.uniform_layers for group in setting.groups),
        "speculation": setting.num_speculative_tokens > 0,
        "lookahead": setting.lookahead > 0,
        "dcp sharded": setting.dcp_size > 1 and any(group.dcp_sharded for group in setting.groups),
        "dcp interleaved": setting.cp_interleave > 1,
        "pooling": setting.pooling,
        "other pipeline rank": not setting.last_pp_rank,
        "adaptive verification": setting.adaptive_verification,
        "null-block redirect": setting.null_block_redirect,
        "encoder alone": setting.mm_encoder_only,
        "two warmups": outcome.warmups > 1,
        "worker fails": any(ran.error == WORKER_FAILURE for ran in outcome.ran),
    }
    for operation in operations if outcome.drafted else ():
        if isinstance(operation, Draft):
            facts |= _of_draft(setting, operation)
    if any(isinstance(operation, Kernels) for operation in operations):
        facts |= {
            "one request": requests == 1,
            "two requests or more": requests > 1,
            "the pool decides": requests < ample,
        }
    for operation, ran in zip(operations, outcome.ran, strict=False):
        if isinstance(operation, Mixed) and ran.answer is not None:
            facts["mixed runs" if ran.answer else "mixed skipped"] = True
        for step in ran.steps:
            facts |= _of_step(setting, step)
    reach.update(name for name, met in facts.items() if met)
    reach.update(f"kind {kind_of(group)}" for group in setting.groups)
    if any(difference.aspect == "nulls" for difference in (*outcome.differences, *outcome.declared)):
        reach["nulls at the scheduler"] += 1


def _of_draft(setting: WarmupSetting, operation: Draft) -> dict[str, bool]:
    """Which drafter ran, and whether its drafts reach the end of the model."""
    family = "autoregressive" if setting.method in AUTOREGRESSIVE else setting.method.partition("_fill")[0]
    near = step_of(setting, operation).end + setting.num_speculative_tokens >= setting.max_model_len
    return {f"kernels: {family}": True, "kernels: drafts at max_model_len": near}


def _of_step(setting: WarmupSetting, step: Recorded) -> dict[str, bool]:
    """Where the lookahead, or the end of the model, decides on a block."""
    facts = {}
    for part in step.parts:
        need = part.end + setting.lookahead
        if setting.lookahead and part.end < setting.max_model_len:
            sizes = [g.tokens_per_column(setting.dcp_size) for g in setting.groups if g.positional]
            if any(-(-min(need, setting.max_model_len) // size) > -(-part.end // size) for size in sizes):
                facts["lookahead takes a block"] = True
            if need > setting.max_model_len:
                facts["cap at max_model_len"] = True
    return facts


def run_shard(
    run_seed: int,
    shard: int,
    make_warmup: MakeWarmup,
    options: WarmupOptions,
    examples: int = EXAMPLES,
    name_of: Callable[[Difference], str] = lambda difference: difference.fingerprint,
    kernels: str = ALL,
    journal: Path | None = None,
) -> WarmupShard:
    """Draw the examples of one shard and judge each, the kernels of `options` on those that `kernels` chooses.

    name_of: the finding behind a declared difference. journal: where a trace's bytes are written before it runs.
    """
    result = WarmupShard(shard, options.release, kernels=None if kernels == NONE or options.make_tables is None else 0)
    plain = evolve(options, make_tables=None, draft=None)
    note = None if journal is None else Journal(journal)

    def visit(data: bytes) -> None:
        if note is not None:
            note.begin(result.traces, data, "scheduler")
        trace = decode(data, options.release)
        chosen = sampled(kernels, data, trace)
        outcome = run_warmups(trace, make_warmup, options if chosen else plain)
        result.traces += 1
        result.warmups += outcome.warmups
        if result.kernels is not None and chosen:
            result.kernels += 1
            result.reach["kernels: block tables"] += 1
        result.steps += outcome.steps
        count(result.reach, outcome)
        for difference in outcome.declared:
            result.declared[name_of(difference)] += 1
        for difference in outcome.differences:
            result.add(difference, trace)

    draw(run_seed, shard, examples, visit)
    return result


class Canary:
    """A warmup that forgets the last block of every full-attention row that got more than one."""

    def __init__(self, setting: WarmupSetting, target: WarmupTarget) -> None:
        self.target = target
        self.full = [index for index, group in enumerate(setting.groups) if isinstance(group, FullAttention)]

    def run(self, operation: WarmupOperation) -> Ran:
        ran = self.target.run(operation)
        return Ran(ran.answer, ran.error, tuple(self._short(step) for step in ran.steps), ran.left)

    def _short(self, step: Recorded) -> Recorded:
        blocks = []
        for rows in step.blocks:
            if rows is not None:
                rows = tuple(row[:-1] if i in self.full and len(row) > 1 else row for i, row in enumerate(rows))
            blocks.append(rows)
        return evolve(step, blocks=tuple(blocks))


def canary_caught(make_warmup: MakeWarmup, options: WarmupOptions, seed: int = 0, shards: int = 4) -> int | None:
    """Warmups until the canary was caught; None if it was not."""

    def make(setting: WarmupSetting) -> WarmupTarget:
        return Canary(setting, make_warmup(setting))

    warmups = 0
    for shard in range(shards):
        result = run_shard(seed, shard, make, options)
        warmups += result.warmups
        if any(name.endswith("/full_attention/W1/less") for name in result.found):
            return warmups
    return None
