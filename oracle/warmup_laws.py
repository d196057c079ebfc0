"""What must hold of a warmup whatever the release does: checked on what it gave to the worker, with no prediction.

ids: inside the pool, never the null block, each once over all requests and groups (W2). rows: no longer than the
worker's (row width). positions: below max_model_len. budget: a step's tokens and its drafter's query rows fit
max_num_batched_tokens, its requests max_num_seqs. finish: the last step finishes every request. state: what was
switched off is on again (W5). quiet: nothing runs when it says that it skipped (W4), or where nothing is to warm up.
"""

from __future__ import annotations

from collections.abc import Iterator

from oracle.call import Rows
from oracle.groups import Group, Mamba
from oracle.laws import blocks_for_one
from oracle.violation import Violation
from oracle.warmup import Kernels, Left, Ran, Recorded, WarmupOperation, WarmupSetting, row_width

#: drafters with a query pass of their own: lookahead rows a request (B5)
QUERY_PASS = ("dflash", "dspark", "dspark_fill_in")


def kind_of(group: Group) -> str:
    """A group's kind, for Mamba with its mode."""
    return f"{group.kind}_{group.mode}" if isinstance(group, Mamba) else group.kind


def undersized(setting: WarmupSetting) -> bool:
    """The pool does not hold one request of max_model_len tokens: an engine refuses it at start-up."""
    return setting.num_blocks - 1 < blocks_for_one(setting)


def check(setting: WarmupSetting, operation: WarmupOperation, ran: Ran, before: Left) -> Iterator[Violation]:
    """Every law that one warmup broke, the first time in each group. `before`: the state that it found."""
    yield from _state(setting, operation, ran, before)
    nothing = setting.mm_encoder_only and isinstance(operation, Kernels)
    if nothing and ran.steps:
        yield Violation(0, -1, "quiet", "encoder alone", f"{len(ran.steps)} steps ran for an engine that has no model")
    if ran.answer is False and ran.steps:
        yield Violation(0, -1, "quiet", "ran", f"{len(ran.steps)} steps ran although the warmup says that it skipped")
    watch = _Ids(setting)
    for index, step in enumerate(ran.steps):
        yield from _budget(setting, index, step)
        yield from watch.step(index, step)
        if step.connector_enabled:
            yield Violation(index, -1, "state", "connector on", "the KV connector is enabled during a step")
        if isinstance(operation, Kernels) and step.adaptive and setting.choices.adaptive_verification:
            yield Violation(index, -1, "state", "adaptive on", "adaptive verification is on during warmup_kernels")
    if not ran.error and watch.live:
        yield Violation(
            len(ran.steps) - 1, -1, "finish", "unfinished", f"requests {sorted(watch.live)} are not finished"
        )


def _state(setting: WarmupSetting, operation: WarmupOperation, ran: Ran, before: Left) -> Iterator[Violation]:
    last, left = len(ran.steps) - 1, ran.left
    after = f"after {ran.error}" if ran.error else "after the warmup"
    if before.connector_enabled and not left.connector_enabled:
        yield Violation(last, -1, "state", "connector off", f"{after} the KV connector stays disabled")
    if (before.adaptive, before.sampler_adaptive) != (left.adaptive, left.sampler_adaptive):
        yield Violation(last, -1, "state", "adaptive lost", f"{after} adaptive verification is not what it was")
    warms = isinstance(operation, Kernels) and not setting.mm_encoder_only
    zeroes = setting.zeroes_blocks and setting.choices.cleans_null
    if warms and not ran.error and zeroes and 0 not in left.zeroed:
        yield Violation(last, -1, "state", "null block dirty", f"{after} the null block is not zeroed")


def _budget(setting: WarmupSetting, index: int, step: Recorded) -> Iterator[Violation]:
    tokens, limit = sum(part.new for part in step.parts), setting.max_num_batched_tokens
    if step.total != tokens:
        yield Violation(
            index, -1, "budget", "total", f"the output says {step.total} tokens, its requests have {tokens}"
        )
    if tokens > limit:
        yield Violation(index, -1, "budget", "tokens", f"{tokens} tokens in a step of at most {limit}")
    if len(step.parts) > setting.max_num_seqs:
        yield Violation(
            index, -1, "budget", "requests", f"{len(step.parts)} requests, max_num_seqs is {setting.max_num_seqs}"
        )
    rows = len(step.parts) * setting.lookahead
    if setting.method in QUERY_PASS and rows > limit:
        yield Violation(
            index, -1, "budget", "draft rows", f"the drafter's pass has {rows} rows, max_num_batched_tokens is {limit}"
        )
    for part in step.parts:
        if part.end > setting.max_model_len:
            yield Violation(
                index, -1, "positions", "past max_model_len",
                f"{part} writes position {part.end - 1}, max_model_len is {setting.max_model_len}",
            )  # fmt: skip
            return


class _Ids:
    """The laws of ids and rows, over the steps of one warmup."""

    def __init__(self, setting: WarmupSetting) -> None:
        self.setting = setting
        self.widths = [row_width(setting, group) for group in setting.groups]
        self.owner: dict[int, tuple[int, int]] = {}
        self.live: set[int] = set()
        self.lengths: dict[tuple[int, int], int] = {}
        self.told: set[tuple[str, int]] = set()

    def step(self, index: int, step: Recorded) -> Iterator[Violation]:
        """Take the ids of one step."""
        for part, blocks in zip(step.parts, step.blocks, strict=True):
            self.live.add(part.request)
            beyond = part.end > self.setting.max_model_len
            for violation in self._taken(index, part.request, blocks or (), beyond):
                key = (violation.what, violation.group)
                if key not in self.told:
                    self.told.add(key)
                    yield violation
        strange = set(step.finished) - self.live
        if strange:
            yield Violation(index, -1, "finish", "unknown", f"requests {sorted(strange)} are finished but never ran")
        self.live -= set(step.finished)
        if not self.live:
            self.owner.clear()
            self.lengths.clear()

    def _taken(self, index: int, request: int, blocks: Rows, beyond: bool) -> Iterator[Violation]:
        last = self.setting.num_blocks - 1
        for group, ids in enumerate(blocks):
            for block in ids:
                if block == 0:
                    yield Violation(index, group, "ids", "null block", f"request {request} gets the null block")
                elif not self.setting.null_block_redirect and not 0 < block <= last:
                    yield Violation(
                        index, group, "ids", "outside the pool", f"request {request} gets block {block} of 1..{last}"
                    )
                if block in self.owner:
                    yield Violation(
                        index, group, "ids", "twice", f"block {block} goes to request {request}, group {group}, and to "
                        f"request {self.owner[block][0]}, group {self.owner[block][1]}",
                    )  # fmt: skip
                self.owner[block] = (request, group)
            length = self.lengths[request, group] = self.lengths.get((request, group), 0) + len(ids)
            if length > self.widths[group]:
                yield Violation(
                    index, group, "rows", "past the row, past max_model_len" if beyond else "past the row",
                    f"request {request} has {length} blocks, the worker's row has {self.widths[group]} columns",
                )  # fmt: skip
