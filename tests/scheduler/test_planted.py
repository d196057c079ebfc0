"""Every planted defect is found within 20,000 steps, and shrunk to at most 3 requests and 6 steps."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from tests.scheduler.defects import DEFECTS
from tests.scheduler.planting import Defect, Hunt


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_planted_defect_is_found_and_shrunk(release: Any, defect: Defect) -> None:
    """The smallest of the first few workloads that show it, as a run reports it."""
    hunt = Hunt(defect)
    sizes = []
    for found in islice(hunt.finds(), 4):
        shrunk = hunt.shrink(*found)
        assert shrunk.minimal
        sizes.append((shrunk.requests, shrunk.steps))
        if shrunk.requests <= 3 and shrunk.steps <= 6:
            break
    else:
        pytest.fail(f"{hunt.steps} steps gave {sizes} requests and steps")
