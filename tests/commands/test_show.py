"""show and run --html: pages are written whole, and what cannot be shown is said in a sentence."""

from __future__ import annotations

from harness import tracefile
from tests.commands.conftest import EXAMPLE, REPORTS, left, target
from tests.commands.test_traces import DRAFTED


def test_show_without_vllm(missing, tmp_path):
    """The oracle's film, under the trace's name."""
    result = missing("show", EXAMPLE)

    assert (0, "wrote trace.html\n", "") == (result.status, result.out, result.err)
    assert "The oracle alone" in (tmp_path / "trace.html").read_text()


def test_show_a_difference(pure, tmp_path):
    """The page is named by it."""
    tracefile.write_text(tmp_path / "drafted.json", tracefile.dumps(DRAFTED))
    result = pure("show", "drafted.json", "--target", target("NoLookahead"), "--out", "pages/one.html")

    assert (0, "wrote pages/one.html\n") == (result.status, result.out)
    assert "fewer columns than the step needs" in (tmp_path / "pages" / "one.html").read_text()


def test_show_a_warmup_without_vllm(missing, tmp_path):
    """The oracle's schedule."""
    result = missing("show", REPORTS / "warmup-past-max-model-len" / "trace.json", "--out", "warmup.html")

    assert (0, ["warmup.html"]) == (result.status, left(tmp_path))


def test_a_workload_needs_vllm(missing, tmp_path):
    """Exit status 3: a target cannot be loaded."""
    result = missing("show", REPORTS / "lone-request-preempts-itself-for-ever" / "trace.json")

    assert (3, []) == (result.status, left(tmp_path))
    assert "vLLM is not installed" in result.err


def test_a_run_leaves_pages(pure, tmp_path):
    """One of the run, one in each report folder."""
    result = pure(
        *("run", "--target", target("NoLookahead"), "--steps", 500, "--no-findings", "--out", "out"),
        *("--html", "run.html", "--json"),
    )
    folders = {path.parent for path in (tmp_path / "out").glob("*/report.md")}

    assert 1 == result.status
    assert folders
    assert folders == {path.parent for path in (tmp_path / "out").glob("*/page.html")}
    assert "page.html</a>" in (tmp_path / "run.html").read_text()
