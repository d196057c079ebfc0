"""Tests draw the same examples each time; what is new is found by runs, which say their seed."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("tests", derandomize=True, database=None)
settings.load_profile("tests")
