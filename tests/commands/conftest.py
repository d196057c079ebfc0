"""Runs a command in this process, with vLLM (imported once) or with a pure-Python stand-in."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from attrs import frozen

from harness import cli, release_commands, run_commands, show_commands
from harness.targets import compat, loader

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"
EXAMPLE = ROOT / "tests" / "unit" / "data" / "trace.json"


@frozen
class Result:
    """What a command left: its exit status, what it printed."""

    status: int
    out: str
    err: str


@pytest.fixture
def slot(monkeypatch, capsys, tmp_path):
    """`slot("run", "--steps", "1")`, in a folder of its own, without a terminal and without colour."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("SLOTCHECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["slotcheck", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return Result(ended.value.code or 0, printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def _imported():
    """The installed vLLM; some 20 s, once a process."""
    if compat.installed_release() is None:
        pytest.skip("vLLM is not installed: these commands run on the real KVCacheManager")
    compat.import_vllm()


@pytest.fixture
def vllm(_imported, slot):
    """Commands with the installed vLLM."""
    return slot


@pytest.fixture
def pure(slot, monkeypatch):
    """Commands that believe in a vLLM 0.33.0, which nobody imports: for targets of pure Python."""
    monkeypatch.setattr(loader, "import_vllm", lambda: None)
    for module in (cli, release_commands, run_commands, show_commands):
        monkeypatch.setattr(module, "installed_release", lambda: "0.33.0")
    monkeypatch.delitem(sys.modules, "vllm", raising=False)  # whatever tests this process ran before
    return slot


@pytest.fixture
def missing(slot, monkeypatch):
    """Commands where vLLM is not installed."""
    monkeypatch.setattr(compat, "installed_release", lambda: None)
    for module in (cli, release_commands, run_commands, show_commands):
        monkeypatch.setattr(module, "installed_release", lambda: None)
    monkeypatch.delitem(sys.modules, "vllm.v1.core.kv_cache_manager", raising=False)
    return slot


@pytest.fixture
def two_findings(monkeypatch, tmp_path_factory):
    """Two declarations in the place of those under reports/, which come and go."""
    folder = tmp_path_factory.mktemp("reports")
    for name in ("align-count-below-zero", "sink-manager-cannot-be-built"):
        shutil.copytree(REPORTS / name, folder / name)
    monkeypatch.setattr("harness.findings.folder", lambda: folder)
    return folder


def plain(text: str, folder: Path | None = None) -> str:
    """Output without what differs from run to run: times, speeds, counts of a run, folders."""
    for path, name in ((folder, "HERE"), (ROOT, "CHECKOUT")):
        if path is not None:
            text = text.replace(str(path), name)
    text = re.sub(r"\d+\.\d+ s\b", "N s", text)
    return re.sub(r"[\d,]+ steps/s", "N steps/s", text)


def target(name: str) -> str:
    """One of the planted targets, as --target takes it."""
    return f"tests.unit.mutants:{name}"


def left(folder: Path) -> list[str]:
    """Every file below a folder, to see that nothing is half-written."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
