"""The command on Ray: a worker is killed, Ctrl-C ends it, --resume goes on; the results are those of a calm run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.campaign.plan import Plan
from harness.campaign.storage import FINDING, SHARD, open_store
from harness.targets.compat import installed_release

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
MARK = "SLOTCHECK_TEST_LIVE"
SHARDS = 12
#: the command with hosts that need no vLLM
COMMAND = """
import signal
from functools import partial
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from harness.campaign import cluster
cluster.connect = partial(cluster.connect, module="tests.campaign.pure_host", dashboard=False)
from harness.cli import main
main()
"""
GIVEN = ("--shards", SHARDS, "--workers", 2, "--levels", "manager", "--size", 1, "--seed", 3)
TARGET = "tests.unit.mutants:Leaks"


class Live:
    """A campaign that runs, in a process group of its own, as in a terminal."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.store = folder / "store"
        words = ["campaign", *map(str, GIVEN), "--target", TARGET, "--store", str(self.store), "--json", *more]
        self.mark = f"{MARK}={folder}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), MARK: str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def until(self, shards: int) -> None:
        """Wait until so many shards are in the store; what is being written has a name with a dot in front."""
        for _ in range(6000):
            assert self.process.poll() is None, self.process.communicate()
            if len(list((self.store / "shard").glob("[!.]*"))) >= shards:
                return
            time.sleep(0.02)
        raise TimeoutError

    def host(self) -> int:
        """The process that runs the shards."""
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_text().split("\0")
                ours = self.mark in (path / "environ").read_text().split("\0")
            except OSError:
                continue
            if ours and "tests.campaign.pure_host" in words and words[0] == sys.executable:
                return int(path.name)
        raise LookupError("no host")

    def ended(self) -> tuple[int, dict]:
        """Exit status and the JSON object."""
        said, errors = self.process.communicate(timeout=240)
        assert said, errors
        return self.process.returncode, json.loads(said)


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def kept(address: str) -> dict[str, str]:
    store = open_store(address)
    return {f"{kind} {name}": store.get(kind, name) for kind in (SHARD, FINDING) for name in store.names(kind)}


def test_killed_interrupted_resumed(tmp_path):
    """kill -9 of Ray's worker, then Ctrl-C; go on, then kill -9 of the process under a worker."""
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'slotcheck[campaign]')")
    from tests.campaign.test_driver import run

    first = Live(tmp_path)
    first.until(1)
    os.kill(parent_of(first.host()), signal.SIGKILL)
    first.until(3)
    os.killpg(first.process.pid, signal.SIGINT)
    status, said = first.ended()
    there = len(open_store(str(first.store)).names(SHARD))

    assert (1, True, True) == (status, said["interrupted"], said["lost"] >= 1)
    assert 3 <= there < SHARDS
    again = Live(tmp_path, "--resume")
    again.until(there + 1)
    os.kill(again.host(), signal.SIGKILL)
    status, said = again.ended()

    assert (1, SHARDS, SHARDS - there, False) == (status, said["shards"], said["run"], said["interrupted"])
    assert said["lost"] >= 1
    plan = Plan(name="campaign", levels=("manager",), releases=(installed_release(),), seed=3, size=1, target=TARGET)
    run(open_store(str(tmp_path / "here")), shards=SHARDS, plan=plan)

    assert kept(str(tmp_path / "here")) == kept(str(first.store))
