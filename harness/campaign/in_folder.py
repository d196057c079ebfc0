"""A store in a folder: a file for each text, also on a shared file system.

A file appears whole under its name or not at all: it is written aside and moved there, or, for a claim, linked there,
which fails where somebody was first. So no lock is held by a process that may be killed.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.campaign.storage import KINDS, StoreError

if TYPE_CHECKING:
    from hypothesis.database import ExampleDatabase

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
#: endings of files; what is being written begins with a dot
_ENDING = ".json"


class FolderStore:
    """See `storage.Store`."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder)
        self.folder = folder
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"the store {folder} is a file; a store is a folder or redis://HOST:PORT/NUMBER")

    def get(self, kind: str, name: str) -> str | None:
        with self._told():
            try:
                return self._path(kind, name).read_text(encoding="utf-8")
            except FileNotFoundError:
                return None

    def put(self, kind: str, name: str, text: str) -> None:
        with self._told():
            path = self._path(kind, name)
            aside = self._aside(path, text)
            aside.replace(path)

    def claim(self, kind: str, name: str, text: str) -> bool:
        with self._told():
            path = self._path(kind, name)
            aside = self._aside(path, text)
            try:
                os.link(aside, path)
            except FileExistsError:
                return self.get(kind, name) == text
            finally:
                aside.unlink()
        return True

    def names(self, kind: str) -> list[str]:
        with self._told():
            there = self.folder / kind
            paths = there.iterdir() if there.is_dir() else ()
            return sorted(path.stem for path in paths if path.suffix == _ENDING and not path.name.startswith("."))

    def examples(self) -> ExampleDatabase:
        from hypothesis.database import DirectoryBasedExampleDatabase

        return DirectoryBasedExampleDatabase(self.folder / "hypothesis")

    def _path(self, kind: str, name: str) -> Path:
        if kind not in KINDS or not _NAME.fullmatch(name):
            raise StoreError(f"a store keeps {', '.join(KINDS)} under names of letters and digits, got {kind} {name!r}")
        return self.folder / kind / f"{name}{_ENDING}"

    def _aside(self, path: Path, text: str) -> Path:
        """The text in a file beside its place, safely on the disk."""
        path.parent.mkdir(parents=True, exist_ok=True)
        number, aside = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(aside).chmod(0o644)
        return Path(aside)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, UnicodeDecodeError) as error:
            said = error.strerror if isinstance(error, OSError) else str(error)
            raise StoreError(f"the store {self.folder} cannot be used: {said}; choose another with --store") from None
