"""repro.py of the declared findings of this level, in a process that has vLLM alone; one such process runs them all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import findings
from harness.report.warmup import write_warmup_report
from harness.warmup_shrink import WarmupShrunk
from harness.warmups import WarmupOptions, run_warmups
from oracle.groups import FullAttention
from oracle.warmup import Kernels, Ran, WarmupOperation, WarmupSetting
from oracle.warmup_party import OracleWarmup
from tests.real.test_repro import DRIVER
from tests.warmup.cases import setting, trace

FOUND = [finding for finding in findings.load() if finding.level == "warmup"]


class Forgets:
    """The oracle's warmup without lookahead: a defect that the release does not have."""

    def __init__(self, of: WarmupSetting) -> None:
        self.party = OracleWarmup(setting(*of.groups, method="ngram", num_speculative_tokens=2))

    def run(self, operation: WarmupOperation) -> Ran:
        return self.party.run(operation)


def clean(folder: Path) -> Path:
    """The script of a difference that the installed release does not show."""
    of = trace(setting(FullAttention(block_size=4), method="eagle", num_speculative_tokens=2), Kernels())
    found = run_warmups(of, Forgets, WarmupOptions()).differences[0]
    assert ("W1", "less") == (found.rule, found.sign)
    return write_warmup_report(folder / "clean", WarmupShrunk(of, found, 0, True), "0.33.0", Forgets) / "repro.py"


@pytest.mark.slow
def test_exits_1_while_the_defect_is_there_and_0_otherwise(release: Any, tmp_path: Path) -> None:
    scripts = [str(clean(tmp_path)), *(str(finding.folder / "repro.py") for finding in FOUND)]
    ran = subprocess.run(
        [sys.executable, "-I", "-c", DRIVER, *scripts], capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | {"TRITON_INTERPRET": "1"},
    )  # fmt: skip
    found = {Path(path).parent.name: code for path, code in json.loads(ran.stdout or "{}").items()}

    assert {"clean": 0, **{finding.name: 1 for finding in FOUND}} == found, ran.stderr
