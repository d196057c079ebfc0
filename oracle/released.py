"""A speculative method as a release has it: the row of the newest one, with what was otherwise before.

What a drafter writes and reads is its own affair; how much was kept for it, charged for it and given up for it, and
which runner took it, changed between releases.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from attrs import evolve

from oracle.charges import charge_of
from oracle.methods import ONE, K, Method, method
from oracle.releases import NEWEST, choices_of


@cache
def method_of(name: str, parallel: bool = False, release: str = NEWEST) -> Method:
    """The row of a method by the rules of a release. SettingError for a method that the newest one does not have."""
    row = method(name, parallel)
    choices = choices_of(release)
    changes: dict[str, Any] = {}
    charge = charge_of(row.name, release, parallel=row.parallel)
    if charge is not None:
        changes["charged"] = charge.policy.charged
    if row.name == "dspark_fill_in" and not choices.fill_in_lookahead:
        changes["reserved"] = K
    if row.eagle and choices.all_eagles_drop:
        changes["block_drop"] = True
    if row.modules > 1 and not choices.modules_read_ahead:
        changes["prefill_lookahead"] = ONE
    if row.name in choices.first_runner:
        changes["runner"] = "V1"
    if row.name == "ngram" and not choices.ngram_overlaps:
        changes["overlaps"] = False
    return evolve(row, **changes)
