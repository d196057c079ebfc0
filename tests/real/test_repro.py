"""repro.py of real defects of 0.33.0, in a process that has vLLM alone; one such process runs them all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.outcome import Options
from harness.report.folder import write_report
from harness.shrink import Shrunk
from harness.targets.manager import Manager
from harness.trace_run import run_trace
from oracle.setting import Setting
from oracle.trace import Target
from tests.unit.report_samples import SAMPLES

#: runs each script as `python repro.py` would and prints the exit statuses; imports nothing of ours
DRIVER = """
import contextlib, io, json, runpy, sys
found = {}
for path in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            runpy.run_path(path, run_name="__main__")
            found[path] = 0
        except SystemExit as ended:
            found[path] = ended.code
print(json.dumps(found))
"""
#: differences that the real manager makes: a wrong gate, a wrong count, two broken laws, a manager that cannot be built
REAL = ("A13", "A15", "M12", "W1", "W5", "build")
#: differences that only the stand-in for a defect makes: the real manager agrees with the oracle
CLEAN = ("A14", "A19", "A2", "A20", "A5", "A60")


def report(folder: Path, rule: str) -> Path:
    """The repro.py of a sample, found on the real manager if it has the defect, else on the sample's own target."""
    sample = SAMPLES[rule]

    def make(setting: Setting) -> Target:
        return Manager(setting) if rule in REAL else sample.make(setting)

    found = run_trace(sample.trace, make, Options(audit_every=1)).differences[0]
    assert rule == found.rule
    return write_report(folder / rule, Shrunk(sample.trace, found, 0, True), "0.33.0", make) / "repro.py"


@pytest.mark.slow
def test_exits_1_while_the_defect_is_there_and_0_otherwise(tmp_path):
    scripts = [str(report(tmp_path, rule)) for rule in (*REAL, *CLEAN)]
    ran = subprocess.run(
        [sys.executable, "-I", "-c", DRIVER, *scripts], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    found = {Path(path).parent.name: code for path, code in json.loads(ran.stdout or "{}").items()}

    assert {**dict.fromkeys(REAL, 1), **dict.fromkeys(CLEAN, 0)} == found, ran.stderr
