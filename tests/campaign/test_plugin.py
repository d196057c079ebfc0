"""What a campaign found, in a test suite."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness import findings, tracefile
from harness.campaign import levels, replayed, storage
from harness.campaign.storage import FINDING, Stored
from harness.targets import compat, loader
from tests.commands.test_traces import DRAFTED
from tests.unit import mutants

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
#: pytester forgets what an inner run is the first to import; modules that tell types apart must stay the same ones
KEPT = (findings, tracefile, levels, replayed, storage, compat, loader, mutants)
PLUGIN = ["-p", "harness.pytest_plugin", "-p", "no:cacheprovider"]
FOUND = "manager/columns/full_attention/A19/less/first"
CONFTEST = """
import pytest
from harness.targets import compat, loader

compat._chosen.append("0.33.0")
loader.import_vllm = lambda: None
"""
TEST = "def test_found(slotcheck_finding):\n    slotcheck_finding.check('tests.unit.mutants:{}')\n"
DRAWN = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=50, deadline=None)
@given(st.integers())
def test_drawn(number):
    assert number < 100
"""


@pytest.fixture
def inner(pytester, monkeypatch):
    """Runs a test of a project of its own with a store."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    monkeypatch.setattr(compat, "_chosen", [])
    monkeypatch.setattr(loader, "import_vllm", loader.import_vllm)
    replayed.levels.cache_clear()

    def run(text: str, *options: str):
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(test_project=text)
        return pytester.runpytest_inprocess(*PLUGIN, *options)

    yield run
    replayed.levels.cache_clear()


@pytest.mark.parametrize(("defect", "ends"), [("NoLookahead", {"failed": 1}), ("Sound", {"passed": 1})])
def test_each_difference_is_a_test(inner, store, address, defect, ends):
    """It fails while the target shows it."""
    one = Stored(found=FOUND, trace=DRAFTED, fingerprint=FOUND)
    store.put(FINDING, one.name, one.text())
    result = inner(TEST.format(defect), "--slotcheck-store", address)

    result.assert_outcomes(**ends)


def test_without_a_store(inner):
    """There is nothing to replay."""
    inner(TEST.format("Sound")).assert_outcomes(skipped=1)


def test_examples_of_hypothesis_are_shared(inner, store, address):
    """What one run of a test has found is in the store."""
    inner(DRAWN, "-p", "_hypothesis_pytestplugin", "--slotcheck-store", address).assert_outcomes(failed=1)

    folder = Path(address, "hypothesis")
    assert any(folder.iterdir()) if folder.exists() else store.server.keys("slotcheck:hypothesis:*")


def test_a_store_that_is_none(inner):
    """Wrong use, in a sentence."""
    result = inner(TEST.format("Sound"), "--slotcheck-store", "ftp://x")

    assert pytest.ExitCode.USAGE_ERROR == result.ret
    result.stderr.fnmatch_lines(["*a store is a folder or redis://*"])
