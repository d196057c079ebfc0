"""What a run of any level comes to: its verdict with reasons, its exit status, the folders of its reports."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.errors import EXIT_HARNESS, EXIT_INCONCLUSIVE
from oracle.releases import confirmed

AGREED, DIFFERENCES, INCONCLUSIVE, BROKEN = "agreed", "differences", "inconclusive", "broken"
EXIT = {AGREED: 0, DIFFERENCES: 1, INCONCLUSIVE: EXIT_INCONCLUSIVE, BROKEN: EXIT_HARNESS}

#: from the best to the worst
_ORDER = (AGREED, INCONCLUSIVE, DIFFERENCES, BROKEN)


def worst(verdicts: Sequence[str]) -> str:
    """The verdict of several runs together."""
    return max(verdicts, key=_ORDER.index)


def judge(
    *,
    new: int,
    caught: bool,
    release: str | None,
    level: str,
    missed: Sequence[str],
    ended: str = "",
    cut_short: str = "",
) -> tuple[str, list[str]]:
    """The verdict and why.

    new: differences that no finding declares. caught: the canary was; ended: how its process ended, if it did not live.
    missed: crossings below their minimum. cut_short: why the run is not whole.
    """
    reasons = [f"{new} difference(s) that no finding declares"] if new else []
    reasons += [cut_short] if cut_short else []
    if new:  # a run that failed needs no canary to prove that it can
        return DIFFERENCES, reasons
    if not caught:
        how = f" ({ended})" if ended else ""
        return BROKEN, [*reasons, f"the canary was not caught{how}: this run could not have failed"]
    if not confirmed(release, level):
        reasons.append(f"rules not confirmed for release {release or 'unknown'}")
    if missed:
        reasons.append(f"not reached often enough: {', '.join(missed)}")
    return (INCONCLUSIVE if reasons else AGREED), reasons


def folder_name(fingerprint: str) -> str:
    """The folder of a report, beside the others of its run."""
    return re.sub("[/ :]", "-", fingerprint)
