"""A campaign on Ray: a cluster of two machines, one of which is lost in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from harness.campaign.cluster import RayCluster, _Known
from harness.campaign.messages import Canary
from harness.campaign.plan import Plan
from harness.campaign.storage import FINDING, SHARD, open_store

ROOT = Path(__file__).parents[2]

CAMPAIGN = """
import sys
from ray.cluster_utils import Cluster

from harness.campaign.cluster import connect
from harness.campaign.driver import Campaign
from harness.campaign.storage import open_store
from tests.campaign.test_cluster import PLAN, SHARDS

machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
other = machines.add_node(num_cpus=1)
machines.wait_for_nodes()
cluster = connect(machines.address, None, PLAN.target, "tests.campaign.pure_host")
seen = []


def progress(campaign):
    seen.append(cluster.machines())
    if campaign.ran >= 2 and 2 in seen and "killed" not in seen:
        machines.remove_node(other, allow_graceful=False)
        seen.append("killed")


campaign = Campaign(PLAN, open_store(sys.argv[1]), cluster, SHARDS, None, progress)
campaign.run()
print("machines", campaign.machines, "killed" in seen, "merged", campaign.merged)
cluster.close()
machines.shutdown()
"""
PLAN = Plan(name="night", levels=("manager",), releases=("0.33.0",), seed=3, size=1, target="tests.unit.mutants:Leaks")
SHARDS = 6


def kept(address: str) -> dict[str, str]:
    store = open_store(address)
    return {f"{kind} {name}": store.get(kind, name) for kind in (SHARD, FINDING) for name in store.names(kind)}


class Fake:
    """Ray, as far as answers go: what each reference gives."""

    class exceptions:  # Ray's
        RayError = OSError
        RayTaskError = KeyError

    def __init__(self, gives: dict) -> None:
        self.gives = gives

    def wait(self, references, **more):
        ready = [one for one in references if one in self.gives]
        return ready, []

    def get(self, reference):
        if isinstance(self.gives[reference], Exception):
            raise self.gives[reference]
        return self.gives[reference]


class Actor:
    """Its requests are numbered."""

    def __init__(self, name: str) -> None:
        self.answer = self
        self.references = (f"{name}{number}" for number in count())

    def remote(self, release, request):
        return next(self.references)


def test_what_a_lost_actor_had_does_not_lose_the_next_one():
    """Its requests are told one by one; the actor that has taken its place keeps its own."""
    gives: dict[str, object] = {"old0": OSError()}
    cluster = RayCluster(Fake(gives), None, None, "", looked=float("inf"))
    cluster.known["node"] = _Known("node", Actor("old"), 2)
    for token in ("first", "second"):
        cluster.give(token, None, Canary(level="manager"))
    lost = cluster.wait(0)
    after = cluster.machines()
    cluster.known["node"] = _Known("node", Actor("new"), 2)
    cluster.give("third", None, Canary(level="manager"))
    gives |= {"old1": OSError(), "new0": "said"}

    assert ([("first", None)], 0) == (lost, after)
    assert [("second", None), ("third", "said")] == cluster.wait(0)
    assert (1, 2) == (cluster.machines(), cluster.free())


@pytest.mark.slow
def test_a_machine_is_lost_in_the_middle(tmp_path):
    """Its shards are run again by the other one; the results are those of one process here."""
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'slotcheck[campaign]')")
    from tests.campaign.test_driver import run

    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= {"RAY_health_check_initial_delay_ms": "0", "RAY_health_check_period_ms": "500"}
    ended = subprocess.run(
        [sys.executable, "-c", CAMPAIGN, str(tmp_path / "ray")],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "machines 2 True merged 6\n" in ended.stdout, ended.stdout + ended.stderr
    run(open_store(str(tmp_path / "here")), shards=SHARDS, plan=PLAN)

    assert kept(str(tmp_path / "here")) == kept(str(tmp_path / "ray"))
