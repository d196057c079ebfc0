"""repro.py of a workload: the operations as literal calls on vLLM's scheduler, in a script that needs vLLM alone."""

from __future__ import annotations

from itertools import groupby

from attrs import NOTHING, fields

from harness import __version__
from harness.report.calls import call_text, keywords
from harness.report.folder import TEMPLATES
from harness.report.script import spec_text
from harness.targets.config import BYPASSED, MODELS, speculative_arguments
from harness.targets.engine import cache_block_size, scheduler_arguments
from harness.targets.specs import spec_arguments
from harness.workload_outcome import WorkloadOutcome
from oracle.budget import Case
from oracle.content import LONGEST_ITEM, item_length
from oracle.groups import Mamba
from oracle.releases import NEWEST
from oracle.scheduled import PLANNED_RULES
from oracle.scheduler_laws import ASLEEP, SLEEPS
from oracle.scheduler_setting import SchedulerSetting
from oracle.trace import Difference
from oracle.workload import UNPAUSED, Pause, Reset, SchedulerOperation, SchedulerTrace, Step, Submit, Update

#: a law that is broken when a step is sent: what is handed over with its output is not known then
DRAFTS = "drafts"
#: rules about how a request is sent to the worker, of which its tokens and blocks say nothing
_SENT = frozenset(PLANNED_RULES[name] for name in ("new", "resumed", "again"))
#: flags of a step, which say nothing of a request
_FLAGS = {rule: name for name, rule in PLANNED_RULES.items() if rule in ("S57", "S58", "S59")}
#: what a step says of requests, each with a count; as a dict in the script
_COUNTS = ("accepted", "stops", "drafts", "valid")


def script(
    trace: SchedulerTrace, difference: Difference, outcome: WorkloadOutcome, title: str, release: str | None
) -> str:
    """repro.py; it exits 1 while the defect is there."""
    setting = trace.setting
    models = MODELS[setting.method if setting.num_speculative_tokens else "none"]
    steps = max(0, outcome.shown.get(difference.fingerprint, outcome.steps))
    return TEMPLATES.get_template("workload_repro.py.j2").render(
        title=title,
        fingerprint=difference.fingerprint,
        version=__version__,
        release=release or "unknown",
        setting=setting,
        older=setting.release != NEWEST,
        target=repr(models.target),
        drafter=repr(models.drafter) if setting.num_speculative_tokens else "None",
        method=_drafter(setting),
        specs=[spec_text(group, indent=4) for group in setting.groups],
        classes=sorted({spec_arguments(group)[0] for group in setting.groups}),
        scheduler_config=call_text("scheduler_config=SchedulerConfig", keywords(_scheduler(setting)), indent=4).strip(),
        workload=_lines(trace, outcome, difference.step, steps),
        raises=difference.sign.removeprefix("error:") if difference.aspect == "error" else "",
        law=difference.rule if difference.aspect == "law" else "",
        resets=any(isinstance(one, Reset) for one in trace.operations)
        and (setting.kv_connector or any(isinstance(one, Submit) and one.session for one in trace.operations)),
        sleeps=difference.sign in (SLEEPS, ASLEEP),
        stuck=difference.rule in ("progress", "drain"),
        expected=difference.expected,
        observed=difference.observed,
        contents=_contents(outcome),
        block_size=cache_block_size(setting),
        wrong=_last(outcome, steps, difference.rule),
        unfinished=setting.kv_connector and difference.rule == DRAFTS,
        sent=difference.rule in _SENT,
        flag=_FLAGS.get(difference.rule, ""),
        sessions=any(isinstance(one, Submit) and one.session for one in trace.operations),
        skips=any(isinstance(one, Submit) and one.skip for one in trace.operations),
        grammars=any(isinstance(one, Submit) and one.grammar for one in trace.operations),
        longest_item=LONGEST_ITEM,
        bypassed=bool(setting.num_speculative_tokens) and setting.method in BYPASSED,
        states=any(isinstance(group, Mamba) for group in setting.groups),
    )


def _scheduler(setting: SchedulerSetting) -> dict[str, object]:
    """The arguments of `SchedulerConfig` that the setting's release has."""
    choices = setting.choices
    there = {
        "max_num_active_seqs": choices.active_option,
        "long_prefill_token_threshold_adaptive": choices.adaptive_threshold,
    }
    return {name: value for name, value in scheduler_arguments(setting).items() if there.get(name, True)}


def _drafter(setting: SchedulerSetting) -> list[str]:
    """The arguments of `SpeculativeConfig`, but for the models; none without a drafter."""
    if not setting.num_speculative_tokens:
        return []
    case = Case(method=setting.method, parallel=setting.parallel_drafting, drafts=setting.num_speculative_tokens)
    given = speculative_arguments(case, setting.draft_counts)
    return keywords({name: value for name, value in given.items() if value is not False})


def _lines(trace: SchedulerTrace, outcome: WorkloadOutcome, last: int, steps: int) -> list[str]:
    """The operations up to the `last` as calls, the steps of the drain written out; equal ones in a row as a loop."""
    calls: list[str] = []
    left = steps
    for index, operation in enumerate(trace.operations[: last + 1]):
        left -= isinstance(operation, Step)
        void = isinstance(operation, Update) and index not in outcome.updates
        if not void:
            calls.append(_call(operation, outcome.failed.get(index), outcome.said.get(index)))
    calls += ["pause()"] if left and calls and _paused(trace) else []
    ends = [piece for index, piece in outcome.updates.items() if index >= len(trace.operations)]
    calls += [_call(piece, None) for piece in ends] if left else []
    calls += ["step(rest=True)" if trace.setting.kv_connector else "step()"] * left
    lines = []
    for call, equal in groupby(calls):
        count = len(list(equal))
        lines += [call] * count if count < 4 else [f"for _ in range({count}):\n    {call}"]
    return lines


def _contents(outcome: WorkloadOutcome) -> dict[str, list[int]]:
    """With caching on: the tokens of each request; of a session for each prompt that it has had."""
    found = {str(name): content.tokens for name, content in sorted(outcome.contents.items())}
    for (name, prompt), content in sorted(outcome.turns.items()):
        found.pop(str(name), None)
        found[f"{name}, {prompt}"] = content.tokens
    return found


def _paused(trace: SchedulerTrace) -> bool:
    """Whether the workload ends in a pause, which does not outlive it."""
    states = [operation.state for operation in trace.operations if isinstance(operation, Pause)]
    return bool(states) and states[-1] != UNPAUSED


def _call(operation: SchedulerOperation, failed: tuple[int, int] | None, tokens: list[int] | None = None) -> str:
    """One operation as a call, with what it says.

    failed: of a step the load that fails, and from which column on. tokens: of a session's next piece.
    """
    if tokens is not None and isinstance(operation, Update):
        items = f", items={_items(operation)}" if operation.items else ""
        return f"update(request={operation.request}, tokens={tokens}, max_tokens={operation.max_tokens}{items})"
    if not isinstance(operation, Step):
        said = [
            f"{one.name}={getattr(operation, one.name)!r}"
            for one in fields(type(operation))
            if one.name not in ("forks", "items")
            and (one.default is NOTHING or getattr(operation, one.name) != one.default)
        ]
        if isinstance(operation, Submit | Update) and operation.items:
            said.append(f"items={_items(operation)}")
        return f"{type(operation).__name__.lower()}({', '.join(said)})"
    said = [f"{name}={dict(getattr(operation, name))}" for name in _COUNTS if getattr(operation, name)]
    said += [f"loaded={[name for name, _ in operation.loaded]}"] if operation.loaded else []
    said += [f"{name}={[*getattr(operation, name)]}" for name in ("sent", "refused") if getattr(operation, name)]
    said += [f"failed={failed}"] if failed is not None else []
    said += ["early=True"] if operation.early else []
    return f"step({', '.join(said)})"


def _items(operation: Submit | Update) -> list[tuple[int, int, int]]:
    return [(item, offset, item_length(item)) for item, offset in operation.items]


def _last(outcome: WorkloadOutcome, steps: int, rule: str) -> str:
    """What the step was in which the defect showed, as the script compares it; with a connector also what is handed.

    rule: of how requests are sent, also who came as new, with a row that starts anew, or with all tokens once more;
    of a flag of the step, also the flag; of drafts, nothing of its output.
    """
    entries = outcome.entries[:steps]
    if not entries:
        return "None"
    planned = entries[-1].planned
    rows = [(str(name), computed, blocks) for name, computed, _, blocks in planned.new]
    rows += [(str(name), computed, blocks or ()) for name, computed, _, blocks in planned.cached]
    tokens, drafts = ({str(name): count for name, count in pairs} for pairs in (planned.tokens, planned.drafts))
    last: tuple[object, ...] = (tokens, drafts, rows, planned.copies)
    if outcome.trace.setting.encoder_cache_size:
        encoded = {str(name): [*places] for name, places in planned.encoded}
        last = (*last, encoded, [str(item) for item in planned.dropped])
    if rule in _SENT:
        new = [str(name) for name, *_ in planned.new]
        last = (*last, new, [*map(str, planned.resumed)], {str(name): count for name, count in planned.again})
    if rule in _FLAGS:
        last = (*last, getattr(planned, _FLAGS[rule]))
    handed = outcome.trace.setting.kv_connector and rule != DRAFTS
    return repr((*last, entries[-1].handed) if handed else last)
