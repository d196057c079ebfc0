"""The V2 warmup: scheduler outputs built by hand, which must reserve what the scheduler would (rules W1 to W5).

Before it serves, the worker runs a few steps of invented requests so that no kernel is compiled during the first real
one. Nobody allocates for these requests: the warmup hands out block ids itself, upwards from 1. So it states the
reservation once more, and every historic defect here is a place where its statement is not the scheduler's.

What is predicted: the steps with each request's computed, scheduled and draft tokens (W3, W4), the columns of each row
(W1, by the formulas of `oracle.reservation`), the ids (W2), what is skipped, and the state left behind (W5). Lengths
in tokens, rows in blocks.
"""

from __future__ import annotations

from math import gcd
from typing import ClassVar

from attrs import field, fields, frozen

from oracle.allocator import Allocator
from oracle.breakdown import Breakdown
from oracle.call import Call, Rows
from oracle.errors import SettingError
from oracle.groups import CircularBuffer, CrossAttention, Group, Mamba, at_least, one_of
from oracle.reservation import rules_of
from oracle.rounding import ceil_div
from oracle.setting import Setting

# ------------------------------------------------------------------------------------------------- the language


@frozen(kw_only=True)
class WarmupSetting(Setting):
    """What the model runner is configured with, beyond what the manager needs.

    pooling: a pooling model, which generates nothing. last_pp_rank: the rank that samples. adaptive_verification: the
    runner cuts drafts while it serves. null_block_redirect: block tables write the null block instead of the ids given
    (elastic expert parallelism warms up beside parked requests). mm_encoder_only: an engine that runs a multimodal
    encoder alone, and has no kernel to warm up. cp_interleave: tokens of a DCP rank's turn in a sharded group.
    """

    pooling: bool = field(default=False, validator=one_of(False, True))
    last_pp_rank: bool = field(default=True, validator=one_of(False, True))
    adaptive_verification: bool = field(default=False, validator=one_of(False, True))
    null_block_redirect: bool = field(default=False, validator=one_of(False, True))
    mm_encoder_only: bool = field(default=False, validator=one_of(False, True))
    cp_interleave: int = field(default=1, validator=at_least(1))

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        drafts, batched = self.num_speculative_tokens, self.max_num_batched_tokens
        if self.method != "none" and drafts == 0:
            raise SettingError(f"method {self.method!r} needs num_speculative_tokens of at least 1, got 0")
        if self.pooling and drafts:
            raise SettingError(f"a pooling model drafts nothing, got num_speculative_tokens {drafts}")
        if self.adaptive_verification and not drafts:
            raise SettingError("adaptive_verification needs num_speculative_tokens of at least 1, got 0")
        if batched < self.max_num_seqs:
            raise SettingError(
                f"max_num_batched_tokens must be at least max_num_seqs {self.max_num_seqs}, got {batched}"
            )
        odd = [g.block_size for g in self.groups if g.dcp_sharded and g.block_size % self.cp_interleave]
        if self.cp_interleave > 1 and (self.dcp_size == 1 or odd):
            blocks = "dcp_size 1" if self.dcp_size == 1 else f"a block_size of {odd[0]}"
            raise SettingError(
                f"cp_interleave must divide the blocks that ranks share, got {self.cp_interleave} with {blocks}"
            )
        if batched <= self.lookahead:  # B6
            raise SettingError(f"max_num_batched_tokens must exceed the lookahead {self.lookahead}, got {batched}")

    @property
    def decode_query_len(self) -> int:
        """Tokens of a decode step with drafts: the sampled one and K drafts."""
        return self.num_speculative_tokens + 1

    @property
    def encoder_decoder(self) -> bool:
        """The model has an encoder, whose output lies in cross-attention blocks."""
        return any(isinstance(group, CrossAttention) for group in self.groups)

    @property
    def masked_rows(self) -> int:
        """Rows of the bit mask for one request's sampling."""
        return self.decode_query_len if self.choices.masks_each_token else 1

    @property
    def zeroes_blocks(self) -> bool:
        """The runner has a kernel that zeroes fresh blocks (A60)."""
        return any(Allocator(self).zeroed)


@frozen(kw_only=True)
class Kernels:
    """`warmup_kernels`. fail: the worker function that raises, counted from 1; 0: none does."""

    fail: int = field(default=0, validator=at_least(0))


@frozen(kw_only=True)
class Mixed:
    """`run_mixed_prefill_decode_warmup` with `num_tokens` in the mixed step."""

    num_tokens: int = field(validator=at_least(1))
    fail: int = field(default=0, validator=at_least(0))


@frozen(kw_only=True)
class Draft:
    """No warmup: a decode step of requests with `computed` tokens, and the drafter's own code behind it.

    As long as the scheduler makes it, 1 + K tokens or up to max_model_len - 1; once for each number of drafts refused.
    """

    computed: int = field(validator=at_least(1))
    fail: ClassVar[int] = 0


WarmupOperation = Kernels | Mixed
TraceOperation = Kernels | Mixed | Draft
WARMUP_OPERATIONS: tuple[type, ...] = (Kernels, Mixed, Draft)
#: methods whose drafter is in the V2 runner and makes positions or slots of its own; parallel drafting runs in V1
AUTOREGRESSIVE = ("eagle", "eagle3", "mtp", "mtp_constant")
DRAFTERS = (*AUTOREGRESSIVE, "draft_model", "dflash", "dspark", "dspark_fill_in")


@frozen(kw_only=True)
class WarmupTrace:
    """A runner's setting and what is run on it, one after the other: warmups, and steps with their drafter."""

    setting: WarmupSetting
    operations: tuple[TraceOperation, ...]
    level: str = "warmup"

    def __attrs_post_init__(self) -> None:
        setting, limit = self.setting, self.setting.max_num_batched_tokens
        for operation in self.operations:
            if isinstance(operation, Draft):
                if setting.method not in DRAFTERS or setting.parallel_drafting:
                    raise SettingError(
                        f"a draft step needs one of the methods {', '.join(DRAFTERS)} without parallel drafting, "
                        f"got {setting.method!r}"
                    )
                if operation.computed > setting.max_model_len - 2:
                    raise SettingError(
                        f"computed must be at most max_model_len - 2 = {setting.max_model_len - 2}: a step leaves "
                        f"room for the token that it samples; got {operation.computed}"
                    )
            if isinstance(operation, Mixed) and operation.num_tokens > limit:
                raise SettingError(
                    f"num_tokens must be at most max_num_batched_tokens {limit}, got {operation.num_tokens}: "
                    "every caller of the mixed warmup clamps it"
                )


# --------------------------------------------------------------------------------------------- what a party shows


@frozen
class Part:
    """One request in one step: tokens computed before it, tokens scheduled (drafts included), drafts among them."""

    request: int
    computed: int
    new: int
    drafts: int
    prompt: int

    @property
    def end(self) -> int:
        """First position that the target does not write."""
        return self.computed + self.new

    def __str__(self) -> str:
        return f"request {self.request}: {self.computed} + {self.new}" + (
            f" ({self.drafts} drafts)" if self.drafts else ""
        )


@frozen(kw_only=True)
class Recorded:
    """One scheduler output as the worker got it, as plain data, and how it was sampled.

    blocks: per part the new ids of each group, None where the output has none. total: what the output says that its
    tokens add up to. announced: its number of drafts to make, None where the release has no such field. grammar_rows:
    rows of the bit mask given to the sampler, None without one.
    """

    parts: tuple[Part, ...] = ()
    blocks: tuple[Rows | None, ...] = ()
    finished: tuple[int, ...] = ()
    total: int = 0
    announced: int | None = None
    greedy: bool | None = None
    sampled: bool = False
    grammar_rows: int | None = None
    connector_enabled: bool = False
    adaptive: bool = False


@frozen(kw_only=True)
class Left:
    """The runner's state after a warmup. zeroed: the ids that it asked to be zeroed."""

    connector_enabled: bool = True
    adaptive: bool = False
    sampler_adaptive: bool = False
    zeroed: tuple[int, ...] = ()


@frozen
class Ran:
    """One warmup as it went. answer: what the function returned. error: the type of what it raised, "" if nothing."""

    answer: bool | None
    error: str
    steps: tuple[Recorded, ...]
    left: Left


#: what a worker function raises when the operation asks for it
WORKER_FAILURE = "WorkerFailure"

# ------------------------------------------------------------------------------------------------ what must be run


@frozen
class Step:
    """A step to be run: what it is for, its requests, and the requests that it finishes."""

    what: str
    parts: tuple[Part, ...]
    finished: tuple[int, ...] = ()


def _cleanup(requests: int) -> Step:
    return Step("clean up", (), tuple(range(requests)))


def kernel_steps(setting: WarmupSetting, requests: int) -> tuple[Step, ...]:
    """W3: the steps of `warmup_kernels` with that many requests; none when there is no request.

    The prompt has decode length + 1 tokens, so that nobody takes it for a decode step. A later step of one request
    with drafts would repeat the first one when there is one request only. Up to 0.26.0 all decode once, together.
    """
    if requests == 0:
        return ()
    drafts, prompt = setting.num_speculative_tokens, setting.decode_query_len + 1
    everyone = tuple(range(requests))
    steps = [Step("prompt", tuple(Part(request, 0, prompt, 0, prompt) for request in everyone))]
    computed = dict.fromkeys(everyone, prompt)
    plan: list[tuple[str, tuple[int, ...], tuple[bool, ...]]] = []
    if not setting.pooling:
        plan.append(("all with drafts", everyone, (True,) * requests))
    if not setting.pooling and setting.choices.decode_shapes:
        if requests >= 2:
            plan.append(("two, one with drafts", (0, 1), (True, False)))
            if drafts:
                plan.append(("two without", (0, 1), (False, False)))
            plan.append(("one with drafts", (0,), (True,)))
        if drafts:
            plan.append(("one without", (0,), (False,)))
    for what, chosen, drafting in plan:
        parts = []
        for request, uses in zip(chosen, drafting, strict=True):
            count = drafts if uses else 0
            parts.append(Part(request, computed[request], 1 + count, count, prompt))
            computed[request] += 1 + count
        steps.append(Step(what, tuple(parts)))
    return (*steps, _cleanup(requests))


def mixed_steps(num_tokens: int) -> tuple[Step, ...]:
    """W4: a 2-token prompt, then one step with its decode and a new prompt that fills the step."""
    return (
        Step("prompt", (Part(0, 0, 2, 0, 2),)),
        Step("mixed", (Part(0, 2, 1, 0, 2), Part(1, 0, num_tokens - 1, 0, num_tokens - 1))),
        _cleanup(2),
    )


# --------------------------------------------------------------------------------------- what the scheduler would hold


def call_of(setting: WarmupSetting, part: Part) -> Call:
    """The `allocate_slots` that a scheduler makes for a part; the encoder's output comes with the first one."""
    first = part.computed == 0
    known = part.prompt if part.computed < part.prompt else part.computed + 1
    encoder = setting.max_encoder_len if first else 0
    return Call(
        part.request, part.computed, 0, part.prompt, known, first, False, part.new, setting.lookahead, 0, encoder,
        False, 0, False, (),
    )  # fmt: skip


def columns(setting: WarmupSetting, part: Part, held: tuple[int, ...] | None = None) -> list[Breakdown]:
    """W1: the columns of each group after a part, from the columns held before (None: a new request)."""
    call = call_of(setting, part)
    call.encoder = setting.max_encoder_len  # its blocks are there since the first call
    lengths = held or (0,) * len(setting.groups)
    return [rule.columns(call, length) for rule, length in zip(rules_of(setting), lengths, strict=True)]


def _blocks(setting: WarmupSetting, tokens: int) -> int:
    """Columns of one request of `tokens` tokens over all groups (W1)."""
    return sum(reason.value for reason in columns(setting, Part(0, 0, tokens, 0, tokens)))


def longest_request(setting: WarmupSetting) -> int:
    """Blocks set aside for one request of `warmup_kernels`."""
    return _blocks(setting, longest_tokens(setting))


def longest_tokens(setting: WarmupSetting) -> int:
    """Tokens of that request: as if it had drafts in each of 1, 3 or 5 decode steps (up to 0.26.0 in one)."""
    shapes = 5 if setting.num_speculative_tokens else 3
    decodes = shapes if setting.choices.decode_shapes and not setting.pooling else 1
    return setting.decode_query_len + 1 + decodes * setting.decode_query_len


def kernel_requests(setting: WarmupSetting, longest: int | None = None) -> int:
    """W3: how many requests are warmed up; the pool has no say when nothing is written to it.

    longest: blocks set aside for one of them, where they are not counted by W1.
    """
    seats = min(setting.max_num_seqs, setting.max_num_batched_tokens // (setting.decode_query_len + 1))
    if setting.null_block_redirect:
        return seats
    return min(seats, max(1, (setting.num_blocks - 1) // (longest or longest_request(setting))))


def mixed_blocks(setting: WarmupSetting, num_tokens: int) -> int:
    """Blocks of the two requests of the mixed step."""
    return sum(_blocks(setting, tokens) for tokens in mixed_tokens(num_tokens))


def mixed_tokens(num_tokens: int) -> tuple[int, int]:
    """Tokens of the two requests of the mixed step, after it."""
    return 3, num_tokens - 1


def mixed_skip(setting: WarmupSetting, num_tokens: int) -> str:
    """W4: why the mixed step is skipped; "" when it runs."""
    if setting.pooling:
        return "a pooling model decodes nothing"
    if setting.max_num_seqs < 2:
        return f"two requests do not fit max_num_seqs {setting.max_num_seqs}"
    if num_tokens < 3:
        return f"{num_tokens} tokens are not enough for a decode and a prompt of two"
    need = mixed_blocks(setting, num_tokens)
    if setting.num_blocks <= need:
        return f"{need} blocks and the null block do not fit a pool of {setting.num_blocks}"
    return ""


@frozen
class Prediction:
    """What a warmup must do. runs: the steps of each pass; the second pass, if there is one, is greedy."""

    answer: bool | None
    skipped: str
    requests: int
    runs: tuple[tuple[Step, ...], ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step in order."""
        return tuple(step for run in self.runs for step in run)


def predict(setting: WarmupSetting, operation: WarmupOperation) -> Prediction:
    """W3, W4: the steps of a warmup that no worker function fails."""
    if isinstance(operation, Mixed):
        skipped = mixed_skip(setting, operation.num_tokens)
        runs = () if skipped else (mixed_steps(operation.num_tokens),)
        return Prediction(not skipped, skipped, 0 if skipped else 2, runs)
    if setting.mm_encoder_only:
        return Prediction(None, "an encoder alone has no kernel to warm up", 0, ())
    requests = kernel_requests(setting)
    again = setting.num_speculative_tokens and setting.choices.greedy_pass  # greedy batches take other kernels
    passes = 2 if again else 1
    return Prediction(None, "", requests, (kernel_steps(setting, requests),) * passes)


class Scheduler:
    """What the scheduler would hold for the parts given to it: the oracle's allocator with room for all of them."""

    def __init__(self, setting: WarmupSetting, parts: tuple[Part, ...]) -> None:
        self.setting = setting
        self.allocator = Allocator(roomy(setting, parts))
        self.held: dict[int, tuple[int, ...]] = {}

    def schedule(self, part: Part) -> tuple[list[Breakdown], Rows]:
        """The columns with their terms, and the rows with null where nobody reads any more."""
        reasons = columns(self.setting, part, self.held.get(part.request))
        rows = self.allocator.extend(call_of(self.setting, part)).rows
        self.held[part.request] = tuple(len(row) for row in rows)
        return reasons, rows


def roomy(setting: WarmupSetting, parts: tuple[Part, ...]) -> Setting:
    """The setting with a pool that holds all the parts at once: reservation is compared, not admission."""
    longest: dict[int, Part] = {}
    for part in parts:
        if part.request not in longest or part.end > longest[part.request].end:
            longest[part.request] = part
    totals: dict[int, int] = {}
    for part in longest.values():
        if part.end not in totals:
            totals[part.end] = _blocks(setting, part.end)
    blocks = 2 + sum(totals[part.end] + len(setting.groups) for part in longest.values())
    return Setting(**{**{name: getattr(setting, name) for name in _SHARED}, "num_blocks": blocks})


_SHARED = tuple(attribute.name for attribute in fields(Setting))

# ------------------------------------------------------------------------------------------------------- the worker


def row_width(setting: WarmupSetting, group: Group) -> int:
    """Columns that the worker's block table has for a request of this group.

    By the longest sequence (with an encoder, its length too), divided by the ranks of a sharded group; attention rows
    are rounded up to a multiple of 128 tokens, the others are exact.
    """
    if isinstance(group, CircularBuffer):
        return 1
    longest = setting.max_model_len
    if setting.encoder_decoder:
        longest = max(longest, setting.max_encoder_len, setting.max_num_batched_tokens)
    if isinstance(group, Mamba):  # mode all is no configuration since 0.32; its rows would be indexed by position too
        return (1 if group.mode == "none" else ceil_div(longest, group.block_size)) + group.speculative_blocks
    multiple = 128 // gcd(128, group.block_size)
    return ceil_div(ceil_div(longest, group.tokens_per_column(setting.dcp_size)), multiple) * multiple
