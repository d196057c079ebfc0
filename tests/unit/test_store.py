"""Releases in the cache folder: fetched whole or not at all, from a package index of our own."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from harness import store
from harness.targets import compat
from harness.targets.compat import TargetError

FILES = {
    "vllm/__init__.py": "",
    "vllm/v1/core.py": "RELEASE = 'tiny'\n",
    "vllm/_C.abi3.so": "\x7fELF" * 300_000,
    "vllm-{release}.dist-info/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: {release}\n",
    "vllm-{release}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
KEPT = [
    "slotcheck.json",
    "vllm-9.1.0.dist-info/METADATA",
    "vllm-9.1.0.dist-info/RECORD",
    "vllm/__init__.py",
    "vllm/v1/core.py",
]


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that says nothing."""

    def log_message(self, *said):
        pass


def wheel(path, release="9.1.0", changed=None):
    """A wheel of a few files with its RECORD; `changed`: a file that is not what RECORD says."""
    lines = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in FILES.items():
            name, content = name.format(release=release), text.format(release=release).encode()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}")
            archive.writestr(name, content + b"#" if name == changed else content)
        record = f"vllm-{release}.dist-info/RECORD"
        archive.writestr(record, "\n".join([*lines, f"{record},,"]) + "\n")
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index that has vllm 9.1.0 alone; the way to say another hash of it."""
    project = tmp_path / "index" / "vllm"
    project.mkdir(parents=True)
    file = wheel(project / "vllm-9.1.0-py3-none-any.whl")

    def publish(digest=None):
        said = digest or hashlib.sha256(file.read_bytes()).hexdigest()
        (project / "index.html").write_text(f'<a href="{file.name}#sha256={said}">{file.name}</a>')

    publish()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    handler = partial(Quiet, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/")
        yield publish
        server.shutdown()


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_release_is_fetched_listed_and_removed(cache, index):
    """Python files and metadata, nothing else; fetching it twice is once."""
    fetched = store.fetch("9.1.0")

    assert KEPT == files(cache / "9.1.0")
    assert [fetched] == store.stored() == [store.fetch("9.1.0")]
    assert fetched == store.remove("9.1.0")
    assert [] == list(cache.iterdir())


def test_the_progress_is_told(cache, index):
    """Bytes that are there, of all."""
    told = []
    store.fetch("9.1.0", lambda done, total: told.append((done, total)))

    assert told
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("9.9.9", "vLLM 9.9.9 could not be fetched: the package index has no wheel of vllm==9.9.9"),
        ("newest", "a release is a number like 0.33.0, got 'newest'"),
    ],
)
def test_what_is_not_there_cannot_be_fetched(cache, index, release, said):
    """One sentence; the cache as it was."""
    with pytest.raises(TargetError, match=f"^{re.escape(said)}$"):
        store.fetch(release)

    assert not cache.exists() or [] == list(cache.iterdir())


def test_a_wheel_with_another_checksum_is_refused(cache, index):
    """The client looks before anything is unpacked."""
    index("0" * 64)
    with pytest.raises(TargetError, match=r"could not be fetched: the wheel is not what its checksum says"):
        store.fetch("9.1.0")

    assert [] == list(cache.iterdir())


def test_without_a_network(cache, index, monkeypatch):
    """Nobody listens on port 1."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(TargetError, match=r"^vLLM 9\.1\.0 could not be fetched: the package index"):
        store.fetch("9.1.0")

    assert [] == list(cache.iterdir())


def test_half_a_download_leaves_nothing(cache, index):
    """An interruption while bytes come in."""

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.fetch("9.1.0", interrupt)

    assert [] == list(cache.iterdir())


def test_no_folder_to_write_to(tmp_path, monkeypatch):
    """The cache is a file."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(TargetError, match=r"^the cache folder .* cannot be written: .*; SLOTCHECK_CACHE names another"):
        store.fetch("9.1.0")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (["ERROR: Could not install packages: [Errno 28] No space left on device"], "no space left on the device of "),
        (["ERROR: Exception:", "Traceback", "OSError: [Errno 27] File too large"], "no space left on the device of "),
        (["ERROR: Exception:", "Traceback", "ValueError: odd"], "ValueError: odd"),
        (["error: incomplete-download-error", "Download failed because not enough bytes"], "the connection broke off"),
        (["ERROR: Could not find vllm (from versions: none)"], "the package index has no vllm at all, or cannot be "),
        ([], "pip said nothing"),
    ],
)
def test_what_pip_says_in_a_sentence(said, reason):
    """No space, a quota, an error of pip's own, a connection that breaks off each time, an index without vllm."""
    assert store._reason(said, "9.1.0").startswith(reason)


def test_no_space_while_it_is_unpacked(cache, index, monkeypatch):
    """The cache is as it was."""

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.Path, "write_bytes", full)
    with pytest.raises(TargetError, match=r"cannot be written: No space left on device; SLOTCHECK_CACHE names another"):
        store.fetch("9.1.0")

    assert [] == list(cache.iterdir())


@pytest.mark.parametrize("broken", ["vllm/v1/core.py", "vllm-9.1.0.dist-info/METADATA"])
def test_a_file_that_is_not_what_record_says(tmp_path, broken):
    """A wheel that was changed after it was made."""
    changed = wheel(tmp_path / "vllm-9.1.0-py3-none-any.whl", changed=broken)
    with pytest.raises(zipfile.BadZipFile, match=f"^{broken} is not what RECORD says$"):
        store.unpack(changed, tmp_path / "kept")


def test_a_folder_that_is_not_whole_is_no_release(cache):
    """Without its manifest, or with another text in it."""
    for name, text in {"1.0": None, "2.0": "{", "3.0": "[]"}.items():
        (cache / name).mkdir(parents=True)
        if text is not None:
            (cache / name / store.MANIFEST).write_text(text)

    assert [] == store.stored()


def test_what_is_not_at_hand_is_named(cache, monkeypatch):
    """With the way to get it."""
    monkeypatch.setattr(compat, "installed_release", lambda: "0.33.0")
    said = "release 9.1.0 is not at hand, installed is 0.33.0, stored: none; slotcheck releases fetch 9.1.0 brings it"
    with pytest.raises(TargetError, match=re.escape(said)):
        store.choose("9.1.0")
    with pytest.raises(TargetError, match="the folder has no vllm package in it"):
        store.choose(str(cache.parent))


@pytest.fixture
def chosen(monkeypatch):
    """Undo a choice: the path, the environment, the release."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(compat, "_chosen", [])
    monkeypatch.setattr(sys, "modules", {name: kept for name, kept in sys.modules.items() if name != "vllm"})


def test_a_stored_release_comes_first_on_the_path(cache, index, chosen):
    """In this process and in those that it starts."""
    store.fetch("9.1.0")

    assert "9.1.0" == store.choose("9.1.0") == compat.installed_release()
    assert (sys.path[0], os.environ["PYTHONPATH"]) == (str(cache / "9.1.0"), str(cache / "9.1.0"))


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ("__version__ = version = '0.34.0.dev7+g12'\n", "0.34.0.dev7+g12"),
        ('__version__ = "0.32.1"\n', "0.32.1"),
        ("__version__ = 'next'\n", "0+unknown"),
        (None, "0+unknown"),
    ],
)
def test_a_checkout_says_what_it_is(tmp_path, chosen, said, release):
    """Its own version file; else a version that no rule is confirmed for."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")
    if said is not None:
        (tmp_path / "vllm" / "_version.py").write_text(said)

    assert release == store.choose(str(tmp_path))


def test_too_late(tmp_path, chosen, monkeypatch):
    """Another vLLM is imported already."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")
    monkeypatch.setitem(sys.modules, "vllm", object())
    with pytest.raises(TargetError, match="comes too late"):
        store.choose(str(tmp_path))
