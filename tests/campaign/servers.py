"""A Redis server of our own: started, killed and started again on the same port and files."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Redis:
    """A server; `appendonly`: what it was told survives a kill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen | None = None

    @staticmethod
    def missing() -> str:
        if shutil.which("redis-server") is None:
            return "no redis-server here (apt-get install redis-server)"
        try:
            import redis  # noqa: F401
        except ImportError:
            return "the package redis is not installed (pip install 'slotcheck[campaign]')"
        return ""

    def start(self) -> None:
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "appendonly": "yes", "save": ""}
        command = ["redis-server", *(str(word) for name, value in options.items() for word in (f"--{name}", value))]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise TimeoutError("redis-server does not come up")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
