"""The differences that the real manager is known to make: planted defects must be found beside them."""

from __future__ import annotations

from harness.findings import Declared, load
from harness.targets.compat import installed_release
from oracle.trace import Difference

#: edits of the oracle, which need no vLLM, show the laws that this release breaks
_ORACLE = "0.33.0"
_DECLARED = Declared(load(), installed_release() or _ORACLE)


def known(difference: Difference) -> bool:
    """Whether a difference is a defect of the release, not one of ours: declared under reports/, or about to be."""
    return _DECLARED(difference) or _state_behind_a_load(difference)


def _state_behind_a_load(difference: Difference) -> bool:
    """A whole prompt is loaded, its last token computed again: the state before that token was never there."""
    return (difference.rule, difference.sign, difference.tags) == ("M12", "state", ("loaded",))
