"""A whole run of the level: verdict, reports, the process that dies."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from harness.findings import Declared, load
from harness.targets.manager import Manager
from harness.targets.warmup import Warmup
from harness.verdict import AGREED, DIFFERENCES, INCONCLUSIVE
from harness.warmup_job import WarmupJob, run
from harness.warmup_parties import SHARE
from harness.warmup_parties import options as parties
from harness.warmups import WarmupOptions
from oracle.warmup import WarmupOperation, WarmupSetting

pytestmark = pytest.mark.usefixtures("release")


def job(out: Path, **fields: Any) -> WarmupJob:
    options = WarmupOptions(make_manager=Manager, declared=Declared(load(), "0.33.0"))
    base = WarmupJob(
        seed=11,
        warmups=700,
        seconds=None,
        workers=1,
        out=out,
        release="0.33.0",
        make_warmup=Warmup,
        options=options,
        name_of=lambda difference: difference.rule,
        hang_seconds=60.0,
        kernels="none",
    )
    return evolve(base, **fields)


def test_run_agrees_where_every_difference_is_declared(tmp_path: Path) -> None:
    report = run(job(tmp_path))
    data = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))

    assert (AGREED, []) == (report.verdict, report.reasons)
    assert data == report.data()
    assert data["declared"]
    assert data["warmups"] >= 700


def test_short_run_is_inconclusive(tmp_path: Path) -> None:
    report = run(job(tmp_path, warmups=1))

    assert INCONCLUSIVE == report.verdict
    assert report.reasons[0].startswith("not reached often enough: ")


def test_workers_change_nothing(tables: Any, tmp_path: Path) -> None:
    """With the kernels on their share of the traces."""
    given = {"warmups": 100, "kernels": SHARE, "options": parties(SHARE, Declared(load(), "0.33.0"))}
    one, two = (run(job(tmp_path / str(workers), workers=workers, **given)) for workers in (1, 2))

    assert one.total.kernels
    assert (one.total.kernels, one.total.declared, one.total.reach) == (
        two.total.kernels,
        two.total.declared,
        two.total.reach,
    )


def test_undeclared_difference_is_shrunk_and_reported(tmp_path: Path) -> None:
    options = WarmupOptions(make_manager=Manager, declared=lambda difference: difference.rule != "state")

    report = run(job(tmp_path, warmups=60, options=options))

    assert DIFFERENCES == report.verdict
    shrunk, count, folder = report.differences[0]
    assert count >= 1
    assert "warmup/law/pool/state/connector off" in shrunk.difference.fingerprint
    assert shrunk.difference.fingerprint in (folder / "report.md").read_text(encoding="utf-8")
    assert {"page.html", "trace.json", "report.md", "repro.py"} == {path.name for path in folder.iterdir()}


def test_process_that_dies_is_a_difference(tmp_path: Path) -> None:
    class Dies(Warmup):
        def __init__(self, setting: WarmupSetting) -> None:
            super().__init__(setting)
            self.last = setting.pooling

        def run(self, operation: WarmupOperation) -> Any:
            if self.last:
                os._exit(9)
            return super().run(operation)

    report = run(job(tmp_path, warmups=1, make_warmup=Dies, seconds=0.1))

    assert DIFFERENCES == report.verdict
    assert "warmup/outcome/pool/process/exit 9" in [
        shrunk.difference.fingerprint for shrunk, _, _ in report.differences
    ]
