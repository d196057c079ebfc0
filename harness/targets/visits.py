"""How the release's own lookup goes: which groups it visits under which bound, and where each visit stops.

A spy stands in for the finders of the single-type managers while one lookup runs; nothing else is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attrs import frozen

#: names that are missing, most told for one visit
MOST_TOLD = 4


@frozen
class Visit:
    """Groups that were looked up together, the bound (tokens), whether the last unit is dropped, the hit (tokens)."""

    groups: tuple[int, ...]
    bound: int
    drops: bool
    hit: int


class _Spy:
    """A finder that notes its calls."""

    def __init__(self, finder: Any, visits: list[Visit]) -> None:
        self._finder = finder
        self._visits = visits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_longest_cache_hit(self, **asked: Any) -> Any:
        found = self._finder.find_longest_cache_hit(**asked)
        groups = tuple(asked["kv_cache_group_ids"])
        self._visits.append(Visit(groups, asked["max_length"], bool(asked["drop_eagle_block"]), found[1]))
        return found


@contextmanager
def visits_of(coordinator: Any) -> Iterator[list[Visit]]:
    """The visits of the lookups inside the context."""
    visits: list[Visit] = []
    classes = getattr(coordinator, "attention_groups", None)
    if classes is None:
        managers = coordinator.single_type_managers
        coordinator.single_type_managers = tuple([_Spy(manager, visits) for manager in managers])
        try:
            yield visits
        finally:
            coordinator.single_type_managers = managers
        return
    coordinator.attention_groups = [one._replace(manager_cls=_Spy(one.manager_cls, visits)) for one in classes]
    try:
        yield visits
    finally:
        coordinator.attention_groups = classes


def lacking(pool: Any, visit: Visit, hashes: list[Any], hash_size: int, size: int) -> str:
    """Which names up to the visit's bound have no block in one of its groups; `size`: tokens a block."""
    ends = range(size, min(visit.bound, len(hashes) * hash_size) + 1, size)
    missing = [str(end) for end in ends if pool.get_cached_block(hashes[end // hash_size - 1], [*visit.groups]) is None]
    more = f" and {len(missing) - MOST_TOLD} more" if len(missing) > MOST_TOLD else ""
    return f"no copy of {' '.join(missing[:MOST_TOLD])}{more}" if missing else "nothing is lacking"
