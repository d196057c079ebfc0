"""One difference of each sort that the rules level can show, from planted defects; no vLLM."""

from __future__ import annotations

from attrs import evolve

from harness import rules_level
from harness.report.folder import Versions
from harness.rules_level import Release, RuleDifference
from harness.targets.source import Location
from oracle.budget import BUDGET, Facts, predict
from oracle.methods import MTP_FAMILIES, WORDS

VERSIONS = Versions(slotcheck="0.1.0", vllm="0.33.0", torch="2.14.0", python="3.11.7")


def locate(file: str, name: str) -> Location:
    """A location without the installed release."""
    return Location(file, name)


def _wrong(case):
    """DFlash with K slots and no limit, no charge for PARD, no refusal of EAGLE."""
    facts = predict(case)
    if case.method == "dflash" and not facts.refused:
        return evolve(facts, lookahead=case.drafts, active=case.active)
    if case.row.title == "draft_model parallel" and not facts.refused:
        return evolve(facts, charged=0)
    if case.method == "eagle" and facts.refused == BUDGET:
        return Facts(drafts=case.drafts)
    if case.method == "ngram" and not case.parallel and not facts.refused:
        return evolve(facts, runner="V1")
    return facts


_FOUND = rules_level.run(
    Release(
        _wrong,
        {"v1_room": lambda case: case.drafts, "v1_pass_rows": lambda case: case.budget - 1},
        lambda counts: (counts.drafts,) * counts.seqs,
        {*WORDS, *MTP_FAMILIES, "medusa"},
    ),
    drafts=(3, 8),
).found

#: by what it is about
SAMPLES: dict[str, RuleDifference] = {
    name: _FOUND[fingerprint]
    for name, fingerprint in (
        ("number", "rules/lookahead/dflash/D6/less"),
        ("limit", "rules/active/dflash/B5/other"),
        ("word", "rules/runner/ngram/S23/other"),
        ("refusal", "rules/refusal/eagle/B6/accepted"),
        ("reserved", "rules/law/dflash/D-L1/broken"),
        ("charged rows", "rules/law/draft_model parallel/B-L1/broken"),
        ("own rows", "rules/law/dflash/B-L1/broken"),
        ("progress", "rules/law/resumed decode/progress/broken"),
        ("padding", "rules/law/resumed decode/padding/broken"),
        ("place", "rules/v1_room/dflash/D-L2/less"),
        ("least", "rules/v1_pass_rows/eagle/B-L1/less"),
        ("counts", "rules/draft_counts/draft counts/S24/other"),
        ("method", "rules/methods/medusa/D9/more"),
    )
}
