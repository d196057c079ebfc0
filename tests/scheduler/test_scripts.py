"""repro.py of workloads, in one process that has vLLM alone: it does what the harness did, step by step to the last."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import findings
from harness.report.workload_script import script
from harness.targets.compat import installed_release
from harness.targets.scheduler import Scheduler
from harness.workload_outcome import Differences, WorkloadOptions
from harness.workloads import run_workload
from oracle.scheduled import PLANNED_RULES
from oracle.workload import SchedulerTrace
from strategies.workloads import decode, draw
from tests.real.test_repro import DRIVER

pytestmark = pytest.mark.usefixtures("release")


def exits(paths: list[Path], folder: Path) -> dict[str, int]:
    """The exit status of each script."""
    ran = subprocess.run(
        [sys.executable, "-I", "-c", DRIVER, *map(str, paths)], capture_output=True, text=True, check=False, cwd=folder
    )
    assert 0 == ran.returncode, ran.stderr
    found: dict[str, int] = json.loads(ran.stdout.splitlines()[-1])
    return {path.parent.name: found[str(path)] for path in paths}


def test_declared_workloads_show_their_defects_with_vllm_alone(tmp_path: Path) -> None:
    scripts = [
        finding.folder / "repro.py"
        for finding in findings.load()
        if finding.level == "scheduler" and finding.covers(installed_release())
    ]

    assert dict.fromkeys((path.parent.name for path in scripts), 1) == exits(scripts, tmp_path)


def written(folder: Path, trace: SchedulerTrace) -> Path | None:
    """The script of a workload as if its last planned step were wrong; None where the scheduler raises."""
    outcome = run_workload(trace, Scheduler, WorkloadOptions(keep_entries=True, predict=False, memory=False))
    if any(one.aspect == "error" for one in outcome.differences):
        return None
    differences = Differences(trace.setting, WorkloadOptions(), outcome)
    differences.index = outcome.entries[-1].operation
    wrong = differences.difference("output", PLANNED_RULES["again"], "again", "another step", "this step")
    folder.mkdir()
    path = folder / "repro.py"
    path.write_text(script(trace, wrong, outcome, "A test", "0.33.0"), encoding="utf-8")
    return path


def test_scripts_repeat_generated_workloads(tmp_path: Path) -> None:
    """Each ends with the recorded step, whatever the workload has: a connector, an encoder, grammars, DCP, caching."""
    drawn: list[bytes] = []
    draw(3, 0, 40, drawn.append)
    written_each = [written(tmp_path / str(number), decode(data)) for number, data in enumerate(drawn)]
    scripts = [path for path in written_each if path is not None]

    assert dict.fromkeys((path.parent.name for path in scripts), 1) == exits(scripts, tmp_path)
    assert len(scripts) > 30
