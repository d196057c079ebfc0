"""Import of vLLM, quiet and without a GPU, and what moved between its releases.

By capability (a parameter, a field, a class) and by version only where nothing can be probed. Importing vLLM costs 10
to 30 s of CPU: once a process, before any fork.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.version import InvalidVersion, Version

from harness.targets import specs
from oracle import groups as kinds
from oracle.errors import SlotcheckError
from oracle.setting import Setting

QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "PYTHONHASHSEED": "0",
    "TORCH_LOGS": "-all",
}


#: what retention keeps (tokens), of releases whose configuration does not say it
RETENTION = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"


class TargetError(SlotcheckError):
    """A target that cannot be loaded: the run is inconclusive, not wrong."""


class AbsentKindError(TargetError):
    """A kind of group that this release does not have."""


#: the release of the tree that this process was told to import instead of the installed one
_chosen: list[str] = []


def installed_release() -> str | None:
    """The version of the vLLM that this process imports, without importing it; None when there is none."""
    if _chosen:
        return _chosen[-1]
    try:
        return metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return None


def use(tree: Path, release: str | None) -> str:
    """Import vLLM from a folder with a `vllm` package in it, here and in processes started from here; its release.

    `release` None: what the tree says of itself. TargetError when another vLLM has been imported already.
    """
    if "vllm" in sys.modules:
        raise TargetError(f"{tree} comes too late: vLLM {installed_release()} is imported already")
    sys.path.insert(0, str(tree))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(tree), os.environ.get("PYTHONPATH"))))
    importlib.invalidate_caches()
    _chosen.append(release or _own_version(tree))
    return _chosen[-1]


def _own_version(tree: Path) -> str:
    """What a checkout says of itself; a version of no release where it says nothing."""
    try:
        text = (tree / "vllm" / "_version.py").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"""^__version__ = (?:version = )?["']([^"']+)["']""", text, re.MULTILINE)
    try:
        return str(Version(found[1])) if found else "0+unknown"
    except InvalidVersion:
        return "0+unknown"


def has_gpu() -> bool:
    """Whether this machine shows an accelerator's device file."""
    return any(Path(path).exists() for path in ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128"))


def import_vllm() -> None:
    """Import what the manager needs, once, with nothing printed; TargetError when vLLM is missing or broken."""
    if "vllm.v1.core.kv_cache_manager" in sys.modules:
        return
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if not has_gpu():
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
        os.environ.setdefault("TRITON_INTERPRET", "1")  # the block-table kernels, on a CPU
    if installed_release() is None:
        raise TargetError("vLLM is not installed; install the extra: pip install 'slotcheck[vllm]'")
    logging.getLogger("vllm").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            importlib.import_module("vllm.v1.core.kv_cache_manager")
            core = importlib.import_module("vllm.v1.core.single_type_kv_cache_manager")
            hashing = importlib.import_module("vllm.utils.hashing")
            utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    except Exception as error:
        raise TargetError(f"vLLM {installed_release()} does not import: {type(error).__name__}: {error}") from error
    register = getattr(core, "register_all_kvcache_specs", None)
    if register is not None:
        register(None)
    utils.init_none_hash(hashing.sha256)


@cache
def _parameters(function: Any) -> frozenset[str]:
    """Names that a function or a class's constructor takes; one that passes **kwargs on also takes its base's."""
    names: set[str] = set()
    for owner in function.__mro__ if isinstance(function, type) else (function,):
        accepted = inspect.signature(
            vars(owner).get("__init__", owner) if isinstance(owner, type) else owner
        ).parameters
        names |= accepted.keys()
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
            break
    return frozenset(names)


def keywords(function: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """Those of `wanted` that a function (not a bound method: it is remembered) or a class takes."""
    accepted = _parameters(function)
    return {name: value for name, value in wanted.items() if name in accepted}


def options(owner: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """Those of `wanted` that a configuration class has a field for; AbsentKindError where one that it lacks is set."""
    known = owner.__dataclass_fields__  # those of the constructor alone too
    for name, value in wanted.items():
        if name not in known and value not in (None, False, 0):
            raise AbsentKindError(f"vLLM {installed_release()} has no {owner.__name__}.{name}, got {value}")
    return {name: value for name, value in wanted.items() if name in known}


def takes(function: Any, name: str) -> bool:
    """Whether a function can be given a keyword."""
    accepted = inspect.signature(function).parameters
    return name in accepted or any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"vllm.v1.{name}")


def _spec_class(interface: ModuleType, name: str) -> Any:
    found = getattr(interface, name, None)
    if found is None:
        raise AbsentKindError(f"vLLM {installed_release()} has no {name}: this kind of group cannot be built")
    return found


@cache
def build_spec(group: kinds.Group) -> Any:
    """The release's spec of one group, of `specs.spec_arguments`: those arguments that this release has."""
    torch = importlib.import_module("torch")
    interface = _module("kv_cache_interface")
    name, arguments = specs.spec_arguments(group)
    if "dtype" in arguments:
        arguments["dtype"] = getattr(torch, arguments["dtype"])
    if "dtypes" in arguments:
        arguments["dtypes"] = tuple(getattr(torch, dtype) for dtype in arguments["dtypes"])
    spec_class = _spec_class(interface, name)
    spec = spec_class(**keywords(spec_class, arguments))
    if group.uniform_layers:
        layers = {f"layer.{n}": spec for n in range(group.uniform_layers)}
        spec = interface.UniformTypeKVCacheSpecs(block_size=group.block_size, kv_cache_specs=layers)
    return spec


def build_config(setting: Setting) -> Any:
    """The scheduler's `KVCacheConfig` of a setting, uniform-type groups unwrapped as the scheduler does (A48)."""
    interface = _module("kv_cache_interface")
    specs = [
        interface.KVCacheGroupSpec(
            layer_names=[f"group.{n}"],
            kv_cache_spec=build_spec(group),
            **({"is_eagle_group": True} if group.eagle else {}),
        )
        for n, group in enumerate(setting.groups)
    ]
    config_class = interface.KVCacheConfig
    more = keywords(config_class, {"prefix_cache_retention_interval": setting.prefix_cache_retention_interval})
    config = config_class(num_blocks=setting.num_blocks, kv_cache_tensors=[], kv_cache_groups=specs, **more)
    if any(group.uniform_layers for group in setting.groups):
        return _module("core.kv_cache_utils").generate_scheduler_kv_cache_config([config])
    return config  # it would be copied, and nothing unwrapped


@contextlib.contextmanager
def environment(interval: int | None) -> Iterator[None]:
    """Says what retention keeps where no configuration does: the environment, read when a manager is built."""
    fields = _module("kv_cache_interface").KVCacheConfig.__dataclass_fields__
    if interval is None or "prefix_cache_retention_interval" in fields:
        yield
        return
    os.environ[RETENTION] = str(interval)
    try:
        yield
    finally:
        del os.environ[RETENTION]


def manager_keywords(manager_class: Any, setting: Setting) -> dict[str, Any]:
    """The constructor's arguments, those that this release's (or fork's) manager has."""
    return keywords(
        manager_class,
        {
            "kv_cache_config": build_config(setting),
            "max_model_len": setting.max_model_len,
            "scheduler_block_size": setting.scheduler_block_size,
            "hash_block_size": setting.hash_size,
            "max_in_flight_tokens": setting.max_in_flight_tokens,
            "max_num_batched_tokens": setting.max_in_flight_tokens,
            "enable_caching": setting.enable_caching,
            "use_eagle": setting.use_eagle,
            "num_hash_lookahead_tokens": setting.num_hash_lookahead_tokens,
            "num_prefill_lookahead": setting.num_prefill_lookahead_tokens,
            "enable_mamba_shared_prefix_checkpoint": setting.enable_mamba_shared_prefix_checkpoint,
            "enable_mamba_fine_grained_prefix_cache": setting.enable_mamba_shared_prefix_checkpoint,
            "enable_kv_cache_events": setting.enable_kv_cache_events,
            "log_stats": False,
            "dcp_world_size": setting.dcp_size,
            "watermark": setting.watermark,
        },
    )


def manager_class() -> Any:
    """The installed release's `KVCacheManager`."""
    import_vllm()
    return _module("core.kv_cache_manager").KVCacheManager


def request_statuses() -> Any:
    """The installed release's `RequestStatus`."""
    return _module("request").RequestStatus


def block_hasher(setting: Setting) -> Any:
    """The release's function from a request to the block hashes that it does not have yet."""
    utils = _module("core.kv_cache_utils")
    hash_function = importlib.import_module("vllm.utils.hashing").sha256
    arguments = [setting.hash_size, hash_function]
    if setting.num_hash_lookahead_tokens:
        arguments.append(setting.num_hash_lookahead_tokens)
    return utils.get_request_block_hasher(*arguments)


def embeddings(whose: int, values: list[int]) -> Any:
    """A prompt's embeddings, one number a position."""
    torch = importlib.import_module("torch")
    return torch.tensor([[whose + value / 4] for value in values], dtype=torch.float32)


def hash_parts() -> tuple[Any, Any]:
    """The release's functions from a key of the pool's map to its group and to its hash."""
    utils = _module("core.kv_cache_utils")
    return utils.get_group_id, utils.get_block_hash
