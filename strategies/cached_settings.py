"""The setting of a packed trace with prefix caching on.

One byte chooses an area: which kinds meet. Within an area everything that the engine may combine is drawn: block and
hash sizes, windows, retention, the drop, drafts, depth, connector. Sizes are small, so that the borders of blocks,
windows, chunks and hash units lie close together.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, lcm
from typing import Any

from attrs import evolve

from oracle.errors import SettingError
from oracle.groups import (
    MLA,
    RSWA,
    ChunkedLocal,
    CircularBuffer,
    FullAttention,
    Group,
    HiddenState,
    Mamba,
    SlidingWindow,
    SlidingWindowMLA,
)
from oracle.lookup import alike
from oracle.releases import NEWEST, choices_of
from oracle.setting import Setting
from strategies.settings import DRAFTERS, Features, Reader, longest_request, within

SIZES = (4, 2, 4, 3, 8, 1, 4, 6)
POOL_TWENTIETHS = (30, 20, 24, 18, 26, 36, 44, 60, 80)


class CachedFeatures(Features):
    """The swarm switches of one trace with caching on."""

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
        "events",
        "eagle",
        "retention",
        "evict",
        "contents",
        "reserve",
        "ahead",
    )


Groups = list[Group]


def _full(reader: Reader, size: int, drafts: int) -> Groups:
    kinds: tuple[type[Group], ...] = (FullAttention, FullAttention, MLA, HiddenState)
    return [kinds[reader.below(4)](block_size=size) for _ in range((1, 1, 2, 3)[reader.below(4)])]


def _window(reader: Reader, size: int) -> Group:
    kind = (SlidingWindow, SlidingWindow, SlidingWindow, SlidingWindowMLA)[reader.below(4)]
    return kind(block_size=size, window=2 + reader.below(3 * size + 2), dcp_sharded=False)


def _windows(reader: Reader, size: int, drafts: int) -> Groups:
    return [_window(reader, size) for _ in range((1, 1, 2)[reader.below(3)])]


def _hybrid(reader: Reader, size: int, drafts: int) -> Groups:
    return [*_full(reader, size, drafts)[:2], *(_window(reader, size) for _ in range(1 + reader.below(3)))]


def _unequal(reader: Reader, size: int, drafts: int) -> Groups:
    sizes = ((4, 2), (8, 4), (2, 4), (4, 2, 8), (6, 3), (4, 1))[reader.below(6)]
    first, *rest = sizes
    groups: Groups = [FullAttention(block_size=first)]
    for one in rest:
        groups.append(_window(reader, one) if reader.below(3) else FullAttention(block_size=one))
    return groups


def _state(reader: Reader, size: int, drafts: int, checkpoints: bool = False) -> Group:
    more: dict[str, Any] = {"checkpoint_blocks": 1, "checkpoint_alignment": (1, 1, 2, 4)[reader.below(4)]}
    return Mamba(block_size=size, speculative_blocks=drafts, **(more if checkpoints else {}))


def _mamba(reader: Reader, size: int, drafts: int) -> Groups:
    size = max(size, 2 * drafts + 1)
    return [*_full(reader, size, drafts)[:2], _state(reader, size, drafts, reader.below(4) == 3)]


def _fine(reader: Reader, size: int, drafts: int) -> Groups:
    """Blocks that several hash sizes divide."""
    size = 8 if 2 * drafts >= 4 else 4
    groups = [*_full(reader, size, drafts)[:2], _state(reader, size, drafts, reader.below(3) == 2)]
    return [*groups, _window(reader, 2)] if reader.below(6) == 5 else groups


def _mamba_among_others(reader: Reader, size: int, drafts: int) -> Groups:
    state = max((4, 8)[reader.below(2)], 2 * drafts + 1)
    state += state % 2
    other = (2, state, 1, 2 * state)[reader.below(4)]
    groups: Groups = [FullAttention(block_size=other), _state(reader, state, drafts)]
    if reader.below(2):
        groups.append(_window(reader, (2, state)[reader.below(2)]))
    return groups


def _mamba_alone(reader: Reader, size: int, drafts: int) -> Groups:
    size = max(size, 2 * drafts + 1)
    return [_state(reader, size, drafts, reader.below(4) == 3) for _ in range((1, 1, 2)[reader.below(3)])]


def _rswa(reader: Reader, size: int, drafts: int) -> Groups:
    groups: Groups = [RSWA(block_size=size, window=1 + reader.below(2 * size + 2))]
    return [FullAttention(block_size=size), *groups] if reader.below(2) else groups


def _chunked(reader: Reader, size: int, drafts: int) -> Groups:
    groups: Groups = [ChunkedLocal(block_size=size, chunk=size * (1 + reader.below(4)), dcp_sharded=False)]
    return [*groups, FullAttention(block_size=size)] if reader.below(4) else groups


def _ring(reader: Reader, size: int, drafts: int) -> Groups:
    """One block a request beside the groups that are cached; its size does not count for the hashes."""
    groups = _full(reader, size, drafts) if reader.below(2) else _hybrid(reader, size, drafts)
    return [*groups[:4], CircularBuffer(block_size=(size, 4, 8, 2 * size)[reader.below(4)], dcp_sharded=False)]


def _dropped(reader: Reader, size: int, drafts: int) -> Groups:
    """Groups that lose their last unit in a lookup, beside a state, a window, or both."""
    size = 8 if 2 * drafts >= 4 else 4
    groups, beside = [*_full(reader, size * (1, 1, 2)[reader.below(3)], drafts)[:2]], reader.below(3)
    if beside != 1:
        groups.append(_state(reader, size, drafts, reader.below(4) == 3))
    return [*groups, _window(reader, (size, 2)[reader.below(2)])] if beside else groups


AREAS: tuple[tuple[str, Callable[[Reader, int, int], Groups]], ...] = (
    ("full", _full),
    ("hybrid", _hybrid),
    ("fine", _fine),
    ("mamba", _mamba),
    ("windows", _windows),
    ("unequal", _unequal),
    ("mamba among others", _mamba_among_others),
    ("rswa", _rswa),
    ("fine", _fine),
    ("chunked", _chunked),
    ("mamba alone", _mamba_alone),
    ("hybrid", _hybrid),
    ("ring", _ring),
    ("dropped", _dropped),
)


def read_cached_setting(reader: Reader, release: str = NEWEST, limits: str | None = None) -> tuple[Setting, Features]:
    """The setting that the first bytes stand for, and the features that its operations may use.

    release: whose rules hold. limits: the release whose kinds and fields are drawn, if it is another one.
    """
    choices = choices_of(limits or release)
    features = CachedFeatures(reader)
    area, build_groups = AREAS[reader.below(len(AREAS))]
    if area == "dropped":
        features.on |= {"speculation", "eagle"}
    size = SIZES[reader.below(len(SIZES))]
    max_model_len = 14 + reader.below(56)
    depth = 2 if "overlap" in features else 1
    (name, parallel), drafts = ("none", False), 0
    method, wanted = DRAFTERS[reader.below(len(DRAFTERS))], (1, 2, 3)[reader.below(3)]
    if "speculation" in features:
        (name, parallel), drafts = method, wanted
    groups = [within(group, choices) for group in build_groups(reader, size, drafts)]
    batched = 4 + reader.below(40)
    eagle = "eagle" in features and "speculation" in features and area != "chunked"
    marks, ahead = reader.byte(), reader.byte()
    if area == "dropped":
        marks, ahead = marks | 1, ahead & ~8 | ahead >> 1 & 64
    use_eagle = eagle and not ahead & 8
    if eagle and (use_eagle or choices.hash_lookahead):  # without the drop a group is marked since there is the other
        groups = [evolve(group, eagle=True) if marks >> index & 1 else group for index, group in enumerate(groups)]
    whole_rank = any(isinstance(group, CircularBuffer) or group.recycles for group in groups)
    replicated = area == "chunked" or (whole_rank and choices.sharded != "each")
    replicated |= area == "mamba alone" and choices.sharded == "all"  # nothing there is sharded
    sharded = marks >> 6 == 3 and not replicated and not any(g.recycles and g.dcp_sharded for g in groups)
    dcp = 2 if sharded else 1
    if marks & 32:
        groups[0] = evolve(groups[0], uniform_layers=2 * (marks & 1), precision=("half", "single")[marks >> 1 & 1])
    again = 2 + ahead % 2 if eagle and ahead & 16 and choices.modules_read_ahead else 1 if eagle else 0
    if not choices.one_class and len(alike(groups)) == 1:
        groups = groups[:1]
    columns = [group.tokens_per_column(dcp) for group in groups]
    whole = lcm(*columns)
    if again > whole:
        again = 1
    scale = POOL_TWENTIETHS[reader.below(len(POOL_TWENTIETHS))]
    more: dict[str, Any] = {
        "use_eagle": use_eagle,
        "num_prefill_lookahead_tokens": again,
        "enable_mamba_shared_prefix_checkpoint": bool(ahead & 32) and choices.junction_option,
        "prefix_cache_retention_interval": None,
        "divergent_hits": "connector" in features and bool(ahead & 64) and choices.apart,
    }
    if choices.hash_lookahead and not use_eagle and "ahead" in features and "connector" not in features:
        more["num_hash_lookahead_tokens"] = more["num_prefill_lookahead_tokens"] = min(1 + ahead % 3, whole)
    if area in ("chunked", "rswa"):  # no drafter that prefills again has such layers: nothing is retained for it
        more |= {name: min(1, more[name]) for name in more if name.endswith("lookahead_tokens")}
    again = int(more["num_prefill_lookahead_tokens"])
    if again > 1:  # the drafter prefills again, and reads its window from there
        groups = [evolve(g, extra_retained_tokens=again - 1) if isinstance(g, SlidingWindow) else g for g in groups]
    sparse = any(isinstance(group, (SlidingWindow, Mamba)) for group in groups)
    interval = (0, whole, 0, 2 * whole, 3 * whole)[reader.below(5)]
    if "retention" in features and (sparse or choices.retention_configured):
        more["prefix_cache_retention_interval"] = interval if sparse else 0
    largest = gcd(*(group.tokens_per_column(dcp) for group in groups if group.cacheable))
    divisors = [d for d in range(1, largest + 1) if largest % d == 0]
    hash_size = divisors[-1 - reader.below(len(divisors))] if len(groups) > 1 else largest

    need = longest_request(groups, max_model_len, dcp, depth * batched)
    num_blocks = 2 + need * scale // 20 + reader.below(3)
    try:
        setting = Setting(
            groups=tuple(groups),
            num_blocks=num_blocks,
            max_model_len=max_model_len,
            max_num_batched_tokens=batched,
            max_num_seqs=2 + marks % 4,
            max_in_flight_tokens=depth * batched,
            in_flight_depth=depth,
            method=name,
            parallel_drafting=parallel,
            num_speculative_tokens=drafts,
            enable_caching=True,
            hash_block_size=hash_size,
            dcp_size=dcp,
            watermark=0.12 if "watermark" in features else 0.0,
            kv_connector="connector" in features,
            enable_kv_cache_events="events" in features,
            release=release,
            **more,
        )
    except SettingError as error:
        raise AssertionError(f"the codec drew an impossible setting: {error}") from error
    return setting, features
