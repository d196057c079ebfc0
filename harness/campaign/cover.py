"""The smallest set of things that covers all wants, greedily: each time the one that covers most of what is left."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeVar

Thing = TypeVar("Thing", bound=Hashable)
Want = TypeVar("Want", bound=Hashable)


def cover(
    covers: Mapping[Thing, AbstractSet[Want]], cost: Mapping[Thing, float] | None = None
) -> dict[Thing, set[Want]]:
    """Things that together cover whatever one covers, each with what it was taken for; of equal ones the first.

    cost: what one costs, 1 by default. Within a logarithm of the smallest set; none of it can be left out.
    """
    left = set().union(*covers.values()) if covers else set()
    taken: list[Thing] = []
    while left:
        best = max(covers, key=lambda thing: len(left & covers[thing]) / (cost[thing] if cost else 1.0))
        taken.append(best)
        left -= covers[best]
    for thing in list(reversed(taken)):  # what later ones cover too is not needed
        rest = set().union(*(covers[other] for other in taken if other != thing))
        if covers[thing] <= rest:
            taken.remove(thing)
    chosen: dict[Thing, set[Want]] = {}
    done: set[Want] = set()
    for thing in taken:
        chosen[thing] = set(covers[thing]) - done
        done |= covers[thing]
    return chosen
