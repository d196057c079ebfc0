"""The differences that the real 0.33.0 manager is known to make: a planted defect must be found beside them."""

from __future__ import annotations

from oracle.trace import Difference

#: law -> (signs, the one tag): states and windows behind a load, and caps that leave the lookahead out
LAWS = {
    "M12": (("state", "null block"), "loaded"),
    "W1": (("target null block",), "loaded"),
    "W4": (("cap",), "lookahead"),
    "W5": (("gate",), "lookahead"),
}
#: what the harness names as the cause of a wrong decision
MISCOUNTS = {"dead columns", "adopted state", "longer row"}


def known(difference: Difference) -> bool:
    """Whether a difference is a defect of the release, not of ours."""
    if difference.aspect == "law" and difference.rule in LAWS:
        signs, tag = LAWS[difference.rule]
        return difference.sign in signs and difference.tags == (tag,)
    return difference.rule in ("A13", "A15") and bool(MISCOUNTS & set(difference.tags))
