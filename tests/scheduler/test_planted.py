"""Every planted defect is found within 20,000 steps, and shrunk to at most 3 requests and 6 steps, but for a few."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.defects import DEFECTS, Defect, Hunt

#: requests and steps of the smallest workload
SMALL = 3, 6
#: what the shrinker leaves larger today
LARGER = {
    "draft slots of running requests not charged": (4, 27),
    "victim from the wrong end": (3, 17),
    "a victim's blocks come back later": (3, 17),
    "one request too many": (4, 6),
    "a chunk ends in the lookahead": (4, 6),
}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_planted_defect_is_found_and_shrunk(release: Any, defect: Defect) -> None:
    hunt = Hunt(defect)
    found = hunt.find()
    assert found is not None, f"{hunt.steps} steps did not show it"

    shrunk = hunt.shrink(*found)

    assert shrunk.minimal
    requests, steps = LARGER.get(defect.name, SMALL)
    assert (True, True) == (shrunk.requests <= requests, shrunk.steps <= steps)
