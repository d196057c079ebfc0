"""What of a workload a front end would refuse."""

from __future__ import annotations

from oracle.content import MOST_PLACES, check_items, item_length
from oracle.errors import SettingError
from oracle.groups import MOST
from oracle.releases import NEWEST
from oracle.scheduler_setting import KV_PRODUCER, SchedulerSetting
from oracle.workload import Abort, SchedulerOperation, Step, Submit, Update


def check_workload(setting: SchedulerSetting, operation: SchedulerOperation) -> None:
    """Refuse what the front end would refuse; SettingError names the number."""
    if isinstance(operation, Step):
        _check_step(operation)
    elif isinstance(operation, Submit):
        _check_submit(setting, operation)
    elif isinstance(operation, Update):
        _check_update(setting, operation)
    if isinstance(operation, (Submit, Update, Abort)) and operation.request < 0:
        raise SettingError(f"request must be at least 0, got {operation.request}")


def _check_step(operation: Step) -> None:
    for name in ("accepted", "stops", "drafts", "loaded", "valid"):
        for pair in getattr(operation, name):
            if len(pair) != 2 or min(pair) < 0:
                raise SettingError(f"{name} must be pairs of numbers of at least 0, got {list(pair)}")


def _check_submit(setting: SchedulerSetting, operation: Submit) -> None:
    limit = setting.max_model_len
    if not 0 < operation.prompt <= limit - setting.sampled:
        raise SettingError(
            f"prompt must be 1 to {limit - setting.sampled}, max_model_len {limit} less what a step samples, "
            f"got {operation.prompt}"
        )
    if not 0 < operation.max_tokens <= MOST:
        raise SettingError(f"max_tokens must be 1 to {MOST}, got {operation.max_tokens}")
    if not 0 <= operation.encoder <= setting.max_encoder_len:
        raise SettingError(f"encoder must be 0 to max_encoder_len {setting.max_encoder_len}, got {operation.encoder}")
    if operation.remote and (not setting.kv_connector or setting.kv_role == KV_PRODUCER):
        raise SettingError(f"remote tokens need a KV connector that consumes, got {operation.remote}")
    if operation.keeps and not setting.kv_connector:
        raise SettingError("a request that keeps its blocks needs a KV connector")
    if not 0 <= operation.remote <= operation.prompt:
        raise SettingError(f"remote must be 0 to the prompt's {operation.prompt} tokens, got {operation.remote}")
    for name in ("unknown", "grammar"):
        if not 0 <= getattr(operation, name) <= MOST:
            raise SettingError(f"{name} must be 0 to {MOST} looks, got {getattr(operation, name)}")
    _check_kind(setting, operation)


def _check_kind(setting: SchedulerSetting, operation: Submit) -> None:
    """Where requests of a kind are specified."""
    if operation.session:
        _check_session(setting)
    if setting.pooling:
        _check_pooled(operation)
    if operation.items:
        _check_items(setting, operation)


def _check_items(setting: SchedulerSetting, operation: Submit | Update) -> None:
    """Items lie in the prompt, or in the piece, in order."""
    if not setting.encoder_cache_size:
        raise SettingError(f"items need an encoder_cache_size, got {list(operation.items)}")
    if len(operation.items) > MOST_PLACES:
        raise SettingError(f"a request may have {MOST_PLACES} items, got {len(operation.items)}")
    check_items(operation.items)
    identifier, offset = operation.items[-1]
    if offset + item_length(identifier) > operation.prompt:
        raise SettingError(f"items must lie in the prompt's {operation.prompt} tokens, got one at {offset}")


def _check_pooled(operation: Submit) -> None:
    """What a request for the pooler's output cannot ask for."""
    for name, value in (("max_tokens", 1), ("grammar", 0), ("session", False)):
        if getattr(operation, name) != value:
            raise SettingError(f"{name} must be {value} where the model pools, got {getattr(operation, name)}")


def _check_session(setting: SchedulerSetting) -> None:
    """Where sessions are specified."""
    if setting.max_encoder_len:
        raise SettingError(f"this version has no sessions beside max_encoder_len, got {setting.max_encoder_len}")
    if setting.release != NEWEST:
        raise SettingError(f"this version has sessions by the rules of {NEWEST}, got {setting.release}")


def _check_update(setting: SchedulerSetting, operation: Update) -> None:
    if not 0 <= operation.prompt < setting.max_model_len:
        raise SettingError(f"prompt must be 0 to {setting.max_model_len - 1}, got {operation.prompt}")
    if not 0 < operation.max_tokens <= MOST:
        raise SettingError(f"max_tokens must be 1 to {MOST}, got {operation.max_tokens}")
    if operation.items:
        _check_items(setting, operation)
