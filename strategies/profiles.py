"""What the bytes of a trace are decoded as: the operations of a scheduler, with caching off or on, or hostile ones."""

from __future__ import annotations

from oracle.releases import NEWEST, choices_of
from oracle.setting import Setting
from strategies.cached import CachedOperations
from strategies.cached_settings import read_cached_setting
from strategies.packed import Operations
from strategies.packed import open_trace as open_uncached
from strategies.settings import Reader

PROFILES = ("scheduler", "hostile", "caching")


def open_trace(
    data: bytes, profile: str = "scheduler", release: str = NEWEST, limits: str | None = None
) -> tuple[Setting, Operations]:
    """The setting and the operation stream of packed bytes; release and limits as in `read_setting`."""
    if profile != "caching":
        return open_uncached(data, profile, release, limits)
    reader = Reader(data)
    setting, features = read_cached_setting(reader, release, limits)
    return setting, CachedOperations(reader, setting, features, choices_of(limits or release))
