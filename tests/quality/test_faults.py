"""Targets that misbehave instead of answering wrong: what they do is a difference, not the end of the run."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from harness.shrink import shrink
from harness.worker import run_shard
from oracle.allocator import Allocator
from oracle.setting import Setting
from oracle.trace import METHODS
from tests.quality.hunt import OPTIONS

#: a shard of a run has more
EXAMPLES = 5


class Raising(Allocator):
    """An allocator one of whose methods raises."""

    def __init__(self, setting: Setting, method: str) -> None:
        super().__init__(setting)

        def fail(*arguments: Any) -> None:
            raise RuntimeError(f"{method} is broken")

        setattr(self, method, fail)


@pytest.mark.parametrize("method", METHODS)
def test_a_target_that_raises(method: str) -> None:
    found = run_shard(0, 0, lambda setting: Raising(setting, method), OPTIONS, examples=EXAMPLES).found

    assert [("error:RuntimeError", f"RuntimeError: {method} is broken")] == [
        (one.difference.sign, one.difference.observed) for one in found.values()
    ]


@pytest.mark.parametrize("method", METHODS)
def test_a_target_that_raises_is_shrunk(method: str) -> None:
    """To the one call that needs the method, and the row that it is about."""
    make = partial(Raising, method=method)
    (found,) = run_shard(0, 0, make, OPTIONS, examples=EXAMPLES).found.values()
    small = shrink(found.trace, found.difference, make, OPTIONS)

    assert small.minimal
    assert len(small.trace.operations) == {"audit": 0, "extend": 1, "new_step": 1, "give_back": 4}.get(method, 2)


class ExactFitRefused(Allocator):
    """Asks for one block more than it needs."""

    def extend(self, call: Any, gate: bool = True, test: bool = True) -> Any:
        call.reserved_blocks += 1
        seen = super().extend(call, gate, test)
        call.reserved_blocks -= 1
        return seen


def test_a_target_with_moods() -> None:
    """Every other manager of a trace is broken: two runs differ is the difference, whatever the one run showed."""
    built: Counter[Setting] = Counter()

    def make(setting: Setting) -> Allocator:
        built[setting] += 1
        return (ExactFitRefused if built[setting] % 2 else Allocator)(setting)

    found = run_shard(0, 0, make, OPTIONS).found

    assert {("W6", "two runs differ")} == {(one.difference.rule, one.difference.sign) for one in found.values()}
