"""The setting of a trace: what an engine is configured with before the first request.

Frozen, and refused with a sentence when no engine could have it.
"""

from __future__ import annotations

from functools import cached_property
from math import gcd, lcm

from attrs import field, frozen
from packaging.version import InvalidVersion

from oracle.errors import SettingError
from oracle.groups import (
    FEW,
    MLA,
    MOST,
    RSWA,
    ChunkedLocal,
    CrossAttention,
    FullAttention,
    Group,
    HiddenState,
    Mamba,
    Sink,
    SlidingWindow,
    at_least,
    one_of,
    optional,
)
from oracle.methods import lookahead_tokens, method
from oracle.releases import NEWEST, Choices, choices_of

#: `scheduler`: operations that no scheduler would do are void. `hostile`: they are done, and must be survived.
PROFILES = ("scheduler", "hostile")


def _a_release(instance: object, attribute: object, value: object) -> None:
    try:
        choices_of(str(value))
    except InvalidVersion:
        raise SettingError(f"release must be a number like {NEWEST}, got {value!r}") from None


@frozen(kw_only=True)
class Setting:
    """What the KV-cache manager and the scheduler's accounting are built from.

    num_blocks counts the null block. Tokens: max_model_len, max_num_batched_tokens (a step), max_in_flight_tokens
    (None: unset, then max_model_len), max_encoder_len, hash_block_size (None: the largest size that divides every
    block), prefix_cache_retention_interval. in_flight_depth: steps scheduled whose output may be outstanding.
    kv_connector: requests may load external tokens, and blocks of a step in flight are freed later (S49).
    divergent_hits: the connector also brings the Mamba state that a local hit lacks (P26).
    release: the vLLM release whose rules hold.

    With caching on: use_eagle: hits lose their last unit in the groups that the drafter has a layer in (in all, if none
    is marked). num_hash_lookahead_tokens: tokens behind a boundary that its name also covers.
    num_prefill_lookahead_tokens: a multi-module drafter may prefill all but one of them again. The last two are options
    of the engine: stop at a junction inside a block, tell consumers what is cached.
    """

    groups: tuple[Group, ...]
    num_blocks: int = field(validator=at_least(2))
    max_model_len: int = field(validator=at_least(1))
    max_num_batched_tokens: int = field(default=2048, validator=at_least(1))
    max_num_seqs: int = field(default=256, validator=at_least(1))
    max_in_flight_tokens: int | None = field(default=None, validator=optional(1))
    in_flight_depth: int = field(default=1, validator=at_least(1, FEW))
    method: str = "none"
    parallel_drafting: bool = False
    num_speculative_tokens: int = field(default=0, validator=at_least(0, FEW))
    enable_caching: bool = field(default=False, validator=one_of(False, True))
    hash_block_size: int | None = field(default=None, validator=optional(1))
    prefix_cache_retention_interval: int | None = field(default=None, validator=optional(0))
    dcp_size: int = field(default=1, validator=at_least(1, FEW))
    watermark: float = 0.0
    max_encoder_len: int = field(default=0, validator=at_least(0))
    kv_connector: bool = False
    divergent_hits: bool = False
    use_eagle: bool = False
    num_hash_lookahead_tokens: int = field(default=0, validator=at_least(0))
    num_prefill_lookahead_tokens: int = field(default=0, validator=at_least(0))
    enable_mamba_shared_prefix_checkpoint: bool = False
    enable_kv_cache_events: bool = False
    profile: str = field(default="scheduler", validator=one_of(*PROFILES))
    release: str = field(default=NEWEST, validator=_a_release)

    def __attrs_post_init__(self) -> None:
        if not self.groups:
            raise SettingError("groups must have at least one group, got none")
        if not 0 <= self.watermark < 1:
            raise SettingError(f"watermark must be in [0, 1), a share of the pool, got {self.watermark}")
        if self.num_speculative_tokens and self.method == "none":
            raise SettingError("num_speculative_tokens needs a method, got method 'none'")
        if method(self.method, self.parallel_drafting).sampled != 1:
            raise SettingError(
                f"method {self.method!r} samples no token beside its drafts, which the accounting of a trace does not "
                "have; take another method"
            )
        self._check_groups()
        self._check_block_sizes()
        if self.enable_caching:
            self._check_caching()

    def _check_groups(self) -> None:
        cross = any(isinstance(group, CrossAttention) for group in self.groups)
        if cross and self.max_encoder_len == 0:
            raise SettingError("a cross-attention group needs max_encoder_len of at least 1, got 0")
        if self.max_encoder_len and not cross:
            raise SettingError(f"max_encoder_len {self.max_encoder_len} needs a cross-attention group, got none")
        aside = sum(group.sink_len // group.block_size for group in self.groups if isinstance(group, Sink))
        if aside >= self.num_blocks:
            raise SettingError(
                f"num_blocks must be above {aside}, got {self.num_blocks}: that many blocks are set aside for sinks"
            )
        for group in self.groups:
            if group.tokens_per_column(self.dcp_size) > MOST:
                raise SettingError(
                    f"block_size x dcp_size must be at most {MOST}, got {group.block_size} x {self.dcp_size}"
                )
            if group.recycles and group.dcp_sharded and self.dcp_size > 1:
                raise SettingError(
                    f"a {group.kind} group cannot be sharded over {self.dcp_size} DCP ranks: "
                    "its admission cap is not scaled; set dcp_sharded to false"
                )
            if self.profile == "scheduler":
                self._check_realistic(group)

    def _check_realistic(self, group: Group) -> None:
        """What a real configuration never has; the hostile profile may."""
        size = group.block_size
        if isinstance(group, SlidingWindow) and group.window < 2:
            raise SettingError(f"window must be at least 2, got {group.window}")
        if isinstance(group, ChunkedLocal) and group.chunk % size:
            raise SettingError(f"chunk must be a multiple of block_size {size}, got {group.chunk}")
        if isinstance(group, Mamba):
            if group.mode == "none" and size < self.max_model_len:
                raise SettingError(
                    f"block_size of a Mamba group in mode none must be at least max_model_len {self.max_model_len}, "
                    f"got {size}: its kernels read column 0 for ever"
                )
            if group.speculative_blocks < self.num_speculative_tokens:
                raise SettingError(
                    f"speculative_blocks of a Mamba group must be at least num_speculative_tokens "
                    f"{self.num_speculative_tokens}, got {group.speculative_blocks}"
                )
            drafts = self.num_speculative_tokens * self.in_flight_depth
            if group.mode == "align" and size <= drafts:
                raise SettingError(
                    f"block_size of a Mamba group in mode align must exceed the {drafts} draft tokens in flight, "
                    f"got {size}: a rollback would cross columns whose states are gone"
                )

    def _check_block_sizes(self) -> None:
        size = self.hash_block_size
        if size is None:
            return
        for columns in self.cacheable_columns():
            if columns % size:
                raise SettingError(f"hash_block_size must divide every block size, {size} does not divide {columns}")

    def _check_caching(self) -> None:
        """What an engine with prefix caching cannot have (caching spec, section 12)."""
        columns = self.cacheable_columns()
        if not columns:
            raise SettingError("enable_caching needs a group that can be cached, got rings alone")
        if len(self.groups) == 1 and self.hash_size != columns[0]:
            raise SettingError(f"hash_block_size of a single group must be its block size {columns[0]}")
        if self.scheduler_block_size % self.hash_size:
            raise SettingError(f"hash_block_size {self.hash_size} must divide {self.scheduler_block_size}")
        if self.divergent_hits and not self.kv_connector:
            raise SettingError("divergent_hits is what a connector can bring, set kv_connector to true too")
        if self.use_eagle and self.num_hash_lookahead_tokens:
            raise SettingError("use_eagle and num_hash_lookahead_tokens exclude each other: one of them is enough")
        if self.drop_groups and self.num_prefill_lookahead_tokens > self.scheduler_block_size:
            raise SettingError(
                f"num_prefill_lookahead_tokens must be at most {self.scheduler_block_size} (all block sizes' least "
                f"common multiple), got {self.num_prefill_lookahead_tokens}"
            )
        states = {g.block_size for g in self.groups if isinstance(g, Mamba)}
        if len(states) > 1:
            raise SettingError(f"Mamba groups must have one block size with caching on, got {sorted(states)}")
        for index, group in enumerate(self.groups):
            if isinstance(group, (CrossAttention, Sink)) or (isinstance(group, Mamba) and group.mode != "align"):
                mode = f" in mode {group.mode}" if isinstance(group, Mamba) else ""
                raise SettingError(f"a {group.kind} group{mode} cannot be cached; set enable_caching to false")
            if not group.cacheable and group.dcp_sharded and self.dcp_size > 1:
                raise SettingError(f"a {group.kind} group cannot be sharded with caching on; set dcp_sharded to false")
            if isinstance(group, ChunkedLocal) and (index in self.drop_groups or len(set(columns)) > 1):
                raise SettingError("a chunked local group needs equal block sizes and no EAGLE drop to be cached")
        self._check_retention()

    def _check_retention(self) -> None:
        interval = self.prefix_cache_retention_interval
        sparse = any(isinstance(group, (SlidingWindow, Mamba)) for group in self.groups)
        if interval and not sparse:
            raise SettingError(
                f"prefix_cache_retention_interval needs a window or a Mamba group, got {interval}; set it to 0 or null"
            )
        if interval is not None and (interval < 0 or interval % self.scheduler_block_size):
            raise SettingError(
                f"prefix_cache_retention_interval must be a multiple of {self.scheduler_block_size}, got {interval}"
            )

    def cacheable_columns(self) -> tuple[int, ...]:
        """Tokens a column of every group that prefix caching knows (all but rings)."""
        return tuple(g.tokens_per_column(self.dcp_size) for g in self.groups if g.cacheable)

    @cached_property
    def drop_groups(self) -> frozenset[int]:
        """Groups whose hits lose their last unit: those marked; all, if none is marked; none without `use_eagle`."""
        if not self.use_eagle:
            return frozenset()
        marked = frozenset(index for index, group in enumerate(self.groups) if group.eagle)
        return marked or frozenset(range(len(self.groups)))

    @cached_property
    def fine_hits(self) -> bool:
        """P24: hits may end inside a block, on a multiple of the hash size."""
        if len(self.groups) < 2:
            return False
        size = self.hash_size
        sharded = self.dcp_size > 1
        if sharded and not self.choices.sharded_fine_hits:
            return False
        states = [g for g in self.groups if isinstance(g, Mamba)]
        others = [g for g in self.groups if g.cacheable and not isinstance(g, Mamba)]
        coarse = not all(
            isinstance(g, (FullAttention, MLA, HiddenState, RSWA)) or g.tokens_per_column(self.dcp_size) == size
            for g in others
        )
        return any(g.block_size > size or (sharded and g.block_size == size) for g in states) and not (
            coarse and self.choices.coarse_groups_end_fine_hits
        )

    @property
    def defers_copies(self) -> bool:
        """S49: a load is not ordered behind a step in flight, so the ends of a copy wait until its step has run."""
        return self.kv_connector and self.in_flight_depth > 1

    @cached_property
    def hit_unit(self) -> int:
        """a: every hit is a multiple of it (tokens)."""
        return self.hash_size if self.fine_hits else self.scheduler_block_size

    @cached_property
    def choices(self) -> Choices:
        """What the release chose."""
        return choices_of(self.release)

    @cached_property
    def lookahead(self) -> int:
        """Tokens that the scheduler asks for beyond the target's, in every call but an async load (S16)."""
        return lookahead_tokens(self.method, self.parallel_drafting, self.num_speculative_tokens)

    @cached_property
    def scheduler_block_size(self) -> int:
        """Least common multiple of all block sizes (tokens)."""
        return lcm(*(g.tokens_per_column(self.dcp_size) for g in self.groups))

    @cached_property
    def hash_size(self) -> int:
        """Tokens a hash block."""
        return self.hash_block_size or gcd(*(self.cacheable_columns() or (self.scheduler_block_size,)))

    @property
    def in_flight_limit(self) -> int:
        """F (tokens): most tokens scheduled but not settled, as start-up sizing assumes."""
        return self.max_model_len if self.max_in_flight_tokens is None else self.max_in_flight_tokens

    @property
    def watermark_blocks(self) -> int:
        """Blocks kept free for the running requests when a waiting one is admitted (A17)."""
        return int(self.watermark * self.num_blocks)
