"""The executable specification: what a request must hold in vLLM's KV cache, and why.

Pure Python and attrs. Nothing here imports vLLM, torch, Hypothesis, `strategies` or `harness`.
"""
