"""Imports vLLM once a session (some 20 s); skips every test here where it is not installed."""

from __future__ import annotations

import pytest

from harness.targets import compat

pytest.register_assert_rewrite("tests.real.script")


@pytest.fixture(scope="session", autouse=True)
def vllm() -> None:
    """The installed vLLM, imported. Nothing in this folder imports it before the first test runs."""
    if compat.installed_release() is None:
        pytest.skip("vLLM is not installed: these examples run on the real KVCacheManager")
    compat.import_vllm()
