"""Workloads from packed bytes: an engine's setting, then who comes, which drafts are accepted, who stops or goes away.

As in `strategies.packed`: every byte string is a valid trace, and where bytes end everything reads as 0, the simplest
choice. Nothing needs the state: an index is taken modulo the requests submitted so far, and what fits no request is
void. Sizes are chosen so that the crossings happen: prompts at block borders, at the budget, at max_model_len.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from oracle.content import Item, item_length
from oracle.releases import NEWEST, Choices, choices_of
from oracle.scheduler_setting import (
    KV_PRODUCER,
    PRIORITY,
    RECOMPUTE,
    SchedulerSetting,
)
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
from strategies.settings import Reader
from strategies.workload_settings import Drawn, read_setting

#: bytes a trace, some 50 steps
LENGTH = 224
TRACES_A_KEY = 20
#: items a prompt, a later piece of a session's, and different ones a trace
ITEMS, ITEMS_A_PIECE, KINDS_OF_ITEMS = 6, 2, 12


class Operations:
    """The operations that the remaining bytes stand for."""

    def __init__(self, reader: Reader, setting: SchedulerSetting, drawn: Drawn, choices: Choices) -> None:
        self.reader, self.setting, self.drawn = reader, setting, drawn
        overlaps = setting.in_flight_depth > 1 and setting.num_speculative_tokens > 0
        self.may_reset = choices.resets_drafts or not overlaps
        self.may_fail = setting.fails_by_block or choices.load_failures_whole
        self.retries = setting.kv_connector and setting.kv_load_failure_policy == RECOMPUTE
        #: of 256 operations those that submit a request
        self.arrivals = 80 if self.retries else 56
        self.count = 0
        self.longest = setting.max_model_len - setting.sampled
        borders = {group.block_size for group in setting.groups if group.block_size < setting.max_model_len}
        self.borders = (*sorted(borders), setting.max_num_scheduled_tokens or setting.max_num_batched_tokens)
        self.drafts = setting.num_speculative_tokens
        events = [name for name in ("abort", "reset", "pause") if name in drawn]
        self.events = tuple(events)
        self.sessions = "session" in drawn and not setting.max_encoder_len
        #: whether sessions may be answered after a preemption, while the engine is paused
        self.rests = self.sessions and "pause" in drawn and setting.in_flight_depth > 1
        #: where answers of sessions end whose content all share (tokens); with caching on
        self.answered: list[int] = []
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
        if choice < self.arrivals or (self.count < 3 and choice < 128):
            return self._submit()
        if self.rests and choice >= 236:
            return self._event(choice)
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

    def _content(self, told: dict[str, Any]) -> None:
        """Most share everything; some leave the common content early or late. Few do not read what others have left."""
        value = self.reader.byte()
        told["skip"] = value & 15 == 7 or (self.setting.pooling and value & 3 == 3)
        if self.answered and value & 3 == 2:
            self._like_a_piece(told, value)
        elif value >= 128:
            told["forks"] = (value % self.longest,)

    def _like_a_piece(self, told: dict[str, Any], value: int) -> None:
        """A request that says what a session says in its second piece."""
        kept = self.answered[-1 - (value >> 2) % min(3, len(self.answered))]
        told["forks"], told["prompt"] = (kept,), min(self.longest, kept + 1 + (value >> 4))
        told["skip"] = False

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
        if self.retries and value & 3:  # most are through before the operations end: what drains does not fail
            most = 1 + value % 5
        told: dict[str, Any] = {
            "request": self.count - 1,
            "prompt": min(prompt, self.longest),
            "max_tokens": most,
            "priority": self._priority(value) if self.setting.policy == PRIORITY else 0,
        }
        if self.setting.enable_caching:
            self._content(told)
        if "grammar" in self.drawn:
            told["grammar"] = (0, 1, 1, 3)[self.reader.byte() & 3]
        if self.setting.max_encoder_len:
            told["encoder"] = 1 + self.reader.byte() % self.setting.max_encoder_len
        if self.sessions and value % 3:
            most = 1 + value % 5 if value & 64 else min(most, self.longest // 2)
            most, part = (1 + value % 2, self.longest // 2) if self.rests else (most, self.longest // 3)
            told |= {"session": True, "prompt": 1 + prompt % (part + 1), "max_tokens": most}
            if self.setting.enable_caching and not told.get("forks"):
                self.answered.append(told["prompt"] + most - 1)
        if self.setting.encoder_cache_size:
            told["items"] = self._items(told["prompt"])
        if self.setting.pooling:
            told["max_tokens"] = 1
        if self.setting.kv_connector:
            self._connected(told)
        return Submit(**told)

    def _update(self, choice: int) -> Update:
        """A piece of input for one of the last few requests, seldom its end."""
        value = self.reader.byte()
        name = max(0, self.count - 1 - choice // 4 % 4)
        prompt = value % (2 + self.longest // 4) if value < 224 else 0
        prompt = min(prompt, self.longest)
        items = self._items(prompt)[:ITEMS_A_PIECE] if prompt and self.setting.encoder_cache_size else ()
        return Update(request=name, prompt=prompt, max_tokens=1 + value // 8 % 7, items=items)

    def _connected(self, told: dict[str, Any]) -> None:
        """What the far side has of it: most often all of the prompt, or up to a border; how it is loaded."""
        value, more, prompt = self.reader.byte(), self.reader.byte(), told["prompt"]
        size = self.borders[value % len(self.borders)]
        remote = (prompt, prompt, prompt - prompt % size, value * 3 % (prompt + 1))[value >> 6]
        if self.setting.kv_role == KV_PRODUCER or more & (7 if self.retries else 3) == 3:
            remote = 0
        told["remote"] = remote
        told["load"] = SYNC if remote and more & 4 and (value & 56 == 56 or not self.retries) else ASYNC
        told["unknown"] = more >> 6 if remote and more & 8 else 0
        told["again"] = bool(remote and more & (176 if self.retries else 16))
        told["keeps"] = bool(more & 32) or self.setting.waits_for_block_frees

    def _event(self, choice: int) -> SchedulerOperation:
        name = self.events[choice % len(self.events)]
        value = self.reader.byte()
        if name == "abort":
            return Abort(request=value % max(1, self.count))
        if name == "reset":
            return Reset(running=bool(value & 3) and self.may_reset, connector=bool(value & 4))
        if self.rests and value & 1:
            return Pause(state=PAUSED_NEW)
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
        told: dict[str, Any] = {
            "accepted": tuple(accepted),
            "stops": tuple(stops),
            "drafts": tuple(drafts),
            "early": early,
        }
        if "grammar" in self.drawn and names:
            value = self.reader.byte()
            told["valid"] = tuple(
                [(n, value * (n + 2) % (self.drafts + 1)) for n in names if self.drafts and value & 1]
            )
            told["refused"] = (names[value % len(names)],) if value > 246 else ()
        if self.setting.kv_connector:
            self._moved(told, names)
        return Step(**told)

    def _moved(self, told: dict[str, Any], names: range) -> None:
        """A load in three ends, one in four of these badly, or two in three and every other; a sending in two ends.

        Where the scheduler waits for what is sent, a sending in four.
        """
        value, fails = self.reader.byte(), self.reader.byte()
        some, ends = (1, 2) if self.retries else (3, 1)
        told["loaded"] = tuple(
            [
                (n, 1 + fails % 5 if fails & some == n & some and self.may_fail else 0)
                for n in names
                if (value + 5 * n) % 3 < ends
            ]
        )
        rare = (value << 1 | value >> 7) if self.setting.waits_for_block_frees else value
        told["sent"] = tuple([n for n in names if (value & rare) >> n % 8 & 1])


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
