"""The recorded manager as a party: it answers what was recorded, in order."""

from __future__ import annotations

from typing import Any

from oracle.call import DONE, GRANTED, Call, Drained, Hit, Observation, Query, Row, Rows
from oracle.errors import SlotcheckError
from oracle.setting import Setting
from oracle.trace import Audit


class PartedError(SlotcheckError):
    """The recorded scheduler asked what the accounting of a trace would not: the rest cannot be judged."""


def rows_of(found: list[list[int]]) -> Rows:
    """JSON's lists as rows."""
    return tuple(map(tuple, found))


class Playback:
    """The recorded manager: what it answered, in order. `told` is the record of the call that comes next."""

    def __init__(self, setting: Setting) -> None:
        self.nothing: Rows = tuple(() for _ in setting.groups)
        self.caching = setting.enable_caching
        self.rows: dict[int, Rows] = {}
        self.free = setting.num_blocks - 1
        self.told: Any = None
        #: free blocks behind each return of a copy's ends
        self.returned: list[int] = []
        #: what each request found, by whether a connector might bring the rest
        self.hits: dict[tuple[int, bool], Hit] = {}

    def begin(self, state: dict[str, Any]) -> None:
        """Hold what was held when a part began."""
        self.rows = {request[0]: rows_of(request[-1]) for request in state["requests"] if any(request[-1])}
        self.free = len(state["free"])

    def _take(self) -> Any:  # noqa: ANN401  # JSON, by the kind of the call
        told, self.told = self.told, None
        return told

    def extend(self, call: Call) -> Observation:
        told = self._take()
        if isinstance(told, tuple):
            if told[3] is not None:
                _same("computed tokens", call.computed, told[3])
            return self._running(call, told[2])
        _same("computed tokens", call.computed, told["computed"] + told.get("local", 0))
        _same("tokens in flight", call.in_flight, told["in_flight"])
        _same("known tokens", call.tokens, told["tokens"])
        _same("new tokens", call.new, told["new"])
        _same("lookahead tokens", call.lookahead, told.get("lookahead", 0))
        _same("tokens of the hit", call.local, told.get("local", 0))
        outcome = told.get("said", GRANTED)
        got = rows_of(told["got"]) if outcome == GRANTED else self.nothing
        before = self.rows.get(call.request, self.nothing)
        rows = tuple(old + new for old, new in zip(before, got, strict=True))
        if "rows" in told:
            rows = rows_of(told["rows"])
        if outcome == GRANTED or any(rows):
            self.rows[call.request] = rows
        self.free = told["free"]
        return Observation(outcome, got, rows, self.free)

    def _running(self, call: Call, taken: list[Any] | None) -> Observation:
        """A granted ask of a running request; with windows and states its whole row is told, else what it took."""
        before = self.rows[call.request]
        if taken is None:
            return Observation(GRANTED, self.nothing, before, self.free)
        _, computed, self.free, *got = taken
        _same("computed tokens", call.computed, computed)
        if got[0] is None:
            rows = rows_of(got[1])
            new = tuple(row[len(old) :] for old, row in zip(before, rows, strict=True))
        else:
            new = rows_of(got)
            rows = tuple(old + more for old, more in zip(before, new, strict=True))
        self.rows[call.request] = rows
        return Observation(GRANTED, new, rows, self.free)

    def release(self, request: int, deferred: bool) -> Observation:
        told = self._take()
        self.free = told["free"]
        self.rows.pop(request, None)
        popped = tuple(told["deferred"]) if deferred else ()
        return Observation(DONE, (popped,), self.nothing, self.free)

    def new_step(self) -> Observation:
        told, free = self._take() or ((), None)
        zeroed = tuple(told)
        self.free = self.free if free is None else free
        if self.caching:
            return Drained(DONE, (zeroed,), self.nothing, self.free)
        return Observation(DONE, (zeroed,), self.nothing, self.free)

    def lookup(self, query: Query) -> Hit:
        found = self.hits.get((query.request, query.apart)) or self.hits.get((query.request, False))
        return found or Hit(0, 0, self.nothing)

    def cut(self, request: int, tokens: int) -> None:
        return None

    def publish(self, call: Call, tokens: int) -> Observation:
        return Observation(DONE, self.nothing, self.rows.get(call.request, self.nothing), self.free)

    def explain(self, query: Query) -> str:
        return "as it was recorded"

    def give_back(self) -> Observation:
        self.free = self._take()["gave"]
        return Observation(DONE, self.nothing, self.nothing, self.free)

    def trim(self, request: int, processed: int, prompt: int) -> Observation:
        told = self._take()
        self.free, rows = told["free"], rows_of(told["rows"])
        self.rows[request] = rows
        return Observation(DONE, self.nothing, rows, self.free)

    def evict(self, blocks: Row) -> Observation:
        self._take()
        return Observation(DONE, self.nothing, self.nothing, self.free)

    def reset(self) -> Observation:
        return Observation(str(self._take()["reset"]), self.nothing, self.nothing, self.free)

    def pin(self, blocks: Row) -> Observation:
        raise PartedError("a pin is not judged in a recording")

    def unpin(self, watched: bool) -> Observation:
        raise PartedError("the end of a pin is not judged in a recording")

    def return_copies(self) -> Observation:
        self.free = self.returned.pop(0) if self.returned else self.free
        return Observation(DONE, self.nothing, self.nothing, self.free)

    def audit(self) -> Audit:
        return Audit(dict(self.rows), ())


def _same(what: str, ours: int, theirs: int) -> None:
    if ours != theirs:
        raise PartedError(f"the recorded scheduler has {theirs} {what} where the accounting of a trace has {ours}")
