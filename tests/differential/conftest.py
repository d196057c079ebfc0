"""Where this package isn't installed but on the path, nobody has told pytest of the plugin."""

from __future__ import annotations

import pytest

from harness import pytest_plugin


def pytest_configure(config: pytest.Config) -> None:
    """Register it, once."""
    if not config.pluginmanager.is_registered(pytest_plugin):
        config.pluginmanager.register(pytest_plugin, "slotcheck")
