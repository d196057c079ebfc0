"""A Redis server of our own, for measurements and tests: started, killed, started again on the same port and files."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from importlib.util import find_spec
from pathlib import Path

#: looks for a server that comes up, and seconds between them
LOOKS, EVERY = 400, 0.05


def free_port() -> int:
    """One on which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Redis:
    """A server on this machine. What it was told survives a kill. folder: its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None
        self.starter: threading.Timer | None = None

    @staticmethod
    def missing() -> str:
        """Why there can be none here; "" where there can."""
        if shutil.which("redis-server") is None:
            return "no redis-server here (apt-get install redis-server)"
        if find_spec("redis") is None:
            return "the package redis is not installed (pip install 'slotcheck[campaign]')"
        return ""

    def start(self) -> None:
        """Until it answers; TimeoutError when it does not."""
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "appendonly": "yes", "save": ""}
        command = ["redis-server", *(str(word) for name, value in options.items() for word in (f"--{name}", value))]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(LOOKS):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(EVERY)
            else:
                return
        raise TimeoutError(f"redis-server does not come up on port {self.port}")

    def away(self, seconds: float) -> None:
        """Killed now, started again after so long; whoever asks meanwhile gets no answer."""
        self.kill()
        self.starter = threading.Timer(seconds, self.start)
        self.starter.start()

    def kill(self) -> None:
        """As kill -9 does."""
        if self.starter is not None:
            self.starter.join()
            self.starter = None
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
