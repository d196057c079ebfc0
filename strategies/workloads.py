"""Workloads from packed bytes: an engine's setting, then who comes, which drafts are accepted, who stops or goes away.

As in `strategies.packed`: every byte string is a valid trace, and where bytes end everything reads as 0, the simplest
choice. Nothing needs the state: an index is taken modulo the requests submitted so far, and what fits no request is
void. Sizes are chosen so that the crossings happen: pools near one longest request (or nothing is ever preempted),
blocks of 1 to 16 tokens, prompts at block borders, at the budget, at max_model_len.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, lcm
from typing import Any

from attrs import evolve
from hypothesis import strategies as st

from oracle.content import LONGEST_ITEM, Item, item_length
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
from oracle.releases import NEWEST, Choices, choices_of, specified
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
from oracle.workload import (
    ASYNC,
    PAUSED_ALL,
    PAUSED_NEW,
    SYNC,
    UNPAUSED,
    Abort,
    Pause,
    Reset,
    SchedulerOperation,
    SchedulerTrace,
    Step,
    Submit,
    Update,
)
from strategies import traces
from strategies.settings import Reader, may_shard, within

#: bytes a trace, some 50 steps
LENGTH = 224
TRACES_A_KEY = 20
#: items a prompt, and different ones a trace
ITEMS, KINDS_OF_ITEMS = 6, 12
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
#: usable blocks in sixths of what the longest request needs
POOL_SIXTHS = (6, 7, 8, 6, 9, 7, 10, 12, 15, 20)
FEATURES = (
    "speculation", "overlap", "hybrid", "priority", "watermark", "no_gate", "unchunked", "threshold", "cadence",
    "grow", "abort", "reset", "pause", "scheduled", "active", "early", "stops", "fewer_drafts", "urgent_last", "counts",
    "caching", "connector", "dcp", "encoder", "grammar", "session", "items",
)  # fmt: skip
#: features that end a pass early, or hide others: on in one trace of eight
RARE = frozenset(
    ("encoder", "dcp", "counts", "unchunked", "cadence", "reset", "pause", "watermark", "no_gate", "scheduled")
) | {"active"}

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
    for _ in range((2, 2, 1, 3)[reader.below(4)]):
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


def _connected(reader: Reader) -> dict[str, Any]:
    """The KV connector's part."""
    how = reader.byte()
    return {
        "kv_connector": True,
        "kv_role": (KV_BOTH, KV_BOTH, KV_CONSUMER, KV_PRODUCER)[how & 3],
        "kv_load_failure_policy": FAIL if how & 4 else RECOMPUTE,
    }


def _with_items(reader: Reader) -> dict[str, Any]:
    """A multimodal model's part: place for one item or a few, and encoder budgets of that size."""
    value, more = reader.byte(), reader.byte()
    return {
        "encoder_cache_size": LONGEST_ITEM + (value & 7) + (value >> 3 & 8),
        "max_num_encoder_input_tokens": None if value > 191 else LONGEST_ITEM + more % 7,
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


def _without(drawn: Drawn, choices: Choices, release: str) -> None:
    """What a release does not have, or what is not specified for it, is not drawn."""
    absent = {
        "session": not choices.sessions,
        "caching": not specified(release, "scheduler with caching"),
        "active": not choices.active_option,
    }
    drawn.on -= {name for name, lacks in absent.items() if lacks}


def read_setting(reader: Reader, release: str = NEWEST, limits: str | None = None) -> tuple[SchedulerSetting, Drawn]:
    """The setting that the first bytes stand for, by the rules of a release, and the switches of its operations.

    limits: the release whose methods, kinds and options are drawn, if it is another one.
    """
    drawn, choices = Drawn(reader), choices_of(limits or release)
    _without(drawn, choices, limits or release)
    if {release, limits or release} != {NEWEST}:
        drawn.on.discard("items")
    which, rest = reader.byte(), reader.byte()
    key = DRAFTERS[rest % len(DRAFTERS)] if which & 7 == 7 else USUAL[rest % len(USUAL)]
    name, parallel, drafts = "none", False, 0
    wanted = (3, 1, 2, 4, 3, 5)[reader.below(6)]
    if "speculation" in drawn:
        name, parallel = _instead(key, choices, limits is not None)
        drafts = _drafts(method(name, parallel), wanted)
    row = method_of(name, parallel, limits or release)
    ahead, kept = row.prefill_lookahead.of(drafts), row.charged.of(drafts)
    depth = 2 if "overlap" in drawn and row.overlaps else 1
    longest = 9 + reader.below(48)
    if "connector" in drawn and "overlap" in drawn:  # who ends while a step of it is in flight keeps its blocks back
        drawn.on |= {"abort", "stops"}
    encoded = 1 + reader.below(24) if "encoder" in drawn else 0
    if encoded:
        drawn.on -= {"caching", "connector", "threshold", "dcp", "items"}
        drawn.on.add("unchunked")
    if "session" in drawn and "connector" not in drawn:
        drawn.on.discard("items")
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
    need = blocks_for_one(Setting(num_blocks=2, max_in_flight_tokens=depth * batched, **more))
    more |= cached
    if "connector" in drawn:
        more |= _connected(reader)
    if any(isinstance(group, Mamba) and group.mode == "align" for group in groups):
        items.pop("disable_chunked_mm_input", None)
    more |= items
    sixths = POOL_SIXTHS[reader.below(len(POOL_SIXTHS))]
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


class Operations:
    """The operations that the remaining bytes stand for."""

    def __init__(self, reader: Reader, setting: SchedulerSetting, drawn: Drawn, choices: Choices) -> None:
        self.reader, self.setting, self.drawn = reader, setting, drawn
        overlaps = setting.in_flight_depth > 1 and setting.num_speculative_tokens > 0
        self.may_reset = choices.resets_drafts or not overlaps
        self.may_fail = setting.fails_by_block or choices.load_failures_whole
        self.count = 0
        self.longest = setting.max_model_len - 1
        borders = {group.block_size for group in setting.groups if group.block_size < setting.max_model_len}
        self.borders = (*sorted(borders), setting.max_num_scheduled_tokens or setting.max_num_batched_tokens)
        self.drafts = setting.num_speculative_tokens
        events = [name for name in ("abort", "reset", "pause") if name in drawn]
        self.events = tuple(events)
        self.sessions = "session" in drawn and not (setting.max_encoder_len or setting.encoder_cache_size)
        #: where most prompts have their items, so that they share prefixes
        self.layout = self._layout(reader.byte()) if setting.encoder_cache_size else ()

    def all(self) -> tuple[SchedulerOperation, ...]:
        """Every one of them."""
        found: list[SchedulerOperation] = []
        while self.reader.left():
            found.append(self._next())
        return tuple(found)

    def _next(self) -> SchedulerOperation:
        choice = self.reader.byte()
        if choice < 56 or (self.count < 3 and choice < 128):
            return self._submit()
        if self.sessions and choice >= 176 and choice & 3:
            return self._update(choice)
        if self.events and choice >= 244:
            return self._event(choice)
        return self._step(choice)

    def _prompt(self) -> int:
        """A length at or beside a border, at the longest, or any."""
        value = self.reader.byte()
        how, rest = value & 7, value >> 3
        if how < 3:
            return 1 + (value * 7) % self.longest
        if how == 3:
            return self.longest - rest % 2
        if how == 4:
            return 1 + rest % 3
        border = self.borders[rest % len(self.borders)]
        return min(max(1, border * (1 + rest // 4) + how - 6), self.longest)

    def _forks(self) -> tuple[int, ...]:
        """Most share everything; some leave the common content early or late."""
        value = self.reader.byte()
        return () if value < 128 else (value % self.longest,)

    def _layout(self, start: int) -> tuple[Item, ...]:
        """Items at places of a prompt, from `start` on or soon behind."""
        items: list[Item] = []
        end = start % 8
        for _ in range(ITEMS):
            value = self.reader.byte()
            items.append((value % KINDS_OF_ITEMS, end + (0, 1, 0, 3)[value >> 6]))
            end = items[-1][1] + item_length(items[-1][0])
        return tuple(items)

    def _items(self, prompt: int) -> tuple[Item, ...]:
        """Those of all prompts, or of this one alone, as far as they fit."""
        value = self.reader.byte()
        items = self.layout if value < 176 else self._layout(value)
        return tuple([(item, at) for item, at in items if at + item_length(item) <= prompt]) if value & 15 else ()

    def _priority(self, value: int) -> int:
        """The later the more urgent, so that a victim stands before the one that asks; or any."""
        return max(0, 7 - self.count) if "urgent_last" in self.drawn else value % 3

    def _submit(self) -> Submit:
        value = self.reader.byte()
        self.count += 1
        prompt, most = self._prompt(), (1 + value % 5, 4 + value % 24, self.longest, 8 + value % 16)[value >> 6]
        if "grow" in self.drawn and value & 3:
            prompt, most = 1 + prompt % (self.longest // 2 + 1), self.longest
        plain = Submit(
            request=self.count - 1,
            prompt=min(prompt, self.longest),
            max_tokens=most,
            forks=self._forks() if self.setting.enable_caching else (),
            priority=self._priority(value) if self.setting.policy == PRIORITY else 0,
            grammar=(0, 1, 1, 3)[self.reader.byte() & 3] if "grammar" in self.drawn else 0,
            encoder=1 + self.reader.byte() % self.setting.max_encoder_len if self.setting.max_encoder_len else 0,
        )
        if self.sessions and value % 3:
            most = 1 + value % 5 if value & 64 else min(most, self.longest // 2)
            plain = evolve(plain, session=True, prompt=1 + prompt % (self.longest // 3 + 1), max_tokens=most)
        if self.setting.encoder_cache_size:
            plain = evolve(plain, items=self._items(plain.prompt))
        return self._connected(plain) if self.setting.kv_connector else plain

    def _update(self, choice: int) -> Update:
        """A piece of input for one of the last few requests, seldom its end."""
        value = self.reader.byte()
        name = max(0, self.count - 1 - choice // 4 % 4)
        prompt = value % (2 + self.longest // 4) if value < 224 else 0
        return Update(request=name, prompt=min(prompt, self.longest), max_tokens=1 + value // 8 % 7)

    def _connected(self, plain: Submit) -> Submit:
        """What the far side has of it: most often all of the prompt, or up to a border; how it is loaded."""
        value, more = self.reader.byte(), self.reader.byte()
        size = self.borders[value % len(self.borders)]
        remote = (plain.prompt, plain.prompt, plain.prompt - plain.prompt % size, value * 3 % (plain.prompt + 1))[
            value >> 6
        ]
        if self.setting.kv_role == KV_PRODUCER or more & 3 == 3:
            remote = 0
        return evolve(
            plain,
            remote=remote,
            load=SYNC if remote and more & 4 else ASYNC,
            unknown=more >> 6 if remote and more & 8 else 0,
            again=bool(remote and more & 16),
            keeps=bool(more & 32),
        )

    def _event(self, choice: int) -> SchedulerOperation:
        name = self.events[choice % len(self.events)]
        value = self.reader.byte()
        if name == "abort":
            return Abort(request=value % max(1, self.count))
        if name == "reset":
            return Reset(running=bool(value & 3) and self.may_reset, connector=bool(value & 4))
        return Pause(state=(UNPAUSED, PAUSED_NEW, PAUSED_ALL)[value % 3])

    def _step(self, choice: int) -> Step:
        """Of the last few requests: drafts accepted, fewer drafts proposed, a stop token."""
        names = range(max(0, self.count - 8), self.count)
        accepted: list[tuple[int, int]] = []
        drafts: list[tuple[int, int]] = []
        stops: list[tuple[int, int]] = []
        if self.drafts:
            value = self.reader.byte()
            accepted = [(n, got) for n in names if (got := (value * (2 * n + 3) >> 3) % (self.drafts + 1))]
            if "fewer_drafts" in self.drawn and choice & 4:
                drafts = [(n, (value >> 1) * (n + 1) % (self.drafts + 1)) for n in names]
        if "stops" in self.drawn and choice & 25 == 25 and self.count:
            stops = [(names[choice % len(names)], choice >> 6)]
        early = "early" in self.drawn and choice & 2 == 2
        plain = Step(accepted=tuple(accepted), stops=tuple(stops), drafts=tuple(drafts), early=early)
        if "grammar" in self.drawn and names:
            value = self.reader.byte()
            allowed = [(n, value * (n + 2) % (self.drafts + 1)) for n in names if self.drafts and value & 1]
            plain = evolve(plain, valid=tuple(allowed), refused=(names[value % len(names)],) if value > 246 else ())
        return self._moved(plain, names) if self.setting.kv_connector else plain

    def _moved(self, plain: Step, names: range) -> Step:
        """A load in three ends, one in four of these badly; a sending in two ends."""
        value, fails = self.reader.byte(), self.reader.byte()
        loaded = [
            (n, 1 + fails % 5 if fails & 3 == n & 3 and self.may_fail else 0) for n in names if (value + 5 * n) % 3 == 0
        ]
        sent = [n for n in names if (value >> n % 8) & 1]
        return evolve(plain, loaded=tuple(loaded), sent=tuple(sent))


def decode(data: bytes, release: str = NEWEST, limits: str | None = None) -> SchedulerTrace:
    """The trace that packed bytes stand for, by the rules of a release; limits as in `read_setting`."""
    reader = Reader(data)
    setting, drawn = read_setting(reader, release, limits)
    return SchedulerTrace(
        setting=setting, operations=Operations(reader, setting, drawn, choices_of(limits or release)).all()
    )


def workloads() -> st.SearchStrategy[SchedulerTrace]:
    """A Hypothesis strategy of traces; shrinks towards zeros, the simplest choice everywhere."""
    return st.binary(min_size=LENGTH, max_size=LENGTH).map(decode)


def draw(run_seed: int, shard: int, count: int, visit: Callable[[bytes], None]) -> None:
    """Give `visit` the `count` traces of one shard: the same ones for the same seed, whoever runs it."""
    traces.draw(run_seed, shard, count, visit, LENGTH, TRACES_A_KEY)
