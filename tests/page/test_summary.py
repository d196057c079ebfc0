"""The summary of a run: bars against minima, speed, links to what lies on the disk."""

from __future__ import annotations

from harness import findings
from harness.page.render import summary_page
from harness.page.summary import bars, speed, summary_of

DATA = {
    "verdict": "differences",
    "reasons": ["1 difference(s) that no finding declares"],
    "release": "0.33.0",
    "level": "manager",
    "seed": 0,
    "steps": 30455,
    "traces": 414,
    "seconds": 5.0,
    "steps_per_second": 6056,
    "canary_steps": 3510,
    "differences": [{"fingerprint": "manager/columns/x/A19/less", "count": 204, "operations": 1, "trace": ""}],
    "declared": {"align-count-below-zero": 3},
    "reach": {"hybrid": 371, "trim": 2},
}


def test_a_crossing_below_its_least_is_missed():
    assert [False, True] == [bar["missed"] for bar in bars({"hybrid": 371, "trim": 2}, {"hybrid": 5, "trim": 5})]


def test_the_largest_bar_is_whole():
    assert 100.0 == bars({"hybrid": 371, "trim": 2}, {})[0]["width"]


def test_nothing_reached_is_no_division_by_zero():
    assert 0.0 == bars({"hybrid": 0}, {})[0]["width"]


def test_speed_is_taken_between_samples_that_brought_steps():
    """100 steps in the first second, none in the next, 300 by the fourth."""
    assert [("1.0", "100"), ("4.0", "100")] == speed([(1.0, 100), (2.0, 100), (4.0, 400)])["table"]


def test_a_short_run_has_no_line():
    assert speed([(1.0, 100)]) is None
    assert speed([]) is None


def test_links_are_relative_to_the_page(tmp_path):
    folder = tmp_path / "out" / "one"
    folder.mkdir(parents=True)
    for name in ("trace.json", "report.md"):
        (folder / name).write_text("x")
    data = DATA | {"differences": [DATA["differences"][0] | {"trace": str(folder / "trace.json")}]}
    summary = summary_of(data, tmp_path / "pages" / "run.html", {}, (), [])

    assert [("report.md", "../out/one/report.md"), ("trace.json", "../out/one/trace.json")] == summary["differences"][
        0
    ]["links"]


def test_a_declared_finding_has_its_title_and_report(tmp_path):
    summary = summary_of(DATA, tmp_path / "run.html", {}, (), findings.load())
    [one] = summary["declared"]

    assert one["title"]
    assert (tmp_path / one["link"]).resolve().is_file()


def test_the_page_says_verdict_reach_and_difference(tmp_path):
    text = summary_page(summary_of(DATA, tmp_path / "run.html", {"trim": 5}, [(1.0, 9), (2.0, 30)], []))

    for said in ("differences", "manager/columns/x/A19/less", "missed", "3,510", "<polyline"):
        assert said in text
