"""A corpus as a plain pytest file that needs vLLM alone: its traces of the manager level as calls and answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from harness import __version__
from harness.campaign.corpus import Corpus, Entry
from harness.outcome import Options
from harness.passes import Asked, CachingRecorder, Recorder
from harness.report.calls import slots_arguments
from harness.report.folder import TEMPLATES
from harness.targets.specs import spec_arguments
from harness.trace_run import new_replay
from oracle.call import Call, Query
from oracle.content import Content, item_length
from oracle.setting import Setting
from oracle.trace import Trace

#: of a call that is waiting (or preempted), and preempted
_STATUS = {(True, True): "PREEMPTED", (True, False): "WAITING", (False, False): "RUNNING"}


def script(corpus: Corpus, file: str) -> str:
    """The text of the file."""
    records = [record(entry, entry.trace) for entry in corpus.entries if isinstance(entry.trace, Trace)]
    return TEMPLATES.get_template("corpus.py.j2").render(
        version=__version__, release=corpus.release, file=file, records=[json.dumps(one) for one in records]
    )


def record(entry: Entry, trace: Trace) -> dict[str, Any]:
    """One trace as the file has it."""
    setting = trace.setting
    return {
        "name": entry.name,
        "why": list(entry.why),
        "specs": [[*spec_arguments(group), group.uniform_layers] for group in setting.groups],
        "groups": [{"is_eagle_group": True} if group.eagle else {} for group in setting.groups],
        "config": _given(
            {
                "num_blocks": (setting.num_blocks, None),
                "prefix_cache_retention_interval": (setting.prefix_cache_retention_interval, None),
            }
        ),
        "manager": _manager(setting),
        "hasher": _hasher(setting) if setting.enable_caching else None,
        "defers": setting.enable_caching and setting.defers_copies,
        "calls": list(_Writer().calls(_asked(trace))),
    }


def _manager(setting: Setting) -> dict[str, Any]:
    """The keyword arguments of the manager that are not its defaults."""
    optional: dict[str, tuple[Any, Any]] = {
        "max_in_flight_tokens": (setting.max_in_flight_tokens, None),
        "dcp_world_size": (setting.dcp_size, 1),
        "watermark": (setting.watermark, 0.0),
    }
    if setting.enable_caching:
        optional |= {
            "use_eagle": (setting.use_eagle, False),
            "num_hash_lookahead_tokens": (setting.num_hash_lookahead_tokens, 0),
            "num_prefill_lookahead": (setting.num_prefill_lookahead_tokens, 0),
            "enable_mamba_shared_prefix_checkpoint": (setting.enable_mamba_shared_prefix_checkpoint, False),
            "enable_kv_cache_events": (setting.enable_kv_cache_events, False),
        }
    return {
        "max_model_len": setting.max_model_len,
        "scheduler_block_size": setting.scheduler_block_size,
        "hash_block_size": setting.hash_size,
        "enable_caching": setting.enable_caching,
        **_given(optional),
    }


def _hasher(setting: Setting) -> list[int]:
    """Tokens of a name, and lookahead tokens where there are some."""
    ahead = setting.num_hash_lookahead_tokens
    return [setting.hash_size, ahead] if ahead else [setting.hash_size]


def _given(optional: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    return {name: value for name, (value, default) in optional.items() if value != default}


def _asked(trace: Trace) -> list[Asked]:
    """Every call that the trace makes, with the oracle's answer."""
    oracle = CachingRecorder(trace.setting) if trace.setting.enable_caching else Recorder(trace.setting)
    replay = new_replay(trace.setting, None, Options(aspects=frozenset()), oracle=oracle)
    for operation in trace.operations:
        if replay.over:
            break
        replay.step(operation)
    return [one for one in oracle.asked if one[1] != "audit"]


class _Writer:
    """Writes calls: [method, arguments, what it must give]."""

    def __init__(self) -> None:
        self.contents: dict[int, Content] = {}
        self.known: set[int] = set()

    def calls(self, asked: list[Asked]) -> Iterator[list[Any]]:
        for _, method, arguments, answer in asked:
            if method == "lookup":
                yield from self._lookup(arguments[0], answer)
            elif method in ("extend", "publish"):
                yield from self._call(method, *arguments[:2], answer=answer)
            elif method == "new_step":
                yield ["new_step", [], [list(answer.new[0]), _lists(getattr(answer, "copies", ())), answer.free]]
            elif method == "trim":
                yield [method, list(arguments), [_lists(answer.rows), answer.free]]
            elif method == "reset":
                yield [method, [], [answer.outcome, answer.free]]
            elif method == "cut":
                yield [method, list(arguments), None]
            else:
                if method == "release":
                    self.contents.pop(arguments[0], None)
                yield [method, _lists(arguments), answer.free]

    def _content(self, request: int, content: Content) -> Iterator[list[Any]]:
        if request >= 0 and self.contents.get(request) is content:
            return
        self.contents[request] = content
        told = {
            "tokens": list(content.tokens),
            "salt": content.salt,
            "adapter": content.adapter,
            "items": [[one, offset, item_length(one)] for one, offset in content.items],
            "embeds": content.embeds,
            "values": list(content.values),
            "kept": content.kept,
        }
        yield ["content", [request, told], None]

    def _lookup(self, query: Query, answer: Any) -> Iterator[list[Any]]:  # noqa: ANN401  # a Hit
        yield from self._content(query.request, query.content)
        bound = None if query.bound == query.tokens - 1 else query.bound
        arguments = [query.request, query.tokens, bound, query.skip, query.report, query.apart]
        yield ["lookup", arguments, [answer.tokens, answer.junction, _lists(answer.rows)]]

    def _call(self, method: str, call: Call, tokens: int = 0, *, answer: Any) -> Iterator[list[Any]]:  # noqa: ANN401
        if call.content is not None:
            yield from self._content(call.request, call.content)
        state = {
            "status": _STATUS[call.waiting or call.preempted, call.preempted],
            "computed": call.computed - (call.local if method == "extend" else 0),
            "in_flight": call.in_flight,
            "prompt": call.prompt,
            "tokens": call.tokens,
            "junction": call.junction,
        }
        if method == "publish":
            yield [method, [call.request, state, tokens], answer.free]
            return
        expected = [answer.outcome, _lists(answer.rows), answer.free]
        yield [method, [call.request, state, call.local, slots_arguments(call)], expected]


def _lists(value: Any) -> Any:  # noqa: ANN401  # tuples of tuples of numbers
    return [_lists(one) for one in value] if isinstance(value, tuple) else value
