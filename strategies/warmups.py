"""Warmup traces from packed bytes: a runner's setting and one to three warmups.

As in `strategies.packed`: every byte string is a valid trace, and where bytes end everything reads as 0, the simplest
choice. Sizes are chosen so that the crossings happen: prompts that end at a block's border with and without lookahead,
max_model_len inside the warmup's own length, pools around what one request, all of them and the mixed step need.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from oracle.groups import (
    MLA,
    RSWA,
    ChunkedLocal,
    CircularBuffer,
    CrossAttention,
    FullAttention,
    Group,
    HiddenState,
    KpoolTail,
    Mamba,
    SlidingWindow,
    SlidingWindowMLA,
)
from oracle.laws import blocks_for_one
from oracle.methods import METHODS
from oracle.releases import NEWEST, choices_of
from oracle.rounding import ceil_div
from oracle.warmup import DRAFTERS as WITH_CODE
from oracle.warmup import (
    Draft,
    Kernels,
    Mixed,
    TraceOperation,
    WarmupOperation,
    WarmupSetting,
    WarmupTrace,
    kernel_requests,
    longest_request,
    mixed_blocks,
)
from strategies.settings import Reader, may_shard, within

#: bytes a trace
LENGTH = 64
BLOCK_SIZES = (16, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 12, 24, 48)
KINDS: tuple[type[Group], ...] = (
    FullAttention,
    SlidingWindow,
    Mamba,
    MLA,
    CrossAttention,
    ChunkedLocal,
    Mamba,
    RSWA,
    CircularBuffer,
    SlidingWindowMLA,
    HiddenState,
    Mamba,
)
GROUP_COUNTS = (1, 1, 1, 2, 2, 3, 4, 5)
SEATS = (2, 1, 2, 3, 4, 5, 8, 16, 64, 256)
_WITH_CODE = tuple((name, False) for name in WITH_CODE)
DRAFTERS = (*(key for key, row in METHODS.items() if key[0] != "none" and row.sampled == 1), *_WITH_CODE * 3)
FEATURES = (
    "speculation",
    "sharded",
    "replicated",
    "uniform",
    "mixed_precision",
    "pooling",
    "redirect",
    "adaptive",
    "other_pp_rank",
    "failure",
    "wide_scratch",
    "encoder_alone",
    "drafter_step",
)


def _features(reader: Reader) -> set[str]:
    bits = reader.byte() | reader.byte() << 8
    on = {name for index, name in enumerate(FEATURES) if bits >> index & 1}
    rare = reader.byte()  # these end a warmup early or switch a rule off: one trace in eight
    for index, name in enumerate(("pooling", "redirect", "failure", "encoder_alone")):
        if rare >> index * 2 & 3:
            on.discard(name)
    return on


def _longest(reader: Reader) -> int:
    """max_model_len: from a single token to thousands."""
    how, value = reader.byte() % 8, reader.byte()
    if how == 0:
        return 512 + 8 * value
    if how == 1:
        return 128 * (1 + value % 4)
    if how == 2:
        return 1 + value % 12
    if how < 6:
        return 12 + value % 100
    return 2048 + 16 * value


def _group(reader: Reader, features: set[str], max_model_len: int, drafts: int) -> Group:
    kind = KINDS[reader.below(len(KINDS))]
    size = BLOCK_SIZES[reader.below(len(BLOCK_SIZES))]
    first, second = reader.byte(), reader.byte()
    more: dict[str, object] = {
        "precision": "single" if "mixed_precision" in features and first & 1 else "half",
        "uniform_layers": 2 if "uniform" in features and second & 1 else 0,
    }
    if issubclass(kind, Mamba):
        mode = ("align", "none", "align", "all")[first % 4]
        size = max_model_len if mode == "none" else max(size, drafts + 1) if mode == "align" else size
        states = drafts + ("wide_scratch" in features)
        return kind(block_size=size, mode=mode, speculative_blocks=states, **more)  # type: ignore[arg-type]
    if issubclass(kind, SlidingWindow):
        window = 2 + first % (3 * size + 40)
        more |= {"window": window, "extra_retained_tokens": (0, 0, 0, 3)[second % 4], "dcp_sharded": False}
    elif kind is ChunkedLocal:
        more |= {"chunk": size * (1 + first % 4), "dcp_sharded": False}
    elif kind is RSWA:
        more |= {"window": 1 + first % 64, "dcp_sharded": "replicated" not in features}
    else:
        more |= {"dcp_sharded": "replicated" not in features or not second & 2}
    return kind(block_size=size, **more)  # type: ignore[arg-type]


def _tail(group: Group, tails: bool) -> Group:
    """Rings of odd size are an indexer's tail, where that is a kind of its own."""
    if isinstance(group, CircularBuffer) and tails and group.block_size % 2:
        return KpoolTail(block_size=group.block_size, precision=group.precision)
    return group


def read_setting(reader: Reader, release: str = NEWEST, limits: str | None = None) -> tuple[WarmupSetting, set[str]]:
    """The setting that the first bytes stand for, by the rules of a release, and the features of its operations.

    limits: the release whose kinds and features are drawn, if it is another one.
    """
    features = _features(reader)
    longest = _longest(reader)
    if "drafter_step" in features and longest > 64:
        longest = ceil_div(longest, 128) * 128  # the worker's rows end where the model does
    name, parallel, drafts = "none", False, 0
    drafter, count = DRAFTERS[reader.below(len(DRAFTERS))], 1 + reader.below(16)
    if "speculation" in features and "pooling" not in features:
        (name, parallel), drafts = drafter, count
    choices = choices_of(limits or release)
    tails = choices.tail_rings and choices_of(release).tail_rings
    groups = tuple(
        _tail(within(_group(reader, features, longest, drafts), choices), tails)
        for _ in range(GROUP_COUNTS[reader.below(8)])
    )
    encoder = 1 + reader.below(250)
    sharded = "sharded" in features and may_shard(groups, choices, limits is not None)
    sharded = sharded and not any(group.recycles and group.dcp_sharded for group in groups)
    seats = SEATS[reader.below(len(SEATS))]
    least = max(seats, drafts + 2)
    how, value = reader.byte() % 8, reader.byte()
    batched = (
        2048,
        8192,
        least * (drafts + 2),
        least,
        least + value,
        64 + 8 * value,
        2048,
        max(least - 1, drafts + 1),
    )[how]
    fields = {
        "groups": groups,
        "max_model_len": longest,
        "max_num_batched_tokens": max(batched, seats, drafts + 1 + (name in ("dflash", "dspark_fill_in")), 1),
        "max_num_seqs": seats,
        "max_in_flight_tokens": max(batched, seats, drafts + 2),
        "method": name,
        "parallel_drafting": parallel,
        "num_speculative_tokens": drafts,
        "dcp_size": (2, 4, 8)[value % 3] if sharded else 1,
        "cp_interleave": _interleave(groups, value) if sharded else 1,
        "max_encoder_len": encoder if any(isinstance(group, CrossAttention) for group in groups) else 0,
        "pooling": "pooling" in features,
        "last_pp_rank": "other_pp_rank" not in features,
        "adaptive_verification": "adaptive" in features and drafts > 0 and choices.adaptive_verification,
        "null_block_redirect": "redirect" in features and choices.null_redirect,
        "mm_encoder_only": "encoder_alone" in features and choices.encoder_alone,
        "release": release,
    }
    rough = WarmupSetting(num_blocks=2**20, **fields)  # type: ignore[arg-type]
    return WarmupSetting(num_blocks=_pool(reader, rough), **fields), features  # type: ignore[arg-type]


def _interleave(groups: tuple[Group, ...], value: int) -> int:
    """Tokens of a rank's turn: one, a few, or the largest that divides the blocks of all sharded groups."""
    common = gcd(*(group.block_size for group in groups if group.dcp_sharded)) or 1
    turns = [size for size in (1, 2, 3, 4, 8, common) if common % size == 0]
    return turns[value // 3 % len(turns)]


def _pool(reader: Reader, rough: WarmupSetting) -> int:
    """num_blocks: ample, two and a few, or around what one request, all requests, start-up or the mixed step need."""
    how, value = reader.byte() % 8, reader.byte()
    few = value % 5 - 2
    sizes: tuple[Callable[[], int], ...] = (
        lambda: 2**16,
        lambda: 2**12,
        lambda: 2 + value % 12,
        lambda: longest_request(rough) + 1 + few,
        lambda: longest_request(rough) * min(kernel_requests(rough), 1 + value % 4) + 1 + few,
        lambda: blocks_for_one(rough) + 1 + max(0, few),
        lambda: mixed_blocks(rough, 16) + few,
        lambda: 2**14,
    )
    return max(2, sizes[how]())


def _operation(reader: Reader, setting: WarmupSetting, features: set[str], mixed: bool) -> WarmupOperation:
    fail = 1 + reader.byte() % 14 if "failure" in features else 0
    how, value = reader.byte() % 8, reader.byte()
    if how < 4 or not mixed:
        return Kernels(fail=fail)
    sizes = [group.tokens_per_column(setting.dcp_size) for group in setting.groups]
    border = sizes[value % len(sizes)] * (1 + value // 64)
    wanted = (16, 1 + value % 8, setting.max_model_len - value % 3, border + value % 3 - setting.lookahead)[how - 4]
    return Mixed(num_tokens=max(1, min(wanted, setting.max_num_batched_tokens)), fail=fail % 6)


def _draft(reader: Reader, setting: WarmupSetting) -> Draft:
    """A decode step near the end of the model, or at a block's border."""
    how, value = reader.byte() % 4, reader.byte()
    drafts, last = setting.num_speculative_tokens, setting.max_model_len - 2
    size = setting.groups[0].tokens_per_column(setting.dcp_size)
    wanted = last - value % (2 * drafts + 2) if how else size * (1 + value // 64) - value % (drafts + 2)
    return Draft(computed=max(1, min(wanted, last)))


def decode(data: bytes, release: str = NEWEST, limits: str | None = None) -> WarmupTrace:
    """The trace that packed bytes stand for, by the rules of a release; limits as in `read_setting`."""
    reader = Reader(data)
    setting, features = read_setting(reader, release, limits)
    mixed = choices_of(limits or release).mixed_warmup
    count = (1, 1, 1, 2, 2, 3)[reader.below(6)]
    operations: list[TraceOperation] = [_operation(reader, setting, features, mixed) for _ in range(count)]
    drafter = setting.method in WITH_CODE and not setting.parallel_drafting
    if "drafter_step" in features and drafter and setting.max_model_len > 2:
        operations.append(_draft(reader, setting))
    return WarmupTrace(setting=setting, operations=tuple(operations))


def warmup_traces() -> st.SearchStrategy[WarmupTrace]:
    """A Hypothesis strategy of traces; shrinks towards zeros, the simplest choice everywhere."""
    return st.binary(min_size=LENGTH, max_size=LENGTH).map(decode)


def draw(run_seed: int, shard: int, count: int, visit: Callable[[bytes], None]) -> None:
    """Give `visit` the `count` examples of one shard: the same ones for the same seed, whoever runs it."""

    @seed(run_seed * 1_000_003 + shard)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=LENGTH, max_size=LENGTH))
    def each(data: bytes) -> None:
        visit(data)

    each()
