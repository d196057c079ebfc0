"""How the declared findings of each level are run again, and their reports written: one entry a level.

A level's modules are imported when one of its findings is asked for. What shows a finding (a trace, a case) lies in its
folder and is the level's own affair.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from harness import findings
from harness.findings import Finding


@frozen
class FindingLevel:
    """reproduces: whether a finding still shows here. refresh: write its report again, for a release."""

    reproduces: Callable[[Finding], bool]
    refresh: Callable[[Finding, str | None], None]


def _manager() -> FindingLevel:
    from harness.targets.compat import installed_release
    from harness.targets.loader import load_target

    make_target = load_target(None)
    return FindingLevel(
        lambda finding: findings.reproduces(finding, make_target, installed_release()),
        lambda finding, release: findings.refresh(finding, make_target, release),
    )


def _rules() -> FindingLevel:
    from harness import rules_job, rules_level

    release = rules_level.installed()
    return FindingLevel(
        lambda finding: rules_job.reproduces(finding, release),
        lambda finding, version: rules_job.refresh(finding, release, version),
    )


def _warmup() -> FindingLevel:
    from harness import warmup_findings

    return FindingLevel(warmup_findings.reproduces, warmup_findings.refresh)


def _scheduler() -> FindingLevel:
    from harness import workload_findings
    from harness.targets.engine import prepare
    from harness.targets.scheduler import Scheduler

    prepare()
    return FindingLevel(
        lambda finding: workload_findings.reproduces(finding, Scheduler),
        lambda finding, release: workload_findings.refresh(finding, Scheduler, release),
    )


LEVELS: dict[str, Callable[[], FindingLevel]] = {
    "manager": _manager,
    "rules": _rules,
    "warmup": _warmup,
    "scheduler": _scheduler,
}


def level_of(finding: Finding) -> FindingLevel:
    """The level that a finding is of; TargetError when the installed vLLM cannot be loaded."""
    return LEVELS[finding.level]()
