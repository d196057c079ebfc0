"""The parties beside a warmup: the oracle and the real manager always, the worker's kernels on a share of the traces.

The block tables and the drafters are Triton kernels. On a CPU an interpreter runs them, a hundred times slower than
everything else together, so a run looks at a share of its traces by default. Which ones follows from their bytes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from attrs import evolve

from harness.targets.block_tables import WorkerTables
from harness.targets.compat import installed_release
from harness.targets.drafters import draft
from harness.targets.manager import Manager
from harness.targets.warmup import functions
from harness.warmups import WarmupOptions
from oracle.releases import NEWEST, runs
from oracle.trace import Difference
from oracle.warmup import Draft, WarmupTrace, kernel_requests

NONE, SHARE, ALL = "none", "share", "all"
KERNELS = (ALL, SHARE, NONE)
#: of so many traces one has its kernels run, of those with a draft step more
ONE_IN, ONE_DRAFT_IN = 16, 4
#: requests that a trace of the share has at most: the interpreter takes a millisecond for each and kernel
FEW = 8


def options(kernels: str, declared: Callable[[Difference], bool] = lambda difference: False) -> WarmupOptions:
    """The release's parties; those of the kernels unless `kernels` is none, or they are not known for the release."""
    functions()
    release = installed_release() or NEWEST
    plain = WarmupOptions(declared=declared, make_manager=Manager, release=release)
    return (
        plain
        if kernels == NONE or not runs(release, "kernels")
        else evolve(plain, make_tables=WorkerTables, draft=draft)
    )


def sampled(kernels: str, data: bytes, trace: WarmupTrace) -> bool:
    """Whether the kernels of the trace with these packed bytes are run."""
    if kernels != SHARE:
        return kernels == ALL
    drafts = any(isinstance(operation, Draft) for operation in trace.operations)
    return crc32(data) % (ONE_DRAFT_IN if drafts else ONE_IN) == 0 and kernel_requests(trace.setting) <= FEW
