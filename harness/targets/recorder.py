"""A vLLM plugin that records what a live scheduler asks of its `KVCacheManager` and what it gets.

It does nothing unless SLOTCHECK_RECORD names a folder. Then each engine's scheduler has a file of its own there, JSON
in lines: a head with the setting, then a line for each `schedule()`, written before it returns, also when it raises,
and one for each `update_from_output()` that was followed by anything. `harness.recording` reads them. A line has

- `s` or `u`: a step was put together, or an output came back; milliseconds since the head. `back`: outputs before this
  line that brought nothing to tell. `of` 0: the output of a step of nobody.
- `p`: which running requests asked, in order; absent where they are those of the step before (`same` 1). `n`: for how
  many tokens, by place, where not for those of a decode, 1 and the drafts. `t`: which of them took blocks or gave some
  back: `[place, computed, free, blocks per group]`, with windows and states `[place, computed, free, null, rows]`.
- `e`: everything else, `[asks before it, what]`; an ask as `_ask` tells it. `h`: digests of new hash blocks by request.
- `a`: drafts accepted, `[request, count]`.

No prompt leaves the process: requests are numbers, and where prefix caching is on a block hash is a keyed digest whose
key is nowhere kept, so that equal prefixes can be told and nothing else. Parts are closed at SLOTCHECK_RECORD_MB (64)
and at most SLOTCHECK_RECORD_PARTS (64) are kept; the next head then says how many are gone.

A fault of the recorder is logged once and ends the recording; the engine does not notice.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import logging
import os
import secrets
import time
from pathlib import Path
from time import monotonic
from typing import Any

FOLDER, MEGABYTES, PARTS = "SLOTCHECK_RECORD", "SLOTCHECK_RECORD_MB", "SLOTCHECK_RECORD_PARTS"
FORMAT = 1
LOG = logging.getLogger("slotcheck")
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
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


class Parts:
    """The files of one recording: append-only, closed by size, the oldest deleted when there are too many."""

    def __init__(self, folder: Path, name: str, head: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name, self.head = folder, name, head
        self.limit = int(float(os.environ.get(MEGABYTES, "64")) * 2**20)
        self.most = max(2, int(os.environ.get(PARTS, "64")))
        self.number = self.size = 0
        self.file = -1
        self.write(b"")

    def write(self, line: bytes) -> None:
        """Append a line; it is in the file when this returns."""
        if self.file < 0 or self.size + len(line) > self.limit:
            self._next()
        self.size += os.write(self.file, line)

    def _next(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.number += 1
        dropped = self.number - self.most
        if dropped > 0:
            self._path(dropped).unlink(missing_ok=True)
        head = self.head | {"part": self.number, "dropped": max(0, dropped)}
        self.file = os.open(self._path(self.number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.size = os.write(self.file, _ENCODE(head).encode() + b"\n")

    def _path(self, number: int) -> Path:
        return self.folder / f"{self.name}.{number:04}.jsonl"


class Recorder:
    """Sits on one scheduler and its manager. All its state is about what has been written already."""

    def __init__(self, scheduler: Any, folder: Path) -> None:
        global _count  # noqa: PLW0603  # engines of this process
        from harness.targets.recorded_setting import setting_of
        from harness.tracefile import CONVERTER
        from oracle.allocator import Allocator

        manager = scheduler.kv_cache_manager
        init, positional, named = manager._slotcheck_built
        names = list(importlib.import_module("inspect").signature(init).parameters)[1:]
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
        self.scheduler, self.manager = scheduler, manager
        self.keyed = hashlib.blake2b(digest_size=6, key=secrets.token_bytes(32))
        self.numbers: dict[str, int] = {}
        self.next = 0
        self.queue = manager.block_pool.free_block_queue
        #: who of the running asked in this step and in the last; for how many tokens, if not for those of a decode
        self.usual = 1 + setting.num_speculative_tokens
        self.others: list[tuple[int, int]] = []
        self.asks: list[Any] = []
        self.last: list[Any] = []
        self.taken: list[bytes] = []
        self.events: list[Any] = []
        self.digests: list[bytes] = []
        self.hashes: dict[str, int] = {}
        self.back = 0
        self.failed = False
        self.caching = setting.enable_caching
        self.tables = [single.req_to_blocks for single in manager.coordinator.single_type_managers]
        self.zeroes = any(Allocator(setting).zeroed)
        self.recycling = [index for index, group in enumerate(setting.groups) if group.recycles or not group.positional]
        self.undo: list[tuple[Any, str]] = []
        self._wrap()

    # ------------------------------------------------------------------------------------------- wrapping

    def _wrap(self) -> None:
        manager, scheduler = self.manager, self.scheduler
        self._set(manager, "allocate_slots", self._allocate_slots(manager.allocate_slots))
        for name, note in (
            ("free", self._freed),
            ("pop_blocks_for_free", self._other),
            ("remove_skipped_blocks", self._other),
            ("evict_blocks", self._evicted),
            ("reset_prefix_cache", self._reset),
            ("get_computed_blocks", self._looked),
            *([("take_new_block_ids", self._zeroed)] if self.zeroes else []),
        ):
            if hasattr(manager, name):
                self._set(manager, name, self._after(name, getattr(manager, name), note))
        self._set(scheduler, "schedule", self._schedule(scheduler.schedule))
        self._set(scheduler, "update_from_output", self._update(scheduler.update_from_output))

    def _set(self, owner: Any, name: str, function: Any) -> None:
        setattr(owner, name, function)
        self.undo.append((owner, name))

    def _fail(self) -> None:
        """A fault of ours: say it once, and let the engine be as it was."""
        LOG.warning("slotcheck stops recording: a fault of its own", exc_info=True)  # noqa: LOG014  # called by handlers
        for owner, name in self.undo:
            owner.__dict__.pop(name, None)
        self.failed = True

    def _allocate_slots(self, ask: Any) -> Any:
        """The hot path: an ask that takes and gives back nothing costs an append and two comparisons."""
        queue, add, took, slow = self.queue, self.asks.append, self._took, self._slow(ask)
        unusual, usual = self.unusual, self.usual
        closer, always = bool(self.recycling), bool(self.recycling) and self.caching

        def allocate_slots(request: Any, num_new_tokens: int, num_lookahead_tokens: int = 0, **more: Any) -> Any:
            if more:
                return slow(request, num_new_tokens, num_lookahead_tokens, more)
            add(request)
            if num_new_tokens != usual:
                unusual(num_new_tokens)
            free = queue.num_free_blocks
            try:
                blocks = ask(request, num_new_tokens, num_lookahead_tokens=num_lookahead_tokens)
            except Exception as error:
                took(request, num_new_tokens, num_lookahead_tokens, None, type(error).__name__)
                raise
            if queue.num_free_blocks != free or blocks is None or (closer and (always or any(blocks.blocks))):
                took(request, num_new_tokens, num_lookahead_tokens, blocks, "")
            return blocks

        return allocate_slots

    def _slow(self, ask: Any) -> Any:
        def slow(request: Any, new: int, lookahead: int, more: dict[str, Any]) -> Any:
            try:
                blocks = ask(request, new, num_lookahead_tokens=lookahead, **more)
            except Exception as error:
                self._ask(request, new, lookahead, more, None, type(error).__name__)
                raise
            self._ask(request, new, lookahead, more, blocks, "")
            return blocks

        return slow

    def unusual(self, new: int) -> None:
        """The last ask is for another number of tokens than a decode."""
        self.others.append((len(self.asks) - 1, new))

    def _after(self, name: str, method: Any, note: Any) -> Any:
        """`method`, noted when it has answered."""

        @functools.wraps(method)
        def noted(*positional: Any, **named: Any) -> Any:
            before = getattr(positional[0], "status", None) if positional else None
            answer = method(*positional, **named)
            try:
                note(name, positional, answer, before)
            except Exception:
                self._fail()
            return answer

        return noted

    def _schedule(self, schedule: Any) -> Any:
        @functools.wraps(schedule)
        def recorded(*positional: Any, **named: Any) -> Any:
            try:
                return schedule(*positional, **named)
            finally:
                self._write(b"s")

        return recorded

    def _update(self, update: Any) -> Any:
        drafts = self.scheduler.vllm_config.speculative_config is not None
        plain = not drafts and not self.caching

        @functools.wraps(update)
        def recorded(scheduled: Any, output: Any, *positional: Any, **named: Any) -> Any:
            accepted = self._accepted(scheduled, output) if drafts else None
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
            if self.others or self.events:
                line += self._rest()
            self.parts.write(line + b"}\n")
        except Exception:
            self._fail()

    def _rest(self) -> bytes:
        """What most steps do not have."""
        line = b""
        for key, noted in (("n", self.others), ("e", self.events)):
            if noted:
                line += f',"{key}":{_ENCODE(noted)}'.encode()
                noted.clear()
        return line

    def _who(self) -> bytes:
        """Who asked, kept for the next step to be compared with."""
        self.last[:] = self.asks
        numbers = self.numbers
        names = [numbers.get(request.request_id, -1) for request in self.asks]
        return f',"p":{_ENCODE(names)}'.encode()

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
            self._fail()
            return []

    def _returned(self, anybody: bool, accepted: list[list[int]] | None) -> None:
        """An output is back: a line, if there is more to tell than that."""
        if self.failed:
            return
        try:
            if self.caching:
                known = self.hashes
                running = self.scheduler.running
                for request in [one for one in running if len(one.block_hashes) != known.get(one.request_id)]:
                    self._tell(request)
        except Exception:
            self._fail()
        if not anybody:
            self._write(b"u", b',"of":0')
        elif accepted:
            self._write(b"u", f',"a":{_ENCODE(accepted)}'.encode())
        elif self.events:
            self._write(b"u")
        else:
            self.back += 1

    # --------------------------------------------------------------------------------------------- events

    def _number(self, name: str) -> int:
        found = self.numbers.get(name)
        if found is None:
            found = self.numbers[name] = self.next
            self.next += 1
        return found

    def _rows(self, name: str) -> list[list[int]]:
        return [[block.block_id for block in table.get(name, ())] for table in self.tables]

    def _note(self, said: dict[str, Any]) -> None:
        self.events.append([len(self.asks), said])

    def _took(self, request: Any, new: int, lookahead: int, blocks: Any, error: str) -> None:
        """A running request's ask that was not plain: it took, gave back, was refused or raised."""
        try:
            if blocks is None:
                self.asks.pop()
                if self.others and self.others[-1][0] == len(self.asks):
                    self.others.pop()
                self._ask(request, new, lookahead, {}, None, error)
                return
            groups = blocks.blocks
            place, computed, free = len(self.asks) - 1, request.num_computed_tokens, self.queue.num_free_blocks
            if len(groups) == 1 and len(groups[0]) == 1 and not self.recycling:
                self.taken.append(b"[%d,%d,%d,[%d]]" % (place, computed, free, groups[0][0].block_id))
                return
            if self.recycling:
                held = f"null,{self._rows(request.request_id)}"
            else:
                held = ",".join([repr([block.block_id for block in group]) for group in groups])
            self.taken.append(f"[{place},{computed},{free},{held}]".encode())
        except Exception:
            self._fail()

    def _ask(self, request: Any, new: int, lookahead: int, more: dict[str, Any], blocks: Any, error: str) -> None:
        """An admission, a refusal or an error: what was asked, what was given, the row, what is free."""
        try:
            name = request.request_id
            number = self._number(name)
            said: dict[str, Any] = {"q": number, "new": new, "computed": request.num_computed_tokens}
            if blocks is None:
                said["said"] = f"error:{error}" if error else "refused"
            else:
                said["got"] = [[block.block_id for block in group] for group in blocks.blocks]
            if more:
                said |= self._more(request, more)
            if lookahead:
                said["lookahead"] = lookahead
            said["in_flight"], said["tokens"] = request.num_in_flight_tokens, request.num_tokens
            said["rows"], said["free"] = self._rows(name), self.queue.num_free_blocks
            if self.caching:
                self._tell(request)
            self._note(said)
        except Exception:
            self._fail()

    def _more(self, request: Any, more: dict[str, Any]) -> dict[str, Any]:
        """What only an admission has."""
        said: dict[str, Any] = {"prompt": request.num_prompt_tokens, "status": request.status.name}
        for key, name in (
            ("local", "num_new_computed_tokens"),
            ("external", "num_external_computed_tokens"),
            ("encoder", "num_encoder_tokens"),
            ("gate", "full_sequence_must_fit"),
            ("reserved", "reserved_blocks"),
            ("others", "has_scheduled_reqs"),
        ):
            if more.get(name):
                said[key] = int(more[name])
        if self.caching:
            said["skip"] = bool(getattr(request, "skip_reading_prefix_cache", False))
        return said

    def _tell(self, request: Any) -> None:
        """Digests of the block hashes that have not been told yet."""
        name, hashes = request.request_id, request.block_hashes
        known = self.hashes.get(name, 0)
        if name in self.numbers:
            self.hashes[name] = len(hashes)
            if len(hashes) > known:
                digests = [self._class(one) for one in hashes[known:]]
                self.digests.append(b"[%d,%b]" % (self.numbers[name], repr(digests).encode()))

    def _class(self, block_hash: Any) -> int:
        digest = self.keyed.copy()
        digest.update(block_hash)
        return int.from_bytes(digest.digest(), "big")

    def _freed(self, name: str, positional: Any, answer: Any, status: Any) -> None:
        """A request gives its blocks back; it was preempted if it has not finished."""
        request = positional[0]
        number = self._number(request.request_id)
        preempted = not type(status).is_finished(status)
        if self.caching:
            self._tell(request)
        self._note({"free": self.queue.num_free_blocks, "of": number, "preempt": int(preempted)})
        if not preempted:
            self.numbers.pop(request.request_id, None)
            self.hashes.pop(request.request_id, None)

    def _other(self, name: str, positional: Any, answer: Any, status: Any) -> None:
        self._note({"not judged": name})

    def _evicted(self, name: str, positional: Any, answer: Any, status: Any) -> None:
        if self.caching:
            self._note({"evict": sorted(positional[0])})

    def _reset(self, name: str, positional: Any, answer: Any, status: Any) -> None:
        if self.caching:
            self._note({"reset": bool(answer)})

    def _looked(self, name: str, positional: Any, answer: Any, status: Any) -> None:
        """A lookup and what it found."""
        if not self.caching:
            return
        request = positional[0]
        number = self._number(request.request_id)
        blocks, tokens, junction = answer[:3]
        self._tell(request)
        rows = [[block.block_id for block in group] for group in blocks.blocks]
        self._note({"look": number, "hit": tokens, "junction": junction, "rows": rows})

    def _zeroed(self, name: str, positional: Any, answer: Any, status: Any) -> None:
        if answer:
            self._note({"zero": list(answer)})
