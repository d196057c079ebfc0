"""The scheduler level of a corpus as a plain pytest file that needs vLLM alone: workloads, and the steps they give.

A workload is written as calls: what the scheduler is told (resolved: a step's output has its tokens) and what the rules
answer, which needs no vLLM.
"""

from __future__ import annotations

import json
from typing import Any

from attrs import asdict

from harness import __version__
from harness.campaign.corpus import Corpus, Entry
from harness.campaign.plain_rules import model_name
from harness.report.folder import TEMPLATES
from harness.targets import config
from harness.targets.engine import cache_block_size, scheduler_arguments
from harness.targets.specs import spec_arguments
from harness.workload_drive import Drive
from oracle.content import LONGEST_ITEM, Content, item_length
from oracle.groups import Mamba
from oracle.scheduled import CLEAR, ENDED, MATCH, START, Planned
from oracle.scheduler_party import OracleScheduler
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import NOTHING_MOVED, STOP, Delivered, SchedulerTrace, Submit, Transfers, Update

#: what the connector is told and asked
_TOLD = (MATCH, START, ENDED, CLEAR)


def script(corpus: Corpus, file: str) -> str:
    """The text of the file."""
    entries = [(entry, entry.trace) for entry in corpus.entries if isinstance(entry.trace, SchedulerTrace)]
    models: dict[str, dict[str, Any]] = {}
    records = [json.dumps(record(entry, trace, models)) for entry, trace in entries]
    return TEMPLATES.get_template("scheduler_corpus.py.j2").render(
        version=__version__,
        release=corpus.release,
        file=file,
        models=json.dumps(models, indent=1),
        records=records,
        stop=STOP,
    )


def record(entry: Entry, trace: SchedulerTrace, models: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One workload as the file has it."""
    made: list[_Recorder] = []

    def make(setting: SchedulerSetting) -> _Recorder:
        made.append(_Recorder(setting))
        return made[0]

    for _ in Drive(trace.setting, make).run(trace):
        pass
    return {
        "name": entry.name,
        "why": list(entry.why),
        "setting": _setting(trace.setting, models),
        "calls": made[0].calls,
    }


def _setting(setting: SchedulerSetting, models: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the engine is built from."""
    case, states = setting.case, any(isinstance(group, Mamba) for group in setting.groups)
    of_method = config.MODELS[case.method]
    told: dict[str, Any] = {
        "target": model_name(of_method.target, models),
        "drafter": None if of_method.drafter is None else model_name(of_method.drafter, models),
        "speculation": None,
        "scheduler": {name: value for name, value in scheduler_arguments(setting).items() if value is not None},
        "caching": setting.enable_caching,
        "connector": None,
        "cache": {"num_gpu_blocks": setting.num_blocks, "block_size": cache_block_size(setting)},
        "dcp": setting.dcp_size,
        "specs": [[*spec_arguments(group), group.uniform_layers] for group in setting.groups],
        "retention": setting.prefix_cache_retention_interval,
        "sizes": {"block_size": setting.scheduler_block_size, "hash_block_size": setting.hash_size},
        "hasher": [setting.hash_size, setting.num_hash_lookahead_tokens] if setting.enable_caching else None,
        "encoder": _encoder(setting),
        "depth": setting.in_flight_depth,
        "model": config.POOLS if setting.pooling else {},
    }
    if states:
        told["cache"]["mamba_cache_mode"] = "align" if setting.align_size else "none"
    if setting.enable_mamba_shared_prefix_checkpoint:
        told["cache"]["enable_mamba_shared_prefix_checkpoint"] = True
    if setting.num_speculative_tokens:
        told["speculation"] = config.speculative_arguments(case, setting.draft_counts)
    if setting.kv_connector:
        told["connector"] = {
            "kv_role": setting.kv_role,
            "kv_load_failure_policy": setting.kv_load_failure_policy,
        }
        told["states"], told["fails_by_block"] = states, setting.fails_by_block
        told["waits_for_block_frees"] = setting.waits_for_block_frees
    return told


def _encoder(setting: SchedulerSetting) -> dict[str, Any] | None:
    """Budget of a step and place for outputs (tokens); without place that of an encoder-decoder."""
    if setting.max_encoder_len:
        return {"budget": setting.encoder_budget}
    if setting.encoder_cache_size:
        own = {"max_num_encoder_input_tokens": setting.max_num_encoder_input_tokens}
        limits = {"encoder_cache_size": setting.encoder_cache_size, **{k: v for k, v in own.items() if v is not None}}
        return {"limits": limits, "longest": LONGEST_ITEM}
    return None


class _Recorder(OracleScheduler):
    """The rules' scheduler, which notes each call with its answer: [method, arguments, expected]."""

    def __init__(self, setting: SchedulerSetting) -> None:
        super().__init__(setting)
        self.calls: list[list[Any]] = []
        self.encodes = bool(setting.encoder_cache_size)

    def _note(self, method: str, arguments: dict[str, Any], **answer: object) -> None:
        """With the state that is left; what is empty, 0 or false is left out."""
        seen = self.situation(False)
        told = [
            [event.what, event.request, _lists(event.seen.rows) if event.seen is not None else event.tokens]
            + ([event.tokens] if event.what == ENDED else [])
            for event in self.events
            if event.what in _TOLD
        ]
        left: dict[str, object] = {name: getattr(seen, name) for name in ("running", "waiting", "holding", "free")}
        left |= {"place": list(seen.place)} if self.encodes else {}
        expected = {**answer, "connector": told, **left}
        self.calls.append([method, arguments, {name: value for name, value in expected.items() if value}])

    def submit(self, operation: Submit, arrival: int, content: Content | None) -> None:
        self.events = []
        super().submit(operation, arrival, content)
        tokens: int | list[int] = operation.prompt if content is None else content.tokens[: operation.prompt]
        given: dict[str, Any] = {
            "max_tokens": operation.max_tokens,
            "priority": operation.priority,
            "session": operation.session,
            "skip": operation.skip,
        }
        given |= {"grammar": operation.grammar, "encoder": operation.encoder}
        given["items"] = _items(operation)
        far = {name: getattr(operation, name) for name in ("remote", "load", "unknown", "again", "keeps")}
        given["far"] = far if operation.remote or operation.keeps else {}
        self._note("submit", {"request": operation.request, "tokens": tokens} | {k: v for k, v in given.items() if v})

    def update(self, operation: Update, arrival: int, tokens: list[int] | None) -> None:
        super().update(operation, arrival, tokens)
        given = {"request": operation.request, "tokens": tokens or operation.prompt}
        items = {"items": _items(operation)} if operation.items else {}
        self._note("update", given | {"max_tokens": operation.max_tokens} | items)

    def schedule(self) -> Planned:
        planned = super().schedule()
        self._note("schedule", {}, **_lists(asdict(planned, recurse=False)))
        return planned

    def output(
        self, returned: dict[int, list[int]], proposed: dict[int, int] | None, transfers: Transfers = NOTHING_MOVED
    ) -> list[Delivered]:
        given: dict[str, Any] = {"sampled": returned, **{k: v for k, v in asdict(transfers).items() if v}}
        if "valid" in given:
            given["valid"] = dict(transfers.valid)
        if proposed is not None:
            given["proposed"] = proposed
        delivered = super().output(returned, proposed, transfers)
        self._note("output", given, delivered=_lists(delivered))
        return delivered

    def abort(self, request: int) -> bool:
        done = super().abort(request)
        self._note("abort", {"request": request})
        return done

    def reset(self, running: bool, connector: bool) -> bool:
        done = super().reset(running, connector)
        self._note("reset", {"running": running, "connector": connector}, emptied=done)
        return done

    def pause(self, state: str) -> None:
        super().pause(state)
        self.events = []
        self._note("pause", {"state": state})


def _items(operation: Submit | Update) -> list[list[int]]:
    return [[item, offset, item_length(item)] for item, offset in operation.items]


def _lists(value: Any) -> Any:  # noqa: ANN401  # as JSON gives it back
    if isinstance(value, dict):
        return {name: _lists(one) for name, one in value.items()}
    return [_lists(one) for one in value] if isinstance(value, list | tuple) else value
