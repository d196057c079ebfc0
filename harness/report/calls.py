"""The calls of a trace as Python text: what the scheduler would ask the manager, in literal numbers."""

from __future__ import annotations

import textwrap
from typing import Any

from attrs import define, field

from harness.report.judge import VALUE, Judge
from harness.report.walk import Moment
from harness.targets.specs import DTYPE_ARGUMENTS
from oracle.call import Call
from oracle.trace import GiveBack, NewStep, Release, Trim

WIDTH = 110


def keywords(arguments: dict[str, Any]) -> list[str]:
    """Keyword arguments as Python text."""
    return [f"{name}={_literal(name, value)}" for name, value in arguments.items()]


def _literal(name: str, value: object) -> str:
    if name in DTYPE_ARGUMENTS:
        return f"({''.join(f'torch.{dtype},' for dtype in value)})" if isinstance(value, tuple) else f"torch.{value}"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def call_text(head: str, arguments: list[str], tail: str = ")", indent: int = 0) -> str:
    """`head(arguments)`, one argument a line where it would not fit."""
    pad = " " * indent
    line = f"{pad}{head}({', '.join(arguments)}{tail}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{pad}{head}(", *(f"{pad}    {argument}," for argument in arguments), f"{pad}{tail}"])


def slots_arguments(call: Call) -> dict[str, Any]:
    """The arguments of one `allocate_slots` that are not vLLM's defaults, `num_new_tokens` always."""
    wanted: dict[str, tuple[Any, Any]] = {
        "num_lookahead_tokens": (call.lookahead, 0),
        "num_external_computed_tokens": (call.external, 0),
        "delay_cache_blocks": (call.new == 0, False),
        "num_encoder_tokens": (call.encoder, 0),
        "full_sequence_must_fit": (call.full_sequence_must_fit, False),
        "reserved_blocks": (call.reserved_blocks, 0),
        "has_scheduled_reqs": (call.has_scheduled_reqs, True),
        "skip_zeroing_group_ids": (call.skip_zeroing, ()),
    }
    given = {name: value for name, (value, default) in wanted.items() if value != default}
    return {"num_new_tokens": call.new, **given}


def stand_in(computed: int, in_flight: int, prompt: int, tokens: int, status: str) -> dict[str, str]:
    """What the manager reads of a request, as Python text."""
    return {
        "num_computed_tokens": str(computed),
        "num_in_flight_tokens": str(in_flight),
        "num_prompt_tokens": str(prompt),
        "num_tokens": str(tokens),
        "status": f"RequestStatus.{status}",
    }


@define
class Calls:
    """Writes the calls of a trace.

    said: what the stand-in of each request says. known: requests that the harness has a stand-in for; it forgets one at
    each release, and a second release does nothing. popped: the deferred releases, oldest first.
    """

    judge: Judge
    said: dict[int, dict[str, str]] = field(factory=dict)
    known: set[int] = field(factory=set)
    popped: list[int] = field(factory=list)
    lines: list[str] = field(factory=list)

    def write(self, moment: Moment) -> None:
        """One operation: its calls, and after the deciding one the value that is judged."""
        if not moment.void:
            self._calls(moment)
        judge = self.judge
        if moment.index == judge.step and judge.kind == VALUE and judge.got != "answer" and not judge.answers:
            self.lines.append(f"got = {judge.got}")

    def _calls(self, moment: Moment) -> None:
        """What the operation is as a comment, then the calls that it makes."""
        self.lines.append("")
        self.lines += textwrap.wrap(
            f"{moment.index}. {moment.words}", WIDTH, initial_indent="# ", subsequent_indent="#    "
        )
        operation = moment.operation
        if moment.call is not None:
            self._extend(moment, moment.call)
        elif moment.released is not None:
            self._release(moment, moment.released)
        elif isinstance(operation, GiveBack):
            popped = f"popped_{self.popped.pop(0)}"
            self.lines.append(f"manager.block_pool.free_blocks(ordered_blocks=reversed({popped}))")
        elif isinstance(operation, Trim) and moment.trimmed is not None:
            processed, prompt = moment.trimmed
            arguments = {
                "request_id": str(operation.request),
                "processed_computed_tokens": processed,
                "num_prompt_tokens": prompt,
            }
            self.lines.append(call_text("manager.remove_skipped_blocks", keywords(arguments)))
        elif isinstance(operation, NewStep):
            self.lines += ["manager.new_step_starts()", "zeroed = manager.take_new_block_ids()"]

    def _extend(self, moment: Moment, call: Call) -> None:
        request, name = call.request, f"request_{call.request}"
        if request not in self.said:
            self.lines.append(f'{name} = Request(request_id="{request}", num_tokens={call.prompt})')
            self.said[request] = stand_in(0, 0, call.prompt, call.prompt, "WAITING")
        self.known.add(request)
        status = "PREEMPTED" if call.preempted else "WAITING" if call.waiting else "RUNNING"
        now = stand_in(call.computed, call.in_flight, call.prompt, call.tokens, status)
        self.lines += [f"{name}.{key} = {value}" for key, value in now.items() if self.said[request][key] != value]
        self.said[request] = now
        arguments = [f"request={name}", *keywords(slots_arguments(call))]
        decides = moment.index == self.judge.step and self.judge.kind == VALUE
        if decides and self.judge.direct:
            self.lines.append(call_text("blocks = manager.allocate_slots", arguments))
        else:
            keep = "admitted = " if moment.index == self.judge.admission else ""
            if decides and "answer" in self.judge.got + self.judge.there and not self.judge.answers:
                keep = "got = " if self.judge.got == "answer" else "answer = "
            self.lines.append(call_text(f"{keep}allocate_slots", arguments))

    def _release(self, moment: Moment, request: int) -> None:
        operation = moment.operation
        known = request in self.known
        self.known.discard(request)
        if isinstance(operation, Release) and not operation.preempt:
            self.said.pop(request, None)
        if isinstance(operation, Release) and operation.deferred:
            self.popped.append(moment.index)
            popped = f"manager.pop_blocks_for_free(request=request_{request})" if known else "[]"
            self.lines.append(f"popped_{moment.index} = {popped}")
        elif known:
            self.lines.append(f"manager.free(request=request_{request})")
