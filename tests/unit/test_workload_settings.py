"""What an engine cannot have beside an encoder, DCP or a connector is refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from oracle.errors import SettingError
from oracle.groups import CrossAttention, FullAttention, Mamba
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import Submit
from oracle.workload_checks import check_workload

PLAIN = SchedulerSetting(
    groups=(FullAttention(block_size=4),), num_blocks=40, max_model_len=40, max_num_batched_tokens=40, max_num_seqs=4
)
ENCODER = evolve(
    PLAIN,
    groups=(FullAttention(block_size=4), CrossAttention(block_size=4)),
    max_encoder_len=12,
    enable_chunked_prefill=False,
)


@pytest.mark.parametrize(
    ("base", "fields", "words"),
    [
        (ENCODER, {"enable_chunked_prefill": True}, "enable_chunked_prefill must be False"),
        (ENCODER, {"kv_connector": True}, "kv_connector must be False"),
        (ENCODER, {"max_num_encoder_input_tokens": 11}, "must hold max_encoder_len 12, got 11"),
        (PLAIN, {"max_num_encoder_input_tokens": 11}, "needs a cross-attention group"),
        (
            PLAIN,
            {"dcp_size": 2, "groups": (Mamba(block_size=8, dcp_sharded=False), FullAttention(block_size=8))},
            "dcp_size 2 without Mamba groups",
        ),
        (PLAIN, {"kv_load_failure_policy": "fail"}, "need kv_connector true"),
        (PLAIN, {"waits_for_block_frees": True}, "needs kv_connector true"),
        (
            PLAIN,
            {
                "groups": (Mamba(block_size=8, speculative_blocks=0), FullAttention(block_size=8)),
                "kv_connector": True,
                "enable_caching": True,
            },
            "no KV connector beside",
        ),
    ],
)
def test_what_no_engine_has_is_refused(base: SchedulerSetting, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        evolve(base, **fields)


def test_encoder_input_that_is_too_long_is_refused() -> None:
    with pytest.raises(SettingError, match="encoder must be 0 to max_encoder_len 12, got 13"):
        check_workload(ENCODER, Submit(request=0, prompt=3, encoder=13))
