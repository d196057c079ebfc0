"""The hosts of one machine: a process for each release, started when it is first asked."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection

HOST = "harness.campaign.host"


class HostDied(Exception):  # noqa: N818  # what happened
    """The process is gone; what it was asked has no answer."""


class Process:
    """One host (`host.py`) and what it has been asked."""

    def __init__(self, release: str | None, target: str | None, module: str = HOST) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", module, str(theirs.fileno()), release or "", target or ""]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        self.socket = ours
        self.line = Connection(os.dup(ours.fileno()))
        self.lock = threading.Lock()
        self.numbers = count()
        self.open: dict[int, Future[object]] = {}
        self.gone = False
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, request: object) -> object:
        """The answer to a request; HostDied when there will be none."""
        answer: Future[object] = Future()
        with self.lock:
            if self.gone:
                raise HostDied
            number = next(self.numbers)
            self.open[number] = answer
            try:
                self.line.send((number, request))
            except OSError:
                self.gone = True  # whoever asks again gets a new process, also before the reader has seen the end
                raise HostDied from None
        return answer.result()

    def _read(self) -> None:
        try:
            while True:
                number, said = self.line.recv()
                self.open.pop(number).set_result(said)
        except (EOFError, OSError):
            with self.lock:
                self.gone = True
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)  # what it forked
                for answer in self.open.values():
                    answer.set_exception(HostDied())
            self.socket.close()

    def close(self) -> None:
        """End the process and what it forked."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # seen at the other end also while a thread of ours reads
        self.process.wait()


class Processes:
    """A host for each release that this machine has been asked about."""

    def __init__(self, target: str | None, module: str = HOST) -> None:
        self.target = target
        self.module = module
        self.lock = threading.Lock()
        self.of: dict[str | None, Process] = {}

    def ask(self, release: str | None, request: object) -> object:
        """The answer of the release's host; a host that has died is started again for the next one."""
        with self.lock:
            host = self.of.get(release)
            if host is None or host.gone:
                host = self.of[release] = Process(release, self.target, self.module)
        return host.ask(request)

    def close(self) -> None:
        """End all."""
        for host in self.of.values():
            host.close()
