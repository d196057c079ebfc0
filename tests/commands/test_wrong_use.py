"""Exit status 2: what a person asked for wrongly, in a sentence, with nothing half-written and no traceback."""

from __future__ import annotations

import pytest

from tests.commands.conftest import EXAMPLE, left, plain, target

#: name -> arguments; what they name does not exist unless a test makes it
WRONG = {
    "unknown level": ("run", "--level", "kernel"),
    "steps of two levels": ("run", "--level", "rules,warmup", "--steps", "9"),
    "target at a level without": ("run", "--level", "rules", "--target", "my_fork.manager:Mine"),
    "unknown aspect": ("run", "--aspects", "outcome,colour"),
    "no aspect": ("run", "--aspects", ","),
    "no steps": ("run", "--steps", "0"),
    "steps that are no number": ("run", "--steps", "many"),
    "budget that is no duration": ("run", "--budget", "soon"),
    "budget of nothing": ("run", "--budget", "0s"),
    "budget without end": ("run", "--budget", "inf"),
    "negative seed": ("run", "--seed", "-1"),
    "no workers": ("run", "--workers", "0"),
    "watchdog that never waits": ("run", "--hang", "-1"),
    "unknown command": ("gallop",),
    "no trace": ("replay",),
    "missing trace": ("explain", "nowhere.json"),
    "missing trace to replay": ("replay", "nowhere.json"),
    "missing trace to shrink": ("shrink", "nowhere.json"),
    "missing trace to show": ("show", "nowhere.json"),
    "folder as a page": ("run", "--html", "."),
    "unknown finding": ("findings", "check", "nothing"),
    "no mutants": ("score", "--sample", "0"),
    "a file that is not scored": ("score", "--file", "v1/engine/core.py"),
    "a share above all": ("score", "--least", "1.5"),
    "no tries": ("shrink", "nowhere.json", "--tries", "0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use(pure, two_findings, tmp_path, snapshot, name):
    """The value and what is allowed."""
    result = pure(*WRONG[name])

    assert snapshot == plain(result.err, tmp_path)
    assert (2, "", []) == (result.status, result.out, left(tmp_path))


TRACES = {
    "empty": "",
    "cut off": EXAMPLE.read_text()[:300],
    "unknown format": EXAMPLE.read_text().replace('"format": 1', '"format": 99'),
    "unknown level": EXAMPLE.read_text().replace('"level": "manager"', '"level": "fleet"'),
    "unknown field": EXAMPLE.read_text().replace('"num_blocks"', '"number_of_blocks"'),
    "impossible setting": EXAMPLE.read_text().replace('"num_blocks": 16', '"num_blocks": 1'),
    "impossible window": EXAMPLE.read_text().replace('"window": 8', '"window": 0'),
    "unknown kind": EXAMPLE.read_text().replace("sliding_window", "sliding_door"),
    "unknown operation": EXAMPLE.read_text().replace('"op": "give_back"', '"op": "take_back"'),
    "impossible number": EXAMPLE.read_text().replace('"prompt": 16', '"prompt": -16'),
}


@pytest.mark.parametrize("name", TRACES)
def test_a_malformed_trace(slot, tmp_path, snapshot, name):
    """Where, what was found, what may stand there."""
    (tmp_path / "trace.json").write_text(TRACES[name])
    result = slot("explain", "trace.json")

    assert snapshot == result.err
    assert (2, "", ["trace.json"]) == (result.status, result.out, left(tmp_path))


@pytest.mark.parametrize("command", ["replay", "shrink"])
def test_a_trace_is_read_before_anything_is_loaded(slot, tmp_path, monkeypatch, command):
    """A malformed trace costs no import of vLLM."""

    def load(*arguments):
        raise AssertionError("loaded")

    monkeypatch.setattr("harness.targets.loader.import_vllm", load)
    (tmp_path / "trace.json").write_text("{")

    assert 2 == slot(command, "trace.json").status


@pytest.mark.parametrize("name", ["a folder", "a binary"])
def test_what_is_no_file_of_text(slot, tmp_path, snapshot, name):
    """The operating system's reason, or the text's."""
    if name == "a folder":
        (tmp_path / "trace.json").mkdir()
    else:
        (tmp_path / "trace.json").write_bytes(b"\xff\x00")
    result = slot("explain", "trace.json")

    assert snapshot == result.err
    assert (2, "") == (result.status, result.out)


def test_a_truncated_journal(slot, tmp_path, snapshot):
    """A file that begins like one and ends."""
    (tmp_path / "worker-0.journal").write_bytes(b"slotcheck-1\n\x00")
    result = slot("explain", "worker-0.journal")

    assert snapshot == result.err
    assert (2, "") == (result.status, result.out)


@pytest.mark.parametrize(
    "arguments",
    [("run", "--steps", 1, "--out", "file/out"), ("run", "--steps", 1, "--out", "file")],
    ids=["below a file", "a file"],
)
def test_an_output_folder_that_cannot_be_written(pure, tmp_path, snapshot, arguments):
    """Told before anything runs; the file in the way is left alone."""
    (tmp_path / "file").write_text("mine")
    result = pure(*arguments, "--target", target("Sound"))

    assert snapshot == plain(result.err, tmp_path)
    assert (2, "", ["file"]) == (result.status, result.out, left(tmp_path))


def test_a_shrunk_trace_that_cannot_be_written(pure, tmp_path, snapshot):
    """The other file that a command writes where it is told."""
    (tmp_path / "file").write_text("mine")
    trace = """{"format": 1, "setting": {"groups": [{"kind": "full_attention", "block_size": 4}], "num_blocks": 9,
                "max_model_len": 64, "method": "eagle", "num_speculative_tokens": 3},
                "operations": [{"op": "extend", "request": 0, "new": 4, "prompt": 4}]}"""
    (tmp_path / "trace.json").write_text(trace)
    result = pure("shrink", "trace.json", "--target", target("NoLookahead"), "-o", "file/small.json")

    assert snapshot == plain(result.err, tmp_path)
    assert (2, "", ["file", "trace.json"]) == (result.status, result.out, left(tmp_path))


def test_a_declaration_that_cannot_be_read(pure, tmp_path, monkeypatch, snapshot):
    """A finding of one's own with a slip in it."""
    (tmp_path / "reports" / "mine").mkdir(parents=True)
    (tmp_path / "reports" / "mine" / "finding.json").write_text('{"title": "x"')
    monkeypatch.setattr("harness.findings.folder", lambda: tmp_path / "reports")
    result = pure("findings", "list")

    assert snapshot == plain(result.err, tmp_path)
    assert (2, "") == (result.status, result.out)
