"""One run of the rules level from its options to its verdict: canary, walk, reports. And its declared findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, fields, frozen

from harness import tracefile
from harness.findings import Declared, Finding, FindingError, argument
from harness.rules_grid import ALL_DRAFTS, cases, kept_cases, methods_at
from harness.rules_level import (
    Release,
    RuleDifference,
    RulesResult,
    compare,
    differences,
    place_differences,
    rule_of,
    run,
)
from harness.rules_places import kept_at
from harness.rules_reach import minima_of
from harness.verdict import AGREED, folder_name, judge
from oracle.budget import REFUSAL_RULES, Case, DraftCounts, Facts, RuleTrace, broken_laws, predict, reason
from oracle.methods import draft_counts

#: K of the cases in which the canary must be caught
_FEW = (1, 2, 3)


def canary_caught(release: Release) -> int | None:
    """Cases until a planted defect was caught, in a fact and in a further place; None if one was not.

    Each lookahead is one position too short, as that of DFlash once was, and so is what the warmup reserves. Both
    go through the same release, comparison and fingerprint as a real difference.
    """

    def short(case: Case) -> Facts:
        facts = release.facts(case)
        return evolve(facts, lookahead=facts.lookahead - 1) if facts.lookahead else facts

    asked = 0
    for case in cases(_FEW, release.rules):
        asked += 1
        if any(d.aspect == "lookahead" and d.sign == "less" for d in differences(case, predict(case), short(case))):
            break
    else:
        return None
    name = "warmup_blocks"
    places = {name: lambda case: release.places[name](case) - 1} if name in release.places else {}
    for case in kept_cases(_FEW, release.rules):
        if not places or not kept_at(name, release.rules):
            return asked
        asked += 1
        if any(found.sign == "less" for found in place_differences(case, places, RulesResult().reach)):
            return asked
    return None


@frozen(kw_only=True)
class RulesJob:
    """What was asked for. seconds, most (cases): where the walk ends; None: at the end of the grid."""

    release: Release
    version: str | None
    declared: Declared
    out: Path
    seconds: float | None = None
    most: int | None = None
    drafts: Sequence[int] = ALL_DRAFTS


@define
class RulesReport:
    """What came of a job. differences: fingerprint, how often it was met, the folder of its report."""

    job: RulesJob
    result: RulesResult
    canary_cases: int | None
    differences: list[tuple[RuleDifference, int, Path]] = field(factory=list)
    declared: dict[str, int] = field(factory=dict)
    verdict: str = AGREED
    reasons: list[str] = field(factory=list)

    def data(self) -> dict[str, Any]:
        """The one JSON object of `run --level rules --json`."""
        result = self.result
        return {
            "verdict": self.verdict,
            "reasons": self.reasons,
            "release": self.job.version,
            "level": "rules",
            "cases": result.cases,
            "seconds": round(result.seconds, 3),
            "canary_cases": self.canary_cases,
            "differences": [
                {
                    "fingerprint": difference.fingerprint,
                    "level": "rules",
                    "aspect": difference.aspect,
                    "step": difference.step,
                    "count": count,
                    "case": str(folder / "case.json") if difference.case is not None else "",
                }
                for difference, count, folder in self.differences
            ],
            "declared": dict(sorted(self.declared.items())),
            "reach": {name: result.reach[name] for name in minima_of(result.rules)},
            "missed": result.missed,
        }


def run_job(job: RulesJob) -> RulesReport:
    """Run a job to its verdict; a report folder for each difference that no finding declares."""
    from harness.report.rules_folder import write_rule_report

    caught = canary_caught(job.release)
    result = run(job.release, drafts=job.drafts, seconds=job.seconds, most=job.most)
    report = RulesReport(job, result, caught)
    for name, difference in sorted(result.found.items()):
        finding, count = job.declared.explain(difference), result.counts[name]
        if finding is not None:
            report.declared[finding.name] = report.declared.get(finding.name, 0) + count
            continue
        folder = job.out / folder_name(name)
        report.differences.append((difference, count, write_rule_report(folder, difference, job.version)))
    _judge(report)
    tracefile.write_text(job.out / "run.json", tracefile.json_text(report.data()))
    return report


def _judge(report: RulesReport) -> None:
    result = report.result
    report.verdict, report.reasons = judge(
        new=len(report.differences),
        caught=report.canary_cases is not None,
        release=report.job.version,
        level="rules",
        missed=result.missed,
        cut_short="" if result.whole else f"the walk ended after {result.cases:,} cases, before the end of the grid",
    )


# --------------------------------------------------------------------------------------------- declared findings


def finding_case(finding: Finding) -> RuleTrace:
    """The smallest case that shows a finding."""
    trace = tracefile.read_any(finding.file)
    if not isinstance(trace, RuleTrace):
        raise FindingError(f"finding {finding.name}: case.json is of the {trace.level} level, not of the rules level")
    return trace


def _shown(finding: Finding, release: Release) -> RuleDifference | None:
    question = finding_case(finding).question
    if isinstance(question, Case) and (question.method, question.row.parallel) not in methods_at(release.rules):
        return None
    found = compare(question, release)
    return next((difference for difference in found if finding.fits(difference)), None)


def reproduces(finding: Finding, release: Release) -> bool:
    """Whether the finding's own case still shows it."""
    return _shown(finding, release) is not None


def refresh(finding: Finding, release: Release, version: str | None) -> None:
    """Write the finding's report.md and repro.py again, from its case and its declaration."""
    from harness.report.rules_folder import write_rule_report

    difference = _shown(finding, release)
    if difference is None:
        raise FindingError(f"finding {finding.name} does not reproduce on {version}: nothing is written")
    write_rule_report(finding.folder, evolve(difference, step=0), version, head=argument(finding))


# ---------------------------------------------------------------------------------------------------- as text


def text(report: RulesReport) -> str:
    """The report of a run: what was walked, what was met, each new difference, the verdict."""
    result = report.result
    met = ", ".join(f"{name} {count:,}" for name, count in sorted(report.declared.items()))
    lines = [f"{result.cases:,} cases in {result.seconds:.1f} s, canary caught after {report.canary_cases} cases"]
    lines += [f"declared findings met: {met}"] if met else []
    for difference, count, folder in report.differences:
        lines += ["", f"{difference.fingerprint}  (met {count:,} times)", *_told(difference), f"  report {folder}"]
    lines += ["", f"{report.verdict}{': ' if report.reasons else ''}{'; '.join(report.reasons)}"]
    return "\n".join(lines)


def _told(difference: RuleDifference) -> list[str]:
    lines = [f"  smallest case  {difference.case}"] if difference.case is not None else []
    lines.append(f"  expected {difference.expected}, observed {difference.observed}")
    return [*lines, *(f"  {line}" for line in difference.detail.splitlines())]


def explanation(trace: RuleTrace) -> str:
    """What the rules say of a case, with the terms of every number."""
    question = trace.question
    if isinstance(question, DraftCounts):
        counts = draft_counts(question.ranges, question.drafts, question.seqs)
        return f"{question}\n  {'S24':<8} K of 1 .. {question.seqs} requests: {' '.join(map(str, counts))}"
    facts = predict(question)
    lines = [str(question), f"  {question.row.why}"]
    if facts.refused:
        return "\n".join([*lines, f"  {REFUSAL_RULES[facts.refused]:<8} refused: {facts.refused}"])
    for attribute in fields(Facts):
        name = attribute.name
        if name == "refused":
            continue
        value, why = getattr(facts, name), reason(name, question)
        formula = why if why is not None and why.value == value else ""  # a switch decides, not the formula
        lines.append(f"  {rule_of(name, question):<8} {name:<18} {value!s:<6} {formula}".rstrip())
    lines += [f"  {rule:<8} broken: {said}" for rule, said in broken_laws(question, facts)]
    return "\n".join(lines)


def replayed(trace: RuleTrace, release: Release, declared: Declared) -> tuple[str, bool]:
    """A case beside the release as text, and whether everything that differs is declared."""
    if trace.case is not None:
        trace = evolve(trace, case=evolve(trace.case, release=release.rules))
    found = compare(trace.question, release)
    if not found:
        return f"{explanation(trace)}\nagreed", True
    lines = [explanation(trace)]
    for difference in found:
        finding = declared.explain(difference)
        lines += ["", difference.fingerprint, *_told(difference)]
        lines.append(f"  declared as {finding.name}" if finding else "  not declared")
    return "\n".join(lines), all(declared(difference) for difference in found)
