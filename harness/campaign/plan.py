"""What a campaign runs: an endless sequence of shards that follows from its arguments, whoever runs them."""

from __future__ import annotations

import json
import secrets
from typing import Any

from attrs import asdict, fields, frozen

from harness import __version__
from harness.campaign.storage import PLAN, Store, StoreError
from oracle.errors import SlotcheckError

#: level -> what its shards have in turn: profiles of the manager's traces, shares of a warmup's kernels
PROFILES: dict[str, tuple[str, ...]] = {
    "manager": ("scheduler", "caching", "hostile"),
    "warmup": ("none", "share"),
    "scheduler": ("workloads",),
}
LEVELS = tuple(PROFILES)
#: the level's own shards in one of a campaign; some seconds of work
SIZE = 10
#: how much more one costs with the worker's kernels, in Triton's interpreter
KERNELS_COST = 5


@frozen(kw_only=True)
class Shard:
    """A part of a campaign: some of a level's own shards. release: None is the installed one."""

    index: int
    release: str | None
    level: str
    profile: str
    seed: int
    numbers: range


@frozen(kw_only=True)
class Plan:
    """The arguments that decide what shard number i is; `name` tells campaigns in one store apart."""

    name: str
    levels: tuple[str, ...]
    releases: tuple[str | None, ...] = (None,)
    seed: int = 0
    size: int = SIZE
    target: str | None = None
    version: str = __version__

    def shard(self, index: int) -> Shard:
        """Levels, profiles and releases take turns, so that every prefix of a campaign has something of all."""
        turns = [
            (release, level, profile)
            for level in self.levels
            for profile in PROFILES[level]
            for release in self.releases
        ]
        turn, place = divmod(index, len(turns))
        release, level, profile = turns[place]
        size = max(1, self.size // KERNELS_COST) if profile == "share" else self.size
        numbers = range(turn * size, (turn + 1) * size)
        return Shard(index=index, release=release, level=level, profile=profile, seed=self.seed, numbers=numbers)

    def key(self, index: int) -> str:
        """What the store calls the result of a shard."""
        return f"{self.name}.{index:08d}"

    def index(self, key: str) -> int | None:
        """Which shard of this campaign a key is of."""
        name, _, number = key.rpartition(".")
        return int(number) if name == self.name and number.isdecimal() else None


def check(store: Store, plan: Plan, resume: bool) -> None:
    """Refuse to begin a campaign that is in the store, to go on with one that is not, or with other arguments."""
    before = store.get(PLAN, plan.name)
    if not resume:
        if before is not None:
            raise StoreError(_there(store, plan))
        return
    if before is None:
        there = ", ".join(store.names(PLAN)) or "none"
        raise StoreError(f"no campaign {plan.name} to go on with in {store.address}; there are: {there}")
    other = _difference(plan, before)
    if other:
        raise SlotcheckError(f"campaign {plan.name} in {store.address} has {other}; --resume goes on as it began")


def begin(store: Store, plan: Plan) -> None:
    """Keep the plan of a new campaign; StoreError when another process was first."""
    began = {"began": secrets.token_hex(8)}  # two that begin at once are not the same claim
    if not store.claim(PLAN, plan.name, json.dumps(asdict(plan) | began) + "\n"):
        raise StoreError(_there(store, plan))


def _there(store: Store, plan: Plan) -> str:
    return f"campaign {plan.name} is in {store.address} already; go on with it (--resume), or begin another (--name)"


def _difference(plan: Plan, text: str) -> str:
    """The first argument that is another one, in words; "" if all are the same."""
    try:
        kept: dict[str, Any] = json.loads(text)
        ours = json.loads(json.dumps(asdict(plan)))
        names = [one.name for one in fields(Plan)]
        name = next((name for name in names if kept[name] != ours[name]), "")
        return f"{name} {kept[name]!r}, not {ours[name]!r}" if name else ""
    except (ValueError, KeyError, TypeError):
        return f"a plan that cannot be read ({text[:40]!r})"
