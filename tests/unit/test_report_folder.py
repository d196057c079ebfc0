"""The folder of a report: three files, whole or not at all, on a base install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from harness import tracefile
from harness.outcome import Options
from harness.report.folder import outcome_of, versions_here, write_report
from harness.shrink import Shrunk
from harness.trace_run import run_trace
from oracle.allocator import Allocator
from oracle.call import Call, Observation
from oracle.errors import SlotcheckError
from oracle.groups import SlidingWindow
from oracle.setting import Setting
from oracle.trace import Extend, Trace
from tests.unit.report_samples import KILLED, SAMPLES, VERSIONS, NoGate, locate

FILES = ["report.md", "repro.py", "trace.json"]


def write(folder: Path, rule: str = "A13") -> Path:
    case = SAMPLES[rule]
    return write_report(folder, case.shrunk(), "0.33.0", case.make, versions=VERSIONS, locate=locate)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_three_files_and_nothing_beside_them(tmp_path):
    folder = write(tmp_path / "out" / "one")

    assert FILES == names(folder)
    assert ["one"] == names(tmp_path / "out")


def test_the_trace_is_read_back(tmp_path):
    assert SAMPLES["A13"].trace == tracefile.read(write(tmp_path / "one") / "trace.json")


def test_other_files_are_left_alone(tmp_path):
    """A declared finding keeps its finding.json when its report is written again."""
    (tmp_path / "finding.json").write_text("{}", encoding="utf-8")

    assert ["finding.json", *FILES] == names(write(tmp_path))


def test_a_second_report_replaces_the_first(tmp_path):
    write(tmp_path, "A15")
    write(tmp_path, "A13")

    assert (tmp_path / "report.md").read_text(encoding="utf-8").startswith("# full_sequence_must_fit")


def test_a_folder_that_is_a_file_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "taken"
    path.write_text("", encoding="utf-8")

    with pytest.raises(SlotcheckError, match=r"cannot write .*taken.*--out"):
        write(path)
    assert ["taken"] == names(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(tmp_path):
    tmp_path.chmod(0o500)

    with pytest.raises(SlotcheckError, match="cannot write"):
        write(tmp_path / "one")
    assert [] == names(tmp_path)


def test_what_kills_the_process_is_not_run_again(tmp_path):
    def never(setting):
        raise AssertionError("built")

    folder = write_report(tmp_path, KILLED, None, never, versions=VERSIONS, locate=locate)

    assert "killed by SIGSEGV" in (folder / "report.md").read_text(encoding="utf-8")


def test_a_difference_that_does_not_show_again_is_told(tmp_path):
    write_report(tmp_path, SAMPLES["A19"].shrunk(), "0.33.0", Allocator, versions=VERSIONS, locate=locate)

    assert "It did not show again" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_other_differences_on_the_way_are_passed_over():
    """The target grants what the oracle's gate refuses, then loses the lookahead of another request's first call."""

    class Both(NoGate):
        def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
            return super().extend(evolve(call, lookahead=0) if call.request else call, gate, test)

    trace = Trace(
        setting=Setting(
            groups=(SlidingWindow(block_size=1, window=2),),
            num_blocks=9,
            max_model_len=16,
            max_in_flight_tokens=16,
            method="eagle",
            num_speculative_tokens=1,
        ),
        operations=(
            Extend(request=0, new=1, prompt=12, full_sequence_must_fit=True),
            Extend(request=1, new=1, prompt=2),
        ),
    )
    declared = Options(declared=lambda difference: difference.rule == "A13", audit_every=1)
    found = run_trace(trace, Both, declared).differences[0]
    outcome, again = outcome_of(Shrunk(trace, found, 1, True), Both)

    assert ("A19", True, 2) == (found.rule, again, len(outcome.entries))


def test_not_minimal_is_said(tmp_path):
    case = SAMPLES["A19"]
    shrunk = evolve(case.shrunk(), minimal=False)
    write_report(tmp_path, shrunk, "0.33.0", case.make, versions=VERSIONS, locate=locate)

    assert "not a minimum: the tries ran out" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_versions_of_an_environment_without_vllm():
    assert versions_here(None).vllm is None


def test_nothing_here_imports_vllm():
    code = "import sys, harness.report.folder, harness.report.table; sys.exit(bool({'vllm', 'torch'} & {*sys.modules}))"

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
