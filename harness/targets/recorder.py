"""A vLLM plugin that records what a live scheduler asks of its `KVCacheManager` and what it gets.

It does nothing unless SLOTCHECK_RECORD names a folder. Then each engine's scheduler has a file of its own there, JSON
in lines: a head with the setting, then a line for each `schedule()`, written before it returns, also when it raises,
and one for each `update_from_output()` that was followed by anything. `harness.recording` reads them. The second line
of each part but the first is `state` (`record_state`). A line has

- `s` or `u`: a step was put together, or an output came back; milliseconds since the head. `back`: outputs before this
  line that brought nothing to tell. `of` 0: the output of a step of nobody.
- `p`: which running requests asked, in order; absent where they are those of the step before (`same` 1). `n`: for how
  many tokens and behind how many computed ones, by place, where not for those of a decode, 1 and the drafts. `t`: which
  of them took blocks or gave some back: `[place, computed, free, blocks per group]`, with windows and states
  `[place, computed, free, null, rows]`.
- `e`: everything else, `[asks before it, what]`; an ask as `_ask` tells it. `h`: digests of new hash blocks by request.
- `a`: drafts accepted, `[request, count]`.
- `free`: free blocks, where copies of blocks went to the worker. `raised`: what `schedule()` raised.

No prompt leaves the process: requests are numbers, and where prefix caching is on a block hash is a keyed digest whose
key is nowhere kept, so that equal prefixes can be told and nothing else. Parts are closed behind SLOTCHECK_RECORD_MB
(64) and at most SLOTCHECK_RECORD_PARTS (64) are kept; the next head then says how many are gone.

A fault of the recorder is logged once and ends the recording; the engine does not notice.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import os
import time
from pathlib import Path
from time import monotonic
from typing import Any

from harness.targets.record_notes import Notes
from harness.targets.record_parts import Parts
from harness.targets.record_parts import encode as _encode
from harness.targets.record_state import state_of
from harness.targets.record_transfers import watch_transfers

FOLDER = "SLOTCHECK_RECORD"
FORMAT = 1
LOG = logging.getLogger("slotcheck")
#: how `allocate_slots` begins: a call by position costs a third of one by keyword
_ORDER = ("request", "num_new_tokens", "num_new_computed_tokens", "new_computed_blocks", "num_lookahead_tokens")
_count = 0


def register() -> None:
    """The entry point of `vllm.general_plugins`; called once in each process of vLLM."""
    if not os.environ.get(FOLDER):
        return
    try:
        _install()
    except Exception:
        LOG.warning("slotcheck does not record: it does not know this vLLM", exc_info=True)


def _install() -> None:
    """From here on a scheduler that is built is recorded."""
    managers = importlib.import_module("vllm.v1.core.kv_cache_manager").KVCacheManager
    schedulers = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
    if getattr(schedulers.__init__, "slotcheck", False):
        return
    build_manager, build_scheduler = managers.__init__, schedulers.__init__

    @functools.wraps(build_manager)
    def manager_init(self: Any, *positional: Any, **named: Any) -> None:
        build_manager(self, *positional, **named)
        self._slotcheck_built = (build_manager, positional, named)

    @functools.wraps(build_scheduler)
    def scheduler_init(self: Any, *positional: Any, **named: Any) -> None:
        build_scheduler(self, *positional, **named)
        try:
            Recorder(self, Path(os.environ[FOLDER]))
        except Exception:
            LOG.warning("slotcheck does not record this engine", exc_info=True)

    scheduler_init.slotcheck = True  # type: ignore[attr-defined]
    managers.__init__, schedulers.__init__ = manager_init, scheduler_init


def _by_keyword(ask: Any) -> Any:
    """`allocate_slots` of a fork that begins in another way."""

    def asked(request: Any, new: int, _: int, __: Any, lookahead: int) -> Any:
        return ask(request, new, num_lookahead_tokens=lookahead)

    return asked


class Recorder(Notes):
    """Sits on one scheduler and its manager. All its state is about what has been written already."""

    def __init__(self, scheduler: Any, folder: Path) -> None:
        global _count  # noqa: PLW0603  # engines of this process
        from harness.targets.recorded_setting import setting_of
        from harness.tracefile import CONVERTER

        manager = scheduler.kv_cache_manager
        init, positional, named = manager._slotcheck_built
        names = list(inspect.signature(init).parameters)[1:]
        setting = setting_of(init, {**dict(zip(names, positional, strict=False)), **named}, scheduler.vllm_config)
        self.began = monotonic()
        head = {
            "slotcheck": "recording",
            "format": FORMAT,
            "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "process": os.getpid(),
            "setting": CONVERTER.unstructure(setting),
        }
        _count += 1
        self.parts = Parts(folder, f"engine-{os.getpid()}-{_count}", head)
        super().__init__(scheduler, setting)
        self.undo: list[tuple[Any, str]] = []
        self._wrap()

    # ------------------------------------------------------------------------------------------- wrapping

    def _wrap(self) -> None:
        manager, scheduler = self.manager, self.scheduler
        self.set(manager, "allocate_slots", self._allocate_slots(manager.allocate_slots))
        for name, note in (
            ("free", self._freed),
            ("evict_blocks", self._evicted),
            ("reset_prefix_cache", self._reset),
            ("get_computed_blocks", self._looked),
            ("take_kv_cache_block_copies", self._copied),
            *([("take_new_block_ids", self._zeroed)] if self.zeroes else []),
        ):
            self.wrap(manager, name, note)
        watch_transfers(self)
        self.set(scheduler, "schedule", self._schedule(scheduler.schedule))
        self.set(scheduler, "update_from_output", self._update(scheduler.update_from_output))

    def wrap(self, owner: Any, name: str, note: Any) -> None:
        """`owner`'s method, where it has it, noted when it has answered."""
        if hasattr(owner, name):
            self.set(owner, name, self._after(getattr(owner, name), note))

    def set(self, owner: Any, name: str, function: Any) -> None:
        setattr(owner, name, function)
        self.undo.append((owner, name))

    def fail(self) -> None:
        """A fault of ours: say it once, and let the engine be as it was."""
        LOG.warning("slotcheck stops recording: a fault of its own", exc_info=True)  # noqa: LOG014  # called by handlers
        for owner, name in self.undo:
            owner.__dict__.pop(name, None)
        self.failed = True

    def _allocate_slots(self, ask: Any) -> Any:
        """The hot path: a decode that takes nothing costs a call by position, an append and four comparisons."""
        plain = ask if tuple(inspect.signature(ask).parameters)[:5] == _ORDER else _by_keyword(ask)
        other = self._other(plain, ask)
        if self.recycling:  # blocks are given back too
            return other
        add, took, usual, empty = self.asks.append, self._took, self.usual, self.manager.empty_kv_cache_blocks

        def allocate_slots(
            request: Any,
            num_new_tokens: int,
            num_new_computed_tokens: int = 0,
            new_computed_blocks: Any = None,
            num_lookahead_tokens: int = 0,
            **more: Any,
        ) -> Any:
            if more or num_new_tokens != usual or new_computed_blocks is not None:
                return other(
                    request, num_new_tokens, num_new_computed_tokens, new_computed_blocks, num_lookahead_tokens, **more
                )
            add(request)
            try:
                blocks = plain(request, num_new_tokens, 0, None, num_lookahead_tokens)
            except Exception as error:
                took(request, num_new_tokens, num_lookahead_tokens, None, type(error).__name__)
                raise
            if blocks is not empty:
                took(request, num_new_tokens, num_lookahead_tokens, blocks, "")
            return blocks

        return allocate_slots

    def _other(self, plain: Any, ask: Any) -> Any:
        """An ask like any."""
        queue, took = self.queue, self._took
        closer, always = self.recycling, self.recycling and self.caching

        def allocate_slots(
            request: Any,
            num_new_tokens: int,
            num_new_computed_tokens: int = 0,
            new_computed_blocks: Any = None,
            num_lookahead_tokens: int = 0,
            **more: Any,
        ) -> Any:
            if more or new_computed_blocks is not None:
                more["num_new_computed_tokens"] = num_new_computed_tokens
                more["new_computed_blocks"] = new_computed_blocks
                return self._admission(ask, request, num_new_tokens, num_lookahead_tokens, more)
            self.asks.append(request)
            if num_new_tokens != self.usual:
                self.others.append((len(self.asks) - 1, num_new_tokens, request.num_computed_tokens))
            free = queue.num_free_blocks
            try:
                blocks = plain(request, num_new_tokens, 0, None, num_lookahead_tokens)
            except Exception as error:
                took(request, num_new_tokens, num_lookahead_tokens, None, type(error).__name__)
                raise
            if queue.num_free_blocks != free or blocks is None or (closer and (always or any(blocks.blocks))):
                took(request, num_new_tokens, num_lookahead_tokens, blocks, "")
            return blocks

        return allocate_slots

    def _admission(self, ask: Any, request: Any, new: int, lookahead: int, more: dict[str, Any]) -> Any:
        try:
            blocks = ask(request, new, num_lookahead_tokens=lookahead, **more)
        except Exception as error:
            self._ask(request, new, lookahead, more, None, type(error).__name__)
            raise
        self._ask(request, new, lookahead, more, blocks, "")
        return blocks

    def _after(self, method: Any, note: Any) -> Any:
        @functools.wraps(method)
        def noted(*positional: Any, **named: Any) -> Any:
            given = (*positional, *named.values())
            before = getattr(given[0], "status", None) if given else None
            answer = method(*positional, **named)
            try:
                note(given, answer, before)
            except Exception:
                self.fail()
            return answer

        return noted

    def _schedule(self, schedule: Any) -> Any:
        @functools.wraps(schedule)
        def recorded(*positional: Any, **named: Any) -> Any:
            try:
                output = schedule(*positional, **named)
            except Exception as error:
                self._write(b"s", f',"raised":"{type(error).__name__}"'.encode())
                raise
            if output.num_scheduled_tokens:
                self.flying.append(output.num_scheduled_tokens)
            self._write(b"s")
            return output

        return recorded

    def _update(self, update: Any) -> Any:
        drafts = self.scheduler.vllm_config.speculative_config is not None
        plain = not drafts and not self.caching

        @functools.wraps(update)
        def recorded(scheduled: Any, output: Any, *positional: Any, **named: Any) -> Any:
            accepted = self._accepted(scheduled, output) if drafts else None
            if scheduled.num_scheduled_tokens and self.flying:
                self.flying.popleft()
                if self.stale:
                    self.stale -= 1
            try:
                return update(scheduled, output, *positional, **named)
            finally:
                if plain and scheduled.num_scheduled_tokens and not self.events:
                    self.back += 1
                else:
                    self._returned(bool(scheduled.num_scheduled_tokens), accepted)

        return recorded

    # -------------------------------------------------------------------------------------------- writing

    def _write(self, kind: bytes, more: bytes = b"") -> None:
        """One line with what was noted since the last; put together by hand, since it is written in each step."""
        if self.failed:
            return
        try:
            asks, taken = self.asks, self.taken
            line = b'{"%b":%d,"back":%d%b' % (kind, int((monotonic() - self.began) * 1000), self.back, more)
            self.back = 0
            if asks:
                line += b',"same":1' if asks == self.last else self._who()
                asks.clear()
            if taken:
                line += b',"t":[%b]' % b",".join(taken)
                taken.clear()
            if self.digests:
                line += b',"h":[%b]' % b",".join(self.digests)
                self.digests.clear()
            if self.others or self.events or self.copied:
                line += self._rest()
            parts = self.parts
            parts.write(line + b"}\n")
            if parts.size > parts.limit and kind == b"s":
                self._next_part()
        except Exception:
            self.fail()

    def _next_part(self) -> None:
        """Close the part, if the next can begin with a state; in any case when it is twice as large as it should be."""
        state = state_of(self)
        if state is not None or self.parts.size > self.parts.most:
            self.last.clear()
            self.parts.next(b'{"state":%b}\n' % _encode(state).encode() if state else b"")

    def _rest(self) -> bytes:
        """What most steps do not have."""
        line = b',"free":%d' % self.queue.num_free_blocks if self.copied else b""
        self.copied = False
        for key, noted in (("n", self.others), ("e", self.events)):
            if noted:
                line += f',"{key}":{_encode(noted)}'.encode()
                noted.clear()
        return line

    def _who(self) -> bytes:
        """Who asked, kept for the next step to be compared with."""
        self.last[:] = self.asks
        numbers = self.numbers
        names = [numbers.get(request.request_id, -1) for request in self.asks]
        return f',"p":{_encode(names)}'.encode()

    def _accepted(self, scheduled: Any, output: Any) -> list[list[int]]:
        """Whose drafts were accepted, and how many."""
        try:
            sampled, places = output.sampled_token_ids, output.req_id_to_index
            return [
                [self.numbers[name], len(sampled[places[name]]) - 1]
                for name in scheduled.scheduled_spec_decode_tokens
                if name in self.numbers and len(sampled[places[name]]) > 1
            ]
        except Exception:
            self.fail()
            return []

    def _returned(self, anybody: bool, accepted: list[list[int]] | None) -> None:
        """An output is back: a line, if there is more to tell than that."""
        if self.failed:
            return
        try:
            if self.caching:
                now = self.outputs = self.outputs + 1
                for request in self.due.pop(now, ()):
                    if self.awaited.get(request.request_id) == now:
                        self.tell(request)
        except Exception:
            self.fail()
        if not anybody:
            self._write(b"u", b',"of":0')
        elif accepted:
            self._write(b"u", f',"a":{_encode(accepted)}'.encode())
        elif self.events:
            self._write(b"u")
        else:
            self.back += 1
