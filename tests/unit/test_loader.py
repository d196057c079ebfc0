"""From `--target module:Class` to something that makes a target; vLLM itself is not imported here."""

from __future__ import annotations

import sys

import pytest

from harness.targets import loader
from harness.targets.compat import TargetError
from oracle.allocator import Allocator
from tests.unit.mutants import Sound

MODULE = """
class Target:
    def extend(self, call): ...
    def release(self, request, deferred): ...
    def give_back(self): ...
    def trim(self, request, processed, prompt): ...
    def new_step(self): ...
    def audit(self): ...

class Half:
    def extend(self, call): ...
    def audit(self): ...

class Fork:
    def allocate_slots(self): ...
"""
NEITHER = "is neither a Target (extend, release, give_back, trim, new_step, audit) nor a KVCacheManager"


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    """Without vLLM, in a folder with modules of a user's own."""
    monkeypatch.setattr(loader, "import_vllm", lambda: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, text in {
        "mine": MODULE,
        "broken": "import nowhere_to_be_found",
        "wrong": "object.nothing",
        "script": "raise SystemExit(0)",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    yield
    for name in ("mine", "broken", "wrong", "script"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine", "--target must be module:Class, got 'mine'"),
        (":Target", "--target must be module:Class, got ':Target'"),
        ("mine:", "--target must be module:Class, got 'mine:'"),
        ("", "--target must be module:Class, got ''"),
        ("absent:Target", "--target absent:Target does not import: ModuleNotFoundError: No module named 'absent'"),
        ("broken:Target", "--target broken:Target does not import: ModuleNotFoundError: No module named 'nowhere"),
        (
            "wrong:Target",
            "--target wrong:Target does not import: AttributeError: type object 'object' has no attribute",
        ),
        ("script:Target", "--target script:Target does not import: SystemExit: 0"),
        ("mine:Absent", "--target mine:Absent: module mine has no Absent"),
        ("mine:Half", f"--target mine:Half {NEITHER}"),
        ("mine:__name__", f"--target mine:__name__ {NEITHER}"),
    ],
)
def test_what_is_no_target_is_told_in_a_sentence(spec, message):
    """The option's value, what is wrong with it."""
    with pytest.raises(TargetError) as refused:
        loader.load_target(spec)

    assert str(refused.value).startswith(message)


def test_a_target_of_ones_own():
    """From the folder where the command is run: the class itself makes targets."""
    assert "Target" == loader.load_target("mine:Target").__name__


def test_a_target_of_a_package():
    """By its path."""
    assert loader.load_target("tests.unit.mutants:Sound") is Sound


def test_the_oracle_is_a_target():
    """Like any other."""
    assert loader.load_target("oracle.allocator:Allocator") is Allocator


def test_a_fork_is_wrapped():
    """A class with a KVCacheManager's methods becomes a Target when it is built."""
    assert callable(loader.load_target("mine:Fork"))
