"""What a campaign costs: the same shards on one worker and on several, the way of a shard, the store.

    python -m harness.campaign.bench --workers 2 --shards 12 [--redis redis://127.0.0.1:6379/9]

Ray is started on this machine; vLLM is imported once before anything is measured. It is wall time: the load is told.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

import click
from attrs import evolve

from harness.campaign.cluster import Cluster, RayCluster, connect
from harness.campaign.driver import Campaign
from harness.campaign.messages import Answer, Request
from harness.campaign.plan import LEVELS, Plan
from harness.campaign.storage import SHARD, Store, open_store
from harness.targets.compat import installed_release

#: texts written to a store, of the size of a shard's result
WRITES, SIZE = 300, 3000


class Limited:
    """A cluster of which so many slots are used."""

    def __init__(self, cluster: RayCluster, slots: int) -> None:
        self.cluster = cluster
        self.slots = slots

    def free(self) -> int:
        return min(self.cluster.free(), self.slots - len(self.cluster.open))

    def machines(self) -> int:
        return self.cluster.machines()

    def give(self, token: object, release: str | None, request: Request) -> None:
        self.cluster.give(token, release, request)

    def wait(self, seconds: float) -> list[tuple[Any, Answer | None]]:
        return self.cluster.wait(seconds)

    def close(self) -> None:
        self.cluster.close()


def ran(cluster: Cluster, plan: Plan, shards: int, caught: dict[Any, Any]) -> Campaign:
    """A campaign in a store of its own."""
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(plan, open_store(folder), cluster, shards, None, caught=dict(caught))
        campaign.run()
        return campaign


def writes(store: Store) -> float:
    """Seconds a text."""
    start = time.monotonic()
    for number in range(WRITES):
        store.put(SHARD, f"bench.{number}", "x" * SIZE)
    return (time.monotonic() - start) / WRITES


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--levels", default="manager")
    parser.add_argument("--size", type=int, default=10)
    parser.add_argument("--redis")
    given = parser.parse_args()
    levels = tuple(level for level in LEVELS if level in given.levels.split(","))
    plan = Plan(name="bench", levels=levels, releases=(installed_release(),), size=given.size)
    cluster = connect(None, given.workers, None, dashboard=False)
    try:
        warm = ran(cluster, plan, 1, {})
        speeds = []
        for slots in (1, given.workers):
            campaign = ran(Limited(cluster, slots), plan, given.shards, warm.caught)
            steps = sum(result.steps for result in campaign.of.values())
            speeds.append(steps / campaign.elapsed)
            said = f"{steps:,} steps in {campaign.elapsed:.1f} s, {speeds[-1]:,.0f} steps/s"
            click.echo(f"{slots} workers: {said}, load {os.getloadavg()[0]:.1f}")
        click.echo(f"ratio {speeds[1] / speeds[0]:.2f}")
        release = installed_release()
        empty = evolve(plan.shard(0), numbers=range(0))
        start = time.monotonic()
        for _ in range(20):
            cluster.free()
            cluster.give("empty", release, empty)
            while not cluster.wait(1.0):
                pass
        click.echo(f"an empty shard, Ray, the host and a fork of it: {(time.monotonic() - start) / 20 * 1000:.1f} ms")
    finally:
        cluster.close()
    with tempfile.TemporaryDirectory() as folder:
        click.echo(f"a write to a folder, synced: {writes(open_store(folder)) * 1000:.2f} ms")
    if given.redis:
        click.echo(f"a write to Redis: {writes(open_store(given.redis)) * 1000:.2f} ms")


if __name__ == "__main__":
    main()
