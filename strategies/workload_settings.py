"""The setting of a workload from packed bytes: swarm switches, groups, drafter, budgets, pool, connector, encoder.

As in `strategies.packed`: every byte string is a valid setting, and where bytes end everything reads as 0, the simplest
choice. Sizes are chosen so that the crossings happen: pools near one longest request (or nothing is ever preempted),
blocks of 1 to 16 tokens.
"""

from __future__ import annotations

from math import gcd, lcm
from typing import Any

from attrs import evolve

from oracle.content import LONGEST_ITEM
from oracle.groups import (
    MLA,
    RSWA,
    ChunkedLocal,
    CircularBuffer,
    CrossAttention,
    FullAttention,
    Group,
    Mamba,
    SlidingWindow,
)
from oracle.laws import blocks_for_one
from oracle.lookup import DENSE, alike
from oracle.methods import METHODS, Method, method
from oracle.released import method_of
from oracle.releases import NEWEST, Choices, choices_of
from oracle.scheduler_setting import (
    FAIL,
    FCFS,
    KV_BOTH,
    KV_CONSUMER,
    KV_PRODUCER,
    PRIORITY,
    RECOMPUTE,
    SchedulerSetting,
)
from oracle.setting import Setting
from strategies.settings import Reader, may_shard, within

BLOCK_SIZES = (4, 1, 2, 4, 16, 8, 3, 4)
KINDS: tuple[type[Group], ...] = (FullAttention, SlidingWindow, Mamba, ChunkedLocal, RSWA, MLA, Mamba, SlidingWindow)
#: the flag of parallel drafting on a method without a drafter is a case of the rules level
DRAFTERS = tuple(
    sorted(
        key
        for key, row in METHODS.items()
        if key[0] not in ("none", "diffusion") and (row.reserved.of(4) or not key[1])
    )
)
#: those whose drafter writes KV, and n-gram: the rest differ from n-gram in nothing that is scheduled
USUAL = tuple(key for key in DRAFTERS if METHODS[key].reserved.of(4) or key == ("ngram", False))
#: those of them whose drafter reads ahead of a chunk, and so needs the items there
AHEAD = tuple(key for key in USUAL if METHODS[key].prefill_lookahead.of(4))
#: usable blocks in sixths of what the longest request needs
POOL_SIXTHS = (6, 7, 8, 6, 9, 7, 10, 12, 15, 20)
FEATURES = (
    "speculation", "overlap", "hybrid", "priority", "watermark", "no_gate", "unchunked", "threshold", "cadence",
    "grow", "abort", "reset", "pause", "scheduled", "active", "early", "stops", "fewer_drafts", "urgent_last", "counts",
    "caching", "connector", "dcp", "encoder", "grammar", "session", "items", "pooling",
)  # fmt: skip
#: features that end a pass early, or hide others: on in one trace of eight
RARE = frozenset(
    ("encoder", "dcp", "counts", "unchunked", "cadence", "reset", "pause", "watermark", "no_gate", "scheduled")
) | {"active", "pooling"}

#: on in one trace of four
SELDOM = frozenset(("items",))
#: what the rarest crossings need: on in three traces of four
OFTEN = frozenset(("speculation", "hybrid", "caching"))


_NO_CHECKPOINTS: dict[str, Any] = {"checkpoint_blocks": 0, "checkpoint_alignment": None}


class Drawn:
    """The swarm switches of one trace."""

    def __init__(self, reader: Reader) -> None:
        bits = reader.byte() | reader.byte() << 8 | reader.byte() << 16
        rare = reader.byte() | reader.byte() << 8 | reader.byte() << 16
        late = reader.byte()
        bits, rare = bits | (late & 15) << 24, rare | (late >> 4) << 24
        self.on = {
            name
            for place, name in enumerate(FEATURES)
            if (
                bits >> place & 1
                and (name not in RARE or rare >> place & rare >> (place + 5) % 24 & 1)
                and (name not in SELDOM or rare >> place & 1)
            )
            or (name in OFTEN and rare >> place & 1)
        }

    def __contains__(self, name: str) -> bool:
        return name in self.on


def _group(reader: Reader, drafts: int, depth: int, longest: int, align: int, caching: bool) -> Group:
    kind = KINDS[reader.below(len(KINDS))]
    size = BLOCK_SIZES[reader.below(len(BLOCK_SIZES))]
    value = reader.byte()
    if kind is Mamba:
        if value & 1 and not caching:
            return Mamba(block_size=longest, mode="none", speculative_blocks=drafts)
        least = drafts * depth + 1
        state = Mamba(block_size=align or max(size, least + least % 2), mode="align", speculative_blocks=drafts)
        if caching and value & 14 == 14:
            state = evolve(state, checkpoint_blocks=1, checkpoint_alignment=1 + value // 16 % 2)
        return state
    if kind is SlidingWindow:
        return SlidingWindow(block_size=size, window=2 + value % (3 * size + 3))
    if kind is ChunkedLocal:
        return ChunkedLocal(block_size=size, chunk=size * (1 + value % 4))
    if kind is RSWA:
        return RSWA(block_size=size, window=1 + value % (2 * size + 2))
    return kind(block_size=size)


def _groups(reader: Reader, drawn: Drawn, drafts: int, depth: int, longest: int) -> tuple[Group, ...]:
    """With caching on mostly blocks of one size, as models with states have them."""
    caching = "caching" in drawn
    if "hybrid" not in drawn:
        return (FullAttention(block_size=BLOCK_SIZES[reader.below(len(BLOCK_SIZES))]),)
    groups: list[Group] = []
    align = 0
    for _ in range(((2, 2, 1, 3), (2, 2, 2, 3))["connector" in drawn][reader.below(4)]):
        group = _group(reader, drafts, depth, longest, align, caching)
        groups.append(group)
        if isinstance(group, Mamba) and group.mode == "align":
            align = group.block_size
    if caching and (align or any(isinstance(group, ChunkedLocal) for group in groups)) and reader.byte() & 15:
        groups = [_resized(group, align or groups[0].block_size) for group in groups]
    return tuple(groups)


def _prefilled_again(groups: tuple[Group, ...], ahead: int) -> tuple[Group, ...]:
    """A drafter of several modules prefills again, and its window begins there; chunked or R-SWA layers it has none."""
    if ahead < 2:
        return groups
    return tuple(
        evolve(group, extra_retained_tokens=ahead - 1)
        if isinstance(group, SlidingWindow)
        else FullAttention(block_size=group.block_size)
        if isinstance(group, ChunkedLocal | RSWA)
        else group
        for group in groups
    )


def _resized(group: Group, size: int) -> Group:
    if isinstance(group, ChunkedLocal):
        return evolve(group, block_size=size, chunk=group.chunk // group.block_size * size)
    return evolve(group, block_size=size)


def _cached(
    reader: Reader, drawn: Drawn, groups: tuple[Group, ...], ahead: int, drops: bool, dcp: int
) -> dict[str, Any]:
    """What the engine is told with caching on; nothing where these groups cannot be cached. drops: the last block."""
    sizes = [group.tokens_per_column(dcp) for group in groups]
    chunked = any(isinstance(group, ChunkedLocal) for group in groups)
    if "caching" not in drawn or (chunked and len(set(sizes)) > 1):
        return {}
    value = reader.byte()
    states = [group for group in groups if isinstance(group, Mamba)]
    connected = "connector" in drawn
    if (connected and states) or (drops and (chunked or ahead > lcm(*sizes))):
        return {}
    common = gcd(*sizes)
    divisors = [size for size in range(1, common + 1) if common % size == 0]
    if states and value & 3 and len(divisors) > 1:
        divisors.pop()  # a hit inside a block needs names that are finer
    fine = not connected and dcp == 1 and len(groups) > 1 and (bool(states) or value & 3 == 3)
    sparse = states or any(isinstance(group, SlidingWindow) for group in groups)
    interval = lcm(*sizes) if sparse and not value & 64 else None
    return {
        "enable_caching": True,
        "num_prefill_lookahead_tokens": ahead,
        "hash_block_size": divisors[-1 - (value >> 2) % len(divisors)] if fine else None,
        "prefix_cache_retention_interval": None if interval is None else interval * (0, 1, 0, 2)[value >> 4 & 3],
    }


def _found_together(groups: tuple[Group, ...], choices: Choices) -> bool:
    """Whether a release takes hits of these groups, in rows that end with them; the manager level has the others."""
    specs = alike(groups)
    dense = sum(isinstance(groups[one[0]], DENSE) for one in specs)
    return (choices.one_class or len(specs) > 1 or len(groups) == 1) and (
        choices.cuts_every_row or dense < 2 or len(specs) < 3
    )


def _connected(reader: Reader, groups: tuple[Group, ...]) -> dict[str, Any]:
    """The KV connector's part. Of several groups often one has another precision: what a load fills is not zeroed."""
    how = reader.byte()
    fails = how & 20 == 20
    if (how & 8 or not fails) and sum(group.attention for group in groups) > 1:
        first = next(group for group in groups if group.attention)
        groups = tuple(evolve(group, precision="single") if group is first else group for group in groups)
    return {
        "groups": groups,
        "kv_connector": True,
        "kv_role": (KV_BOTH, KV_BOTH, KV_CONSUMER, KV_PRODUCER)[how & 3],
        "kv_load_failure_policy": FAIL if fails else RECOMPUTE,
        "waits_for_block_frees": bool(how & 32),
    }


def _with_items(reader: Reader) -> dict[str, Any]:
    """A multimodal model's part: place for one item or a few, and encoder budgets of that size."""
    value, more = reader.byte(), reader.byte()
    return {
        "encoder_cache_size": LONGEST_ITEM + (value & 7) + (value >> 3 & 8),
        "max_num_encoder_input_tokens": None if value > 191 else LONGEST_ITEM + more % (3 if more & 64 else 7),
        "disable_chunked_mm_input": more >= 160,
    }


def _drafts(row: Method, wanted: int) -> int:
    """K that the drafter's modules can make."""
    return wanted if wanted <= row.modules else wanted - wanted % row.modules


def _counts(value: int, drafts: int, seats: int) -> tuple[tuple[int, int, int], ...]:
    """Full drafts for few requests, fewer or none for many."""
    few = 1 + value % seats
    return ((1, few, drafts), (few + 1, few + 8, value // 8 % drafts))


def _instead(key: tuple[str, bool], choices: Choices, both: bool) -> tuple[str, bool]:
    """The method, or a like one where its model cannot be built in a release; both: or where two read ahead unlike."""
    unlike = both and key[0] == "mtp_modules" and not choices.modules_read_ahead
    absent = key[0] == "mtp_constant" and not choices.constant_models
    return ("mtp", key[1]) if unlike or absent else key


def _without(drawn: Drawn, choices: Choices) -> None:
    """What a release does not have is not drawn."""
    absent = {"session": not choices.sessions, "active": not choices.active_option}
    drawn.on -= {name for name, lacks in absent.items() if lacks}


def read_setting(reader: Reader, release: str = NEWEST, limits: str | None = None) -> tuple[SchedulerSetting, Drawn]:
    """The setting that the first bytes stand for, by the rules of a release, and the switches of its operations.

    limits: the release whose methods, kinds and options are drawn, if it is another one.
    """
    drawn, choices = Drawn(reader), choices_of(limits or release)
    _without(drawn, choices)
    if {release, limits or release} != {NEWEST}:
        drawn.on.discard("items")
    if "pooling" in drawn:
        drawn.on -= {"speculation", "counts", "encoder", "session", "grammar"}
    which, rest = reader.byte(), reader.byte()
    among = AHEAD if "items" in drawn and which & 16 else DRAFTERS if which & 7 == 7 else USUAL
    key = among[rest % len(among)]
    name, parallel, drafts = "none", False, 0
    wanted = (3, 1, 2, 4, 3, 5)[reader.below(6)]
    if "speculation" in drawn:
        name, parallel = _instead(key, choices, limits is not None)
        drafts = _drafts(method(name, parallel), wanted)
    row = method_of(name, parallel, limits or release)
    ahead, kept = row.prefill_lookahead.of(drafts), row.charged.of(drafts)
    depth = 2 if "overlap" in drawn and row.overlaps else 1
    longest = 9 + reader.below(48)
    if {"session", "overlap", "urgent_last"} <= drawn.on:  # who is answered when it has been preempted, in a pause
        drawn.on |= {"pause", "grow"}
    if "connector" in drawn and "overlap" in drawn:  # who ends while a step of it is in flight keeps its blocks back
        drawn.on |= {"abort", "stops"}
    encoded = 1 + reader.below(24) if "encoder" in drawn else 0
    if encoded:
        drawn.on -= {"caching", "connector", "threshold", "dcp", "items"}
        drawn.on.add("unchunked")
    items = _with_items(reader) if "items" in drawn else {}
    seats = (4, 2, 3, 1, 6, 8, 4, 3)[reader.below(8)]
    up_front = kept * seats if choices.charged_up_front else 0
    least = max(seats, max(method(name, parallel).reserved.of(drafts), kept, up_front) + 1)
    value = reader.byte()
    batched = least + (value % 8, value % 24, longest, value % (2 * longest))[value >> 6]
    chunked = "unchunked" not in drawn
    if not chunked:
        batched = max(batched, longest + up_front)
    if items.get("disable_chunked_mm_input"):
        batched = max(batched, LONGEST_ITEM)
    groups = _prefilled_again(_groups(reader, drawn, drafts, depth, longest), ahead)
    if encoded:
        size = BLOCK_SIZES[encoded % len(BLOCK_SIZES)]
        groups = (*[g for g in groups if not isinstance(g, Mamba)][:2], CrossAttention(block_size=size))
    sharded = "dcp" in drawn and not any(isinstance(group, Mamba) for group in groups)
    if sharded:  # a group that recycles its blocks cannot be
        groups = tuple(evolve(group, dcp_sharded=not group.recycles) for group in groups)
    groups = tuple(within(group, choices) for group in groups)
    sharded = sharded and may_shard(groups, choices, limits is not None)
    sharded = sharded and not any(group.recycles and group.dcp_sharded for group in groups)
    whole_rank = any(isinstance(group, CircularBuffer) or group.recycles for group in groups)
    sharded = sharded and not ("caching" in drawn and whole_rank and choices.sharded != "each")
    value = reader.byte()
    threshold = (1, 2, 4, 8)[value & 3] if "threshold" in drawn else 0
    more: dict[str, Any] = {
        "max_model_len": longest,
        "max_num_batched_tokens": batched,
        "max_num_seqs": seats,
        "in_flight_depth": depth,
        "method": name,
        "parallel_drafting": parallel,
        "num_speculative_tokens": drafts,
        "groups": groups,
        "dcp_size": 2 if sharded else 1,
        "max_encoder_len": encoded,
        "release": release,
        "pooling": "pooling" in drawn,
    }
    hashed = "connector" not in drawn
    drops = row.block_drop and not (hashed and choices.hash_lookahead)
    cached = _cached(reader, drawn, groups, ahead, drops, 2 if sharded else 1)
    if not _found_together(groups, choices):
        cached = {}
    if cached:  # what the engine of this release tells the manager
        looks = hashed and choices_of(release).hash_lookahead
        drops = method_of(name, parallel, release).block_drop
        cached |= {"num_hash_lookahead_tokens": ahead if drops and looks else 0, "use_eagle": drops and not looks}
    else:
        more["groups"] = tuple(evolve(g, **_NO_CHECKPOINTS) if isinstance(g, Mamba) else g for g in groups)
    plain = {name: value for name, value in more.items() if name != "pooling"}
    need = blocks_for_one(Setting(num_blocks=2, max_in_flight_tokens=depth * batched, **plain))
    more |= cached
    if "connector" in drawn:
        more |= _connected(reader, more["groups"])
    if any(isinstance(group, Mamba) and group.mode == "align" for group in groups):
        items.pop("disable_chunked_mm_input", None)
    more |= items
    sixths = POOL_SIXTHS[reader.below(len(POOL_SIXTHS))]
    if {"session", "overlap", "pause"} <= drawn.on:
        sixths = min(sixths, 7)
    budget = reader.byte()
    if encoded:
        more["max_num_encoder_input_tokens"] = encoded + (budget >> 1) % (2 * encoded) * (budget & 1)
    return (
        SchedulerSetting(
            num_blocks=1 + need * sixths // 6 + reader.below(3),
            watermark=0.12 if "watermark" in drawn else 0.0,
            max_num_scheduled_tokens=max(1, batched - up_front - 1 - budget % 6)
            if "scheduled" in drawn and chunked
            else None,
            max_num_active_seqs=1 + value % seats if "active" in drawn else None,
            long_prefill_token_threshold=min(threshold, longest),
            long_prefill_token_threshold_adaptive=bool(value & 4) and choices.adaptive_threshold,
            enable_chunked_prefill=chunked,
            policy=PRIORITY if "priority" in drawn else FCFS,
            prefill_schedule_interval=2 + value % 3 if "cadence" in drawn else 1,
            scheduler_reserve_full_isl="no_gate" not in drawn,
            draft_counts=_counts(budget, drafts, seats) if drafts and "counts" in drawn else None,
            **more,
        ),
        drawn,
    )
