"""Imports vLLM once a session (some 20 s) for the tests that ask for `release`; they skip where it is not installed."""

from __future__ import annotations

from typing import Any

import pytest

from harness.targets import compat


@pytest.fixture(scope="session")
def release() -> Any:
    """The installed release's modules that this level uses."""
    if compat.installed_release() is None:
        pytest.skip("vLLM is not installed: these tests run its real scheduler")
    from harness.targets.engine import modules

    return modules()
