"""The report formats, whole: report.md, repro.py, the table in plain text and the difference in a few lines."""

from __future__ import annotations

import pytest

from harness.report.folder import write_report
from harness.report.table import difference_text, explanation, text
from tests.unit.report_samples import KILLED, SAMPLES, VERSIONS, locate

#: a wrong gate, a row that is too short, another free order, a broken law, and a manager that cannot be built
SHOWN = ["A13", "A19", "A5", "M12", "build"]


@pytest.mark.parametrize("rule", SHOWN)
@pytest.mark.parametrize("name", ["report.md", "repro.py"])
def test_file(rule, name, tmp_path, snapshot):
    case = SAMPLES[rule]
    folder = write_report(tmp_path / "out", case.shrunk(), "0.33.0", case.make, versions=VERSIONS, locate=locate)

    assert snapshot == (folder / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["report.md", "repro.py"])
def test_file_of_what_kills_the_process(name, tmp_path, snapshot):
    folder = write_report(tmp_path / "out", KILLED, None, None, versions=VERSIONS, locate=locate)

    assert snapshot == (folder / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", SHOWN)
def test_text(rule, snapshot):
    outcome = SAMPLES[rule].outcome()

    assert snapshot == "\n".join((text(outcome), difference_text(outcome.differences[0])))


def test_explanation(snapshot):
    assert snapshot == explanation(SAMPLES["W5"].outcome())
