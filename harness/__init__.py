"""Runs the real thing beside the oracle: replay, compare, shrink, report, and the command line."""

__version__ = "0.1.0"
