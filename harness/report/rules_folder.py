"""Writes the folder of one difference of the rules level: case.json, report.md and repro.py."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

from attrs import fields

from harness import tracefile
from harness.report.calls import WIDTH
from harness.report.folder import TEMPLATES, Versions, versions_here
from harness.report.rules_reasons import GLOSSARY, REASONS, Reason
from harness.report.rules_script import repro_context
from harness.report.terms import terms_text
from harness.rules_level import RuleDifference
from harness.targets import config, source
from oracle.budget import Case, DraftCounts, RuleTrace

Locate = Callable[[str, str], source.Location]

#: fields of a case -> what vLLM calls them
_NAMES = {
    "method": "method",
    "parallel": "parallel_drafting",
    "drafts": "num_speculative_tokens (K)",
    "budget": "max_num_batched_tokens (T)",
    "seqs": "max_num_seqs (R)",
    "scheduled": "max_num_scheduled_tokens (G)",
    "active": "max_num_active_seqs (A)",
    "threshold": "long_prefill_token_threshold",
    "overlap": "async_scheduling",
    "caching": "enable_prefix_caching",
    "connector": "KV connector",
    "drop_disabled": "disable_eagle_block_drop",
    "hash_disabled": "disable_lookahead_block_hashes",
}


def trace_of(difference: RuleDifference) -> RuleTrace | None:
    """What the file of a difference holds; None where no case is needed."""
    case = difference.case
    if case is None:
        return None
    return RuleTrace(case=case) if isinstance(case, Case) else RuleTrace(draft_counts=case)


def title(difference: RuleDifference) -> str:
    """A sentence without its full stop."""
    what = _reason(difference).what
    if difference.rule == "progress":
        return "An accepted token budget in which a resumed decode is never scheduled"
    if difference.rule == "padding":
        return "The long-prefill cap cuts a padded decode, and the scheduler asserts that it was not cut"
    if difference.aspect == "methods":
        return f"SpeculativeConfig: method {difference.kind!r} is {difference.observed}"
    said = f"{what} of {difference.kind} is {difference.observed}, not {difference.expected}"
    if difference.aspect == "law":
        said = f"{what} of {difference.kind}: {difference.observed}"
    elif difference.aspect == "refusal":
        said = f"a {difference.kind} configuration is {difference.observed}, not {difference.expected}"
    return said if "_" in said.split()[0] else said[0].upper() + said[1:]


def _reason(difference: RuleDifference) -> Reason:
    return REASONS[difference.rule if difference.aspect == "law" else difference.aspect]


def _setting(case: Case | DraftCounts | None) -> list[tuple[str, str]]:
    if case is None:
        return [("any", "no configuration is needed")]
    if isinstance(case, DraftCounts):
        return [("ranges", str(list(case.ranges))), ("K", str(case.drafts)), ("max_num_seqs", str(case.seqs))]
    plain = {attribute.name: attribute.default for attribute in fields(Case)}
    always = ("method", "drafts", "budget", "seqs")
    names = [name for name in _NAMES if name in always or getattr(case, name) != plain[name]]
    return [(_NAMES[name], str(getattr(case, name))) for name in names]


def write_rule_report(
    folder: Path,
    difference: RuleDifference,
    release: str | None,
    *,
    head: str = "",
    versions: Versions | None = None,
    locate: Locate = source.locate,
) -> Path:
    """Write the report of a difference to `folder`; `head` stands in front of report.md in place of its title."""
    known = versions or versions_here(release)
    reason = _reason(difference)
    case = difference.case
    terms = terms_text(difference.detail, 100)
    named = [part.split() for line in difference.detail.splitlines() for part in line.partition("  (")[2].split(", ")]
    shown = {words[0] for words in named if words}
    report = TEMPLATES.get_template("rules_report.md.j2").render(
        title=title(difference),
        versions=known,
        setting=_setting(case),
        bypassed=config.BYPASSED.get(case.method, "") if isinstance(case, Case) else "",
        what=reason.what,
        expected=difference.expected,
        observed=difference.observed,
        terms=terms,
        glossary=[(name, meaning) for name, meaning in GLOSSARY.items() if name in shown],
        rule=difference.rule,
        why=reason.why,
        method=f"{case.row.title}, {case.row.why}" if isinstance(case, Case) else "",
        locations=[locate(*place) for place in reason.where],
        fingerprint=difference.fingerprint,
    )
    intro = (
        f"Needs vLLM alone (written for {known.vllm or 'an unknown release'}): no GPU, weights or network. Exits 1 "
        f"while the defect is there, 0 once it is gone. Written by slotcheck {known.slotcheck}. "
        f"Fingerprint: {difference.fingerprint}."
    )
    why = f"{difference.rule}: {reason.why}"
    script = TEMPLATES.get_template("rules_repro.py.j2").render(
        title="\n".join(textwrap.wrap(f"{title(difference)}.", WIDTH)),
        intro="\n".join(textwrap.wrap(intro, WIDTH)),
        why="\n".join(textwrap.wrap(why, WIDTH, initial_indent="# ", subsequent_indent="# ")),
        **repro_context(difference),
    )
    trace = trace_of(difference)
    if trace is not None:
        tracefile.write_text(folder / "case.json", tracefile.dumps(trace))
    tracefile.write_text(folder / "repro.py", script)
    tracefile.write_text(folder / "report.md", head + report.partition("\n")[2] if head else report)
    return folder
