"""repro.py of a difference of the rules level: the real configurations in literal arguments, and one question."""

from __future__ import annotations

import inspect
import json
import textwrap
from typing import Any

from attrs import frozen

from harness.report.calls import call_text, keywords
from harness.rules_level import RuleDifference
from harness.targets import config, kept, resumed
from oracle.budget import Case, DraftCounts
from oracle.methods import draft_counts

#: arguments that say nothing where they have vLLM's own default
_DEFAULTS = {
    "parallel_drafting": False,
    "disable_eagle_block_drop": False,
    "disable_lookahead_block_hashes": False,
    "max_num_scheduled_tokens": None,
    "max_num_active_seqs": None,
    "long_prefill_token_threshold": 0,
}


@frozen(kw_only=True)
class Question:
    """What a script asks. functions: text that it needs. got: lines that bind `got`. test: in words, and of `got`."""

    functions: str = ""
    got: str
    test: tuple[str, str]
    builds: bool = True


def question_of(difference: RuleDifference) -> Question:
    """What is asked of the configuration that a difference is about."""
    case, aspect = difference.case, difference.aspect
    if isinstance(case, DraftCounts):
        ours = draft_counts(case.ranges, case.drafts, case.seqs)
        imported = "from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup"
        asked = f"build_dynamic_sd_schedule_lookup({list(case.ranges)}, {case.seqs}, {case.drafts})"
        return Question(functions=imported, got=f"got = tuple({asked}[1:])", test=_equals(repr(ours)), builds=False)
    if case is None:
        word = difference.kind
        took = "from typing import get_args\n\nfrom vllm.config.speculative import SpeculativeMethod"
        known = difference.sign == "less"
        got = f'got = "{word}" in get_args(SpeculativeMethod)'
        return Question(functions=took, got=got, test=_equals(str(known)), builds=False)
    if difference.rule == "progress":
        return Question(
            functions=resumed.text_of(resumed.empty_steps),
            got="got = empty_steps(config)  # of 100",
            test=_equals("0", "0 steps without a token while a request waits alone"),
        )
    if difference.rule == "padding":
        functions = resumed.text_of(resumed.two_resumed)
        return Question(functions=functions, got="got = two_resumed(config)", test=_equals('"both end"', "both end"))
    if aspect == "law":
        return _law(difference, case)
    if aspect in kept.PLACES:
        least = difference.expected.removeprefix("at least ")
        test = _at_least(least) if least != difference.expected else _equals(least)
        return Question(functions=kept.text_of(aspect), got=f"got = {aspect}(config)", test=test)
    expected = difference.expected
    text = f'"{expected}"' if aspect == "runner" else expected
    return Question(functions=_asked(aspect), got=f"got = {_expression(aspect)}", test=_equals(text, expected))


def _expression(fact: str) -> str:
    return config.expressions()[fact].replace("'", '"')


def _asked(fact: str) -> str:
    """The text of what the expression of a fact calls."""
    called = (resumed.make_scheduler, kept.dispatcher_query_rows)
    texts = [inspect.getsource(one) for one in called if one.__name__ in config.expressions()[fact]]
    return "\n\n".join(texts)


def _equals(value: str, said: str = "") -> tuple[str, str]:
    return said or value, f"got == {value}"


def _at_least(value: str) -> tuple[str, str]:
    return f"at least {value}", f"got >= {value}"


def _law(difference: RuleDifference, case: Case) -> Question:
    """A law over the release's own numbers: positions reserved, rows charged, rows of a draft pass."""
    row = case.row
    if difference.rule == "D-L1":
        got = f"got = {_expression('lookahead')}"
        return Question(functions=_asked("lookahead"), got=got, test=_at_least(str(row.furthest(case.drafts))))
    if "charged" in difference.observed:
        return Question(got=f"got = {_expression('charged')}", test=_at_least(str(row.added_rows.of(case.drafts))))
    own = row.own_rows.of(case.drafts)
    got = f"requests = {_requests(case)}\ngot = requests * {own}  # rows of a full draft pass"
    return Question(got=got, test=(f"at most {case.budget}", f"got <= {case.budget}"))


def _requests(case: Case) -> str:
    """The requests of the largest batch, each with a token and its charge, of the release's own numbers."""
    limit = f'getattr(config.scheduler_config, "max_num_active_seqs", None) or {case.seqs}'
    each = f"{case.budget} // (1 + {_expression('charged')})"
    return f"min({limit}, {_expression('scheduled')}, {each})"


def _models(case: Case) -> list[tuple[str, str]]:
    models = config.MODELS[case.method]
    found = [("TARGET", models.target)] + ([("DRAFTER", models.drafter)] if models.drafter is not None else [])
    return [(name, _literal(model)) for name, model in found]


def _literal(model: dict[str, Any]) -> str:
    return json.dumps(model, indent=4).replace("false", "False").replace("true", "True")


def _shown(arguments: dict[str, Any]) -> list[str]:
    return keywords({name: value for name, value in arguments.items() if _DEFAULTS.get(name, ...) != value})


def config_text(case: Case) -> tuple[str, list[str]]:
    """The construction of a case's `VllmConfig`, and the classes that it needs."""
    classes = ["DeviceConfig", "ModelConfig", "SchedulerConfig", "VllmConfig"]
    arguments = ["skip_tokenizer_init=True", 'dtype="float16"', f"max_model_len={config.MAX_MODEL_LEN}"]
    said = [call_text("target = ModelConfig", ['model=folder("target", TARGET)', *arguments])]
    parts = [
        "model_config=target",
        call_text("scheduler_config=SchedulerConfig", _shown(config.scheduler_arguments(case)), indent=4).strip(),
        'device_config=DeviceConfig("cpu")',
    ]
    fields = {"KVTransferConfig": "kv_transfer_config"}
    for name, wanted in config.other_arguments(case).items():
        classes.append(name)
        argument = fields.get(name, name.replace("Config", "_config").lower())
        parts.append(f"{argument}={name}({', '.join(keywords(wanted))})")
    if case.method not in ("none", "diffusion"):
        classes += ["ParallelConfig", "SpeculativeConfig"]
        if case.method in config.BYPASSED:
            said.insert(0, "vllm.config.speculative.has_arctic_inference = lambda: True  # the package is not asked")
        drafter = ['model=folder("drafter", DRAFTER)'] if config.MODELS[case.method].drafter is not None else []
        models = ["target_model_config=target", "target_parallel_config=ParallelConfig()"]
        given = [*_shown(config.speculative_arguments(case)), *drafter, *models]
        said.append(call_text("drafter = SpeculativeConfig", given))
        parts.append("speculative_config=drafter")
    said.append(call_text("config = VllmConfig", parts))
    return "\n".join(said), classes


def repro_context(difference: RuleDifference) -> dict[str, Any]:
    """What the template of repro.py needs of a difference."""
    case = difference.case
    if difference.aspect == "refusal" and isinstance(case, Case):
        built, classes = config_text(case)
        tried = f'try:\n{textwrap.indent(built, "    ")}\n    got = "accepted"\nexcept ValueError as error:\n'
        body = f'{tried}    got = f"refused: {{error}}"'
        word = "accepted" if difference.expected == "accepted" else "refused"
        asked = Question(got="", test=(word, f'got.startswith("{word}")'))
    else:
        asked = question_of(difference)
        built, classes = config_text(case) if asked.builds and isinstance(case, Case) else ("", [])
        body = "\n".join(part for part in (built, asked.got) if part)
    imports = ["import vllm.config.speculative"] * ("vllm.config.speculative." in body)
    imports += [call_text("from vllm.config import ", sorted(classes))] * bool(classes)
    return {
        "imports": imports,
        "models": _models(case) if isinstance(case, Case) and classes else [],
        "functions": asked.functions.strip(),
        "body": body,
        "expected": asked.test[0],
        "holds": asked.test[1],
    }
