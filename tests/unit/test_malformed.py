"""Trace files that are no traces: one sentence that says where, what was found and what may stand there."""

from __future__ import annotations

import json

import pytest

from harness import tracefile
from oracle.errors import TraceError
from oracle.groups import KINDS as KINDS_OF_GROUP
from tests.unit.examples import ask, setting, trace

GOOD = tracefile.dumps(trace(setting(), ask(4, prompt=6)))
KINDS = ", ".join(kind.kind for kind in KINDS_OF_GROUP)
OPS = "extend, settle, loaded, release, give_back, resume, trim, new_step, lookup, evict, reset, pin, unpin"
GONE = object()


def changed(value, *place) -> str:
    """The good trace with one value changed, or gone."""
    data = json.loads(GOOD)
    inside = data
    for step in place[:-1]:
        inside = inside[step]
    if value is GONE:
        del inside[place[-1]]
    else:
        inside[place[-1]] = value
    return json.dumps(data)


SETTING, GROUP, OP = ("setting",), ("setting", "groups", 0), ("operations", 0)
TEXTS = {
    "": " is not JSON (line 1: Expecting value); is the file cut off?",
    GOOD[:-30]: " is not JSON (line 12: Expecting ',' delimiter); is the file cut off?",
    "[]": " must be one JSON object, got list",
    changed(GONE, "format"): " has format None; this version reads format 1",
    changed(2, "format"): " has format 2; this version reads format 1",
    changed("1", "format"): " has format '1'; this version reads format 1",
    changed(True, "format"): " has format True; this version reads format 1",
    changed("fleet", "level"): f" has level 'fleet'; this version has: {', '.join(tracefile.LEVELS)}",
    changed(GONE, "setting"): ": setting: 'setting' is missing",
    changed(GONE, "operations"): ": operations: 'operations' is missing",
    changed("x", "notes"): ": unknown field 'notes' of Trace",
    changed(None, "setting"): ": setting: must be a JSON object",
    changed(3, *SETTING, "blocks"): ": setting: unknown field 'blocks' of Setting",
    changed(GONE, *SETTING, "num_blocks"): ": setting.num_blocks: 'num_blocks' is missing",
    GOOD.replace('"num_blocks"', '"blocks"'): ": setting: unknown field 'blocks' of Setting",
    changed("32", *SETTING, "num_blocks"): ": setting.num_blocks: must be of type int, got '32'",
    changed(32.5, *SETTING, "num_blocks"): ": setting.num_blocks: must be of type int, got 32.5",
    changed(1, *SETTING, "num_blocks"): ": setting: num_blocks must be at least 2, got 1",
    changed(3_000_000_000, *SETTING, "num_blocks"): ": setting: num_blocks must be at most 1048576, got 3000000000",
    changed(3_000_000_000, *SETTING, "hash_block_size"): (
        ": setting: hash_block_size must be at most 1048576, got 3000000000"
    ),
    changed(2_000, *SETTING, "dcp_size"): ": setting: dcp_size must be at most 1024, got 2000",
    changed("all", *SETTING, "watermark"): ": setting.watermark: must be of type float, got 'all'",
    changed({}, *SETTING, "groups"): ": setting.groups: must be a list",
    changed([], *SETTING, "groups"): ": setting: groups must have at least one group, got none",
    changed("full_attention", *GROUP): ": setting.groups[0]: must be a JSON object",
    changed(GONE, *GROUP, "kind"): f": setting.groups[0]: 'kind' is missing; known: {KINDS}",
    changed("linear", *GROUP, "kind"): f": setting.groups[0]: unknown kind 'linear'; known: {KINDS}",
    changed(["x"], *GROUP, "kind"): ": setting.groups[0]: kind must be of type str, got ['x']",
    changed(0, *GROUP, "block_size"): ": setting.groups[0]: block_size must be at least 1, got 0",
    changed(1 << 21, *GROUP, "block_size"): ": setting.groups[0]: block_size must be at most 1048576, got 2097152",
    changed(8, *GROUP, "window"): ": setting.groups[0]: unknown field 'window' of FullAttention",
    changed({}, "operations"): ": operations: must be a list",
    changed("extend", *OP): ": operations[0]: must be a JSON object",
    changed(GONE, *OP, "op"): f": operations[0]: 'op' is missing; known: {OPS}",
    changed("look", *OP, "op"): f": operations[0]: unknown op 'look'; known: {OPS}",
    changed(3, *OP, "tokens"): ": operations[0]: unknown field 'tokens' of Extend",
    changed(GONE, *OP, "new"): ": operations[0].new: 'new' is missing",
    changed("4", *OP, "new"): ": operations[0].new: must be of type int, got '4'",
    changed(-1, *OP, "new"): ": operations[0]: new must be at least 0, got -1",
    changed(3_000_000_000, *OP, "prompt"): ": operations[0]: prompt must be at most 1048576, got 3000000000",
    changed("kernels", *OP, "op"): f": operations[0]: unknown op 'kernels'; known: {OPS}",
    changed(1, *OP, "has_scheduled_reqs"): ": operations[0].has_scheduled_reqs: must be of type bool, got 1",
    changed({"op": "resume", "request": 0, "tokens": 0}, *OP): ": operations[0]: tokens must be at least 1, got 0",
    changed({"op": "settle", "accepted": [[0, -3]]}, *OP): (
        ": operations[0]: accepted must be requests and drafts of at least 0, got [0, -3]"
    ),
    changed({"op": "settle", "accepted": [[0, 1 << 32]]}, *OP): (
        ": operations[0]: accepted must be requests and drafts of at most 1048576, got [0, 4294967296]"
    ),
    changed({"op": "settle", "accepted": [[0]]}, *OP): (
        ": operations[0].accepted[0]: Not enough values in [0] to structure as tuple[int, int]"
    ),
}


@pytest.mark.parametrize(("text", "message"), TEXTS.items(), ids=[message[:60] for message in TEXTS.values()])
def test_a_malformed_trace_is_told_in_a_sentence(text, message):
    """The file first, then the place in it, then what is wrong with the value there."""
    with pytest.raises(TraceError) as refused:
        tracefile.loads(text, "bad.json")

    assert f"bad.json{message}" == str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[" * 100_000, "maximum recursion depth"), (GOOD.replace("1", "1" * 5000, 1), "Exceeds the limit")],
    ids=["nested too deeply", "too many digits"],
)
def test_what_python_does_not_read(text, reason):
    """JSON beyond the interpreter's limits is a mistake of the file, not of the harness."""
    with pytest.raises(TraceError, match=f"bad.json is not a trace: {reason}"):
        tracefile.loads(text, "bad.json")


@pytest.mark.parametrize("cut", range(1, len(GOOD) - 2, 7))
def test_every_truncated_trace_is_refused(cut):
    """Wherever a file was cut off, it is told, not half run."""
    with pytest.raises(TraceError, match="is the file cut off"):
        tracefile.loads(GOOD[:cut])


def test_a_missing_file(tmp_path):
    """Its path is named."""
    with pytest.raises(TraceError) as refused:
        tracefile.read(tmp_path / "none.json")

    assert f"no trace file {tmp_path}/none.json" == str(refused.value)


def test_a_folder_is_no_file(tmp_path):
    """The operating system's reason is passed on."""
    with pytest.raises(TraceError, match=r"cannot be read: .*Is a directory"):
        tracefile.read(tmp_path)


def test_a_binary_file(tmp_path):
    """Bytes that are no text."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="cannot be read: 'utf-8' codec can't decode"):
        tracefile.read(tmp_path / "bytes")


def test_operations_of_another_level_are_not_named():
    """A warmup trace has operations of its own; those of the manager level mean nothing there."""
    text = changed("warmup", "level")
    with pytest.raises(TraceError, match=r"unknown op 'extend'; known: kernels, mixed, draft$"):
        tracefile.loads(text)
