"""Every planted defect is found among the release's own differences, and shrunk to the setting that it needs."""

from __future__ import annotations

from typing import Any

import pytest

from oracle.groups import Mamba
from oracle.warmup import Kernels, Mixed
from tests.warmup.defects import DEFECTS, Defect, Hunt, shown

#: those whose smallest setting is a few numbers: (block sizes, num_blocks, max_model_len, drafts, operation)
EXACT = {
    # the prompt has 3 tokens: 3 + 1 lookahead is the fourth block
    "lookahead dropped": ((1,), 2, 4, 1, Kernels()),
    # the same, and the cap at 3 hides it
    "lookahead not capped": ((1,), 2, 3, 1, Kernels()),
    # prompt 3, then 1 + 1 draft: 5 tokens
    "draft tokens not reserved": ((1,), 2, 5, 1, Kernels()),
    "null block handed out": ((1,), 2, 1, 0, Kernels()),
    "pool ignored": ((1,), 2, 1, 0, Kernels()),
    "one request not finished": ((1,), 2, 1, 0, Kernels()),
    "mixed step fills the pool": ((1,), 2, 1, 0, Mixed(num_tokens=3)),
    # one block a token: the decode's third one is left out, which leaves 2 + 2 and the null block
    "mixed step without its decode block": ((1,), 5, 3, 0, Mixed(num_tokens=3)),
}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_planted_defect_is_found_and_shrunk(release: Any, defect: Defect) -> None:
    hunt = Hunt(release, defect)
    found = hunt.find()
    assert found is not None, f"{hunt.traces} traces did not show it"

    shrunk = hunt.shrink(*found)

    trace, setting = shrunk.trace, shrunk.trace.setting
    assert shrunk.minimal
    assert defect.shows == shown(shrunk.difference)
    assert 1 == len(trace.operations)
    assert defect.groups == len(setting.groups)
    assert setting.num_blocks <= 5
    assert setting.max_model_len <= 6
    assert setting.num_speculative_tokens <= 1
    if defect.name in EXACT:
        sizes = tuple(group.block_size for group in setting.groups)
        smallest = (
            sizes,
            setting.num_blocks,
            setting.max_model_len,
            setting.num_speculative_tokens,
            trace.operations[0],
        )
        assert EXACT[defect.name] == smallest


def test_exact_settings_name_a_defect() -> None:
    assert set(EXACT) <= {defect.name for defect in DEFECTS}


def test_smallest_setting_of_align_lookahead(release: Any) -> None:
    """EAGLE with K 1: the prompt's 3 tokens fill the block, 3 + 1 with lookahead is a column more."""
    defect = next(defect for defect in DEFECTS if defect.name == "lookahead in align mode")
    hunt = Hunt(release, defect)
    found = hunt.find()
    assert found is not None

    setting = hunt.shrink(*found).trace.setting
    (group,) = setting.groups

    assert isinstance(group, Mamba)
    assert ("eagle", 3, 1) == (setting.method, group.block_size, group.speculative_blocks)
