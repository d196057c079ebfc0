"""The hosts of a machine: one that has died is not asked again, and what it was asked has no answer."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from harness.campaign.processes import HostDied, Processes

MODULE = "tests.campaign.small_host"
#: looks at what must happen by itself, and seconds between them
LOOKS, EVERY = 500, 0.02


@pytest.fixture
def processes():
    """Hosts that answer with their number."""
    made = Processes(None, MODULE)
    yield made
    made.close()


def until(happened) -> bool:
    """Whether it does in ten seconds."""
    for _ in range(LOOKS):
        if happened():
            return True
        time.sleep(EVERY)
    return False


def lives(process: int) -> bool:
    """What has died and is waited for by nobody is dead."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_a_release(processes):
    """Started once, asked again and again."""
    first, second = processes.ask(None, "who"), processes.ask("0.32.0", "who")

    assert first != second
    assert (first, second) == (processes.ask(None, "who"), processes.ask("0.32.0", "who"))


def test_a_killed_process_is_not_asked_again(processes):
    """Once its end is seen another one answers."""
    first = processes.ask(None, "who")
    os.kill(first, signal.SIGKILL)

    assert until(lambda: processes.of[None].gone)
    assert first != processes.ask(None, "who")
    assert not lives(first)


def test_a_broken_line_is_not_asked_again(processes, monkeypatch):
    """The request that meets it is lost, also before its end is seen; the next one has an answer."""
    first = processes.ask(None, "who")
    host = processes.of[None]

    class Broken:
        def send(self, asked):
            raise BrokenPipeError

    monkeypatch.setattr(host, "line", Broken())
    with pytest.raises(HostDied):
        processes.ask(None, "who")

    assert first != processes.ask(None, "who")
    monkeypatch.undo()
    host.close()


def test_what_it_was_asked_is_lost(processes):
    """Everybody who waits is told."""
    first = processes.ask(None, "who")
    ended = []

    def wait() -> None:
        try:
            processes.ask(None, "wait")
        except HostDied:
            ended.append("lost")

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for one in waiting:
        one.start()
    assert until(lambda: len(processes.of[None].open) == 3)
    os.kill(first, signal.SIGKILL)
    for one in waiting:
        one.join(10)

    assert ["lost"] * 3 == ended


def test_what_it_forked_ends_with_it(processes):
    """Killed or closed."""
    first, forked = processes.ask(None, "who"), processes.ask(None, "fork")
    os.kill(first, signal.SIGKILL)
    other = processes.ask("0.32.0", "fork")
    processes.close()

    assert until(lambda: not lives(forked))
    assert until(lambda: not lives(other))
