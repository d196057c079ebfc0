"""The files of a recording: append-only, a line at a time, closed by size; the oldest goes when there are too many."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

MEGABYTES, PARTS = "SLOTCHECK_RECORD_MB", "SLOTCHECK_RECORD_PARTS"
encode = json.JSONEncoder(separators=(",", ":")).encode


class Parts:
    """One recording. A line is in the file when `write` returns; when a part is closed is its owner's affair."""

    def __init__(self, folder: Path, name: str, head: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name, self.head = folder, name, head
        #: bytes that a part should have, and may have
        self.limit = int(float(os.environ.get(MEGABYTES, "64")) * 2**20)
        self.most = 2 * self.limit
        self.kept = max(2, int(os.environ.get(PARTS, "64")))
        self.number = self.size = 0
        self.file = -1
        self.next(b"")

    def write(self, line: bytes) -> None:
        """Append a line."""
        self.size += os.write(self.file, line)

    def next(self, state: bytes) -> None:
        """Begin a part: its head, then the line with the state at its beginning, if that is known."""
        number = self.number + 1
        dropped = number - self.kept
        head = self.head | {"part": number, "dropped": max(0, dropped)}
        file = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        size = os.write(file, encode(head).encode() + b"\n" + state)
        if self.file >= 0:
            os.close(self.file)
        self.file, self.number, self.size = file, number, size
        if dropped > 0:
            self._path(dropped).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{self.name}.{number:04}.jsonl"
