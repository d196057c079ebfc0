"""Tests, one folder a purpose."""
