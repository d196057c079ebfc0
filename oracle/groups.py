"""The kinds of KV-cache group: what a token reads, and so which columns a row must have.

Words (allocation spec, section 1): a *row* is a request's blocks in one group, a *column* an index in it. Column j
covers positions j*b .. j*b+b-1 where b is `tokens_per_column`. `live(t)` is the first position that a token at
position t may still read; columns wholly below it are dead, and a dead column may be null (id 0).

All lengths and positions are in tokens, counts of columns and blocks in blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import Attribute, field, frozen

from oracle.errors import SettingError
from oracle.rounding import ceil_div

Validator = Callable[[object, "Attribute[Any]", Any], None]


#: most of a count of tokens, blocks or requests, for each of them is kept as an object of its own; and most of what is
#: multiplied with such a count (ranks, layers, states, draft tokens)
MOST, FEW = 1 << 20, 1 << 10


def at_least(least: int, most: int = MOST) -> Validator:
    """Validator: an int in `least` .. `most`, refused with the field's name and value."""

    def check(instance: object, attribute: Attribute[Any], value: object) -> None:
        name = attribute.name
        if not isinstance(value, int) or isinstance(value, bool):
            raise SettingError(f"{name} must be a whole number, got {value!r}")
        if value < least:
            raise SettingError(f"{name} must be at least {least}, got {value}")
        if value > most:
            raise SettingError(f"{name} must be at most {most}, got {value}")

    return check


def optional(least: int) -> Validator:
    """Validator: the same, or None."""
    check_number = at_least(least)

    def check(instance: object, attribute: Attribute[Any], value: object) -> None:
        if isinstance(value, int) and value < least:
            raise SettingError(f"{attribute.name} must be at least {least} or null, got {value}")
        if value is not None:
            check_number(instance, attribute, value)

    return check


def one_of(*allowed: object) -> Validator:
    """Validator: one of the values listed."""

    def check(instance: object, attribute: Attribute[Any], value: object) -> None:
        if value not in allowed:
            listed = ", ".join(repr(choice) for choice in allowed)
            raise SettingError(f"{attribute.name} must be one of {listed}, got {value!r}")

    return check


@frozen(kw_only=True)
class Group:
    """One KV-cache group: layers of one kind that share rows.

    block_size: tokens a block (per rank). dcp_sharded: whether decode context parallelism spreads a column over the
    ranks. precision: element type of the cache; mixed precisions make fresh blocks be zeroed (A60). uniform_layers:
    0 for a plain group, n to wrap n layers in `UniformTypeKVCacheSpecs` as the worker does (A48). eagle: the drafter
    has a layer here (`is_eagle_group`), so its hits may lose their last unit.
    """

    kind: ClassVar[str]
    #: positions are written through the row (not through a ring, a state or the encoder)
    positional: ClassVar[bool] = True
    attention: ClassVar[bool] = True
    #: recycles blocks while a request runs, so admission may count less than the whole sequence
    recycles: ClassVar[bool] = False
    #: the drafter writes its KV in this group's blocks
    drafts: ClassVar[bool] = True
    #: prefix caching knows its blocks
    cacheable: ClassVar[bool] = True

    block_size: int = field(validator=at_least(1))
    dcp_sharded: bool = True
    precision: str = field(default="half", validator=one_of("half", "single"))
    uniform_layers: int = field(default=0, validator=at_least(0, FEW))
    eagle: bool = False

    def tokens_per_column(self, dcp_size: int) -> int:
        """b: a sharded group keeps each position on one of `dcp_size` ranks (A62)."""
        return self.block_size * dcp_size if self.dcp_sharded else self.block_size

    def live(self, position: int) -> int:
        """First position that a token at `position` may still read; nothing below it is needed."""
        return 0

    def admission_cap(self, in_flight: int, max_model_len: int) -> int | None:
        """Most blocks held at once while at most `in_flight` tokens are unsettled; None: no cap."""
        return None


@frozen(kw_only=True)
class FullAttention(Group):
    """Reads every position; keeps everything to the end (A30)."""

    kind = "full_attention"


@frozen(kw_only=True)
class MLA(Group):
    """Multi-head latent attention: full attention with another content (A30)."""

    kind = "mla_attention"


@frozen(kw_only=True)
class HiddenState(Group):
    """Hidden states kept for `extract_hidden_states`: rows as full attention (A30)."""

    kind = "hidden_state"


@frozen(kw_only=True)
class Sink(Group):
    """Full attention whose first `sink_len` positions are served by blocks set aside at the start (A49)."""

    kind = "sink_full_attention"

    sink_len: int = field(validator=at_least(1))

    def __attrs_post_init__(self) -> None:
        if self.sink_len % self.block_size:
            raise SettingError(f"sink_len must be a multiple of block_size {self.block_size}, got {self.sink_len}")


@frozen(kw_only=True)
class SlidingWindow(Group):
    """A token at q reads q-window+1 .. q; `extra_retained_tokens` more are kept for drafters that replay (A31)."""

    kind = "sliding_window"
    recycles = True

    window: int = field(validator=at_least(1))
    extra_retained_tokens: int = field(default=0, validator=at_least(0))

    def live(self, position: int) -> int:
        first = position - (self.window - 1) - self.extra_retained_tokens
        return first if first > 0 else 0

    def admission_cap(self, in_flight: int, max_model_len: int) -> int | None:
        """A32: + 1 because a window may begin inside a block; the block size is the rank's own."""
        tokens = min(self.window - 1 + self.extra_retained_tokens + in_flight, max_model_len)
        return ceil_div(tokens, self.block_size) + 1


@frozen(kw_only=True)
class SlidingWindowMLA(SlidingWindow):
    """A sliding window over latent vectors."""

    kind = "sliding_window_mla"


@frozen(kw_only=True)
class ChunkedLocal(Group):
    """A token reads from the start of its own chunk of `chunk` tokens (A34)."""

    kind = "chunked_local_attention"
    recycles = True

    chunk: int = field(validator=at_least(1))

    def live(self, position: int) -> int:
        return position // self.chunk * self.chunk

    def admission_cap(self, in_flight: int, max_model_len: int) -> int | None:
        """A35: no + 1, a chunk begins on a block border."""
        return ceil_div(min(self.chunk + in_flight, max_model_len), self.block_size)


@frozen(kw_only=True)
class RSWA(Group):
    """Reads all of the prompt and the last `window` generated tokens; the gap between them is null (A36)."""

    kind = "rswa"

    window: int = field(validator=at_least(1))


@frozen(kw_only=True)
class CircularBuffer(Group):
    """One block for the request's life, used modulo its size: tokens do not matter (A38)."""

    kind = "circular_buffer"
    positional = False
    drafts = False
    cacheable = False


@frozen(kw_only=True)
class KpoolTail(CircularBuffer):
    """The ring of a pooling indexer's raw tail, which 0.30.0 and 0.31.0 have as a kind of its own."""

    kind = "kpool_tail"


@frozen(kw_only=True)
class CrossAttention(Group):
    """Holds the encoder's output: columns by encoder tokens, whatever the decoder does (A39)."""

    kind = "cross_attention"
    positional = False
    drafts = False


@frozen(kw_only=True)
class Mamba(Group):
    """Recurrent state. Mode none: 1 + s states used in place. Mode align: column j is the state after (j+1)*b tokens.

    speculative_blocks (s): one state per draft. checkpoint_blocks, checkpoint_alignment: whether a prefill chunk can
    also save the state at an inner boundary (A44).
    """

    kind = "mamba"
    positional = False
    attention = False
    drafts = False

    mode: str = field(default="align", validator=one_of("none", "all", "align"))
    speculative_blocks: int = field(default=0, validator=at_least(0, FEW))
    checkpoint_blocks: int = field(default=0, validator=at_least(0, FEW))
    checkpoint_alignment: int | None = field(default=None, validator=optional(1))
    dcp_sharded: bool = False

    def __attrs_post_init__(self) -> None:
        if self.dcp_sharded:
            raise SettingError("a Mamba group cannot be dcp_sharded: each rank holds the whole state")

    def live(self, position: int) -> int:
        """Only the state behind the last computed token is read on (A41, A43)."""
        return position - 1 if position > 0 else 0


KINDS: tuple[type[Group], ...] = (
    FullAttention,
    MLA,
    HiddenState,
    Sink,
    SlidingWindow,
    SlidingWindowMLA,
    ChunkedLocal,
    RSWA,
    CircularBuffer,
    KpoolTail,
    CrossAttention,
    Mamba,
)
