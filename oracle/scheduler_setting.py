"""What an engine of the scheduler level is configured with."""

from __future__ import annotations

from functools import cached_property

from attrs import field, frozen

from oracle.budget import ACTIVE, BUDGET, MODULES, OVERLAP, SEQS, Case, Facts, predict
from oracle.content import LONGEST_ITEM
from oracle.errors import SettingError
from oracle.groups import Mamba, at_least, one_of
from oracle.laws import blocks_for_one
from oracle.methods import draft_counts
from oracle.releases import NEWEST
from oracle.setting import Setting

FCFS, PRIORITY = "fcfs", "priority"
KV_BOTH, KV_PRODUCER, KV_CONSUMER = "kv_both", "kv_producer", "kv_consumer"
RECOMPUTE, FAIL = "recompute", "fail"

_REFUSED = {
    MODULES: "num_speculative_tokens must be whole turns of the drafter's modules",
    SEQS: "max_num_batched_tokens must be at least max_num_seqs",
    ACTIVE: "max_num_active_seqs must not exceed max_num_seqs",
    OVERLAP: "this method cannot overlap steps: in_flight_depth must be 1",
    BUDGET: "max_num_batched_tokens must exceed the method's lookahead",
}


@frozen(kw_only=True)
class SchedulerSetting(Setting):
    """A manager's setting, and what the scheduler adds to it. in_flight_depth: 2 is async scheduling.

    max_num_batched_tokens: B, rows of a step. max_num_scheduled_tokens: G, tokens of a step (None: B).
    max_num_active_seqs: A, requests that may run (None: max_num_seqs). long_prefill_token_threshold: T0 (0: off).
    prefill_schedule_interval: I, the cadence of prefills. scheduler_reserve_full_isl: the whole known sequence must
    fit at admission. draft_counts: (first, last, drafts of the next step) by the number of scheduled requests.
    kv_role, kv_load_failure_policy: of the KV connector. Only a consumer (or both) loads.
    waits_for_block_frees: while it sends blocks it would rather have the scheduler wait for them than preempt.
    max_num_encoder_input_tokens: tokens that the encoder takes in a step (None: max_num_batched_tokens).
    encoder_cache_size: place for the encoder's outputs (tokens) of a decoder with multimodal items; 0: text alone.
    disable_chunked_mm_input: no chunk ends inside an item.
    pooling: the model pools: a request ends with the output of its last token, and nothing is sampled.
    """

    max_num_scheduled_tokens: int | None = None
    max_num_active_seqs: int | None = None
    long_prefill_token_threshold: int = field(default=0, validator=at_least(0))
    long_prefill_token_threshold_adaptive: bool = False
    enable_chunked_prefill: bool = True
    policy: str = field(default=FCFS, validator=one_of(FCFS, PRIORITY))
    prefill_schedule_interval: int = field(default=1, validator=at_least(1))
    scheduler_reserve_full_isl: bool = True
    draft_counts: tuple[tuple[int, int, int], ...] | None = None
    kv_role: str = field(default=KV_BOTH, validator=one_of(KV_BOTH, KV_PRODUCER, KV_CONSUMER))
    kv_load_failure_policy: str = field(default=RECOMPUTE, validator=one_of(RECOMPUTE, FAIL))
    waits_for_block_frees: bool = False
    max_num_encoder_input_tokens: int | None = None
    encoder_cache_size: int = field(default=0, validator=at_least(0))
    disable_chunked_mm_input: bool = False
    pooling: bool = False

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.profile != "scheduler":
            raise SettingError(f"profile must be 'scheduler' at this level, got {self.profile!r}")
        if self.in_flight_depth > 2:
            raise SettingError(f"in_flight_depth must be 1 or 2 (async scheduling), got {self.in_flight_depth}")
        if self.max_in_flight_tokens is not None:
            raise SettingError("max_in_flight_tokens follows from max_num_batched_tokens at this level; leave it out")
        self._check_encoder()
        if self.pooling:
            self._check_pooling()
        if not self.kv_connector and (self.kv_role, self.kv_load_failure_policy) != (KV_BOTH, RECOMPUTE):
            raise SettingError("kv_role and kv_load_failure_policy need kv_connector true, got false")
        if self.waits_for_block_frees and not self.kv_connector:
            raise SettingError("waits_for_block_frees needs kv_connector true, got false")
        for name in ("max_num_scheduled_tokens", "max_num_active_seqs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SettingError(f"{name} must be at least 1 or null, got {value}")
        if self.max_model_len < 2:
            raise SettingError(f"max_model_len must be at least 2 (a prompt and a token), got {self.max_model_len}")
        if self.long_prefill_token_threshold > self.max_model_len:
            raise SettingError(
                f"long_prefill_token_threshold must not exceed max_model_len {self.max_model_len}, "
                f"got {self.long_prefill_token_threshold}"
            )
        if not self.enable_chunked_prefill and self.budget < self.max_model_len:
            raise SettingError(f"without chunked prefill a step must hold max_model_len {self.max_model_len} tokens")
        if self.draft_counts is not None:
            if not self.num_speculative_tokens:
                raise SettingError("draft_counts need num_speculative_tokens of at least 1, got 0")
            draft_counts(self.draft_counts, self.num_speculative_tokens, self.max_num_seqs)
        refused = self.facts.refused
        if refused:
            raise SettingError(_REFUSED[refused])
        align = {group.block_size for group in self.groups if isinstance(group, Mamba) and group.mode == "align"}
        if len(align) > 1:
            raise SettingError(f"Mamba groups in mode align must have one block size, got {sorted(align)}")
        self._check_states()
        if self.enable_caching:
            self._check_drafter_of_hits()
        need = blocks_for_one(self)
        if self.num_blocks - 1 < need:
            raise SettingError(f"num_blocks must be at least {need + 1} for a request of max_model_len, got "
                               f"{self.num_blocks}")  # fmt: skip

    def _check_pooling(self) -> None:
        """What a model that samples nothing does not have."""
        for name in ("num_speculative_tokens", "max_encoder_len"):
            if getattr(self, name):
                raise SettingError(f"{name} must be 0 with pooling true, got {getattr(self, name)}")

    def _check_encoder(self) -> None:
        """Encoder-decoder models have neither chunks nor prefix caching nor a connector; others may have items."""
        if not self.max_encoder_len:
            self._check_items()
            return
        for name, value in (
            ("enable_chunked_prefill", False),
            ("enable_caching", False),
            ("kv_connector", False),
            ("long_prefill_token_threshold", 0),
            ("encoder_cache_size", 0),
        ):
            if getattr(self, name) != value:
                raise SettingError(f"{name} must be {value} with a cross-attention group, got {getattr(self, name)}")
        if self.encoder_budget < self.max_encoder_len:
            raise SettingError(
                f"max_num_encoder_input_tokens must hold max_encoder_len {self.max_encoder_len}, "
                f"got {self.encoder_budget}"
            )

    def _check_items(self) -> None:
        """The longest item must fit; the rules are those of the newest release."""
        if not self.encoder_cache_size:
            for name in ("max_num_encoder_input_tokens", "disable_chunked_mm_input"):
                if getattr(self, name):
                    raise SettingError(f"{name} needs a cross-attention group or an encoder_cache_size, got none")
            return
        if self.release != NEWEST:
            raise SettingError(f"this version has items by the rules of {NEWEST}, got {self.release}; leave "
                               "encoder_cache_size 0")  # fmt: skip
        for name, value in (
            ("encoder_cache_size", self.encoder_cache_size),
            ("max_num_encoder_input_tokens", self.encoder_budget),
        ):
            if value < LONGEST_ITEM:
                raise SettingError(f"{name} must hold an item, {LONGEST_ITEM} tokens, got {value}")
        if self.disable_chunked_mm_input and self.max_num_batched_tokens < LONGEST_ITEM:
            raise SettingError(
                f"max_num_batched_tokens must hold an item, {LONGEST_ITEM} tokens, with disable_chunked_mm_input true, "
                f"got {self.max_num_batched_tokens}"
            )

    def _check_states(self) -> None:
        """Where Mamba groups are specified at this level."""
        if self.disable_chunked_mm_input and self.align_size:
            raise SettingError("disable_chunked_mm_input must be false beside Mamba groups in mode align, got true")
        states = [group for group in self.groups if isinstance(group, Mamba)]
        if self.dcp_size > 1 and states:
            raise SettingError(f"this version schedules dcp_size {self.dcp_size} without Mamba groups only")
        if not self.enable_caching and any(group.checkpoint_blocks for group in states):
            raise SettingError("checkpoint_blocks need enable_caching true, got false")

    def _check_drafter_of_hits(self) -> None:
        """With caching on the manager is told of the drafter."""
        facts = self.facts
        for name, value in (
            ("use_eagle", facts.block_drop and not facts.hash_lookahead),
            ("num_hash_lookahead_tokens", facts.hash_lookahead),
            ("num_prefill_lookahead_tokens", facts.prefill_lookahead),
        ):
            if getattr(self, name) != value:
                raise SettingError(f"{name} must be {value} with this drafter, got {getattr(self, name)}")
        if self.kv_connector and self.fine_hits:
            raise SettingError("this version has no KV connector beside hits inside a block; set one of them off")
        if self.kv_connector and any(isinstance(group, Mamba) for group in self.groups):
            raise SettingError("this version has no KV connector beside Mamba groups with caching on")

    @property
    def defers_frees(self) -> bool:
        """S49: a step in flight may still write blocks that a load could be given."""
        return self.kv_connector and self.in_flight_depth > 1 and self.kv_role != KV_PRODUCER

    @property
    def spares_for_sending(self) -> bool:
        """S49: whether nobody is preempted while blocks are sent, which come back by themselves."""
        return self.waits_for_block_frees and self.choices.asks_for_frees

    @property
    def fails_by_block(self) -> bool:
        """Whether a failed load is told by its blocks: they name a request in one group; a state is all or nothing."""
        return len(self.groups) == 1 and not isinstance(self.groups[0], Mamba)

    @property
    def drops_preempted(self) -> bool:
        """Whether a preemption drops the outputs in flight: a producer must hand over the K/V of what it delivers."""
        return self.kv_connector and self.kv_role != KV_CONSUMER and self.choices.drops_for_delivery

    @property
    def encoder_budget(self) -> int:
        """Tokens of the encoder in a step; 0 without one. Where items have no limit of their own: one fits at least."""
        if not self.max_encoder_len and not self.encoder_cache_size:
            return 0
        default = max(self.max_num_batched_tokens, LONGEST_ITEM * bool(self.encoder_cache_size))
        return self.max_num_encoder_input_tokens or default

    @property
    def sampled(self) -> int:
        """Tokens that a step samples for a request beside its drafts; a position is kept for them."""
        return 0 if self.pooling else 1

    @cached_property
    def budget(self) -> int:
        """G (tokens)."""
        return self.max_num_scheduled_tokens or self.facts.scheduled or self.max_num_batched_tokens

    @cached_property
    def charged(self) -> int:
        """Rows (c): what each scheduled request is charged for its drafts."""
        return 0 if self.choices.charged_up_front else self.facts.charged

    @cached_property
    def facts(self) -> Facts:
        """What the configuration comes to: lookahead, charged slots, limits, or a refusal."""
        return predict(self.case, self.release)

    @property
    def case(self) -> Case:
        """The configuration that decides of it."""
        return Case(
            method=self.method if self.num_speculative_tokens else "none",
            parallel=self.parallel_drafting,
            drafts=self.num_speculative_tokens,
            budget=self.max_num_batched_tokens,
            seqs=self.max_num_seqs,
            scheduled=self.max_num_scheduled_tokens,
            active=self.max_num_active_seqs,
            overlap=self.in_flight_depth > 1,
            caching=self.enable_caching,
            connector=self.kv_connector,
        )

    @property
    def in_flight_limit(self) -> int:
        """F (tokens): every step in flight may be full."""
        return self.in_flight_depth * self.max_num_batched_tokens

    @cached_property
    def align_size(self) -> int:
        """Block size (tokens) of the Mamba groups in mode align; 0 without one."""
        return next((g.block_size for g in self.groups if isinstance(g, Mamba) and g.mode == "align"), 0)
