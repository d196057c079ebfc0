"""The differences that the real manager is known to make: planted defects must be found beside them."""

from __future__ import annotations

from harness.findings import Declared, load
from harness.targets.compat import installed_release

#: edits of the oracle, which need no vLLM, show the laws that this release breaks
ORACLE = "0.33.0"
#: whether a difference is a declared defect of the release, not one of ours
known = Declared(load(), installed_release() or ORACLE)
