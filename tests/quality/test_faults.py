"""Targets that misbehave instead of answering wrong: what they do is a difference, not the end of the run."""

from __future__ import annotations

from typing import Any

import pytest

from harness.worker import run_shard
from oracle.allocator import Allocator
from oracle.setting import Setting
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


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(
            method,
            marks=pytest.mark.xfail(
                strict=True,
                raises=RuntimeError,
                reason="harness.replay lets the exception of a target's method through",
            ),
        )
        for method in ("extend", "release", "give_back", "trim", "new_step", "audit")
    ],
)
def test_a_target_that_raises(method: str) -> None:
    found = run_shard(0, 0, lambda setting: Raising(setting, method), OPTIONS, examples=EXAMPLES).found

    assert {"error:RuntimeError"} == {one.difference.sign for one in found.values()}


class ExactFitRefused(Allocator):
    """Asks for one block more than it needs."""

    def extend(self, call: Any, gate: bool = True, test: bool = True) -> Any:
        call.reserved_blocks += 1
        seen = super().extend(call, gate, test)
        call.reserved_blocks -= 1
        return seen


def test_a_target_with_moods() -> None:
    """Every other manager is broken: the difference is that two runs differ, whatever the one run showed."""
    built = 0

    def make(setting: Setting) -> Allocator:
        nonlocal built
        built += 1
        return (ExactFitRefused if built % 2 else Allocator)(setting)

    found = run_shard(0, 0, make, OPTIONS).found

    assert {("W6", "two runs differ")} == {(one.difference.rule, one.difference.sign) for one in found.values()}
