"""repro.py: the trace as literal calls on vLLM's manager, in a script that needs vLLM alone."""

from __future__ import annotations

from typing import Any

from harness.outcome import Outcome
from harness.report.calls import Calls, call_text, keywords
from harness.report.judge import BUILD, FREE_ORDER, PROCESS, TWICE, VALUE, judge_of
from harness.report.walk import moments_of
from harness.targets.specs import spec_arguments
from oracle.groups import Group
from oracle.setting import Setting
from oracle.trace import Difference


def spec_text(group: Group, indent: int = 0) -> str:
    """The constructor call of a group's spec, wrapped for uniform layers as the worker does."""
    name, arguments = spec_arguments(group)
    if not group.uniform_layers:
        return call_text(name, keywords(arguments), indent=indent)
    layers = ", ".join(f'"layer.{n}"' for n in range(group.uniform_layers))
    spec = f"{name}({', '.join(keywords(arguments))})"
    inner = call_text("kv_cache_specs=dict.fromkeys", [f"[{layers}]", spec], indent=indent + 4).strip()
    return call_text("UniformTypeKVCacheSpecs", [f"block_size={group.block_size}", inner], indent=indent)


#: the same in every group of half precision: says nothing to a reader
_HEADS = ("num_kv_heads", "head_size", "shapes")


def spec_line(group: Group) -> str:
    """The spec of a group on one line, with what matters to its row."""
    name, arguments = spec_arguments(group)
    half = {"dtype": "float16", "dtypes": ("float16",)}
    shown = {key: value for key, value in arguments.items() if key not in _HEADS and half.get(key) != value}
    layers = f", {group.uniform_layers} uniform layers" if group.uniform_layers else ""
    return f"{name}({', '.join(keywords(shown))}){layers}"


def config_text(setting: Setting) -> str:
    """The `KVCacheConfig` of a setting."""
    comprehension = 'KVCacheGroupSpec(layer_names=[f"group.{n}"], kv_cache_spec=spec) for n, spec in enumerate(specs)'
    arguments = [f"num_blocks={setting.num_blocks}", "kv_cache_tensors=[]", f"kv_cache_groups=[{comprehension}]"]
    interval = setting.prefix_cache_retention_interval
    arguments += [] if interval is None else [f"prefix_cache_retention_interval={interval}"]
    return call_text("config = KVCacheConfig", arguments)


def manager_text(setting: Setting) -> str:
    """The construction of the manager."""
    arguments: dict[str, Any] = {
        "max_model_len": setting.max_model_len,
        "scheduler_block_size": setting.scheduler_block_size,
        "hash_block_size": setting.hash_size,
    }
    arguments |= {} if setting.max_in_flight_tokens is None else {"max_in_flight_tokens": setting.max_in_flight_tokens}
    arguments["enable_caching"] = setting.enable_caching
    arguments |= {} if setting.dcp_size == 1 else {"dcp_world_size": setting.dcp_size}
    arguments |= {} if not setting.watermark else {"watermark": setting.watermark}
    return call_text("manager = KVCacheManager", ["kv_cache_config=config", *keywords(arguments)])


def repro_context(outcome: Outcome, difference: Difference) -> dict[str, Any]:
    """What the template of repro.py needs of a trace and its difference."""
    moments = moments_of(outcome)
    judge = judge_of(outcome, moments, difference)
    calls = Calls(judge)
    last = difference.step if judge.kind in (VALUE, PROCESS) and not judge.answers else len(moments)
    for moment in moments[: last + 1]:
        calls.write(moment)
    if judge.answers:  # what the law judges is seen only at the end
        calls.lines += ["", f"got = {judge.got}"]
    setting = outcome.trace.setting
    classes = {spec_arguments(group)[0] for group in setting.groups} | {"KVCacheConfig", "KVCacheGroupSpec"}
    uniform = any(group.uniform_layers for group in setting.groups)
    return {
        "judge": judge,
        "isolated": judge.kind in (PROCESS, TWICE),
        "reads_queue": FREE_ORDER in judge.got,
        "builds_only": judge.kind == BUILD,
        "calls": "\n".join(calls.lines).strip("\n"),
        "classes": sorted(classes | ({"UniformTypeKVCacheSpecs"} if uniform else set())),
        "uniform": uniform,
        "specs": [spec_text(group, indent=4) for group in setting.groups],
        "config": config_text(setting),
        "manager": manager_text(setting),
    }
