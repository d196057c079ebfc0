"""Settings that no engine could have are refused in a sentence that names the value."""

from __future__ import annotations

import pytest

from oracle.errors import SettingError, SlotcheckError
from oracle.groups import (
    ChunkedLocal,
    CircularBuffer,
    CrossAttention,
    FullAttention,
    Mamba,
    Sink,
    SlidingWindow,
)
from oracle.setting import Setting
from tests.unit.examples import setting

WINDOW = SlidingWindow(block_size=4, window=8, dcp_sharded=False)
CROSS = CrossAttention(block_size=4)
ALIGN = Mamba(block_size=4, mode="align", speculative_blocks=3)
DRAFTS = {"method": "eagle", "num_speculative_tokens": 3}

REFUSED = [
    ({"num_blocks": 1}, (), "num_blocks must be at least 2, got 1"),
    ({"num_blocks": 2.5}, (), "num_blocks must be a whole number, got 2.5"),
    ({"num_blocks": True}, (), "num_blocks must be a whole number, got True"),
    ({"max_model_len": 0}, (), "max_model_len must be at least 1, got 0"),
    ({"max_num_batched_tokens": 0}, (), "max_num_batched_tokens must be at least 1, got 0"),
    ({"max_num_seqs": 0}, (), "max_num_seqs must be at least 1, got 0"),
    ({"max_in_flight_tokens": 0}, (), "max_in_flight_tokens must be at least 1 or null, got 0"),
    ({"in_flight_depth": 0}, (), "in_flight_depth must be at least 1, got 0"),
    ({"dcp_size": 0}, (), "dcp_size must be at least 1, got 0"),
    ({"watermark": 1.0}, (), "watermark must be in [0, 1), a share of the pool, got 1.0"),
    ({"watermark": -0.1}, (), "watermark must be in [0, 1), a share of the pool, got -0.1"),
    ({"watermark": float("nan")}, (), "watermark must be in [0, 1), a share of the pool, got nan"),
    ({"hash_block_size": 0}, (), "hash_block_size must be at least 1 or null, got 0"),
    ({"hash_block_size": 3}, (), "hash_block_size must divide every block size, 3 does not divide 4"),
    ({"profile": "friendly"}, (), "profile must be one of 'scheduler', 'hostile', got 'friendly'"),
    (
        {"enable_caching": True, "use_eagle": True, "num_hash_lookahead_tokens": 1},
        (),
        "use_eagle and num_hash_lookahead_tokens exclude each other: one of them is enough",
    ),
    ({"enable_caching": True, "hash_block_size": 2}, (), "hash_block_size of a single group must be its block size 4"),
    (
        {"enable_caching": True, "prefix_cache_retention_interval": 4},
        (),
        "prefix_cache_retention_interval needs a window or a Mamba group, got 4; set it to 0 or null",
    ),
    ({"num_speculative_tokens": -1}, (), "num_speculative_tokens must be at least 0, got -1"),
    ({"num_speculative_tokens": 2}, (), "num_speculative_tokens needs a method, got method 'none'"),
    (
        {"max_encoder_len": 8},
        (),
        "max_encoder_len 8 needs a cross-attention group, got none",
    ),
    ({}, (CROSS,), "a cross-attention group needs max_encoder_len of at least 1, got 0"),
    (
        {"dcp_size": 2},
        (SlidingWindow(block_size=4, window=8),),
        (
            "a sliding_window group cannot be sharded over 2 DCP ranks: its admission cap is not scaled; "
            "set dcp_sharded to false"
        ),
    ),
    ({}, (SlidingWindow(block_size=4, window=1),), "window must be at least 2, got 1"),
    ({}, (ChunkedLocal(block_size=4, chunk=6),), "chunk must be a multiple of block_size 4, got 6"),
    (
        {"num_blocks": 2},
        (Sink(block_size=4, sink_len=8),),
        "num_blocks must be above 2, got 2: that many blocks are set aside for sinks",
    ),
    (
        {},
        (Mamba(block_size=32, mode="none"),),
        (
            "block_size of a Mamba group in mode none must be at least max_model_len 64, got 32: "
            "its kernels read column 0 for ever"
        ),
    ),
    (
        DRAFTS,
        (Mamba(block_size=8, mode="align", speculative_blocks=2),),
        "speculative_blocks of a Mamba group must be at least num_speculative_tokens 3, got 2",
    ),
    (
        {**DRAFTS, "in_flight_depth": 2},
        (ALIGN,),
        (
            "block_size of a Mamba group in mode align must exceed the 6 draft tokens in flight, got 4: "
            "a rollback would cross columns whose states are gone"
        ),
    ),
]


@pytest.mark.parametrize(("fields", "groups", "message"), REFUSED, ids=[text[:45] for *_, text in REFUSED])
def test_a_refused_setting_names_the_value(fields, groups, message):
    """One sentence: which field, its value, what is allowed."""
    with pytest.raises(SettingError) as refused:
        setting(*groups, **fields)

    assert message == str(refused.value)


def test_a_setting_has_groups():
    """Without a group there is nothing to hold."""
    with pytest.raises(SettingError) as refused:
        Setting(groups=(), num_blocks=2, max_model_len=1)

    assert "groups must have at least one group, got none" == str(refused.value)


GROUPS = [
    (FullAttention, {"block_size": 0}, "block_size must be at least 1, got 0"),
    (FullAttention, {"block_size": "4"}, "block_size must be a whole number, got '4'"),
    (FullAttention, {"precision": "double"}, "precision must be one of 'half', 'single', got 'double'"),
    (FullAttention, {"uniform_layers": -1}, "uniform_layers must be at least 0, got -1"),
    (Sink, {"sink_len": 6}, "sink_len must be a multiple of block_size 4, got 6"),
    (SlidingWindow, {"window": 0}, "window must be at least 1, got 0"),
    (SlidingWindow, {"window": 8, "extra_retained_tokens": -1}, "extra_retained_tokens must be at least 0, got -1"),
    (ChunkedLocal, {"chunk": 0}, "chunk must be at least 1, got 0"),
    (Mamba, {"mode": "some"}, "mode must be one of 'none', 'all', 'align', got 'some'"),
    (Mamba, {"dcp_sharded": True}, "a Mamba group cannot be dcp_sharded: each rank holds the whole state"),
    (Mamba, {"checkpoint_alignment": 0}, "checkpoint_alignment must be at least 1 or null, got 0"),
]


@pytest.mark.parametrize(("kind", "fields", "message"), GROUPS, ids=[text[:45] for *_, text in GROUPS])
def test_a_refused_group_names_the_value(kind, fields, message):
    """The same for the fields of one group."""
    with pytest.raises(SettingError) as refused:
        kind(**{"block_size": 4, **fields})

    assert message == str(refused.value)


@pytest.mark.parametrize(
    "group",
    [SlidingWindow(block_size=4, window=1), ChunkedLocal(block_size=4, chunk=6), Mamba(block_size=4, mode="none")],
    ids=lambda group: group.kind,
)
def test_the_hostile_profile_has_what_no_configuration_has(group):
    """A manager accepts these; only a real model never brings them."""
    assert (group,) == setting(group, profile="hostile").groups


@pytest.mark.parametrize(
    ("name", "parallel", "message"),
    [
        ("medusa", False, "no speculative method 'medusa'"),
        ("mtp_constant", True, "no speculative method 'mtp_constant' with parallel"),
        ("diffusion", False, "method 'diffusion' samples no token beside its drafts"),
    ],
)
def test_an_unfit_method_is_named(name, parallel, message):
    """One that the release does not have, or that the accounting of a trace does not."""
    with pytest.raises(SlotcheckError, match=message):
        setting(method=name, parallel_drafting=parallel, num_speculative_tokens=1)


def test_sizes_that_follow_from_the_groups():
    """Blocks of 4 over 2 ranks and of 6: the scheduler's block is lcm(8, 6) = 24, the hash block gcd(8, 6) = 2."""
    made = setting(FullAttention(block_size=4), FullAttention(block_size=6, dcp_sharded=False), dcp_size=2)

    assert (24, 2) == (made.scheduler_block_size, made.hash_size)


def test_a_ring_has_no_say_in_the_hash_block():
    """Prefix caching doesn't know rings: of blocks of 4 and a ring of 6 the hash block is 4."""
    assert 4 == setting(FullAttention(block_size=4), CircularBuffer(block_size=6)).hash_size
