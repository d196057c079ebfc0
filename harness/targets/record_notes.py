"""What is noted of a scheduler between two lines of its recording: asks, what was taken and given back, digests."""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from typing import Any

from oracle.allocator import Allocator
from oracle.setting import Setting


class Notes:
    """All its state is about what has been written already, and what is to be written next."""

    def __init__(self, scheduler: Any, setting: Setting) -> None:
        self.scheduler, self.manager = scheduler, scheduler.kv_cache_manager
        manager = self.manager
        self.keyed = hashlib.blake2b(digest_size=6, key=secrets.token_bytes(32))
        self.numbers: dict[str, int] = {}
        self.next = 0
        self.queue = manager.block_pool.free_block_queue
        #: who of the running asked in this step and in the last; for how many tokens, if not for those of a decode
        self.usual = 1 + setting.num_speculative_tokens
        self.others: list[tuple[int, int, int]] = []
        self.asks: list[Any] = []
        self.last: list[Any] = []
        self.taken: list[bytes] = []
        self.events: list[Any] = []
        self.digests: list[bytes] = []
        self.hashes: dict[str, int] = {}
        self.back = 0
        #: tokens by request of the steps in flight; outputs until none of them is of a preempted request
        self.flying: deque[dict[str, int]] = deque()
        self.stale = 0
        #: with caching on: outputs that came back; behind which of them a request may have a new hash block, and who
        self.outputs = 0
        self.awaited: dict[str, int] = {}
        self.due: dict[int, list[Any]] = {}
        self.hash_size, self.hash_ahead = setting.hash_size, setting.num_hash_lookahead_tokens
        self.failed = self.copied = False
        self.caching = setting.enable_caching
        self.tables = [single.req_to_blocks for single in manager.coordinator.single_type_managers]
        oracle = Allocator(setting)
        self.zeroes = any(oracle.zeroed)
        #: whether a row is more than what it has taken
        self.recycling = any(rule.removes or not rule.group.positional for rule in oracle.rules)

    def fail(self) -> None:
        """A fault of ours."""
        raise NotImplementedError

    def number(self, name: str) -> int:
        found = self.numbers.get(name)
        if found is None:
            found = self.numbers[name] = self.next
            self.next += 1
        return found

    def rows(self, name: str) -> list[list[int]]:
        return [[block.block_id for block in table.get(name, ())] for table in self.tables]

    def note(self, said: dict[str, Any]) -> None:
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
                held = f"null,{self.rows(request.request_id)}"
            else:
                held = ",".join([repr([block.block_id for block in group]) for group in groups])
            self.taken.append(f"[{place},{computed},{free},{held}]".encode())
        except Exception:
            self.fail()

    def _ask(self, request: Any, new: int, lookahead: int, more: dict[str, Any], blocks: Any, error: str) -> None:
        """An admission, a refusal or an error: what was asked, what was given, the row, what is free."""
        try:
            name = request.request_id
            number = self.number(name)
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
            said["rows"], said["free"] = self.rows(name), self.queue.num_free_blocks
            if self.caching:
                self.tell(request)
            self.note(said)
        except Exception:
            self.fail()

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
        if more.get("skip_zeroing_group_ids"):
            said["unzeroed"] = list(more["skip_zeroing_group_ids"])
        if self.caching:
            said["skip"] = bool(getattr(request, "skip_reading_prefix_cache", False))
        return said

    def tell(self, request: Any) -> None:
        """Digests of the block hashes that have not been told yet; the next cannot come before so many outputs."""
        name, hashes = request.request_id, request.block_hashes
        number = self.numbers.get(name)
        if number is None:
            return
        known, count = self.hashes.get(name, 0), len(hashes)
        if count == known + 1:
            self.digests.append(b"[%d,[%d]]" % (number, self.digest(hashes[known])))
        elif count > known:
            self.digests.append(b"[%d,%b]" % (number, repr([self.digest(one) for one in hashes[known:]]).encode()))
        self.hashes[name] = count
        left = self.hash_size - (request.num_tokens - self.hash_ahead) % self.hash_size
        self.awaited[name] = when = self.outputs + -(-left // self.usual)
        self.due.setdefault(when, []).append(request)

    def digest(self, block_hash: Any) -> int:
        digest = self.keyed.copy()
        digest.update(block_hash)
        return int.from_bytes(digest.digest(), "big")

    def _freed(self, given: Any, answer: Any, status: Any) -> None:
        """A request gives its blocks back; it was preempted if it has not finished."""
        request = given[0]
        number = self.number(request.request_id)
        preempted = not type(status).is_finished(status)
        if self.caching:
            self.tell(request)
        self.note(self.given_back(request, number, preempted))
        self.gone(request, preempted)

    def given_back(self, request: Any, number: int, preempted: bool) -> dict[str, int]:
        """What is told of a request whose row is gone: an end inside what an output brought shows in its tokens."""
        said = {"free": self.queue.num_free_blocks, "of": number, "preempt": int(preempted)}
        return said if preempted or self.usual == 1 else said | {"tokens": request.num_tokens}

    def gone(self, request: Any, preempted: bool) -> None:
        """A request has lost its row; for ever, if it was not preempted."""
        if preempted:
            self.stale = len(self.flying)
        else:
            for known in (self.numbers, self.hashes, self.awaited):
                known.pop(request.request_id, None)

    def _evicted(self, given: Any, answer: Any, status: Any) -> None:
        if self.caching:
            self.note({"evict": sorted(given[0])})

    def _reset(self, given: Any, answer: Any, status: Any) -> None:
        if self.caching:
            self.note({"reset": bool(answer)})

    def _looked(self, given: Any, answer: Any, status: Any) -> None:
        if self.caching:
            self.looked(given[0], answer[:3], None)

    def looked(self, request: Any, answer: Any, diverged: bool | None) -> None:
        """A lookup and what it found. diverged: of a lookup for a connector, whether a group lacks a part."""
        number = self.number(request.request_id)
        blocks, tokens, junction = answer
        self.tell(request)
        rows = [[block.block_id for block in group] for group in blocks.blocks]
        said: dict[str, Any] = {"look": number, "hit": tokens, "junction": junction, "rows": rows}
        if self.hash_ahead and getattr(
            request, "resumable", False
        ):  # made anew: a discarded token may have been in one
            said["h"] = [self.digest(one) for one in request.block_hashes]
        self.note(said if diverged is None else said | {"diverged": int(diverged)})

    def _copied(self, given: Any, answer: Any, status: Any) -> None:
        """Copies go to the worker: their ends are given back in this step, or behind it."""
        self.copied = self.copied or bool(answer[0])

    def _zeroed(self, given: Any, answer: Any, status: Any) -> None:
        if answer:
            self.note({"zero": list(answer)})
