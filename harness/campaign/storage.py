"""One store for what campaigns know: a few kinds of text under names, each written whole, and Hypothesis's examples.

Two back ends: a folder, and Redis. Any number of processes may write at once. `put` replaces, `claim` is won by the
first: differences are grouped by fingerprint, and who kept one first shrinks it.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from harness import tracefile
from harness.tracefile import AnyTrace
from oracle.errors import SlotcheckError

if TYPE_CHECKING:
    from hypothesis.database import ExampleDatabase

#: what is kept: the arguments of a campaign, results of its shards, differences, traces worth keeping
PLAN, SHARD, FINDING, CORPUS = KINDS = ("plan", "shard", "finding", "corpus")
REDIS = ("redis://", "rediss://", "unix://")
FORMAT = 1
_PLAIN = ("found", "fingerprint", "release", "by", "shrunk", "minimal", "tries")


class StoreError(SlotcheckError):
    """An address that is none, or a store that cannot be reached, read or written."""


class Store(Protocol):
    """Text by kind and name. Names are of letters, digits, dots and hyphens. Every method raises StoreError."""

    address: str

    def get(self, kind: str, name: str) -> str | None:
        """What is kept under a name."""

    def put(self, kind: str, name: str, text: str) -> None:
        """Keep a text, in place of the one that is there: whole or not at all."""

    def claim(self, kind: str, name: str, text: str) -> bool:
        """Keep a text where there is none; whether this one is kept. The same text again is the same claim."""

    def names(self, kind: str) -> list[str]:
        """Every name, sorted."""

    def examples(self) -> ExampleDatabase:
        """Hypothesis's own examples."""


def open_store(address: str) -> Store:
    """A store by its address: a folder, or redis://HOST:PORT/NUMBER."""
    if address.startswith(REDIS):
        from harness.campaign.in_redis import RedisStore

        return RedisStore(address)
    if "://" in address or not address:
        raise StoreError(f"a store is a folder or redis://HOST:PORT/NUMBER, got {address!r}")
    from harness.campaign.in_folder import FolderStore

    return FolderStore(Path(address))


# ------------------------------------------------------------------------------------------------------ findings


@frozen(kw_only=True)
class Stored:
    """A difference in a store. found: its fingerprint as it was met; fingerprint: that of the trace that is kept.

    by: the campaign that met it first, and shrinks it. shrunk: whether it has; minimal: whether there is none smaller.
    """

    found: str
    trace: AnyTrace
    fingerprint: str
    release: str | None = None
    by: str = ""
    shrunk: bool = False
    minimal: bool = False
    tries: int = 0

    @property
    def name(self) -> str:
        """What the store calls it: the same for one fingerprint, whoever met it."""
        return name_of(self.found)

    @property
    def words(self) -> tuple[str, str, str]:
        """What a person may call it."""
        return self.fingerprint, self.found, self.name

    def text(self) -> str:
        """As it is kept."""
        data = {name: getattr(self, name) for name in _PLAIN}
        return tracefile.json_text({"format": FORMAT, **data, "trace": json.loads(tracefile.dumps(self.trace))})


def name_of(fingerprint: str) -> str:
    """A fingerprint as a name without spaces and slashes."""
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:12]


def read_stored(text: str, where: str) -> Stored:
    """Read a difference; StoreError or TraceError where it is none."""
    try:
        data = json.loads(text)
        trace = tracefile.loads(json.dumps(data["trace"]), where)
        return Stored(trace=trace, **{name: data[name] for name in _PLAIN})
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, SlotcheckError):
            raise
        raise StoreError(f"{where} is not a difference that a campaign kept: {error}") from None


def findings(store: Store) -> list[Stored]:
    """Every difference in a store, by fingerprint."""
    found = []
    for name in store.names(FINDING):
        text = store.get(FINDING, name)
        if text is not None:
            found.append(read_stored(text, f"{store.address}#{name}"))
    return sorted(found, key=lambda one: one.found)


def is_reference(text: str) -> bool:
    """Whether an argument names a difference in a store (STORE#fingerprint), and not a file."""
    return "#" in text and not Path(text).exists()


def look_up(reference: str) -> Stored:
    """The difference that STORE#fingerprint names: whole, as the store calls it, or the beginning of either."""
    address, _, wanted = reference.partition("#")
    store = open_store(address)
    every = findings(store)
    if not every:
        raise StoreError(f"no differences in {address}: is it the store of a campaign?")
    exact = [one for one in every if wanted in one.words]
    near = [one for one in every if wanted and any(word.startswith(wanted) for word in one.words)]
    if exact or len(near) == 1:
        return (exact or near)[0]
    listed = "; ".join(f"{one.name} {one.fingerprint}" for one in (near or every)[:5])
    what = f"{len(near)} differences" if near else "no difference"
    raise StoreError(f"{what} {wanted!r} in {address}; there are {len(near or every)}: {listed}")


def fetched(reference: str) -> Path:
    """The trace that STORE#fingerprint names, in a file that lives as long as this process."""
    found = look_up(reference)
    folder = Path(tempfile.mkdtemp(prefix="slotcheck-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"{found.name}.json"
    tracefile.write_text(path, tracefile.dumps(found.trace))
    return path
