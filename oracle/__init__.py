"""The executable specification: what a request must hold in vLLM's KV cache, and why.

Pure Python and attrs. Nothing here imports vLLM, torch, Hypothesis, `strategies` or `harness`.
"""

from importlib.util import find_spec


def compiled() -> bool:
    """Whether this installation has the modules in which a run spends its time compiled (`hatch_build.py`)."""
    spec = find_spec("oracle.memory")
    return spec is not None and not str(spec.origin).endswith(".py")
