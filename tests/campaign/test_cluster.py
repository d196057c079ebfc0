"""A campaign on Ray: a cluster of two machines, one of which is lost in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.campaign.plan import Plan
from harness.campaign.storage import FINDING, SHARD, open_store

pytestmark = pytest.mark.slow
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
