"""What changes from one state to the next, as short lists: a page of 10,000 steps must be small and open at once.

The page's script applies them one after the other. Rows and the free queue are replaced in one place each, as `splice`
says; a block that is taken from the middle of the queue (a hit) is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracle.call import Row, Rows


def splice(old: Row, new: Row) -> tuple[int, int, Row]:
    """(at, removed, added): `new` is `old` with `removed` entries from `at` on replaced by `added`."""
    least = min(len(old), len(new))
    head = 0
    while head < least and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < least - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, len(old) - head - tail, new[head : len(new) - tail]


def rows(old: Mapping[int, Rows], new: Mapping[int, Rows]) -> list[list[Any]]:
    """[request] for each that has no row any more, [request, group, at, removed, added] for each row that changed."""
    found: list[list[Any]] = [[request] for request in old if request not in new]
    for request, held in new.items():
        before = old.get(request)
        if held == before:
            continue
        for group, row in enumerate(held):
            was = () if before is None else before[group]
            if row != was or before is None:
                found.append([request, group, *splice(was, row)])
    return found


def queue(old: Row, new: Row) -> dict[str, Any]:
    """popped: entries gone from the front; out: blocks gone from behind; front, back: blocks that came there.

    Where that does not say it (the queue was put in another order) all: the whole queue.
    """
    if old == new:
        return {}
    kept, there = set(new), set(old)
    popped = 0
    while popped < len(old) and old[popped] not in kept:
        popped += 1
    out = [block for block in old[popped:] if block not in kept]
    stay = [block for block in old if block in kept]
    front = 0
    while front < len(new) and new[front] not in there:
        front += 1
    back = len(new)
    while back > front and new[back - 1] not in there:
        back -= 1
    if list(new[front:back]) != stay:
        return {"all": new}
    said = {"popped": popped, "out": out, "front": new[:front], "back": new[back:]}
    return {name: value for name, value in said.items() if value}
