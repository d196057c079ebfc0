"""The setting of a packed trace: its first bytes, and the swarm switches that say what its operations may use.

As everywhere in the codec: where bytes end everything reads as 0, and 0 is the simplest choice. Sizes are chosen so
that the crossings happen: pools near what one or two requests need, block sizes 1 to 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from math import gcd

from attrs import evolve

from oracle.errors import SettingError
from oracle.groups import (
    MLA,
    RSWA,
    ChunkedLocal,
    CircularBuffer,
    CrossAttention,
    FullAttention,
    Group,
    HiddenState,
    Mamba,
    Sink,
    SlidingWindow,
    SlidingWindowMLA,
)
from oracle.methods import K_MORE_1, METHODS, WRITERS
from oracle.releases import NEWEST, Choices, choices_of
from oracle.rounding import ceil_div
from oracle.setting import Setting

BLOCK_SIZES = (4, 1, 2, 3, 4, 8, 16, 5, 4, 2, 6, 8)
KINDS: tuple[type[Group], ...] = (
    FullAttention,
    SlidingWindow,
    Mamba,
    FullAttention,
    ChunkedLocal,
    RSWA,
    Mamba,
    SlidingWindow,
    CrossAttention,
    SlidingWindowMLA,
    MLA,
    CircularBuffer,
    HiddenState,
)
#: the byte that gives a full-attention group a sink: rare, because the release cannot build its manager
SINK = 250
GROUP_COUNTS = (1, 2, 3, 2, 4, 3, 2, 4, 3, 5)
#: pool sizes in twentieths of what the longest request needs: below 20 nothing long fits, above 60 little is refused
POOL_TWENTIETHS = (24, 18, 20, 26, 30, 36, 44, 52, 64, 80, 100)
#: the writers, those with one slot more than K twice, and two that draft without KV; diffusion samples no token beside
#: its canvas, which the accounting of this level does not have
DRAFTERS = (
    *WRITERS,
    *(key for key in WRITERS if METHODS[key].reserved == K_MORE_1),
    ("ngram", False),
    ("ngram_gpu", False),
)


class Reader:
    """Bytes read one after the other; past the end everything is 0. `rest`: those still to come, `left`: how many."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.rest = iter(data)
        self.left: Callable[[], int] = self.rest.__length_hint__  # type: ignore[attr-defined]
        self.byte: Callable[[], int] = chain(self.rest, repeat(0)).__next__

    def below(self, limit: int) -> int:
        """0 .. limit-1."""
        return self.byte() % limit if limit > 1 else 0

    def pick(self, choices: tuple) -> object:  # type: ignore[type-arg]
        return choices[self.byte() % len(choices)]


class Features:
    """The swarm switches of one trace."""

    NAMES = (
        "speculation",
        "overlap",
        "connector",
        "gate",
        "watermark",
        "preempt",
        "abort",
        "deferred",
        "session",
        "trim",
        "sharded",
        "mixed_precision",
        "uniform",
        "unset_cap",
        "reserve",
        "new_step",
    )

    def __init__(self, reader: Reader) -> None:
        bits = reader.byte() | reader.byte() << 8
        self.on = {name for index, name in enumerate(self.NAMES) if bits >> index & 1}

    def __contains__(self, name: str) -> bool:
        return name in self.on


def _group(reader: Reader, features: Features, max_model_len: int, drafts: int, depth: int, profile: str) -> Group:
    kind = KINDS[reader.below(len(KINDS))]
    size = BLOCK_SIZES[reader.below(len(BLOCK_SIZES))]
    first, second = reader.byte(), reader.byte()
    wild = profile == "hostile" and second & 8
    more: dict[str, object] = {
        "precision": "single" if "mixed_precision" in features and first & 1 else "half",
        "uniform_layers": 2 if "uniform" in features and second & 1 else 0,
    }
    replicated = not first & 2
    if issubclass(kind, Mamba):
        mode = ("align", "none", "align", "all")[first % 4]
        if mode == "none" and not wild:
            size = max_model_len
        elif mode == "align" and not wild:
            size = max(size, drafts * depth + 1)
        more |= {"mode": mode, "speculative_blocks": drafts + (second % 7 == 6)}
        if mode == "align" and second % 2:
            more |= {"checkpoint_blocks": 1, "checkpoint_alignment": (1, 1, 2, 4)[second % 16 // 4]}
        return kind(block_size=size, **more)  # type: ignore[arg-type]
    if issubclass(kind, SlidingWindow):
        window = (1 if wild else 2) + first % min(3 * size + 3, max(1, max_model_len - 2))
        more |= {"window": window, "extra_retained_tokens": (0, 0, 0, 1, 3)[second % 5], "dcp_sharded": False}
    elif kind is ChunkedLocal:
        more |= {"chunk": 1 + first % (3 * size) if wild else size * (1 + first % 4), "dcp_sharded": False}
    elif kind is RSWA:
        more |= {"window": 1 + first % (2 * size + 2), "dcp_sharded": not replicated}
    else:
        more |= {"dcp_sharded": not replicated}
        if kind is FullAttention and first == SINK and profile == "scheduler":
            return Sink(block_size=size, sink_len=size, **more)  # type: ignore[arg-type]
    return kind(block_size=size, **more)  # type: ignore[arg-type]


def longest_request(groups: Iterable[Group], max_model_len: int, dcp: int, in_flight: int, encoder: int = 0) -> int:
    """Blocks that a request of max_model_len tokens holds at its peak, about: the scale of the pool."""
    total = 0
    for group in groups:
        size = group.tokens_per_column(dcp)
        columns = ceil_div(max_model_len, size)
        cap = group.admission_cap(in_flight, max_model_len)
        if isinstance(group, Mamba):
            columns = 1 + group.speculative_blocks + (1 if group.mode == "align" else 0)
        elif isinstance(group, CircularBuffer):
            columns = 1
        elif isinstance(group, CrossAttention):
            columns = ceil_div(encoder, size)
        total += columns if cap is None else min(cap, columns)
    return total


def within(group: Group, choices: Choices) -> Group:
    """The group as a release has it."""
    if (isinstance(group, CircularBuffer) and not choices.rings) or (isinstance(group, RSWA) and not choices.rswa):
        group = FullAttention(block_size=group.block_size, dcp_sharded=group.dcp_sharded, precision=group.precision)
    if isinstance(group, SlidingWindow) and not choices.retained:
        group = evolve(group, extra_retained_tokens=0)
    if isinstance(group, Mamba):
        return group if choices.checkpoints else evolve(group, checkpoint_blocks=0, checkpoint_alignment=None)
    if choices.sharded == "each":
        return group
    full = not group.recycles and group.positional
    return evolve(group, dcp_sharded=choices.sharded != "full" or full)


def may_shard(groups: tuple[Group, ...], choices: Choices, limited: bool = False) -> bool:
    """Whether a release takes these groups with DCP; limited: another one shards the same ones."""
    if limited and choices.sharded == "all" and not all(g.positional or isinstance(g, Mamba) for g in groups):
        return False
    return choices.sharded != "one" or (len(groups) == 1 and not isinstance(groups[0], Mamba))


def read_setting(
    reader: Reader, profile: str = "scheduler", release: str = NEWEST, limits: str | None = None
) -> tuple[Setting, Features]:
    """The setting that the first bytes stand for, and the features that its operations may use.

    release: whose rules hold. limits: the release whose kinds and fields are drawn, if it is another one.
    """
    features = Features(reader)
    max_model_len = 12 + reader.below(72)
    depth = 2 if "overlap" in features else 1
    name, parallel, drafts = "none", False, 0
    method = DRAFTERS[reader.below(len(DRAFTERS))]
    wanted = (3, 1, 2, 4, 3, 5)[reader.below(6)]
    if "speculation" in features:
        (name, parallel), drafts = method, wanted
    batched = 4 + reader.below(36)
    choices = choices_of(limits or release)
    groups = tuple(
        within(_group(reader, features, max_model_len, drafts, depth, profile), choices)
        for _ in range(GROUP_COUNTS[reader.below(10)])
    )
    cross = any(isinstance(group, CrossAttention) for group in groups)
    encoder = 1 + reader.below(20)
    sharded = "sharded" in features and may_shard(groups, choices, limits is not None)
    dcp = 2 if sharded and not any(g.recycles and g.dcp_sharded for g in groups) else 1
    limit = None if "unset_cap" in features and reader.below(3) == 0 else depth * batched
    scale = POOL_TWENTIETHS[reader.below(len(POOL_TWENTIETHS))]
    sparse = choices.retention_configured or any(isinstance(group, (SlidingWindow, Mamba)) for group in groups)
    retention = 0 if reader.below(2) and sparse else None

    need = longest_request(groups, max_model_len, dcp, max_model_len if limit is None else limit, encoder)
    num_blocks = 2 + need * scale // 20 + reader.below(3)
    hash_size = _hash_size(reader, groups, dcp)
    try:
        setting = Setting(
            groups=groups,
            num_blocks=num_blocks,
            max_model_len=max_model_len,
            max_num_batched_tokens=batched,
            max_num_seqs=1 + reader.data[2] % 6 if len(reader.data) > 2 else 4,
            max_in_flight_tokens=limit,
            in_flight_depth=depth,
            method=name,
            parallel_drafting=parallel,
            num_speculative_tokens=drafts,
            hash_block_size=hash_size,
            prefix_cache_retention_interval=retention,
            dcp_size=dcp,
            watermark=0.12 if "watermark" in features else 0.0,
            max_encoder_len=encoder if cross else 0,
            kv_connector="connector" in features,
            profile=profile,
            release=release,
        )
    except SettingError as error:
        raise AssertionError(f"the codec drew an impossible setting: {error}") from error
    return setting, features


def _hash_size(reader: Reader, groups: tuple[Group, ...], dcp: int) -> int | None:
    """Tokens a hash block, or None for the largest; with caching off only a checkpoint asks for it (A44)."""
    if not any(isinstance(group, Mamba) and group.checkpoint_blocks for group in groups):
        return None
    largest = gcd(*(group.tokens_per_column(dcp) for group in groups if group.cacheable))
    divisors = [size for size in range(1, largest) if largest % size == 0]
    return (None, *divisors)[reader.below(1 + len(divisors))]
