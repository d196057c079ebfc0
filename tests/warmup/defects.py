"""Defects planted in the release's own warmup: its source text with one line changed, run as a module of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import frozen

from harness.targets.manager import Manager
from harness.targets.warmup import Warmup
from harness.warmup_shrink import WarmupShrinker, WarmupShrunk
from harness.warmups import WarmupOptions, run_warmups
from oracle.trace import Difference
from oracle.warmup import WarmupSetting, WarmupTrace
from strategies.warmups import decode, draw

#: traces drawn before a defect counts as missed
MOST = 600


@frozen
class Defect:
    """`old` becomes `new`. shows: aspect, kind, rule and sign of a difference that tells it; most: groups it needs."""

    name: str
    old: str
    new: str
    shows: str
    why: str
    groups: int = 1


_ALIGN = "return cdiv(num_tokens, kvcache_spec.block_size) + num_speculative_blocks\n    num"
_LAST = "return cdiv(num_tokens, kvcache_spec.block_size) + num_speculative_blocks\n\n\n"
_HELD = "for spec, held in zip(kv_cache_specs, req_blocks[i])\n                ]\n"

DEFECTS = (
    Defect(
        "lookahead dropped", "min(num_tokens + num_lookahead_tokens, max_model_len)", "min(num_tokens, max_model_len)",
        "columns/full_attention/W1/less", "F-27 (#51438): drafts were written to the null block",
    ),
    Defect(
        "lookahead not capped", "min(num_tokens + num_lookahead_tokens, max_model_len)",
        "num_tokens + num_lookahead_tokens", "columns/full_attention/W1/more", "A23: nothing is stored at or past M",
    ),
    Defect(
        "lookahead in align mode", _ALIGN, _ALIGN.replace("num_tokens,", "num_tokens + num_lookahead_tokens,"),
        "columns/mamba_align/W1/more", "A42: lookahead breaks the alignment",
    ),
    Defect(
        "align without speculative blocks", _ALIGN, _ALIGN.replace(" + num_speculative_blocks", ""),
        "columns/mamba_align/W1/less", "F-66: no room for the states of the drafts",
    ),
    Defect(
        "none and all without speculative blocks", _LAST, _LAST.replace(" + num_speculative_blocks", ""),
        "columns/mamba_none/W1/less", "F-27: only align had them until 0.27",
    ),
    Defect(
        "cross-attention by decoder tokens", "return cdiv(max_encoder_len, kvcache_spec.block_size)",
        "return cdiv(num_tokens, kvcache_spec.block_size)", "columns/cross_attention/W1/less", "F-38 (#47308)",
    ),
    Defect(
        "ring by tokens", "        return 1\n", "        return cdiv(num_tokens, kvcache_spec.block_size)\n",
        "columns/circular_buffer/W1/more", "until 0.28 a ring was sized like attention",
    ),
    Defect(
        "uniform group not unwrapped", "kvcache_spec = kvcache_spec.first_spec", "pass",
        "columns/mamba_none/W1/less", "0.28.0: a uniform group of Mamba layers had no states",
    ),
    Defect(
        "draft tokens not reserved", "after = req_computed[i] + num_tokens", "after = req_computed[i] + 1",
        "columns/full_attention/W1/less", "the blocks of a decode step cover its drafts",
    ),
    Defect(
        "draft tokens not scheduled", "step_num_scheduled_tokens[req_ids[i]] = num_tokens",
        "step_num_scheduled_tokens[req_ids[i]] = 1", "outcome/pool/W3/schedule", "a step's tokens include its drafts",
    ),
    Defect(
        "one id handed out twice",
        "        return list(range(next_block_id, next_block_id := next_block_id + num_blocks))",
        "        first = next_block_id - (num_blocks > 1 < next_block_id)\n        next_block_id = first + num_blocks\n"
        "        return list(range(first, next_block_id))",
        "law/full_attention/ids/twice", "W2: each id once over all groups and requests",
    ),
    Defect(
        "null block handed out", "    next_block_id = 1\n\n    def _alloc_blocks(num_blocks: int) -> list[int]:\n"
        "        nonlocal next_block_id\n        return", "    next_block_id = 0\n\n"
        "    def _alloc_blocks(num_blocks: int) -> list[int]:\n        nonlocal next_block_id\n        return",
        "law/full_attention/ids/null block", "W2: 0 is the null block",
    ),
    Defect(
        "appended at another group's length", _HELD, _HELD.replace("req_blocks[i])", "req_blocks[i][::-1])"),
        "columns/full_attention/W1/more", "a row grows from its own length", groups=2,
    ),
    Defect(
        "held blocks forgotten",
        "req_blocks[i] = [\n                    held + delta",
        "_ = [\n                    held + delta",
        "columns/full_attention/W1/more", "W2: new blocks are the difference to what is held",
    ),
    Defect(
        "prompt as long as a decode step", "prompt_len = decode_query_len + 1", "prompt_len = decode_query_len",
        "outcome/pool/W3/schedule", "F-59 (#40746): the prompt was taken for a decode step",
    ),
    Defect(
        "one grammar row a request", "len(req_ids) * model_runner.decode_query_len", "len(req_ids)",
        "outcome/pool/W3/grammar rows", "R33-8: one row a token that may be sampled",
    ),
    Defect(
        "drafts not announced", "prefill_output.num_spec_tokens_to_schedule = num_spec_steps", "pass",
        "outcome/pool/W3/announced drafts", "F-08 (#51510): the runner must know the step's K",
    ),
    Defect(
        "pool ignored", "if max_blocks_per_req > 0 and not null_blocks:", "if False:",
        "outcome/pool/W3/more requests", "W3: as many requests as the pool holds",
    ),
    Defect(
        "second pass left out", "if model_runner.speculative_config is not None:", "if False:",
        "outcome/pool/W3/number of steps", "W3: greedy batches take other kernels",
    ),
    Defect(
        "one request not finished", "cleanup_output.finished_req_ids = set(req_ids)",
        "cleanup_output.finished_req_ids = set(req_ids[1:])", "law/pool/finish/unfinished", "it would keep its slot",
    ),
    Defect(
        "connector left disabled",
        "worker_execute_model(cleanup_output)\n    model_runner.kv_connector.set_disabled(False)",
        "worker_execute_model(cleanup_output)", "law/pool/state/connector off", "W5",
    ),
    Defect(
        "adaptive verification lost", "model_runner.adaptive_verification = adaptive_verification", "pass",
        "law/pool/state/adaptive lost", "W5",
    ),
    Defect(
        "null block left dirty", "model_runner.kv_block_zeroer.zero_block_ids([0])", "pass",
        "law/pool/state/null block dirty", "R32-3: the first real request read the warmup's values", groups=2,
    ),
    Defect(
        "mixed step without its decode block", "block_count(decode_prompt_len + decode_scheduled_tokens, s)",
        "block_count(decode_prompt_len, s)", "columns/full_attention/W1/less", "W4: the decode has a third token",
    ),
    Defect(
        "mixed step fills the pool", "if model_runner.kv_cache_config.num_blocks <= required_blocks:",
        "if model_runner.kv_cache_config.num_blocks < required_blocks:", "outcome/pool/W4/ran",
        "W4: the null block is not for use",
    ),
    Defect(
        "mixed step of a pooling model", "if model_runner.is_pooling_model or model_runner.max_num_reqs < 2",
        "if model_runner.max_num_reqs < 2", "outcome/pool/W4/ran", "W4: it decodes nothing",
    ),
    Defect(
        "runs although it skips", "        return False\n\n    decode_req_id",
        "        worker_execute_model(SchedulerOutput.make_empty())\n        return False\n\n    decode_req_id",
        "law/pool/quiet/ran", "W4: skipped means that nothing ran",
    ),
)  # fmt: skip


def planted(release: ModuleType, defect: Defect) -> ModuleType:
    """The release's warmup with the defect; ValueError when the release has no such text."""
    assert release.__file__ is not None
    text = Path(release.__file__).read_text(encoding="utf-8")
    if defect.old not in text:
        raise ValueError(f"this release's warmup has no {defect.old!r}")
    module = ModuleType(f"vllm.planted.{defect.name}")  # its logger is as quiet as vLLM's
    exec(compile(text.replace(defect.old, defect.new), defect.name, "exec"), vars(module))
    return module


def shown(difference: Difference) -> str:
    """A difference as `Defect.shows` writes it."""
    return f"{difference.aspect}/{difference.kind}/{difference.rule}/{difference.sign}"


class Hunt:
    """Looks for a planted defect with the generator, beside what the release itself gets wrong."""

    def __init__(self, release: Any, defect: Defect) -> None:
        self.defect = defect
        self.options = WarmupOptions(make_manager=Manager)
        broken = planted(release, defect)
        self.make: Callable[[WarmupSetting], Warmup] = lambda setting: Warmup(setting, broken)
        self.sound: Callable[[WarmupSetting], Warmup] = lambda setting: Warmup(setting, release)
        self.traces = 0

    def news(self, trace: WarmupTrace) -> list[Difference]:
        """What the planted defect shows and the release alone does not."""
        found = run_warmups(trace, self.make, self.options).differences
        wanted = [difference for difference in found if shown(difference) == self.defect.shows]
        if not wanted:
            return []
        sound = {difference.fingerprint for difference in run_warmups(trace, self.sound, self.options).differences}
        return [difference for difference in wanted if difference.fingerprint not in sound]

    def find(self) -> tuple[WarmupTrace, Difference] | None:
        """The first trace that shows it."""
        found: list[tuple[WarmupTrace, Difference]] = []

        def visit(data: bytes) -> None:
            if found:
                return
            self.traces += 1
            trace = decode(data)
            news = self.news(trace)
            if news:
                found.append((trace, news[0]))

        for shard in range(MOST // 50):
            draw(7, shard, 50, visit)
            if found:
                return found[0]
        return None

    def shrink(self, trace: WarmupTrace, difference: Difference) -> WarmupShrunk:
        """The smallest trace that shows it."""
        return WarmupShrinker(trace, difference, self.news, 1500).run()
