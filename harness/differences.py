"""Differences that no comparison makes: a target that was not built, one that did not answer, a law that is broken."""

from __future__ import annotations

from harness.outcome import TargetRaised
from oracle.groups import Mamba
from oracle.setting import Setting
from oracle.trace import Difference
from oracle.violation import Violation


def not_built(error: Exception, setting: Setting) -> Difference:
    """The target could not be built, for the kinds of the setting's groups: a sink's, if there is one."""
    kinds = sorted({group.kind for group in setting.groups})
    special = [kind for kind in kinds if kind.startswith("sink")] or kinds
    return Difference(
        aspect="outcome",
        step=-1,
        group=None,
        kind="+".join(special),
        rule="build",
        sign=f"error:{type(error).__name__}",
        expected="a manager",
        observed=f"{type(error).__name__}: {error}",
    )


def raised(error: TargetRaised, step: int, tags: tuple[str, ...]) -> Difference:
    """The target raised where it must answer. tags: what is known to make it do so."""
    return Difference(
        aspect="outcome",
        step=step,
        group=None,
        kind="pool",
        rule="raised",
        sign=f"error:{error.kind}",
        expected="an answer",
        observed=str(error),
        tags=tags,
    )


def law_broken(violation: Violation, tags: tuple[str, ...], setting: Setting) -> Difference:
    """A law is broken, in a group or (-1) in the pool."""
    kind, group = "pool", None
    if violation.group >= 0:
        group = violation.group
        spec = setting.groups[group]
        kind = f"{spec.kind}_{spec.mode}" if isinstance(spec, Mamba) else spec.kind
    return Difference(
        aspect="law",
        step=violation.index,
        group=group,
        kind=kind,
        rule=violation.law,
        sign=violation.what,
        expected="the law holds",
        observed=violation.text,
        tags=tags,
    )
