"""The rules level of a corpus as a plain pytest file that needs vLLM alone: configurations and what they must say."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import asdict

from harness import __version__, findings
from harness.campaign.corpus import Corpus, Entry
from harness.report.folder import TEMPLATES
from harness.rules_level import rule_of
from harness.targets import config
from oracle.budget import Case, DraftCounts, RuleTrace, said
from oracle.methods import draft_counts

#: class of `vllm.config` -> the argument of `VllmConfig`
_ARGUMENTS = {
    "CacheConfig": "cache_config",
    "KVTransferConfig": "kv_transfer_config",
    "DiffusionConfig": "diffusion_config",
}


def script(corpus: Corpus, file: str) -> str:
    """The text of the file."""
    questions = [(entry, entry.trace.question) for entry in corpus.entries if isinstance(entry.trace, RuleTrace)]
    cases = [(entry, question) for entry, question in questions if isinstance(question, Case)]
    counts = [(entry, question) for entry, question in questions if isinstance(question, DraftCounts)]
    models: dict[str, dict[str, Any]] = {}
    declared = findings.Declared(findings.load(), corpus.release)
    records = [_case(entry, case, models, partial(_declared, declared)) for entry, case in cases]
    return TEMPLATES.get_template("rules_corpus.py.j2").render(
        version=__version__,
        release=corpus.release,
        file=file,
        models=json.dumps(models, indent=1),
        cases=[json.dumps(one) for one in records],
        counts=[json.dumps(_counts(entry, question)) for entry, question in counts],
        facts=[(name, text.replace("'", '"')) for name, text in config.expressions().items()],
        max_model_len=config.MAX_MODEL_LEN,
    )


def _declared(declared: findings.Declared, fact: str, case: Case) -> bool:
    """Whether the release is known to say something else: the file does not ask that fact."""
    patterns = [match for finding in declared.findings for match in finding.match if match.level == "rules"]
    return any(
        (match.aspect, match.rule) == (fact, rule_of(fact, case)) and (not match.kinds or case.row.title in match.kinds)
        for match in patterns
    )


def _case(
    entry: Entry, case: Case, models: dict[str, dict[str, Any]], known: Callable[[str, Case], bool]
) -> dict[str, Any]:
    facts = asdict(said(case))
    refused = facts.pop("refused")
    speculates = case.method not in ("none", "diffusion")
    of_method = config.MODELS[case.method]
    return {
        "name": f"{case.method} {entry.name}",
        "why": list(entry.why),
        "target": model_name(of_method.target, models),
        "drafter": model_name(of_method.drafter, models) if of_method.drafter is not None else None,
        "speculation": config.speculative_arguments(case) if speculates else None,
        "scheduler": config.scheduler_arguments(case),
        "others": {_ARGUMENTS[name]: [name, given] for name, given in config.other_arguments(case).items()},
        "refused": refused,
        "facts": {} if refused else {name: value for name, value in facts.items() if not known(name, case)},
    }


def model_name(model: dict[str, Any], models: dict[str, dict[str, Any]]) -> str:
    """The name of a model's configuration among those of the file."""
    for name, known in models.items():
        if known == model:
            return name
    name = f"{model['architectures'][0]}-{len(models)}"
    models[name] = model
    return name


def _counts(entry: Entry, counts: DraftCounts) -> dict[str, Any]:
    ranges = [list(one) for one in counts.ranges]
    return {
        "name": f"counts {entry.name}",
        "why": list(entry.why),
        "arguments": [ranges, counts.seqs, counts.drafts],
        "drafts": list(draft_counts(counts.ranges, counts.drafts, counts.seqs)),
    }
