"""The film of a workload: who is scheduled in each step, what is left of its budgets, and every request's row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.page import deltas
from harness.page.film import describe_groups, with_findings
from harness.report import workload_reasons
from harness.workload_outcome import Entry, WorkloadOutcome
from harness.workload_table import describe
from oracle.call import GRANTED, Rows
from oracle.client import Client
from oracle.scheduled import ASK, FREE
from oracle.trace import Difference
from oracle.workload import Abort, Reset, SchedulerTrace, Step, Submit, Update


def make_film(
    outcome: WorkloadOutcome,
    against: str,
    setting: list[tuple[str, str]],
    name: str,
    declared: Callable[[Difference], bool],
) -> dict[str, Any]:
    """The film of an outcome that kept its entries; `setting`: what the page says of it."""
    trace = outcome.trace
    frames: list[dict[str, Any]] = []
    operations: list[int] = []
    held: dict[int, Rows] = {}
    gone: set[int] = set()
    clients: dict[int, Client] = {}
    shown = -1
    for entry in outcome.entries:
        now = {request: rows for request, rows in held.items() if request not in gone}
        said = _between(trace, shown + 1, entry.operation, now, clients)
        shown = entry.operation
        _follow(entry, now)
        frames.append(_frame(trace, entry, said) | {"rows": deltas.rows(held, now)})
        operations.append(entry.operation)
        held, gone = now, _ended(entry, clients)
    differences = with_findings(declared, outcome.declared, outcome.differences)
    options = trace.setting
    return {
        "kind": "rows",
        "title": name,
        "against": against,
        "setting": setting,
        "groups": describe_groups(options.groups, options.dcp_size),
        "blocks": options.num_blocks,
        "names": False,
        "budget": {"tokens": options.budget, "rows": options.max_num_batched_tokens, "requests": options.max_num_seqs},
        "formulas": [],
        "frames": frames,
        "marks": [_mark(one, finding, operations) for one, finding in differences],
    }


def _ended(entry: Entry, clients: dict[int, Client]) -> set[int]:
    """Who has ended with this step, and holds nothing any more: a session goes on, or waits with its blocks."""
    ended = set()
    for request, tokens, reason in entry.delivered:
        clients[request].out += len(tokens)
        if reason and clients[request].over(reason):
            ended.add(request)
    return ended


def _between(
    trace: SchedulerTrace, first: int, end: int, held: dict[int, Rows], clients: dict[int, Client]
) -> list[str]:
    """The operations between two steps, and who loses its row by them."""
    said = []
    for operation in trace.operations[first:end]:
        if isinstance(operation, Step):
            continue
        said.append(describe(operation))
        if isinstance(operation, Submit):
            clients.setdefault(
                operation.request, Client(operation.prompt, operation.max_tokens, session=operation.session)
            )
        elif isinstance(operation, Update):
            client = clients.get(operation.request)
            if client is not None and client.takes(operation, trace.setting.max_model_len) and client.update(operation):
                held.pop(operation.request, None)
        elif isinstance(operation, Abort):
            held.pop(operation.request, None)
        elif isinstance(operation, Reset) and operation.running:
            held.clear()
    return said


def _follow(entry: Entry, held: dict[int, Rows]) -> None:
    for event in entry.events:
        if event.what == FREE:
            held.pop(event.request, None)
        elif event.what == ASK and event.seen is not None and event.seen.outcome == GRANTED:
            held[event.request] = event.seen.rows


def _frame(trace: SchedulerTrace, entry: Entry, said: list[str]) -> dict[str, Any]:
    at = entry.operation
    said = [*said, describe(trace.operations[at]) if at < len(trace.operations) else "step (until all are done)"]
    drafts = dict(entry.planned.drafts)
    asked = {event.request: event for event in entry.events if event.call is not None}
    scheduled = []
    for request, tokens in entry.planned.tokens:
        event = asked.get(request)
        call = None if event is None else event.call
        ask = "" if call is None else f"{call.computed} + {call.new} + {call.lookahead} of {call.tokens}"
        scheduled.append([request, tokens, drafts.get(request, 0), ask])
    refused = [e.request for e in entry.events if e.seen is not None and e.seen.outcome != GRANTED]
    then = [f"request {name} is refused" for name in dict.fromkeys(refused)]
    then += [f"request {event.request} is preempted" for event in entry.events if event.what == FREE]
    for name, given, reason in entry.delivered:
        then.append(f"request {name} gets {len(given)} token(s){f' and ends by {reason}' if reason else ''}")
    return {
        "words": "; ".join(said),
        "free": str(entry.free),
        "scheduled": scheduled,
        "left": [entry.left, entry.rows_left],
        "then": then,
    }


def _mark(difference: Difference, declared: str, operations: list[int]) -> dict[str, Any]:
    at = sum(1 for operation in operations if operation <= difference.step) - 1
    return {
        "at": max(0, at),
        "title": workload_reasons.title(difference),
        "rule": f"{difference.rule}: {workload_reasons.reason(difference.rule).why}",
        "expected": difference.expected,
        "observed": difference.observed,
        "detail": difference.detail.splitlines(),
        "declared": declared,
    }
