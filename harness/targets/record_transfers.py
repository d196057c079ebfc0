"""What a recorder notes of KV connectors and of sessions: loads that end, blocks that are given back later."""

from __future__ import annotations

from collections import deque
from typing import Any


def watch_transfers(recorder: Any) -> None:
    """Note what only a scheduler with a connector or with sessions does."""
    transfers = Transfers(recorder)
    manager, scheduler = recorder.manager, recorder.scheduler
    recorder.wrap(manager, "pop_blocks_for_free", transfers.popped)
    _around(recorder, "_handle_stopped_request", transfers.pausing)
    _around(recorder, "_update_request_as_session", transfers.going_on)
    if getattr(scheduler, "connector", None) is None:
        return
    recorder.wrap(manager, "remove_skipped_blocks", transfers.trimmed)
    recorder.wrap(manager, "get_computed_blocks_for_connector", transfers.looked)
    recorder.wrap(manager.block_pool, "free_blocks", transfers.freed)
    recorder.wrap(scheduler, "_handle_invalid_blocks", transfers.spoilt)
    _around(recorder, "_drain_deferred_frees", transfers.draining)
    _around(recorder, "_update_waiting_for_remote_kv", transfers.loading)


def _around(recorder: Any, name: str, during: Any) -> None:
    """Put something around a method of the scheduler, where it has it."""
    if hasattr(recorder.scheduler, name):
        recorder.set(recorder.scheduler, name, during(getattr(recorder.scheduler, name)))


class Transfers:
    """Sits beside a `Recorder`, whose lines it adds to."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        #: lists of blocks that were popped, oldest first
        self.waiting: deque[list[Any]] = deque()
        #: whether each list that is being given back is one of these
        self.ours: deque[bool] = deque()

    def popped(self, given: Any, blocks: Any, status: Any) -> None:
        """A request's blocks are taken out of its row, to be given back when no step in flight writes them."""
        request, recorder = given[0], self.recorder
        preempted = not type(status).is_finished(status)
        if recorder.caching:
            recorder.tell(request)
        said = recorder.given_back(request, recorder.number(request.request_id), preempted)
        recorder.note(said | {"deferred": [block.block_id for block in blocks]})
        recorder.gone(request, preempted)
        if blocks:
            self.waiting.append(blocks)

    def draining(self, drain: Any) -> Any:
        """Blocks are given back, those of popped requests and the ends of copies."""

        def drained() -> Any:
            mine = {id(blocks) for blocks in self.waiting}
            self.ours = deque(id(blocks) in mine for _, blocks in self.recorder.scheduler.deferred_frees)
            try:
                return drain()
            finally:
                self.ours.clear()

        return drained

    def freed(self, given: Any, answer: Any, status: Any) -> None:
        """The pool got blocks back."""
        if not self.ours:
            return
        if self.ours.popleft():
            self.waiting.popleft()
            self.recorder.note({"gave": self.recorder.queue.num_free_blocks})
        else:
            self.recorder.note({"returned": self.recorder.queue.num_free_blocks})

    def spoilt(self, given: Any, names: Any, status: Any) -> None:
        """Loaded blocks turned out to be bad. Of a load within a step the request goes back to before them."""
        recorder = self.recorder
        for request in recorder.scheduler.running:
            if request.request_id in names:
                number = recorder.number(request.request_id)
                recorder.note({"spoilt": number, "computed": request.num_computed_tokens})

    def trimmed(self, given: Any, answer: Any, status: Any) -> None:
        """Columns that nobody reads any more go before a row is handed over."""
        recorder = self.recorder
        name, processed = given[:2]
        number = recorder.numbers.get(name)
        if number is not None:
            said = {"trim": number, "processed": processed, "rows": recorder.rows(name)}
            said["tokens"] = recorder.scheduler.requests[name].num_tokens
            recorder.note(said | {"free": recorder.queue.num_free_blocks})

    def looked(self, given: Any, answer: Any, status: Any) -> None:
        """A lookup in which a connector may bring what a group lacks; the release's may have asked the common one."""
        if self.recorder.caching:
            self.recorder.looked(given[0], answer[:3], bool(answer[3]))

    def loading(self, update: Any) -> Any:
        """An async load has ended, well or not."""
        recorder = self.recorder

        def ended(request: Any) -> Any:
            failed = request.request_id in recorder.scheduler.failed_recving_kv_req_ids
            computed, before = request.num_computed_tokens, len(recorder.events)
            answer = update(request)
            try:
                number = recorder.number(request.request_id)
                del recorder.events[before:]  # the row of a load that failed as a whole is part of this
                said = {"loaded": number, "free": recorder.queue.num_free_blocks}
                recorder.note(said | {"valid": computed} if failed else said)
            except Exception:
                recorder.fail()
            return answer

        return ended

    def pausing(self, handle: Any) -> Any:
        """An answer has ended; of a session what is in flight will be thrown away, and what it was cut by is gone."""
        recorder = self.recorder

        def paused(request: Any) -> Any:
            number = recorder.numbers.get(request.request_id)
            if number is not None and getattr(request, "resumable", False):
                recorder.stale = len(recorder.flying)
                recorder.note({"paused": number, "tokens": request.num_tokens})
            return handle(request)

        return paused

    def going_on(self, update: Any) -> Any:
        """A session has more prompt tokens; its last output token is gone, and the hashes that it was part of."""
        recorder = self.recorder

        def gone_on(session: Any, more: Any) -> Any:
            name, kept = session.request_id, session.num_tokens - 1
            if recorder.caching:
                recorder.tell(session)
            before = len(session.block_hashes) if recorder.caching else 0
            answer = update(session, more)
            number = recorder.numbers.get(name)
            if number is None:
                return answer
            try:
                recorder.stale = len(recorder.flying)
                said = {"session": number, "tokens": session.num_tokens, "kept": kept}
                if recorder.caching:
                    known = min(kept // recorder.hash_size, before)  # with hash lookahead names come later
                    said["h"] = [recorder.digest(one) for one in session.block_hashes[known:]]
                    recorder.hashes[name] = len(session.block_hashes)
                recorder.note(said)
            except Exception:
                recorder.fail()
            return answer

        return gone_on
