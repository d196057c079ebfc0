"""Commands that need no vLLM: a base install has them."""

from __future__ import annotations

from tests.commands.conftest import EXAMPLE, REPORTS, plain


def test_explain(missing, snapshot):
    """Each step, its row, the terms of every number."""
    result = missing("explain", EXAMPLE)

    assert snapshot == result.out
    assert (0, "") == (result.status, result.err)


def test_explain_what_cannot_be_built(missing, snapshot):
    """A trace without operations."""
    assert snapshot == missing("explain", REPORTS / "sink-manager-cannot-be-built" / "trace.json").out


def test_releases_rules(missing, snapshot):
    """Every rule that upstream changed."""
    assert snapshot == missing("releases", "rules").out


def test_releases_list_without_vllm(missing, snapshot):
    """What to do to have one."""
    assert snapshot == missing("releases", "list").out


def test_releases_list(pure, snapshot):
    """The installed one, and whether it is known."""
    assert snapshot == pure("releases", "list").out


def test_releases_list_of_an_unknown_release(pure, snapshot, monkeypatch):
    """A run on it is never green."""
    monkeypatch.setattr("harness.release_commands.installed_release", lambda: "0.40.0")

    assert snapshot == pure("releases", "list").out


def test_findings_list(missing, two_findings, snapshot):
    """Name, releases, title."""
    assert snapshot == missing("findings", "list").out


def test_findings_show(missing):
    """The report as it lies under reports/."""
    name = "sink-manager-cannot-be-built"

    assert (REPORTS / name / "report.md").read_text() == missing("findings", "show", name).out


def test_findings_show_of_an_unknown_one(missing, two_findings, snapshot):
    """The name, and those that there are."""
    result = missing("findings", "show", "nothing")

    assert snapshot == plain(result.err)
    assert (2, "") == (result.status, result.out)
