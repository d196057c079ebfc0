"""Operations and answers in words, one short line each."""

from __future__ import annotations

from harness.compare import show_row
from oracle.call import (
    DONE,
    GRANTED,
    REFUSED,
    Call,
    Hit,
    Observation,
    Query,
    Rows,
)
from oracle.content import Content
from oracle.ledger import Settled
from oracle.trace import (
    Evict,
    Extend,
    GiveBack,
    Loaded,
    Lookup,
    NewStep,
    Operation,
    Pin,
    Release,
    Reset,
    Resume,
    Settle,
    Trim,
    Unpin,
)

GIVE_BACK = "the oldest popped blocks are given back"
NEW_STEP = "a new step begins"


def extend(call: Call) -> str:
    """One `allocate_slots`."""
    if call.new == 0 and call.external:
        said = [f"request {call.request}: async load of {call.external} of {call.tokens} tokens"]
    else:
        said = [f"request {call.request}: {call.new or 'no'} more of {call.tokens} tokens"]
    for name, value in (
        ("hit", call.local),
        ("computed", call.computed - call.local),
        ("in flight", call.in_flight),
        ("lookahead", call.lookahead),
    ):
        if value:
            said.append(f"{name} {value}")
    if call.external and call.new:
        said.append(f"external {call.external} (sync)")
    if call.encoder:
        said.append(f"encoder {call.encoder}")
    if call.full_sequence_must_fit:
        said.append("gate")
    if call.reserved_blocks:
        said.append(f"reserved {call.reserved_blocks}")
    if call.preempted:
        said.append("preempted before")
    if not call.has_scheduled_reqs:
        said.append("nothing else scheduled")
    if call.skip_zeroing:
        said.append(f"zeroing skipped in groups {' '.join(map(str, call.skip_zeroing))}")
    return ", ".join(said)


def looked_up(query: Query, hit: Hit) -> str:
    """A lookup, and what the content is."""
    content = query.content
    said = f"lookup of {query.tokens} tokens{described(content)}"
    said = f"{said}: hit {hit.tokens}" + (f", junction {hit.junction}" if hit.junction else "")
    return said + (", some group has less" if hit.diverged else "")


def described(content: Content | None) -> str:
    """What tells a content from the plain one."""
    if content is None:
        return ""
    said = []
    if content.forks:
        said.append(f"forks at {' '.join(map(str, content.forks))}")
    said += [f"{name} {value}" for name, value in (("salt", content.salt), ("adapter", content.adapter)) if value]
    if content.embeds:
        said.append(f"{content.embedded} embeddings of {content.embeds}")
    said += [f"item {identifier} at {offset}" for identifier, offset in content.items]
    return f" ({', '.join(said)})" if said else ""


def settled(what: Settled) -> str:
    """The output of a batch."""
    parts = []
    for step, accepted in zip(what.batch.steps, what.accepted, strict=True):
        part = f"request {step.request.id}"
        if step.stale:
            part += " (stale)"
        elif step.drafts:
            part += f" ({accepted} of {step.drafts} drafts accepted)"
        parts.append(part)
    return f"output is back: {', '.join(parts) or 'nothing, all were preempted'}"


def loaded(operation: Loaded, loading: int, computed: int, result: str) -> str:
    """The end of an async load."""
    if result == "failed":
        return f"request {operation.request}: the load has failed, its blocks are given back"
    valid = loading if operation.valid is None else operation.valid
    good = "the load has ended" if valid == loading else f"{valid} of {loading} loaded tokens are good"
    return f"request {operation.request}: {good}, computed {computed}"


def release(operation: Release) -> str:
    """Blocks are given back, or popped for later."""
    why = "preempted" if operation.preempt else "finished"
    how = "popped, not yet given back" if operation.deferred else "given back"
    return f"request {operation.request}: {why}, its blocks are {how}"


def resume(operation: Resume) -> str:
    """A session goes on."""
    said = f"request {operation.request}: the session goes on with {operation.tokens} more prompt tokens"
    return said + (", the first in place of the last sampled one" if operation.discard else "")


def trim(operation: Trim, processed: int) -> str:
    """Removal alone."""
    return f"request {operation.request}: what nobody reads any more is removed, processed {processed}"


def plain(operation: Operation) -> str:
    """An operation that was void: what it asked for."""
    if isinstance(operation, Extend):
        said = f"request {operation.request}: {operation.new} more tokens"
        said += f" of a prompt of {operation.prompt}" if operation.prompt else ""
        return said + (f", external {operation.external}" if operation.external else "")
    if isinstance(operation, Settle):
        return "output is back"
    if isinstance(operation, Loaded):
        return f"request {operation.request}: the load has ended"
    if isinstance(operation, Release):
        return release(operation)
    if isinstance(operation, GiveBack):
        return GIVE_BACK
    if isinstance(operation, Resume):
        return resume(operation)
    if isinstance(operation, Trim):
        return f"request {operation.request}: what nobody reads any more is removed"
    if isinstance(operation, Lookup):
        return f"lookup of {operation.tokens} tokens"
    if isinstance(operation, Evict):
        return f"blocks {' '.join(map(str, operation.blocks))} lose their names"
    if isinstance(operation, Reset):
        return "the prefix cache is reset"
    if isinstance(operation, Pin):
        return f"a connector pins the cached blocks of request {operation.request}"
    if isinstance(operation, Unpin):
        return "the oldest pin ends" + (", its blocks may still be read" if operation.watched else "")
    return NEW_STEP


def rows(shown: Rows) -> str:
    """Rows of all groups: [1 2] [0 3]."""
    return " ".join(map(show_row, shown))


def answer(operation: Operation, seen: Observation, before: Rows) -> str:
    """An answer as the specs write it: the rows, X for a refusal, the name of an error."""
    if isinstance(operation, NewStep):
        return f"zero list {show_row(seen.new[0])}" if seen.new and seen.new[0] else "-"
    if isinstance(operation, Release) and operation.deferred:
        return f"popped {show_row(seen.new[0])}"
    if seen.outcome == GRANTED or (seen.outcome == DONE and isinstance(operation, Trim)):
        return rows(seen.rows)
    changed = seen.rows != before and any(seen.rows)
    if seen.outcome == DONE:
        return rows(seen.rows) if any(seen.rows) else "-"
    said = "X" if seen.outcome == REFUSED else seen.outcome.removeprefix("error:")
    return f"{said} {rows(seen.rows)}" if changed else said
