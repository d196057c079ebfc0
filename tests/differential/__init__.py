"""Differential tests as a user writes them, and what the pytest plugin makes of one that fails."""
