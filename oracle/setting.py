"""The setting of a trace: what an engine is configured with before the first request.

Frozen, and refused with a sentence when no engine could have it.
"""

from __future__ import annotations

from math import gcd, lcm

from attrs import field, frozen

from oracle.errors import SettingError
from oracle.groups import (
    FEW,
    MOST,
    ChunkedLocal,
    CircularBuffer,
    CrossAttention,
    Group,
    Mamba,
    SlidingWindow,
    at_least,
    one_of,
    optional,
)
from oracle.methods import lookahead_tokens, method

#: `scheduler`: operations that no scheduler would do are void. `hostile`: they are done, and must be survived.
PROFILES = ("scheduler", "hostile")


@frozen(kw_only=True)
class Setting:
    """What the KV-cache manager and the scheduler's accounting are built from.

    num_blocks counts the null block. Tokens: max_model_len, max_num_batched_tokens (a step), max_in_flight_tokens
    (None: unset, then max_model_len), max_encoder_len, hash_block_size (None: the largest size that divides every
    block), prefix_cache_retention_interval. in_flight_depth: steps scheduled whose output may be outstanding.
    kv_connector: requests may load external tokens, and blocks of a step in flight are freed later (S49).
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
    profile: str = field(default="scheduler", validator=one_of(*PROFILES))

    def __attrs_post_init__(self) -> None:
        if not self.groups:
            raise SettingError("groups must have at least one group, got none")
        if self.enable_caching:
            raise SettingError("enable_caching must be false: this version specifies the manager with caching off")
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

    def _check_groups(self) -> None:
        cross = any(isinstance(group, CrossAttention) for group in self.groups)
        if cross and self.max_encoder_len == 0:
            raise SettingError("a cross-attention group needs max_encoder_len of at least 1, got 0")
        if self.max_encoder_len and not cross:
            raise SettingError(f"max_encoder_len {self.max_encoder_len} needs a cross-attention group, got none")
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

    def cacheable_columns(self) -> tuple[int, ...]:
        """Tokens a column of every group that prefix caching knows (all but rings)."""
        return tuple(g.tokens_per_column(self.dcp_size) for g in self.groups if not isinstance(g, CircularBuffer))

    @property
    def lookahead(self) -> int:
        """Tokens that the scheduler asks for beyond the target's, in every call but an async load (S16)."""
        return lookahead_tokens(self.method, self.parallel_drafting, self.num_speculative_tokens)

    @property
    def scheduler_block_size(self) -> int:
        """Least common multiple of all block sizes (tokens)."""
        return lcm(*(g.tokens_per_column(self.dcp_size) for g in self.groups))

    @property
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
