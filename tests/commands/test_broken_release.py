"""A tree whose vllm cannot be imported: one sentence, exit status 3."""

from __future__ import annotations

import subprocess
import sys

import pytest

MAIN = "from harness.cli import main; main()"


@pytest.mark.parametrize(
    "command", [["run", "--steps", "1", "--release"], ["gate", "--to", "0.33.0", "--budget", "1s", "--from"]]
)
def test_a_release_that_cannot_be_imported(tmp_path, command):
    """The cause stands in the sentence; nothing else does."""
    tree = tmp_path / "tree" / "vllm"
    tree.mkdir(parents=True)
    (tree / "__init__.py").write_text("import no_such_thing\n")
    run = subprocess.run(
        [sys.executable, "-c", MAIN, *command, str(tree.parent), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    said = [line for line in run.stderr.splitlines() if line.startswith("slotcheck: ")]

    assert 3 == run.returncode
    assert ["slotcheck: vLLM 0+unknown does not import: ModuleNotFoundError: No module named 'no_such_thing'"] == said
