"""Runs the real thing beside the oracle: replay, compare, shrink, report, and the command line."""
