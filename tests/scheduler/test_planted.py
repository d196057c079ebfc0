"""Every planted defect is found within 20,000 steps, and shrunk to at most 3 requests and 6 steps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.defects import DEFECTS
from tests.scheduler.planting import Defect, Hunt


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_planted_defect_is_found_and_shrunk(release: Any, defect: Defect) -> None:
    hunt = Hunt(defect)
    found = hunt.find()
    assert found is not None, f"{hunt.steps} steps did not show it"

    shrunk = hunt.shrink(*found)

    assert shrunk.minimal
    assert shrunk.requests <= 3
    assert shrunk.steps <= 6
