"""What a campaign costs: the same shards on one core and on two, the way of a shard, the stores, and what is lost.

    python -m harness.campaign.bench [--shards 12] [--size 10]

A Ray cluster of two machines, one core each, is started here; each imports vLLM before anything is measured. The
shards are run by one machine, by both, and by both once more with Redis killed after a third of them, restarted two
seconds later, and one machine killed after two thirds: the results must be the same texts. Wall-clock time, so the
load is told, and CPU time beside it. Some three minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from attrs import evolve, frozen

from harness.campaign.cluster import QUIET, RayCluster, connect
from harness.campaign.driver import Campaign, Part
from harness.campaign.messages import Answer, Caught, Request
from harness.campaign.plan import LEVELS, Plan
from harness.campaign.servers import Redis
from harness.campaign.storage import SHARD, Store, open_store
from harness.targets.compat import installed_release

#: texts written to a store, of the size of a shard's result; empty shards
WRITES, LENGTH, EMPTY = 300, 3000, 20
#: seconds between the end of Redis and its restart
AWAY = 2.0
#: Ray makes its workers give way to everything else, and looks for lost machines for half a minute
SETTINGS = {
    "RAY_worker_niceness": "0",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
}
Progress = Callable[[Campaign], None]
Say = Callable[[str], None]


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


@contextmanager
def two_machines() -> Iterator[tuple[RayCluster, Callable[[], None]]]:
    """A cluster of two machines here, one core each, and what kills the second."""
    os.environ.update({name: value for name, value in (QUIET | SETTINGS).items() if name not in os.environ})
    machines = import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    other = machines.add_node(num_cpus=1)
    machines.wait_for_nodes()
    cluster = connect(machines.address, None, None)
    try:
        yield cluster, lambda: machines.remove_node(other, allow_graceful=False)
    finally:
        cluster.close()
        machines.shutdown()


def cpu_seconds() -> float:
    """CPU time of everything that was started here and lives, with what that has waited for."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
        spent[int(path.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    ours = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(spent.get(one, 0.0) for one in ours)


def texts(store: Store) -> list[str | None]:
    """The results of all shards."""
    return [store.get(SHARD, name) for name in store.names(SHARD)]


@frozen
class Measured:
    """A campaign that has been run. cpu: seconds of all processes but lost ones."""

    campaign: Campaign
    cpu: float

    def __str__(self) -> str:
        steps = sum(result.steps for result in self.campaign.of.values())
        seconds = self.campaign.elapsed
        cpu = "" if self.campaign.lost else f"CPU {self.cpu:.1f} s, "
        return f"{steps:,} steps in {seconds:.1f} s, {steps / seconds:,.0f} steps/s; {cpu}load {os.getloadavg()[0]:.1f}"


def ran(
    cluster: RayCluster,
    slots: int,
    plan: Plan,
    shards: int,
    store: Store,
    caught: dict[Part, Caught],
    progress: Progress = lambda campaign: None,
) -> Measured:
    """A campaign on so many slots. caught: canaries that need not be run again."""
    before = cpu_seconds()
    campaign = Campaign(plan, store, Limited(cluster, slots), shards, None, progress, caught=dict(caught))
    campaign.run()
    return Measured(campaign, cpu_seconds() - before)


def disturbing(shards: int, server: Redis | None, kill: Callable[[], None]) -> Progress:
    """Kills Redis after a third of the shards and restarts it, kills a machine after two thirds."""
    done: list[str] = []

    def progress(campaign: Campaign) -> None:
        if server is not None and "redis" not in done and campaign.ran * 3 >= shards:
            done.append("redis")
            server.away(AWAY)
        if "machine" not in done and campaign.ran * 3 >= shards * 2:
            done.append("machine")
            kill()

    return progress


def empty_shards(cluster: RayCluster, plan: Plan) -> str:
    """The way of a shard without its work."""
    empty = evolve(plan.shard(0), numbers=range(0))
    start, before = time.monotonic(), cpu_seconds()
    for _ in range(EMPTY):
        cluster.free()
        cluster.give("empty", empty.release, empty)
        while not cluster.wait(1.0):
            pass
    wall, cpu = (time.monotonic() - start) / EMPTY, (cpu_seconds() - before) / EMPTY
    return f"an empty shard (Ray, the host, a fork of it): {wall * 1000:.1f} ms, CPU {cpu * 1000:.1f} ms"


def writes_and_reads(store: Store) -> str:
    """Milliseconds a text."""
    start = time.monotonic()
    for number in range(WRITES):
        store.put(SHARD, f"bench.{number}", "x" * LENGTH)
    written = time.monotonic()
    for number in range(WRITES):
        store.get(SHARD, f"bench.{number}")
    write, read = ((end - begin) / WRITES * 1000 for begin, end in ((start, written), (written, time.monotonic())))
    return f"a write {write:.2f} ms, a read {read:.2f} ms"


def measure(plan: Plan, shards: int, folder: Path, server: Redis | None, say: Say) -> None:
    """Say one line for each measurement."""
    with two_machines() as (cluster, kill):
        start = time.monotonic()
        warm = ran(cluster, 2, evolve(plan, size=1), 2, open_store(str(folder / "warm")), {})
        caught = warm.campaign.caught
        say(f"two machines have imported vLLM: {time.monotonic() - start:.1f} s")
        say(empty_shards(cluster, plan))
        one, two = (ran(cluster, n, plan, shards, open_store(str(folder / f"on{n}")), caught) for n in (1, 2))
        say(f"1 core: {one}")
        say(f"2 cores: {two}")
        say(f"ratio {one.campaign.elapsed / two.campaign.elapsed:.2f}")
        store = open_store(server.address if server else str(folder / "disturbed"))
        three = ran(cluster, 2, plan, shards, store, caught, disturbing(shards, server, kill))
        what = f"Redis killed and restarted {AWAY:.0f} s later, a machine killed" if server else "a machine killed"
        say(f"2 cores, {what}: {three}")
        same = texts(store) == texts(open_store(str(folder / "on1")))
        say(f"{three.campaign.lost} lost and run again; the same results: {'yes' if same else 'NO'}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--levels", default="manager")
    parser.add_argument("--size", type=int, default=10)
    given = parser.parse_args()
    levels = tuple(level for level in LEVELS if level in given.levels.split(","))
    plan = Plan(name="bench", levels=levels, releases=(installed_release(),), size=given.size)
    server = None
    say = partial(click.echo, file=sys.stdout)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),  # Ray says at length that a machine was lost
    ):
        folder = Path(name)
        if Redis.missing():
            say(f"without Redis: {Redis.missing()}")
        else:
            (folder / "redis").mkdir()
            server = Redis(folder / "redis")
            server.start()
        try:
            measure(plan, given.shards, folder, server, say)
            say(f"a folder, synced: {writes_and_reads(open_store(str(folder / 'writes')))}")
            if server is not None:
                say(f"Redis with appendonly: {writes_and_reads(open_store(server.address))}")
        finally:
            if server is not None:
                server.kill()


if __name__ == "__main__":
    main()
