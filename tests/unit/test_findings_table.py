"""README's tables of findings: made of the declarations, and renewed with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import findings
from harness.findings_table import smallest, table, upstream
from tests.unit.test_findings import declare

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.skipif(not README.is_file(), reason="the checkout's README is not here")
def test_readme_shows_what_is_declared():
    """`slotcheck findings list --markdown` goes between the marks."""
    _, _, rest = README.read_text(encoding="utf-8").partition("findings list --markdown -->\n\n")
    shown, mark, _ = rest.partition("\n<!-- /findings -->")
    assert mark
    assert shown == table(findings.load(README.parent / "reports"))


@pytest.mark.parametrize(
    ("reference", "shown"),
    [
        ("#1", "#1"),
        ("issue #46892", "#46892"),
        ("#51438, fixed in 0.28.0", "#51438"),
        ("#44451, #44488", "#44451, #44488"),
        ("PR #44951 (closed; an earlier form of the same)", "#44951"),
        ("related: #40946, which introduced the cap; no report of this form is known to us", "related: #40946"),
        ("no report is known to us; #49377 is about the names", "related: #49377"),
        ("#41838 asks about names; this is not reported", "related: #41838"),
        ("none known", "-"),
    ],
)
def test_what_upstream_has(tmp_path, reference, shown):
    """A report of the defect itself is told from one that is only near."""
    declare(tmp_path, reference=reference)
    assert shown == upstream(findings.load(tmp_path)[0])


def test_a_mended_finding_has_its_releases(tmp_path):
    """What the newest release no longer shows stands in the last table."""
    declare(tmp_path, releases=">=0.28,<0.30")
    declare(tmp_path, name="still-there", breaks="**wrong output**: x")
    shown = table(findings.load(tmp_path))
    assert "1, 1 of which gives wrong output silently" in shown
    assert (
        "| [no-slots](reports/no-slots/report.md) | drafts without slots | >=0.28,<0.30 | 1 operation | #1 |" in shown
    )
    assert "1 operation" == smallest(findings.load(tmp_path)[0])


@pytest.mark.skipif(not README.is_file(), reason="the checkout's reports are not here")
@pytest.mark.parametrize("finding", findings.load(), ids=lambda finding: finding.name)
def test_a_report_begins_with_its_declaration(finding):
    """`slotcheck findings refresh NAME` writes it again, with its script; a mended finding's with `--release`."""
    assert (finding.folder / "report.md").read_text(encoding="utf-8").startswith(findings.argument(finding))
    assert "vLLM alone" in (finding.folder / "repro.py").read_text(encoding="utf-8")
