"""Imports vLLM once a session (some 20 s) for the tests that ask for `release`; they skip where it is not installed.

Where there is no CUDA device, Triton's interpreter is chosen before anything imports vLLM; nothing else reads it.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from harness.targets import compat

if not compat.has_gpu():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def release() -> Any:
    """The installed release's warmup module."""
    if compat.installed_release() is None:
        pytest.skip("vLLM is not installed: these tests run its real warmup")
    from harness.targets.warmup import functions

    return functions()


@pytest.fixture(scope="session")
def tables(release: Any) -> Any:
    """The release's block-table module, runnable on the device at hand."""
    from harness.targets.block_tables import table_class

    try:
        found = table_class()
    except compat.TargetError as error:
        pytest.skip(str(error))
    import sys

    return sys.modules[found.__module__]
