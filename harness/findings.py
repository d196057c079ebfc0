"""Declared findings: differences that are known, argued, and bound to the releases that show them.

One folder each under reports/: `finding.json` (what it matches, which law or promise breaks, in which releases),
`trace.json` (the shortest trace), `report.md` (the argument) and `repro.py` (vLLM alone). A difference that a finding
matches is counted, not failed; a finding that no longer reproduces is an error of the declaration.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import cattrs
from attrs import frozen
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from harness import tracefile
from harness.outcome import MakeTarget, Options
from harness.shrink import Shrunk
from harness.trace_run import run_trace
from oracle.errors import SlotcheckError
from oracle.trace import Difference, Trace


class FindingError(SlotcheckError):
    """A declaration under reports/ that cannot be read."""


@frozen(kw_only=True)
class Match:
    """A pattern of differences. `signs`, `kinds`: what is allowed (empty: everything); `tags`: what is required."""

    aspect: str
    rule: str
    level: str = "manager"
    signs: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def fits(self, difference: Difference) -> bool:
        """Whether the difference is one of these. Of several kinds that cannot be told apart, all must be allowed."""
        return (
            difference.level == self.level
            and difference.aspect == self.aspect
            and difference.rule == self.rule
            and (not self.signs or difference.sign in self.signs)
            and (not self.kinds or set(difference.kind.split("+")) <= set(self.kinds))
            and set(self.tags) <= set(difference.tags)
        )


@frozen(kw_only=True)
class Finding:
    """One declared finding. `releases`: a version specifier; `law`: what breaks; `reference`: where it is discussed.

    `breaks` and `deployment`: the law or effect, and whether a real deployment can meet it, in one line each (README).

    `expires`: a date (2027-06-30) after which `findings check` asks to look at it again; empty: never.
    """

    title: str
    releases: str
    breaks: str
    deployment: str
    law: str
    match: tuple[Match, ...]
    reference: str
    reachable: str
    expires: str = ""
    name: str = ""
    folder: Path = Path()

    @property
    def level(self) -> str:
        """The level that its differences are of."""
        return self.match[0].level

    @property
    def area(self) -> str:
        """What must be specified to run it: its level, or caching."""
        cached = self.level == "manager" and self.trace().setting.enable_caching
        return "caching" if cached else self.level

    def expired(self, today: date) -> bool:
        """Whether somebody should look at it again."""
        return bool(self.expires) and today > date.fromisoformat(self.expires)

    def covers(self, release: str | None) -> bool:
        """Whether the finding is declared for a release."""
        return release is not None and Version(release) in SpecifierSet(self.releases, prereleases=True)

    def fits(self, difference: Difference) -> bool:
        """Whether it explains a difference."""
        return any(match.fits(difference) for match in self.match)

    @property
    def file(self) -> Path:
        """What shows it: a case of the rules level, else the shortest trace."""
        return self.folder / ("case.json" if self.level == "rules" else "trace.json")

    def trace(self) -> Trace:
        """The shortest trace that shows it, at the manager level."""
        return tracefile.read(self.file)

    def traces(self) -> list[Trace]:
        """That one, and those of older releases where it does not show it (trace-0.31.0.json)."""
        return [self.trace(), *map(tracefile.read, sorted(self.folder.glob("trace-*.json")))]


def folder() -> Path:
    """Where the declarations are: beside this module in a wheel, in the checkout's reports/ otherwise."""
    here = Path(__file__).parent
    installed = here / "findings"
    return installed if installed.is_dir() else here.parent / "reports"


def _object(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise TypeError(f"must be one JSON object, got {type(data).__name__}")
    return data


def _words(value: object, _: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise TypeError(f"must be a list of strings, got {value!r}")
    return tuple(value)


def _matches(value: object, _: object) -> tuple[Match, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        raise TypeError(f"must be a list of patterns, one at least, got {value!r}")
    return tuple(_CONVERTER.structure(item, Match) for item in value)


_CONVERTER = cattrs.Converter(forbid_extra_keys=True)
_CONVERTER.register_structure_hook_func(lambda kind: kind == tuple[str, ...], _words)
_CONVERTER.register_structure_hook_func(lambda kind: kind == tuple[Match, ...], _matches)


def load(where: Path | None = None) -> list[Finding]:
    """Every declaration, by name."""
    base = where or folder()
    found = []
    for path in sorted(base.glob("*/finding.json")):
        try:
            data = _object(path.read_text(encoding="utf-8"))
            finding = _CONVERTER.structure({**data, "name": path.parent.name, "folder": str(path.parent)}, Finding)
            SpecifierSet(finding.releases)
            finding.expired(date.min)
        except (OSError, TypeError, ValueError, InvalidSpecifier, cattrs.BaseValidationError) as error:
            problem = (
                "; ".join(cattrs.transform_error(error)) if isinstance(error, cattrs.BaseValidationError) else error
            )
            raise FindingError(f"finding {path} cannot be read: {problem}") from None
        found.append(finding)
    return found


class Declared:
    """The findings that cover one release: which of them explains a difference."""

    def __init__(self, findings: Sequence[Finding], release: str | None) -> None:
        self.findings = [finding for finding in findings if finding.covers(release)]

    def explain(self, difference: Difference) -> Finding | None:
        """The finding that a difference is an instance of."""
        return next((finding for finding in self.findings if finding.fits(difference)), None)

    def __call__(self, difference: Difference) -> bool:
        return self.explain(difference) is not None


def argument(finding: Finding) -> str:
    """The declaration as the head of its report: what breaks, why, who can meet it."""
    expires = f"\n\nDeclared until {finding.expires}." if finding.expires else ""
    return (
        f"# {finding.title}\n\n{finding.law}\n\n"
        f"**Who can meet it.** {finding.reachable}\n\n"
        f"**Releases.** {finding.releases}. **Upstream.** {finding.reference}{expires}\n"
    )


def _passing(finding: Finding, release: str | None) -> Options:
    """Every other difference on the way is passed over, as it was when the finding's own was found."""
    return Options(audit_every=1, release=release, declared=lambda other: not finding.fits(other))


def refresh(finding: Finding, make_target: MakeTarget, release: str | None) -> None:
    """Write the finding's report.md and repro.py again, from its trace and its declaration."""
    from harness.report.folder import write_report

    outcome = run_trace(finding.trace(), make_target, _passing(finding, release))
    found = [difference for difference in outcome.differences if finding.fits(difference)]
    if not found:
        raise FindingError(f"finding {finding.name} does not reproduce on {release}: nothing is written")
    write_report(finding.folder, Shrunk(outcome.trace, found[0], 0, True), release, make_target)
    path = finding.folder / "report.md"
    _, _, rest = path.read_text(encoding="utf-8").partition("\n")
    tracefile.write_text(path, argument(finding) + rest)


def reproduces(finding: Finding, make_target: MakeTarget, release: str | None = None) -> bool:
    """Whether one of the finding's own traces still shows it, by the rules of `release`."""
    return any(
        finding.fits(difference)
        for trace in finding.traces()
        for difference in run_trace(trace, make_target, _passing(finding, release)).differences
    )
