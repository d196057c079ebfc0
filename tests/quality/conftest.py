"""Imports vLLM once a session, before the first test whose defect sits in the real manager (some 20 s)."""

from __future__ import annotations

import pytest

from harness.targets import compat
from tests.quality.defects import Defect


@pytest.fixture(scope="session")
def vllm() -> None:
    """The installed vLLM, imported; skips what needs it where it is missing."""
    if compat.installed_release() is None:
        pytest.skip("vLLM is not installed: this defect is planted in the real KVCacheManager")
    compat.import_vllm()


@pytest.fixture(scope="session")
def plant(request: pytest.FixtureRequest):
    """Gives a defect back when its ground is there."""

    def prepare(defect: Defect) -> Defect:
        if defect.real:
            request.getfixturevalue("vllm")
        return defect

    return prepare
