"""Settings and operations of the examples, one short call each, and a ledger that is fed with them."""

from __future__ import annotations

from typing import Any

from oracle.groups import FullAttention, Group
from oracle.ledger import Ledger
from oracle.setting import Setting
from oracle.trace import Extend, GiveBack, Loaded, NewStep, Operation, Release, Resume, Settle, Trace, Trim


def setting(*groups: Group, **fields: Any) -> Setting:
    """Full attention in blocks of 4 unless groups are given; 31 usable blocks, max_model_len 64."""
    fields = {"num_blocks": 32, "max_model_len": 64, **fields}
    return Setting(groups=groups or (FullAttention(block_size=4),), **fields)


def trace(of: Setting, *operations: Operation) -> Trace:
    """A trace of these operations."""
    return Trace(setting=of, operations=operations)


def ask(new: int, request: int = 0, **fields: Any) -> Extend:
    """`new` more tokens of request 0 unless said."""
    return Extend(request=request, new=new, **fields)


def accept(*drafts: int) -> Settle:
    """The oldest output is back: request 0 accepts the first number of drafts, request 1 the second, ..."""
    return Settle(accepted=tuple(enumerate(drafts)))


def feed(ledger: Ledger, *operations: Operation) -> Any:
    """Give a ledger the operations, every call granted; what the last one resolved to, None when it was void."""
    answer: Any = None
    for index, operation in enumerate(operations):
        ledger.index = index
        if isinstance(operation, Extend):
            answer = ledger.extend(operation)
            if answer is not None:
                ledger.granted(answer)
        elif isinstance(operation, Settle):
            answer = ledger.settle(operation)
        elif isinstance(operation, Loaded):
            answer = ledger.loaded(operation)
        elif isinstance(operation, Release):
            answer = ledger.release(operation)
        elif isinstance(operation, GiveBack):
            answer = ledger.give_back()
        elif isinstance(operation, Resume):
            answer = ledger.resume(operation)
        elif isinstance(operation, Trim):
            answer = ledger.trim(operation.request)
        elif isinstance(operation, NewStep):
            answer = ledger.launch()
    return answer
