"""Bytes to traces: Hypothesis strategies and the packed codec. Imports only the oracle."""
