"""A replay that begins where a part of a recording begins: with the state that the recorder found there.

What was held is believed, not judged. The requests, the steps in flight, the pool and its names are put into the
accounting and the oracle as if they had led there; the memory model takes what the rows hold for right.
"""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from harness.replay import Replay
from oracle.cached_allocator import CachingAllocator
from oracle.call import Name, Rows
from oracle.content import Prefixes
from oracle.groups import Mamba
from oracle.ledger import PREEMPTED, RUNNING, WAITING, Batch, Request, Step
from oracle.publication import Progress
from oracle.setting import Setting

_STATUS = {"RUNNING": RUNNING, "PREEMPTED": PREEMPTED}


def may_begin(setting: Setting) -> str:
    """Why a trace of this setting cannot begin in its middle; "" when it can."""
    if setting.enable_caching and any(isinstance(group, Mamba) for group in setting.groups):
        return "which Mamba states a request is about to name is not recorded"
    return ""


def begin(replay: Replay, state: dict[str, Any]) -> None:
    """Put a recorded state into a new replay."""
    ledger = replay.ledger
    rows: dict[int, Rows] = {}
    for number, prompt, tokens, computed, in_flight, status, junction, held in state["requests"]:
        request = Request(number, prompt, tokens, computed, in_flight, status=_STATUS.get(status, WAITING))
        request.junction, request.holds = junction, any(held)
        request.calls = 2 if request.holds else 0
        ledger.requests[number] = request
        if request.holds:
            rows[number] = tuple(map(tuple, held))
    ledger.running = [ledger.requests[number] for number in state["running"]]
    _in_flight(replay, state["flying"], rows)
    replay.rows = dict(rows)
    replay.oracle.rows = {number: [list(row) for row in held] for number, held in rows.items()}
    replay.oracle.pool.restore(state["free"])
    if replay.laws is not None:
        replay.laws.holding = set(rows)
    if replay.memory is not None:
        for number, request in ledger.requests.items():
            replay.memory.given(request, request.processed, rows.get(number, replay.oracle.nothing))
    if "names" in state:
        _named(replay, state)


def _in_flight(replay: Replay, flying: list[list[list[int]]], rows: dict[int, Rows]) -> None:
    """The steps whose outputs are not back: what is a draft and who samples follows from where each of them ends."""
    ledger = replay.ledger
    ends = {number: request.processed for number, request in ledger.requests.items()}
    for step in flying:
        batch = Batch([])
        for number, new in step:
            request = ledger.requests[number]
            ends[number] += new
            drafts = ends[number] - request.tokens - request.placeholders
            made = Step(request, new, max(0, drafts), drafts >= 0, -1, rows=rows.get(number, ()))
            if made.samples:
                request.placeholders += 1 + made.drafts
            batch.steps.append(made)
            batch.new += new
        ledger.launched.append(batch)


def _named(replay: Replay, state: dict[str, Any]) -> None:
    """What prefix caching knows: names and their copies, references, contents, what is still to be named."""
    oracle = cast(CachingAllocator, replay.oracle)
    pool = oracle.named
    prefixes: Prefixes = replay.ledger.prefixes  # type: ignore[attr-defined]
    digests = dict(state["digests"])
    for held in oracle.rows.values():
        for block in (block for row in held for block in row if block):
            pool.references[block] += 1
    several: dict[Name, list[int]] = {(name[0], name[1]): blocks for name, blocks in state["copies"]}
    for block, reach, first, *further in state["names"]:
        for group, node in (first, *further):
            pool.names.setdefault(block, {})[group, node] = reach
            pool.copies.setdefault((group, node), {})[block] = None
    for name, blocks in several.items():
        pool.copies[name] = dict.fromkeys(blocks)
    for number, columns in state["columns"]:
        request = replay.ledger.requests[number]
        prefixes.coming = digests[number]  # type: ignore[attr-defined]
        request.content = prefixes.begin()
        prefixes.grow(request.content, request.tokens)
        if number in oracle.rows:
            oracle.progress[number] = [Progress(count) for count in columns]
    oracle.pins, oracle.retained = deque(), deque()
