"""What the plugin makes of a failing test: the shortest trace as a table, and the folder of its report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness import findings, tracefile
from harness.report import folder
from harness.targets import compat, loader
from oracle.trace import Extend
from tests.unit import mutants

pytest_plugins = ["pytester"]

#: pytester forgets what an inner run is the first to import; modules that tell types apart must stay the same ones
KEPT = (findings, folder, mutants)
ROOT = Path(__file__).parents[2]
#: the plugin by its module, installed or not; others, which take seconds to load beside vLLM, are left out
PLUGIN = ["-p", "harness.pytest_plugin", "-p", "no:cacheprovider"]

CONFTEST = """
from pathlib import Path

import pytest

from harness.findings import Declared
from harness.pytest_plugin import Checker
from tests.unit import mutants


@pytest.fixture(scope="session")
def slotcheck(request):
    out = Path(request.config.getoption("--slotcheck-out"))
    return Checker(out, mutants.{target}, Declared([], None), "0.33.0")
"""

DRAWN = """
from hypothesis import given, settings

from strategies.traces import packed


@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(data=packed())
def test_mine(slotcheck, data):
    slotcheck.check(data, profile="{profile}")
"""

TRACE = '''
import pytest

from harness import tracefile
from tests.unit import mutants

TRACE = tracefile.loads("""{"format": 1, "setting": {"groups": [{"kind": "full_attention", "block_size": 4}],
    "num_blocks": 9, "max_model_len": 64, "method": "eagle", "num_speculative_tokens": 3},
    "operations": [{"op": "extend", "request": 0, "new": 4, "prompt": 4}]}""")
'''
CHECKED = f"{TRACE}\n\ndef test_mine(slotcheck):\n    slotcheck.check(TRACE)\n"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """The checkout is on the path of inner runs."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])


@pytest.fixture
def inner(pytester):
    """Runs tests of a project of its own on a planted target, in this process unless workers are wanted."""

    def run(*arguments, target="NoLookahead", text=CHECKED, workers=0):
        pytester.makeconftest(CONFTEST.format(target=target))
        pytester.makepyfile(test_project=text)
        parallel = ["-p", "xdist.plugin", "-n", str(workers)] if workers else []
        start = pytester.runpytest_subprocess if workers else pytester.runpytest_inprocess
        return start(*PLUGIN, *parallel, *arguments)

    return run


FAILED = [
    "manager/columns/full_attention/A19/less/first",
    "| > 0 | request 0: 1 more of 1 tokens, lookahead 1 | [[]1 2[]] * | [[]1[]] *|",
    "  rule      A19",
    "  expected  [[]1 2[]]",
    "  observed  [[]1[]]",
    "  terms     max(held, ceil(min(computed + new + lookahead, max_model_len) / *",
    "            lookahead = 0 (ours 1) would give 1",
    "report: slotcheck-out/test_project.py-test_mine",
    "again:  slotcheck replay slotcheck-out/test_project.py-test_mine/trace.json",
]


@pytest.mark.parametrize(
    ("text", "workers"), [(DRAWN.format(profile="scheduler"), 0), (CHECKED, 2)], ids=["drawn", "in workers"]
)
def test_a_failing_test_prints_its_shortest_trace(inner, text, workers):
    """With the term that differs, made minimal by the plugin."""
    result = inner(text=text, workers=workers)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(FAILED)


def test_there_is_no_traceback(inner):
    """The trace says more than the frames of the checker."""
    result = inner()

    result.stdout.no_fnmatch_line("*harness/pytest_plugin.py*")


def test_a_failing_test_leaves_its_report(inner, pytester):
    """The folder is named by the test."""
    inner()
    written = pytester.path / "slotcheck-out" / "test_project.py-test_mine"

    assert (["report.md", "repro.py", "trace.json"], (Extend(request=0, new=1, prompt=1),)) == (
        sorted(path.name for path in written.iterdir()),
        tracefile.read(written / "trace.json").operations,
    )


def test_the_folder_of_reports_is_chosen(inner, pytester):
    """By an option."""
    inner("--slotcheck-out", "here")

    assert (pytester.path / "here" / "test_project.py-test_mine" / "trace.json").is_file()


def test_a_report_that_cannot_be_written_is_told(inner, pytester):
    """The trace is printed all the same."""
    (pytester.path / "file").write_text("mine")
    result = inner("--slotcheck-out", "file/out")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([*FAILED[:-2], "no report: cannot write *; choose another *"])


def test_what_agrees_passes(inner, pytester):
    """And leaves nothing."""
    result = inner(text=DRAWN.format(profile="hostile"), target="Sound")

    result.assert_outcomes(passed=1)
    assert not (pytester.path / "slotcheck-out").exists()


def test_a_trace_is_checked_like_bytes(inner):
    """From a file, or put together by hand."""
    result = inner()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(FAILED)


def test_another_target_than_the_fixtures(inner):
    """For one test."""
    body = "\n\ndef test_mine(slotcheck):\n    slotcheck.check(TRACE, make_target=mutants.Sound)\n"
    result = inner(text=TRACE + body)

    result.assert_outcomes(passed=1)


def test_an_expected_failure_stays_one(inner, pytester):
    """Nothing is shrunk or written for it."""
    body = "\n\n@pytest.mark.xfail\ndef test_mine(slotcheck):\n    slotcheck.check(TRACE)\n"
    result = inner(text=TRACE + body)

    result.assert_outcomes(xfailed=1)
    assert not (pytester.path / "slotcheck-out").exists()


def test_two_tests_of_one_name_have_a_report_each(inner, pytester):
    """Named by the file too."""
    pytester.makepyfile(test_other=CHECKED)
    inner()

    assert ["test_other.py-test_mine", "test_project.py-test_mine"] == sorted(
        path.name for path in (pytester.path / "slotcheck-out").iterdir()
    )


RECORDS = """
import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings

from strategies.traces import packed


@pytest.mark.parametrize("number", range(4))
@settings(derandomize=True, database=None, deadline=None, max_examples=20)
@given(data=packed())
def test_mine(slotcheck, number, data):
    with Path(f"seen-{number}").open("a") as stream:
        print(hashlib.sha256(data).hexdigest(), file=stream)
    slotcheck.check(data, profile="hostile")
"""


def test_the_worker_count_does_not_change_the_examples(inner, pytester):
    """Each test sees the same ones, in the same order, whoever runs it."""
    seen = []
    for workers in (0, 2):
        inner(text=RECORDS, target="Sound", workers=workers)
        seen.append({path.name: path.read_text() for path in pytester.path.glob("seen-*")})
        for path in pytester.path.glob("seen-*"):
            path.unlink()

    assert (4, seen[0]) == (len(seen[1]), seen[1])


def test_without_vllm_the_fixture_skips(pytester, monkeypatch):
    """And says what to install."""
    monkeypatch.setattr(compat, "installed_release", lambda: None)
    monkeypatch.delitem(sys.modules, "vllm.v1.core.kv_cache_manager", raising=False)
    pytester.makepyfile(test_project="def test_mine(slotcheck):\n    pass\n")
    result = pytester.runpytest_inprocess(*PLUGIN, "-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*vLLM is not installed; install the extra: pip install 'slotcheck[[]vllm[]]'"])


def test_the_fixture_has_the_installed_manager(pytester, monkeypatch):
    """Loaded once a session, with the declared findings of its release."""
    monkeypatch.setattr(compat, "installed_release", lambda: "0.33.0")
    monkeypatch.setattr(loader, "import_vllm", lambda: None)
    pytester.makepyfile(
        test_project="""
        from harness.targets.loader import manager_of

        def test_mine(slotcheck):
            assert (manager_of, "0.33.0", True) == (
                slotcheck.make_target, slotcheck.release, bool(slotcheck.declared.findings)
            )
        """
    )

    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=1)
