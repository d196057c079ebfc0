"""The corpus: few traces that reach every crossing and kill the mutants of a score, each with what it is there for.

As a file it is one JSON object; in a store, an entry a name. An entry is judged by replaying its trace.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from attrs import frozen

from harness import tracefile
from harness.campaign.storage import CORPUS, Store
from harness.tracefile import AnyTrace
from oracle.errors import SlotcheckError, TraceError

FORMAT = 1


@frozen(kw_only=True)
class Entry:
    """A trace and what it covers: "reach LEVEL: NAME", "mutant NAME"."""

    trace: AnyTrace
    why: tuple[str, ...]

    @property
    def name(self) -> str:
        """The same for the same trace."""
        return hashlib.sha256(tracefile.dumps(self.trace).encode()).hexdigest()[:12]

    def data(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"name": self.name, "why": list(self.why), "trace": json.loads(tracefile.dumps(self.trace))}


@frozen(kw_only=True)
class Corpus:
    """Entries by level and name; release: whose traces they are."""

    release: str | None
    entries: tuple[Entry, ...]

    def text(self) -> str:
        """One JSON object, an entry a line."""
        head = f'{{\n "format": {FORMAT},\n "release": {json.dumps(self.release)},\n "entries": [\n'
        return head + ",\n".join(f"  {json.dumps(entry.data())}" for entry in self.entries) + "\n ]\n}\n"


def _entry(data: dict[str, Any], where: str) -> Entry:
    return Entry(trace=tracefile.loads(json.dumps(data["trace"]), where), why=tuple(map(str, data["why"])))


def read(path: Path) -> Corpus:
    """A corpus file; TraceError or SlotcheckError says in a sentence what is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise TraceError(f"{path} has format {data['format']!r}; this version reads format {FORMAT}")
        entries = [_entry(one, f"entry {number} of {path}") for number, one in enumerate(data["entries"])]
        return Corpus(release=data["release"], entries=tuple(entries))
    except FileNotFoundError:
        raise SlotcheckError(f"no corpus file {path}") from None
    except SlotcheckError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SlotcheckError(f"{path} is no corpus: {error}") from None


def keep(store: Store, corpus: Corpus) -> None:
    """Put every entry into a store."""
    for entry in corpus.entries:
        store.put(CORPUS, entry.name, json.dumps(entry.data() | {"release": corpus.release}) + "\n")


def kept(store: Store) -> Corpus:
    """The entries of a store."""
    entries, release = [], None
    for name in store.names(CORPUS):
        text = store.get(CORPUS, name)
        try:
            data = json.loads(text or "")
            release = data["release"]
            entries.append(_entry(data, f"{store.address}, corpus {name}"))
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, SlotcheckError):
                raise
            raise SlotcheckError(f"{store.address}, corpus {name} is no entry: {error}") from None
    if not entries:
        raise SlotcheckError(f"no corpus in {store.address}; slotcheck corpus build makes one")
    entries.sort(key=lambda entry: (tracefile.LEVELS.index(entry.trace.level), entry.name))
    return Corpus(release=release, entries=tuple(entries))
