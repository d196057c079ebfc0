"""The other side of the planted defects: a clean pair differs in nothing but what is declared."""

from __future__ import annotations

import pytest

from harness.outcome import MakeTarget
from harness.worker import run_shard
from oracle.allocator import Allocator
from oracle.setting import PROFILES
from tests.quality.hunt import OPTIONS

SHARDS = 2


def differences(make_target: MakeTarget, seed: int, profile: str) -> list[str]:
    """Fingerprints of what a few shards give."""
    return [
        name for shard in range(SHARDS) for name in run_shard(seed, shard, make_target, OPTIONS, profile=profile).found
    ]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.usefixtures("vllm")
def test_the_real_manager_gives_none(seed: int, profile: str) -> None:
    from harness.targets.manager import Manager

    assert [] == differences(Manager, seed, profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_oracle_beside_itself_gives_none(profile: str) -> None:
    assert [] == differences(Allocator, 0, profile)
