"""Trace files: what is written is read back, whatever the trace; the text is for people too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import tracefile
from harness.worker import decode
from oracle.errors import SlotcheckError
from oracle.groups import KINDS, CrossAttention, FullAttention, Mamba, Sink, SlidingWindow
from oracle.trace import GiveBack, Loaded, NewStep, Release, Resume, Trim
from strategies.traces import packed
from tests.unit.examples import accept, ask, setting, trace

EVERYTHING = trace(
    setting(
        SlidingWindow(block_size=4, window=8, extra_retained_tokens=2, dcp_sharded=False),
        Mamba(block_size=8, mode="align", speculative_blocks=3, checkpoint_blocks=1, checkpoint_alignment=2),
        CrossAttention(block_size=4, precision="single", uniform_layers=2),
        max_num_batched_tokens=16,
        max_num_seqs=2,
        max_in_flight_tokens=32,
        in_flight_depth=2,
        method="dflash",
        num_speculative_tokens=3,
        hash_block_size=4,
        prefix_cache_retention_interval=0,
        watermark=0.25,
        max_encoder_len=8,
        kv_connector=True,
    ),
    ask(0, prompt=9, external=8, encoder=5, full_sequence_must_fit=True, reserved_blocks=2, skip_zeroing=(0, 2)),
    Loaded(request=0, valid=4),
    ask(5, lookahead=1, has_scheduled_reqs=False),
    accept(0, 2),
    Resume(request=0, tokens=3),
    Trim(request=0),
    Release(request=0, preempt=True, deferred=True),
    GiveBack(),
    NewStep(),
)


def test_every_field_and_operation_comes_back():
    """Nothing is lost of a trace that sets everything."""
    assert EVERYTHING == tracefile.loads(tracefile.dumps(EVERYTHING))


@given(data=packed((0, 24, 120)), profile=st.sampled_from(["scheduler", "hostile"]))
def test_generated_traces_come_back(data, profile):
    """Whatever the codec makes of bytes is written and read back the same."""
    made = decode(data, 40, profile)

    assert made == tracefile.loads(tracefile.dumps(made))


#: what a kind must be given beside its block size
OWN = {"sink_len": 4, "window": 8, "chunk": 8, "mode": "all"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_kind_comes_back(kind):
    """By the kind's name in vLLM's terms."""
    names = {attribute.name for attribute in kind.__attrs_attrs__}
    group = kind(block_size=4, **{name: value for name, value in OWN.items() if name in names})
    made = trace(setting(group, profile="hostile", max_encoder_len=8 * (kind is CrossAttention)))

    assert made == tracefile.loads(tracefile.dumps(made))


def test_a_short_trace_reads_at_a_glance():
    """One group and one operation a line, defaults left out."""
    made = trace(setting(Sink(block_size=4, sink_len=4)), ask(9, prompt=9), accept(1), NewStep())

    assert """{
 "format": 1,
 "level": "manager",
 "setting": {
  "groups": [
   {"kind": "sink_full_attention", "block_size": 4, "sink_len": 4}
  ],
  "num_blocks": 32,
  "max_model_len": 64
 },
 "operations": [
  {"op": "extend", "request": 0, "new": 9, "prompt": 9},
  {"op": "settle", "accepted": [[0, 1]]},
  {"op": "new_step"}
 ]
}
""" == tracefile.dumps(made)


def test_the_example_is_as_we_would_write_it():
    """The file that tells a reader what a trace looks like."""
    text = (Path(__file__).parent / "data" / "trace.json").read_text()

    assert text == tracefile.dumps(tracefile.loads(text))


def test_a_trace_without_operations_is_a_trace():
    """What cannot be built needs none."""
    made = trace(setting(Sink(block_size=4, sink_len=4)))

    assert made == tracefile.loads(tracefile.dumps(made))


def test_the_level_may_be_left_out():
    """A trace written by hand is the manager's unless it says otherwise."""
    data = json.loads(tracefile.dumps(EVERYTHING))
    del data["level"]

    assert EVERYTHING == tracefile.loads(json.dumps(data))


def test_a_whole_watermark_may_be_written_without_a_point():
    """0 is 0.0."""
    data = json.loads(tracefile.dumps(trace(setting(FullAttention(block_size=4)))))
    data["setting"]["watermark"] = 0

    assert 0.0 == tracefile.loads(json.dumps(data)).setting.watermark


# ---------------------------------------------------------------------------------------------- writing


def test_a_file_is_written_whole(tmp_path):
    """Nothing else is left beside it, folders are made on the way."""
    tracefile.write_text(tmp_path / "a" / "b.json", "text")

    assert [("b.json", "text")] == [(path.name, path.read_text()) for path in (tmp_path / "a").iterdir()]


def test_what_cannot_be_written_is_a_sentence(tmp_path):
    """The path, why, what to do; the file in the way is left alone."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SlotcheckError) as refused:
        tracefile.write_text(tmp_path / "file" / "trace.json", "text")

    assert f"cannot write {tmp_path}/file/trace.json: {tmp_path}/file is not a folder; choose another one" == str(
        refused.value
    )


def test_a_failed_write_leaves_nothing(tmp_path):
    """A folder stands where the file should be: the temporary file is gone again."""
    (tmp_path / "trace.json").mkdir()
    with pytest.raises(SlotcheckError):
        tracefile.write_text(tmp_path / "trace.json", "text")

    assert ["trace.json"] == [path.name for path in tmp_path.iterdir()]


def test_mamba_in_mode_none_comes_back():
    """A default that is left out is the default when it is read: mode align is not written, mode none is."""
    made = trace(setting(Mamba(block_size=64, mode="none")), ask(4, prompt=9))

    assert '"mode": "none"' in tracefile.dumps(tracefile.loads(tracefile.dumps(made)))
