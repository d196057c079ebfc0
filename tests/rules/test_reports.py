"""The report of a case, whole: report.md, repro.py, case.json; and repro.py in a process that has vLLM alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import findings, tracefile
from harness.report.rules_folder import trace_of, write_rule_report
from harness.report.rules_reasons import REASONS
from harness.rules_level import FACTS, OF_RESUMED
from harness.rules_places import NAMES
from harness.targets.compat import installed_release
from tests.real.test_repro import DRIVER
from tests.rules.samples import SAMPLES, VERSIONS, locate


def written(folder, name):
    """The folder of a sample."""
    return write_rule_report(folder / name, SAMPLES[name], "0.33.0", versions=VERSIONS, locate=locate)


@pytest.mark.parametrize("name", ["number", "refusal", "progress", "place", "counts"])
@pytest.mark.parametrize("file", ["report.md", "repro.py"])
def test_file(name, file, tmp_path, snapshot):
    assert snapshot == (written(tmp_path, name) / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "method"])
def test_the_case_can_be_read_again(name, tmp_path):
    assert trace_of(SAMPLES[name]) == tracefile.read_any(written(tmp_path, name) / "case.json")


@pytest.mark.parametrize("name", SAMPLES)
def test_the_script_is_python(name, tmp_path):
    path = written(tmp_path, name) / "repro.py"

    compile(path.read_text(encoding="utf-8"), str(path), "exec")


def test_everything_that_is_compared_has_its_reason():
    laws = {"D-L1", "B-L1", *OF_RESUMED}

    assert {"refusal", "draft_counts", "methods", *FACTS, *NAMES, *laws} == set(REASONS)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_place_is_in_the_list(name):
    """docs/facts-kept-twice.md is complete, or it is no list."""
    listed = (Path(__file__).parents[2] / "docs" / "facts-kept-twice.md").read_text(encoding="utf-8")

    assert f"| `{name}` |" in listed


@pytest.mark.slow
@pytest.mark.usefixtures("vllm")
def test_exits_1_while_the_defect_is_there_and_0_otherwise(tmp_path):
    """Planted ones and those of older releases are not in it; its declared ones are, and a resumed decode's wait."""
    planted = {name: written(tmp_path, name) / "repro.py" for name in SAMPLES}
    known = [f for f in findings.load() if f.level == "rules"]
    declared = {f.name: int(f.covers(installed_release())) for f in known}
    scripts = {**planted, **{f.name: f.folder / "repro.py" for f in known}}
    command = [sys.executable, "-I", "-c", DRIVER, *map(str, scripts.values())]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    codes = json.loads(ran.stdout or "{}")
    found = {name: codes.get(str(path)) for name, path in scripts.items()}

    assert {**dict.fromkeys(planted, 0), **declared, "progress": 1, "padding": 1} == found, ran.stderr


def test_scripts_name_the_release_that_they_were_written_for(tmp_path):
    assert "written for 0.33.0" in (written(tmp_path, "number") / "repro.py").read_text(encoding="utf-8")


@pytest.mark.skipif(installed_release() is None, reason="vLLM is not installed: nothing to locate in")
def test_every_place_is_in_the_installed_release():
    """Files that moved would make a report point nowhere."""
    import vllm

    base = Path(vllm.__file__).parents[1]

    assert [] == [file for reason in REASONS.values() for file, _ in reason.where if not (base / file).is_file()]
