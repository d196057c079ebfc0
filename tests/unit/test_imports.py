"""What is imported when: vLLM and torch by nobody before a target is built, Hypothesis not by the oracle."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

EVERYTHING = "harness.cli, harness.job, harness.pytest_plugin, harness.targets.manager, strategies.traces"
LOOK = """
import sys
import {modules}
print(sorted(set(sys.modules) & {{"vllm", "torch", "hypothesis", "harness", "strategies"}}))
"""


@pytest.mark.parametrize(
    ("modules", "loaded"),
    [
        ("oracle.allocator, oracle.laws, oracle.memory, oracle.releases", []),
        ("strategies.packed", ["strategies"]),
        ("harness.pytest_plugin", ["harness"]),
        (EVERYTHING, ["harness", "hypothesis", "strategies"]),
    ],
    ids=["oracle", "codec", "pytest plugin", "everything"],
)
def test_what_comes_with_an_import(modules, loaded):
    """In a process of its own."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", LOOK.format(modules=modules)]

    assert f"{loaded}\n" == subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
