"""Imports vLLM once a session, when the first test asks for it; the tests of the table alone need none."""

from __future__ import annotations

import pytest

from harness.targets import compat


@pytest.fixture(scope="session")
def vllm():
    if compat.installed_release() is None:
        pytest.skip("vLLM is not installed: these tests run its real configurations")
    compat.import_vllm()
