"""The machines of a campaign: Ray, with one actor on each, which asks the hosts there (`processes.py`).

An actor takes as many shards at a time as its machine has CPUs; vLLM is imported once for all of them. A machine that
joins gets an actor, one that is lost costs the shards that it had: they are told to be lost, and given again.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Protocol

from attrs import define, field

from harness.campaign.messages import Answer, Request
from harness.campaign.processes import HOST, Processes
from harness.targets.compat import TargetError
from oracle.errors import SlotcheckError

#: seconds between two looks at which machines there are
LOOK_EVERY = 2.0
#: seconds until an address that does not answer counts as none
PATIENCE = 5.0
#: nothing is told to anybody, and the environment of the driver is not packed up for the workers
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class Cluster(Protocol):
    """Where shards are run."""

    def free(self) -> int:
        """How many requests can be given now."""

    def machines(self) -> int:
        """How many machines there are."""

    def give(self, token: object, release: str | None, request: Request) -> None:
        """Have a request answered."""

    def wait(self, seconds: float) -> list[tuple[Any, Answer | None]]:
        """The answers that have come, with their tokens; None: it was lost with its machine."""

    def close(self) -> None:
        """End what was started for the campaign."""


class Machine:
    """What the actor on a machine does."""

    def __init__(self, target: str | None, module: str) -> None:
        self.processes = Processes(target, module)

    def answer(self, release: str | None, request: Request) -> object:
        """Asked by several threads at once."""
        return self.processes.ask(release, request)


@define(eq=False)
class _Known:
    """An actor as the driver knows it, and the machine that it is on."""

    name: str
    actor: Any
    slots: int
    given: int = 0


@define(eq=False)
class RayCluster:
    """See `Cluster`. workers: requests a machine at most, None: its CPUs."""

    ray: Any
    workers: int | None
    target: str | None
    module: str
    known: dict[str, _Known] = field(factory=dict)
    open: dict[Any, tuple[object, _Known]] = field(factory=dict)
    looked: float = float("-inf")
    dashboard: str = ""

    def free(self) -> int:
        self._look()
        return sum(one.slots - one.given for one in self.known.values())

    def machines(self) -> int:
        return len(self.known)

    def give(self, token: object, release: str | None, request: Request) -> None:
        one = max(self.known.values(), key=lambda one: one.slots - one.given)
        self.open[one.actor.answer.remote(release, request)] = (token, one)
        one.given += 1

    def wait(self, seconds: float) -> list[tuple[Any, Answer | None]]:
        if not self.open:
            time.sleep(seconds)
            return []
        ready, _ = self.ray.wait(list(self.open), num_returns=len(self.open), timeout=0)
        if not ready:
            ready, _ = self.ray.wait(list(self.open), num_returns=1, timeout=seconds)
        answers = []
        for reference in ready:
            token, one = self.open.pop(reference)
            answers.append((token, self._answer(reference, one)))
        return answers

    def _answer(self, reference: Any, one: _Known) -> Answer | None:  # noqa: ANN401  # Ray's
        one.given -= 1
        try:
            said: Answer = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:  # the host died, not the machine
            if "HostDied" in str(error):
                return None
            raise
        except self.ray.exceptions.RayError:
            if self.known.get(one.name) is one:  # and not the actor that has taken its place meanwhile
                del self.known[one.name]
            return None
        return said

    def _look(self) -> None:
        """An actor on every machine that has none."""
        if time.monotonic() - self.looked < LOOK_EVERY:
            return
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        alive = {node["NodeID"]: node["Resources"].get("CPU", 0) for node in self.ray.nodes() if node["Alive"]}
        for name in [name for name in self.known if name not in alive]:
            del self.known[name]
        for name, cpus in alive.items():
            slots = min(int(cpus), self.workers or int(cpus))
            if name in self.known or slots < 1:
                continue
            actor = self.ray.remote(Machine).options(
                num_cpus=slots,
                max_concurrency=slots + 1,
                scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False),
            )
            self.known[name] = _Known(name, actor.remote(self.target, self.module), slots)
        self.looked = time.monotonic()

    def close(self) -> None:
        for one in self.known.values():
            self.ray.kill(one.actor)
        self.ray.shutdown()


def connect(
    address: str | None, workers: int | None, target: str | None, module: str = HOST, dashboard: bool = True
) -> RayCluster:
    """Ray at an address, or started on this machine, with its dashboard where that is installed and starts.

    TargetError when it is not there, SlotcheckError without Ray.
    """
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise SlotcheckError("a campaign needs Ray; install it: pip install 'slotcheck[campaign]'") from None
    plain: dict[str, Any] = {"log_to_driver": False, "logging_level": "critical"}
    if address is None:
        plain |= {"address": "local", "num_cpus": workers, "include_dashboard": dashboard and _has_dashboard()}
    else:
        _reach(address)
        plain |= {"address": address}
    try:
        try:
            context = ray.init(**plain)
        except Exception:
            if not plain.get("include_dashboard"):
                raise
            ray.shutdown()  # the dashboard did not come up in its time: no reason to do without a campaign
            context = ray.init(**plain | {"include_dashboard": False})
    except Exception as error:  # Ray raises plain ones
        where = f"Ray at {address} cannot be reached" if address else "Ray does not start"
        raise TargetError(f"{where}: {(str(error).splitlines() or [type(error).__name__])[0]}") from None
    cluster = RayCluster(ray, workers, target, module)
    cluster.dashboard = getattr(context, "dashboard_url", "") or ""
    return cluster


def _has_dashboard() -> bool:
    """Whether Ray was installed with what its dashboard needs."""
    from importlib.util import find_spec

    return find_spec("aiohttp_cors") is not None


def _reach(address: str) -> None:
    """Ray itself tries for minutes, and says it at length."""
    if address == "auto":
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise SlotcheckError(f"--ray is auto, HOST:PORT or ray://HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise TargetError(f"Ray at {address} cannot be reached: {error}; is the cluster up?") from None
