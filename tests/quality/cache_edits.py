"""Edits of the oracle with prefix caching on, one rule each: the target of a run that must tell them from the oracle.

A function changes one allocator that was just built. The docstring names the rule of the caching specification.
"""

from __future__ import annotations

from collections.abc import Callable

from oracle.cached_allocator import CachingAllocator
from oracle.lookup import SpecClass
from oracle.setting import Setting
from oracle.trace import Target

Change = Callable[[CachingAllocator], None]
EDITS: dict[str, Change] = {}


def edited(change: Change) -> Change:
    """Add a defect."""
    EDITS[change.__name__] = change
    return change


def target_of(change: Change) -> Callable[[Setting], Target]:
    """What makes the changed oracle, or the sound one where caching is off."""

    def make(setting: Setting) -> Target:
        target = CachingAllocator(setting)
        change(target)
        return target

    return make


def classes(target: CachingAllocator) -> list[SpecClass]:
    """The classes of groups that a lookup visits."""
    return target.finder.classes
