"""Streaming sessions in the oracle's scheduler: requests whose input comes in pieces.

Each piece is answered like a prompt. When its answer ends, the session goes on with the next piece, waits for it with
its blocks, or ends. What was sampled last is not computed yet: it is discarded, and the next piece stands in its place;
what is in flight by then is dropped, like the outputs of a reset.
"""

from __future__ import annotations

from oracle.content import Content, behind
from oracle.scheduled import ERROR, PAUSED_SESSION, WAITING
from oracle.scheduler_queues import Queues
from oracle.scheduler_request import Request
from oracle.workload import PAUSED_ALL, UNPAUSED, Submit, Update


class Sessions(Queues):
    """Queues in which a request may come back with more input. Lengths in tokens."""

    #: whether a session has got a later arrival than somebody behind it, where it stands in a queue
    passed = False

    def seats_of_sessions(self) -> int:
        """S8: a session that waits for input keeps its place among those that run: the worker knows it."""
        if not self.sessions:
            return 0
        return sum(one.status == PAUSED_SESSION for one in (*self.waiting, *self.holding))

    def resting(self) -> int:
        """Sessions that wait for input move nobody."""
        if not self.sessions or self.paused == PAUSED_ALL:
            return 0
        queues = (*self.waiting, *self.holding) if self.paused == UNPAUSED else self.holding
        return sum(one.status == PAUSED_SESSION for one in queues)

    def submit(self, operation: Submit, arrival: int, content: Content | None = None) -> None:
        """A request arrives."""
        super().submit(operation, arrival, content)
        self.requests[operation.request].session = operation.session
        self.sessions = self.sessions or operation.session

    def update(self, operation: Update, arrival: int) -> None:
        """The next piece of a session's input, or its end: taken at once if the session waits, else in its turn."""
        request = self.requests[operation.request]
        if request.status != PAUSED_SESSION:
            request.pieces.append((operation, arrival))
        elif operation.prompt:
            queue = self.holding if request in self.holding else self.waiting
            before = request.urgency
            self._continue(request, operation, arrival)
            if self.by_priority and any(before < other.urgency < request.urgency for other in queue):
                self.passed = True
            self._order(self.waiting)
            self._order(self.holding)
        else:
            self.abort(request.id)

    def _goes_on(self, request: Request, reason: str) -> bool:
        """An answer has ended: whether the session goes on, with its next piece or in wait for it."""
        if not request.session or reason == ERROR:
            return False
        request.comp -= request.ph
        request.spec = request.ph = 0
        request.drop, request.stale = True, request.fl
        if not request.pieces:
            request.status = PAUSED_SESSION
            return True
        operation, arrival = request.pieces.pop(0)
        if operation.prompt:
            self._continue(request, operation, arrival)
        return bool(operation.prompt)

    def _continue(self, request: Request, operation: Update, arrival: int) -> None:
        """The answer but its last token becomes part of the prompt, and the piece follows."""
        kept = request.prompt + request.out - 1
        request.items += behind(kept, operation.items)
        request.prompt = kept + operation.prompt
        request.out, request.limit, request.arrival = 0, operation.max_tokens, arrival
        request.status = WAITING

    def _park(self, request: Request) -> None:
        """It queues again: with its blocks, if it has any."""
        if request.status == PAUSED_SESSION:
            self.deferred.add(request)
        queue = self.holding if self._holds(request) else self.waiting
        queue.append(request)
        self._order(queue)
