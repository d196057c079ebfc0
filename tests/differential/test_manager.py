"""The real manager beside the oracle, as plain pytest: the example for a test suite of one's own."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from harness import findings
from strategies.traces import packed

#: the same examples on every machine, whatever the clock says; the plugin makes a failing trace minimal, not Hypothesis
SAME = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=1000,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)


@SAME
@given(data=packed())
def test_manager_agrees(slotcheck, data):
    """On what a scheduler does."""
    slotcheck.check(data)


@SAME
@given(data=packed())
def test_manager_survives(slotcheck, data):
    """And on what no scheduler does."""
    slotcheck.check(data, profile="hostile")


@SAME
@given(data=packed())
def test_manager_with_caching(slotcheck, data):
    """With prefix caching on."""
    slotcheck.check(data, profile="caching")


OF_THE_MANAGER = [finding for finding in findings.load() if finding.level == "manager"]


@pytest.mark.parametrize("finding", OF_THE_MANAGER, ids=lambda finding: finding.name)
def test_declared_findings_are_all_there_is(slotcheck, finding):
    """A trace from a file is checked like a drawn one; what is declared is no failure."""
    slotcheck.check(finding.trace())
