"""The real `SpeculativeConfig` and `VllmConfig`, built by their own constructors on model folders written here.

A folder holds a config.json and nothing else: no weights, no tokenizer, no network. The first use of an architecture
inspects its class; vLLM does that in a new process each, so that CUDA stays untouched, which costs half a minute of
import. Without a GPU there is nothing to leave untouched: it is done in this process, in a fraction of a second.

Bypassed, because 0.33.0 accepts no other way without a device or another package (`BYPASSED`): the presence of Arctic
Inference, which `suffix` asks for and none of the compared facts uses.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from attrs import frozen

from harness.targets import compat
from oracle.budget import ACTIVE, BUDGET, LONGEST, MODULES, OVERLAP, SEQS, THRESHOLD, Case, Facts
from oracle.methods import METHODS, Method

#: methods whose configuration is not accepted as it stands: what is stepped over, and why that is fair
BYPASSED = {
    "suffix": "config.speculative.has_arctic_inference is made true: the package itself is only used by the drafter",
}

#: tokens of every model here; nothing that is compared depends on it but the V1 runner's test, which takes its own
MAX_MODEL_LEN = LONGEST

_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}
_QWEN = {**_LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 4}
_MASK = {"mask_token_id": 127, "target_layer_ids": [1, 2]}
_DFLASH = {**_QWEN, "architectures": ["DFlashDraftModel"], "num_hidden_layers": 1, "dflash_config": _MASK}
_DSPARK = {
    **_DFLASH,
    "architectures": ["Qwen3DSparkModel"],
    "markov_rank": 8,
    "markov_head_type": "vanilla",
    "block_size": 8,
}
_DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "ptd_token_id": 127,
    "q_lora_rank": 32,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float16",
}
_GEMMA_ASSISTANT = {
    "architectures": ["Gemma4AssistantForCausalLM"],
    "model_type": "gemma4_assistant",
    "backbone_hidden_size": 64,
    "torch_dtype": "float16",
    "text_config": {
        "model_type": "gemma4_text",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 16,
        "vocab_size": 128,
        "vocab_size_per_layer_input": 0,
        "max_position_embeddings": 4096,
        "layer_types": ["full_attention", "full_attention"],
        "hidden_size_per_layer_input": 0,
    },
}


@frozen
class Models:
    """The folders of a method: the target's config.json, and the drafter's where there is one."""

    target: dict[str, Any]
    drafter: dict[str, Any] | None = None


_LLAMA_PAIR = Models(_LLAMA, {**_LLAMA, "num_hidden_layers": 1, "ptd_token_id": 127})
_ALONE = Models(_LLAMA)

MODELS: dict[str, Models] = {
    "none": _ALONE,
    "diffusion": _ALONE,
    "ngram": _ALONE,
    "ngram_gpu": _ALONE,
    "suffix": _ALONE,
    "custom_class": _ALONE,
    "extract_hidden_states": _ALONE,
    "draft_model": _LLAMA_PAIR,
    "eagle": _LLAMA_PAIR,
    "eagle3": _LLAMA_PAIR,
    "mtp": Models({**_DEEPSEEK, "num_nextn_predict_layers": 1}),
    "mtp_modules": Models({**_DEEPSEEK, "num_nextn_predict_layers": METHODS["mtp_modules", False].modules}),
    "mtp_constant": Models(_LLAMA, _GEMMA_ASSISTANT),
    "dflash": Models(_QWEN, _DFLASH),
    "dspark": Models(_QWEN, _DSPARK),
    "dspark_fill_in": Models(_QWEN, {**_DSPARK, "sample_from_anchor": False, "dspark_bonus_anchor": True}),
}


@cache
def _models() -> tempfile.TemporaryDirectory[str]:
    """Where the model folders are: removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="slotcheck-models-")


def _folder(config: dict[str, Any]) -> str:
    text = json.dumps(config, sort_keys=True)
    path = Path(_models().name) / f"{config['model_type']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not path.is_dir():
        path.mkdir()
        (path / "config.json").write_text(text, encoding="utf-8")
    return str(path)


def taken(name: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that this release's class of `vllm.config` takes; all where no release is at hand."""
    if compat.installed_release() is None:
        return wanted
    known = inspect.signature(getattr(import_config(), name)).parameters
    return {argument: value for argument, value in wanted.items() if argument in known}


def import_config() -> Any:
    """`vllm.config`, imported quietly and without the hub; TargetError when vLLM is missing."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    compat.import_vllm()
    config = importlib.import_module("vllm.config")
    registry = importlib.import_module("vllm.model_executor.models.registry")
    if not compat.has_gpu() and hasattr(registry, "_run_in_subprocess"):
        vars(registry)["_run_in_subprocess"] = _in_this_process
    return config


def _in_this_process(inspect: Callable[[], Any]) -> Any:
    return inspect()


#: what makes a pooling model of one that generates
POOLS = {"runner": "pooling", "convert": "embed"}


@cache
def target_model(name: str, pooling: bool = False) -> Any:
    """The real `ModelConfig` of a method's target; pooling: of one that pools."""
    config = import_config()
    return config.ModelConfig(
        model=_folder(MODELS[name].target),
        skip_tokenizer_init=True,
        dtype="float16",
        max_model_len=MAX_MODEL_LEN,
        **(POOLS if pooling else {}),
    )


@contextlib.contextmanager
def _stepped_over(row: Method) -> Iterator[None]:
    if row.name not in BYPASSED:
        yield
        return
    with mock.patch("vllm.config.speculative.has_arctic_inference", return_value=True):
        yield


def speculative_arguments(case: Case, counts: tuple[tuple[int, int, int], ...] | None = None) -> dict[str, Any]:
    """The arguments of `SpeculativeConfig`, but for the models. counts: dynamic draft counts."""
    wanted: dict[str, Any] = {
        "method": case.row.release_word,
        "num_speculative_tokens": case.drafts,
        "parallel_drafting": case.parallel,
        "disable_eagle_block_drop": case.drop_disabled,
        "disable_lookahead_block_hashes": case.hash_disabled,
    }
    wanted = taken("SpeculativeConfig", wanted)
    if counts is not None:
        wanted["num_speculative_tokens_per_batch_size"] = [tuple(entry) for entry in counts]
    if case.method == "custom_class":
        wanted["model"] = "a_package.AProposer"
    elif case.method == "extract_hidden_states":
        wanted["draft_model_config"] = {"hf_config": {"eagle_aux_hidden_state_layer_ids": [1]}}
    return wanted


def scheduler_arguments(case: Case) -> dict[str, Any]:
    """The arguments of `SchedulerConfig`."""
    wanted = {
        "max_model_len": MAX_MODEL_LEN,
        "is_encoder_decoder": False,
        "max_num_batched_tokens": case.budget,
        "max_num_seqs": case.seqs,
        "max_num_scheduled_tokens": case.scheduled,
        "max_num_active_seqs": case.active,
        "long_prefill_token_threshold": case.threshold or 0,
        "async_scheduling": case.overlap,
    }
    return taken("SchedulerConfig", wanted)


def other_arguments(case: Case) -> dict[str, dict[str, Any]]:
    """Arguments of the other configurations: class -> arguments, those alone that the case has."""
    wanted: dict[str, dict[str, Any]] = {"CacheConfig": {"block_size": 16, "enable_prefix_caching": case.caching}}
    if case.connector:
        wanted["KVTransferConfig"] = {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}
    if case.method == "diffusion":
        wanted["DiffusionConfig"] = {"canvas_length": case.drafts}
    return wanted


@cache
def drafter(case: Case, counts: tuple[tuple[int, int, int], ...] | None) -> Any:
    """The real `SpeculativeConfig` of a case that has nothing else; None where there is none."""
    if case.method in ("none", "diffusion"):
        return None
    config = import_config()
    wanted = speculative_arguments(case, counts)
    folder = MODELS[case.method].drafter
    if folder is not None:
        wanted["model"] = _folder(folder)
    models = {"target_model_config": target_model(case.method), "target_parallel_config": config.ParallelConfig()}
    with _stepped_over(case.row):
        return config.SpeculativeConfig(**compat.options(config.SpeculativeConfig, wanted), **models)


def build(case: Case, counts: tuple[tuple[int, int, int], ...] | None = None) -> Any:
    """The real `VllmConfig` of a case. Raises what the constructors raise."""
    config = import_config()
    of_method = {name: getattr(case, name) for name in ("method", "parallel", "drafts", "release")}
    switches = {name: getattr(case, name) for name in ("drop_disabled", "hash_disabled")}
    speculation = drafter(Case(**of_method, **switches), counts)
    others = {name: getattr(config, name)(**wanted) for name, wanted in other_arguments(case).items()}
    parts = {
        "model_config": target_model(case.method),
        "scheduler_config": config.SchedulerConfig(**scheduler_arguments(case)),
        "cache_config": others["CacheConfig"],
        "parallel_config": config.ParallelConfig(),
        "device_config": config.DeviceConfig("cpu"),
        "speculative_config": speculation,
        "diffusion_config": others.get("DiffusionConfig"),
        "kv_transfer_config": others.get("KVTransferConfig"),
    }
    return config.VllmConfig(**taken("VllmConfig", parts))


#: a refusal of ours -> words of the release's message
_MESSAGES = {
    MODULES: "must be divisible by n_predict",
    SEQS: "be greater than or equal to max_num_seqs",
    ACTIVE: "cannot be greater than max_num_seqs",
    THRESHOLD: "cannot be greater than the max_model_len",
    OVERLAP: "Async scheduling is not supported",
    BUDGET: "enough slots",
}
#: words of older releases for the same
_OLDER = {
    "does not allow any tokens to be scheduled": _MESSAGES[BUDGET],
    "async scheduling is only supported": _MESSAGES[OVERLAP],
}


def refused(error: Exception) -> str:
    """Which refusal an error of the constructors is; what it says where it is none that we know."""
    said = " ".join(str(error).split())
    for older, words in _OLDER.items():
        said = said.replace(older, words)
    for why, words in _MESSAGES.items():
        if words in said:
            return why
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def facts(case: Case) -> Facts:
    """What the release says of a case."""
    try:
        built = build(case)
    except Exception as error:
        return Facts(refused=refused(error))
    return facts_of(built)


#: each fact as an expression over the `VllmConfig`; `repro.py` of a difference holds it as it stands
_EXPRESSIONS = {
    "drafts": "config.num_speculative_tokens",
    "lookahead": "config.num_lookahead_tokens",
    "prefill_lookahead": "config.num_prefill_lookahead_tokens",
    "hash_lookahead": "config.num_hash_lookahead_tokens",
    "charged": "getattr(config.speculative_config, 'max_num_new_slots_for_drafting', 0)",
    "scheduled": "config.scheduler_config.max_num_scheduled_tokens",
    "active": "config.scheduler_config.max_num_active_seqs",
    "in_flight": "config.max_in_flight_tokens",
    "query_rows": "config.uniform_decode_query_len",
    "eagle": "config.speculative_config is not None and config.speculative_config.use_eagle()",
    "block_drop": "config.speculative_config is not None and config.speculative_config.use_eagle_block_drop()",
    "runner": "'V2' if config.use_v2_model_runner else 'V1'",
    "overlap": "bool(config.scheduler_config.async_scheduling)",
}
#: the same where the configuration of an older release has no such property: who else keeps it, or nobody
_ELSEWHERE = {
    "lookahead": "make_scheduler(config).num_lookahead_tokens",
    "prefill_lookahead": "getattr(make_scheduler(config), 'num_prefill_lookahead', 0)",
    "hash_lookahead": "0",
    "in_flight": "0",
    "query_rows": "dispatcher_query_rows(config)",
}
_OF_SPECULATION = {"block_drop": "config.speculative_config is not None and config.speculative_config.use_eagle()"}
_OF_SCHEDULING = {"active": "None"}


def _property(fact: str) -> str:
    """The property that the expression of a fact ends with."""
    return _EXPRESSIONS[fact].rpartition(".")[2].partition("(")[0]


@cache
def expressions() -> dict[str, str]:
    """Each fact as an expression that the release at hand can answer; without one, as the newest can."""
    found = dict(_EXPRESSIONS)
    if compat.installed_release() is None:
        return found
    config = import_config()
    for name, others in (
        ("VllmConfig", _ELSEWHERE),
        ("SpeculativeConfig", _OF_SPECULATION),
        ("SchedulerConfig", _OF_SCHEDULING),
    ):
        owner = getattr(config, name)
        known = {*dir(owner), *inspect.signature(owner).parameters}
        found |= {fact: text for fact, text in others.items() if _property(fact) not in known}
    return found


@cache
def _compiled() -> dict[str, Any]:
    return {name: compile(text, name, "eval") for name, text in expressions().items()}


#: a scheduler of each drafter, which alone decides what is asked of it (drafters are never freed: see `drafter`)
_SCHEDULERS: dict[int, Any] = {}


def _scheduler_of(config: Any) -> Any:
    from harness.targets.resumed import make_scheduler

    key = id(config.speculative_config)
    if key not in _SCHEDULERS:
        _SCHEDULERS[key] = make_scheduler(config)
    return _SCHEDULERS[key]


def facts_of(config: Any) -> Facts:
    """The same facts of a `VllmConfig` that is there already."""
    from harness.targets.kept import dispatcher_query_rows

    names = {"config": config, "make_scheduler": _scheduler_of, "dispatcher_query_rows": dispatcher_query_rows}
    return Facts(**{name: eval(code, names) for name, code in _compiled().items()})
