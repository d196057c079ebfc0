"""The warmup level of a corpus as a plain pytest file that needs vLLM alone: warmups, and the steps that they must run.

The worker's kernels and drafters are not in it, nor traces of several DCP ranks: its stand-in for the runner has one.
"""

from __future__ import annotations

import json
from typing import Any

from harness import __version__
from harness.campaign.corpus import Corpus, Entry
from harness.report.folder import TEMPLATES
from harness.report.warmup import steps_of
from harness.targets.specs import spec_arguments
from oracle.warmup import Draft, Kernels, Ran, WarmupSetting, WarmupTrace
from oracle.warmup_party import OracleWarmup


def script(corpus: Corpus, file: str) -> str:
    """The text of the file."""
    entries = [
        (entry, entry.trace)
        for entry in corpus.entries
        if isinstance(entry.trace, WarmupTrace) and entry.trace.setting.dcp_size == 1
    ]
    return TEMPLATES.get_template("warmup_corpus.py.j2").render(
        version=__version__,
        release=corpus.release,
        file=file,
        records=[json.dumps(_record(entry, trace)) for entry, trace in entries],
    )


def _record(entry: Entry, trace: WarmupTrace) -> dict[str, Any]:
    setting, oracle = trace.setting, OracleWarmup(trace.setting)
    warmups: list[list[Any]] = []
    for operation in trace.operations:
        if isinstance(operation, Draft):
            continue
        expected = _expected(oracle.run(operation), len(setting.groups))
        if isinstance(operation, Kernels):
            warmups.append(["warmup_kernels", [], operation.fail, expected])
        else:
            warmups.append(["run_mixed_prefill_decode_warmup", [operation.num_tokens], operation.fail, expected])
    return {
        "name": entry.name,
        "why": list(entry.why),
        "specs": [[*spec_arguments(group), group.uniform_layers] for group in setting.groups],
        "setting": _setting(setting),
        "warmups": warmups,
    }


def _expected(ran: Ran, groups: int) -> list[Any]:
    steps = [
        [[request, computed, tokens, rows] for request, (computed, tokens, rows) in step.items()]
        for step in steps_of(ran, groups)
    ]
    return [ran.answer, ran.error, steps, list(ran.left.zeroed)]


def _setting(setting: WarmupSetting) -> dict[str, Any]:
    """What the stand-in for the runner is made of."""
    same = (
        "num_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "pooling", "last_pp_rank",
        "encoder_decoder", "mm_encoder_only", "max_encoder_len", "lookahead", "null_block_redirect", "zeroes_blocks",
    )  # fmt: skip
    told = {name: getattr(setting, name) for name in same}
    return told | {"drafts": setting.num_speculative_tokens, "adaptive": setting.adaptive_verification}
