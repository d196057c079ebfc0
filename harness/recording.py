"""Reads what `harness.targets.recorder` writes: the head with the setting, then the lines of each part as they grow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import cattrs
from attrs import define, field, frozen

from harness.tracefile import CONVERTER
from oracle.errors import SettingError, TraceError
from oracle.setting import Setting

FORMAT = 1
MARK = b'{"slotcheck":"recording"'


def is_recording(path: Path) -> bool:
    """Whether a path is a part of a recording, or a folder with some."""
    if path.is_dir():
        return any(path.glob("*.jsonl"))
    try:
        with path.open("rb") as stream:
            return stream.read(len(MARK)) == MARK
    except OSError:
        return False


@frozen
class Head:
    """dropped: parts of the beginning that were deleted to save room."""

    setting: Setting
    began: datetime
    process: int
    dropped: int

    def at(self, milliseconds: int) -> datetime:
        """The wall time of a line."""
        return self.began + timedelta(milliseconds=milliseconds)


def read_head(line: bytes, where: Path) -> Head:
    """The first line of a part; TraceError says what is wrong with it."""
    try:
        data = json.loads(line)
        if data["format"] != FORMAT:
            raise TraceError(f"{where} has recording format {data['format']!r}; this version reads format {FORMAT}")
        setting = CONVERTER.structure(data["setting"], Setting)
        dropped = max(data["dropped"], data.get("part", 1) - 1)  # a part is dropped after the next has begun
        return Head(setting, datetime.fromisoformat(data["began"]), data["process"], dropped)
    except (ValueError, KeyError, TypeError, SettingError, cattrs.BaseValidationError) as error:
        raise TraceError(f"{where} has no readable head of a recording: {error}") from None


@define
class Recording:
    """The parts of one engine, in order; read further with each call of `lines`."""

    name: str
    parts: list[Path]
    head: Head
    at: int = 0
    """Which part is being read."""
    offset: int = 0
    line: int = 0
    rest: bytes = field(default=b"", repr=False)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Lines that have become whole since the last call; TraceError for one that is none."""
        while True:
            self._find()
            path = self.parts[self.at]
            try:
                with path.open("rb") as stream:
                    stream.seek(self.offset)
                    read = stream.read()
            except FileNotFoundError:  # dropped before it was read
                self.parts = [part for part in self.parts if part.exists()]
                if not self.parts:
                    raise TraceError(f"{path} is gone, and no later part is there") from None
                self.at, self.offset, self.rest = 0, 0, b""
                yield {"lost": path.name}
                continue
            self.offset += len(read)
            *whole, self.rest = (self.rest + read).split(b"\n")
            for text in whole:
                self.line += 1
                if text and not text.startswith(MARK):
                    yield self._parse(text, path)
            if self.at + 1 >= len(self.parts):
                return
            self.at, self.offset, self.rest = self.at + 1, 0, b""

    def _find(self) -> None:
        """Parts that have appeared."""
        folder = self.parts[0].parent
        self.parts = sorted({*self.parts, *folder.glob(f"{self.name}.*.jsonl")})

    def _parse(self, text: bytes, path: Path) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError:
            raise TraceError(f"{path} has a line {self.line} that is not JSON; is the file damaged?") from None
        return found


def recordings(path: Path) -> list[Recording]:
    """The recordings in a folder, or the one that a file is part of; TraceError where there is none."""
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"))
    else:
        files = sorted(path.parent.glob(f"{_name(path)}.*.jsonl")) if path.is_file() else []
    if not files:
        raise TraceError(f"no recording in {path}; start the engine with SLOTCHECK_RECORD={path}")
    names: dict[str, list[Path]] = {}
    for file in files:
        names.setdefault(_name(file), []).append(file)
    return [_open(name, parts) for name, parts in names.items()]


def _name(path: Path) -> str:
    """engine-123-1.0002.jsonl -> engine-123-1."""
    return path.name.removesuffix(".jsonl").rpartition(".")[0] or path.stem


def _open(name: str, parts: list[Path]) -> Recording:
    with parts[0].open("rb") as stream:
        return Recording(name, parts, read_head(stream.readline(), parts[0]))
