"""Tests of one module each, without vLLM."""
