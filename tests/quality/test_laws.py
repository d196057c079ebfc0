"""The laws and the memory model see these defects with no prediction beside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from tests.quality.defects import DEFECTS, Defect
from tests.quality.hunt import OPTIONS, RARE, Hunt

LAWS_ALONE = evolve(OPTIONS, aspects=frozenset({"law"}))

#: defect -> the laws that it may break
BROKEN = {
    "lookahead_lost_on_first_calls": {"W1"},
    "lookahead_one_short": {"W1"},
    "lookahead_from_the_confirmed_position": {"W1"},
    "removal_on_the_computed_basis": {"M12", "W1"},
    "window_removed_one_column_early": {"M12", "W1"},
    "window_one_token_narrow": {"M12", "W1"},
    "chunk_border_one_token_early": {"M12", "W1"},
    "GapBeginsInThePrompt": {"M12"},
    "last_state_removed": {"M12"},
    "align_counts_lookahead": {"W1"},
    "align_without_speculative_blocks": {"W1"},
    "dcp_factor_applied_to_replicated_groups": {"W1", "M12"},
    "null_block_handed_out": {"W1", "A2"},
    "one_id_in_two_groups": {"A2"},
    "removed_blocks_leak": {"A2"},
    "release_leaks_the_first_column": {"A2"},
    "deferred_release_frees_at_once": {"A2"},
    "refused_call_keeps_a_block": {"A22"},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_law_is_broken(name: str, plant: Callable[[Defect], Defect]) -> None:
    hunted = Hunt(plant(DEFECTS[name]), limit=RARE, options=LAWS_ALONE)
    laws: set[str] = set()
    while not laws and hunted.go_on():
        laws = {found.difference.rule for found in hunted.found.values()}

    assert laws
    assert laws <= BROKEN[name]
