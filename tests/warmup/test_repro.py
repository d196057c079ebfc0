"""repro.py of the declared findings of this level, in a process that has vLLM alone; one such process runs them all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from harness import findings
from harness.report.warmup import write_warmup_report
from harness.targets.block_tables import WorkerTables, Written
from harness.targets.warmup import Warmup
from harness.warmup_shrink import WarmupShrunk
from harness.warmups import WarmupOptions, run_warmups
from oracle.groups import FullAttention, SlidingWindow
from oracle.warmup import Kernels, Mixed, Ran, Recorded, WarmupOperation, WarmupSetting, WarmupTrace
from oracle.warmup_party import OracleWarmup
from tests.real.test_repro import DRIVER
from tests.warmup.cases import setting, trace

FOUND = [finding for finding in findings.load() if finding.level == "warmup" and finding.covers("0.33.0")]


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


class Shifted(WorkerTables):
    """Block tables whose slots are one too high: a defect that the release does not have."""

    def step(self, step: Recorded) -> list[Written]:
        return [
            evolve(one, slots=tuple(tuple(slot + 1 for slot in group) for group in one.slots))
            for one in super().step(step)
        ]


class Truncated(WorkerTables):
    """The same with rows that lack their last block."""

    def step(self, step: Recorded) -> list[Written]:
        return [evolve(one, rows=tuple(row[:-1] for row in one.rows)) for one in super().step(step)]


def of_tables(folder: Path, name: str, of: WarmupTrace, make: Any, sign: str) -> str:
    """The script of a difference of the block tables."""
    options = WarmupOptions(make_tables=make)
    found = next(one for one in run_warmups(of, Warmup, options).differences if (one.rule, one.sign) == ("slots", sign))
    made = write_warmup_report(folder / name, WarmupShrunk(of, found, 0, True), "0.33.0", Warmup, options)
    return str(made / "repro.py")


@pytest.mark.slow
def test_exits_1_while_the_defect_is_there_and_0_otherwise(tables: Any, tmp_path: Path) -> None:
    """X-4 at the block tables: 199 tokens are 13 blocks of a rank, its row for 512 tokens on four ranks has 8."""
    two = trace(setting(FullAttention(block_size=4), SlidingWindow(block_size=2, window=3), max_num_seqs=1))
    long = trace(setting(FullAttention(block_size=16), dcp_size=4, max_model_len=512), Mixed(num_tokens=200))
    scripts = [
        of_tables(tmp_path, "shifted", two, Shifted, "target slot"),
        of_tables(tmp_path, "truncated", two, Truncated, "row cut"),
        of_tables(tmp_path, "past the row", long, WorkerTables, "error:RuntimeError"),
    ]
    scripts += [str(clean(tmp_path)), *(str(finding.folder / "repro.py") for finding in FOUND)]
    ran = subprocess.run(
        [sys.executable, "-I", "-c", DRIVER, *scripts], capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | {"TRITON_INTERPRET": "1"},
    )  # fmt: skip
    found = {Path(path).parent.name: code for path, code in json.loads(ran.stdout or "{}").items()}

    tables_answers = {"shifted": 0, "truncated": 0, "past the row": 1}
    assert {"clean": 0, **tables_answers, **{finding.name: 1 for finding in FOUND}} == found, ran.stderr
