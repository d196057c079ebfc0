"""The planted defects: each breaks one rule that a release of vLLM has broken, or could."""

from __future__ import annotations

from tests.quality import in_decisions, in_lengths, in_rows, in_the_oracle, in_the_pool
from tests.quality.planting import DEFECTS, Defect

__all__ = ["DEFECTS", "PLACES", "Defect"]

#: where they are: importing one adds its defects to the table
PLACES = (in_lengths, in_rows, in_decisions, in_the_pool, in_the_oracle)
