"""Releases at hand: the Python files of vLLM's wheels, in a cache folder, and the choice of one for this process.

A wheel is 300 MB of compiled code around 30 MB of Python. The package client (pip) fetches it and checks its hash; of
its contents the Python files and the metadata are kept, each checked against the wheel's own RECORD. A release then
runs in the installed release's environment: its folder comes first on the path, before the first import.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import platformdirs
from attrs import frozen
from packaging.version import InvalidVersion, Version

from harness.targets import compat
from harness.targets.compat import TargetError
from oracle.releases import same_release

FOLDER_VARIABLE = "SLOTCHECK_CACHE"
MANIFEST = "slotcheck.json"
#: the same files on every machine: those of the Linux wheel
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_35_x86_64")
#: what pip says when the index cannot be reached
NO_NETWORK = (
    "NewConnectionError",
    "Name or service not known",
    "connection broken",
    "Network is",
    "Connection refused",
)
#: ... when there is no room
NO_SPACE = ("No space left", "Disk quota exceeded", "File too large")
#: told the bytes that are there and all of them
Show = Callable[[int, int], object]


@frozen
class Stored:
    """A release in the cache folder."""

    release: str
    folder: Path
    size: int
    """Bytes kept."""
    fetched: str
    """Day, as 2026-01-31."""


def folder() -> Path:
    """Where releases are kept; the environment variable SLOTCHECK_CACHE names another place."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else Path(platformdirs.user_cache_dir("slotcheck")) / "releases"


def stored() -> list[Stored]:
    """Every release at hand, oldest first. A folder that is not whole is none."""
    found = []
    for manifest in folder().glob(f"*/{MANIFEST}"):
        try:
            data = json.loads(manifest.read_text(encoding="utf-8"))
            found.append(Stored(data["release"], manifest.parent, data["size"], data["fetched"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return sorted(found, key=lambda each: Version(each.release))


def at_hand(release: str) -> Stored | None:
    """The stored release of that name."""
    return next((each for each in stored() if each.release == release), None)


def _version(release: str) -> str:
    try:
        return str(Version(release))
    except InvalidVersion:
        raise TargetError(f"a release is a number like 0.33.0, got {release!r}") from None


# ---------------------------------------------------------------------------------------------------- fetch, remove


def fetch(release: str, show: Show = lambda done, total: None) -> Stored:
    """Bring a release's Python files into the cache folder; the one that is there already is kept.

    TargetError, with the cache as it was: no such release, no network, a wheel that is not what its hash says, no
    space.
    """
    release = _version(release)
    here = at_hand(release)
    if here is not None:
        return here
    with _workplace() as work:
        wheel = _download(release, work, show)
        kept = work / "kept"
        try:
            size = unpack(wheel, kept)
        except (zipfile.BadZipFile, KeyError) as error:
            raise TargetError(f"{wheel.name} is not a whole wheel: {error}; fetch it again") from None
        today = datetime.now(tz=UTC).date().isoformat()
        data = {
            "release": release,
            "wheel": wheel.name,
            "sha256": _digest(wheel),
            "size": size,
            "fetched": today,
        }
        (kept / MANIFEST).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        kept.rename(folder() / release)
    return Stored(release, folder() / release, size, today)


@contextmanager
def _workplace() -> Iterator[Path]:
    """A folder beside the releases for what is not whole yet; gone afterwards, whatever happens."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder(), ignore_cleanup_errors=True) as work:
            yield Path(work)
    except OSError as error:
        raise TargetError(
            f"the cache folder {folder()} cannot be written: {error.strerror or error}; "
            f"{FOLDER_VARIABLE} names another place"
        ) from None


def _download(release: str, work: Path, show: Show) -> Path:
    """The wheel, by pip, which checks its hash and resumes a connection that broke."""
    target = work / "wheel"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--resume-retries=5", "--progress-bar=raw", "--dest", str(target)]
    command += ["--python-version=3.12", "--implementation=cp", "--abi=abi3", "--abi=cp312"]
    command += [f"--platform={platform}" for platform in PLATFORMS]
    environment = {**os.environ, "TMPDIR": str(work), "PYTHONPATH": ""}
    said = []
    with subprocess.Popen(
        [*command, f"vllm=={release}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    ) as client:
        try:
            for line in client.stdout or ():
                words = line.split()
                if len(words) == 4 and words[::2] == ["Progress", "of"]:
                    show(int(words[1]), int(words[3]))
                else:
                    said.append(line.strip())
        except BaseException:
            client.kill()
            raise
    wheels = list(target.glob("*.whl"))
    if client.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    raise TargetError(f"vLLM {release} could not be fetched: {_reason(said, release)}")


def _reason(said: list[str], release: str) -> str:
    """What went wrong, in a few words, from what pip said."""
    text = "\n".join(said)
    if "No module named pip" in text:
        return "this environment has no pip; install it: python -m ensurepip"
    if "DO NOT MATCH THE HASHES" in text:
        return "the wheel is not what its checksum says; fetch it again, or look at the package index that you use"
    if any(words in text for words in NO_SPACE):
        return f"no space left on the device of {folder()}; {FOLDER_VARIABLE} names another place"
    if "not enough bytes" in text:
        return "the connection broke off before the whole wheel was there; fetch it again"
    if any(words in text for words in NO_NETWORK):
        return "the package index cannot be reached; look at the network, or at pip's settings"
    if "(from versions: none)" in text:
        return "the package index has no vllm at all, or cannot be reached; look at the network, or at pip's settings"
    if "No matching distribution" in text:
        return f"the package index has no wheel of vllm=={release}"
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    if errors and errors[-1] != "Exception:":
        return errors[-1]
    return said[-1] if said else "pip said nothing"


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def unpack(wheel: Path, kept: Path) -> int:
    """Keep a wheel's Python files and metadata, each checked against its RECORD; the bytes kept."""
    size = 0
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        wanted = {path: digest for path, digest, _ in csv.reader(io.StringIO(archive.read(record).decode()))}
        for name in archive.namelist():
            path = PurePosixPath(name)
            metadata = path.parent.name.endswith(".dist-info") and path.name in ("METADATA", "RECORD")
            if not metadata and not (path.suffix == ".py" and path.parts[0] == "vllm"):
                continue
            if path.is_absolute() or ".." in path.parts:
                raise zipfile.BadZipFile(f"{name} leads out of the wheel")
            content = archive.read(name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            if name != record and wanted.get(name) != f"sha256={digest}":
                raise zipfile.BadZipFile(f"{name} is not what RECORD says")
            (kept / name).parent.mkdir(parents=True, exist_ok=True)
            (kept / name).write_bytes(content)
            size += len(content)
    return size


def remove(release: str) -> Stored:
    """Delete a release from the cache folder."""
    here = at_hand(_version(release))
    if here is None:
        raise TargetError(f"release {release} is not in {folder()}; there are: {_listed()}")
    try:
        shutil.rmtree(here.folder)
    except OSError as error:
        raise TargetError(f"{here.folder} cannot be deleted: {error.strerror}") from None
    return here


def _listed() -> str:
    return ", ".join(each.release for each in stored()) or "none"


# ---------------------------------------------------------------------------------------------------------- choose


def find(wanted: str | None) -> Path | None:
    """The folder whose `vllm` package is that release; None for the installed one.

    `wanted`: a release at hand, the installed one or None for it, or a folder with a `vllm` package in it (a checkout,
    a patched tree). TargetError if it is none of these.
    """
    installed = compat.installed_release()
    if wanted is None or same_release(wanted, installed):
        return None
    here = at_hand(wanted)
    path = Path(wanted) if here is None else here.folder
    if not (path / "vllm" / "__init__.py").is_file():
        if path.is_dir():
            raise TargetError(f"--release {wanted}: the folder has no vllm package in it")
        raise TargetError(
            f"release {wanted} is not at hand, installed is {installed or 'none'}, stored: {_listed()}; "
            f"slotcheck releases fetch {wanted} brings it"
        )
    return path.resolve()


def choose(wanted: str | None) -> str | None:
    """Make this process, and those it starts, import what `find` finds; the release. Before vLLM is imported."""
    path = find(wanted)
    if wanted is None or path is None:
        return compat.installed_release()
    return compat.use(path, wanted if at_hand(wanted) is not None else None)
