"""A cluster without Ray: hosts of this machine, asked by threads. Hosts can be killed in the middle."""

from __future__ import annotations

import atexit
import queue
import threading
from functools import cache

from harness.campaign.processes import HostDied, Processes

MODULE = "tests.campaign.pure_host"


class LocalCluster:
    """See `cluster.Cluster`. after: called with the number of answers so far, before each is given on."""

    def __init__(self, slots: int, processes: Processes, after=lambda number, processes: None) -> None:
        self.processes = processes
        self.slots = slots
        self.after = after
        self.answers: queue.Queue = queue.Queue()
        self.given = self.answered = 0

    def free(self) -> int:
        return self.slots - self.given

    def machines(self) -> int:
        return 1

    def give(self, token, release, request) -> None:
        self.given += 1
        threading.Thread(target=self._ask, args=(token, release, request), daemon=True).start()

    def _ask(self, token, release, request) -> None:
        try:
            said = self.processes.ask(release, request)
        except HostDied:
            said = None
        self.answers.put((token, said))

    def wait(self, seconds):
        try:
            answer = self.answers.get(timeout=seconds)
        except queue.Empty:
            return []
        self.given -= 1
        self.answered += 1
        self.after(self.answered, self.processes)
        return [answer]

    def close(self) -> None:
        """The processes are those of all tests."""


@cache
def processes(target: str | None) -> Processes:
    """Started once for all tests of this process; gone with it."""
    made = Processes(target, MODULE)
    atexit.register(made.close)
    return made
