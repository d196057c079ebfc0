"""A speculative method as a release has it: the row of the newest one, with what was otherwise before.

What a drafter writes and reads is its own affair; how much was kept for it, charged for it and given up for it, and
which runner took it, changed between releases.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from attrs import evolve
from packaging.version import Version

from oracle.charges import charge_of
from oracle.errors import SettingError
from oracle.methods import METHODS, MTP_FAMILIES, ONE, PAST_WORDS, WORDS, K, Method, method
from oracle.releases import NEWEST, choices_of

#: methods with the charge of another one: it is the same drafter
_CHARGED_AS = {"eagle": "eagle3", "mtp": "eagle3", "mtp_modules": "eagle3"}
#: methods that came later than the tables -> the first release that has them
_SINCE = {"dspark": "0.25.1", "dspark_fill_in": "0.25.1", "diffusion": "0.24.0"}


@cache
def method_of(name: str, parallel: bool = False, release: str = NEWEST) -> Method:
    """The row of a method by the rules of a release, whether that has the method or not.

    SettingError for a method that the newest one does not have.
    """
    row = method(name, parallel)
    choices = choices_of(release)
    changes: dict[str, Any] = {}
    charge = charge_of(
        _CHARGED_AS.get(row.name, row.name) if row.parallel else row.name, release, parallel=row.parallel
    )
    if charge is not None:
        changes["charged"] = charge.policy.charged
    if row.name == "dspark_fill_in" and not choices.fill_in_lookahead:
        changes["reserved"] = K
    if row.name == "dflash" and not choices.dflash_lookahead:
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


def _number(release: str) -> Version:
    return Version(release.partition("+")[0])


@cache
def rows_of(release: str) -> dict[tuple[str, bool], Method]:
    """The methods that a release has, each with the row that holds for it."""
    here = _number(release)
    return {key: method_of(*key, release) for key in METHODS if here >= Version(_SINCE.get(key[0], "0"))}


def row_of(name: str, parallel: bool, release: str) -> Method:
    """The row of one method; SettingError where the release does not have it."""
    newest = method(name, parallel)
    found = rows_of(release).get((newest.name, newest.parallel))
    if found is None:
        raise SettingError(f"vLLM {release} has no speculative method {name!r}; it came later")
    return found


def words_of(release: str) -> frozenset[str]:
    """What a release takes for `SpeculativeConfig.method`."""
    here = _number(release)
    since = {**dict.fromkeys(WORDS, "0.20.2"), "dspark": "0.25.1", "custom_class": "0.22.1", **MTP_FAMILIES}
    past = {word for word, until in PAST_WORDS.items() if here <= Version(until)}
    return frozenset(past | {word for word, first in since.items() if Version(first) <= here})
