"""Exit status 3: nothing was proved. What cannot be loaded, an unknown release, a run that met too little."""

from __future__ import annotations

import json
import sys

import pytest

from harness.targets import compat
from harness.targets.compat import TargetError
from tests.commands.conftest import EXAMPLE, left, plain, target

RULES = "outcome,columns,nulls,free,ids,order,zeroing"


@pytest.mark.parametrize(
    "command",
    [("run",), ("replay", EXAMPLE), ("shrink", EXAMPLE), ("canary",), ("findings", "check"), ("findings", "refresh")],
    ids=lambda words: words[0] if len(words) == 1 else f"{words[0]} ...",
)
def test_without_vllm(missing, tmp_path, snapshot, command):
    """What to install; nothing is written."""
    result = missing(*command)

    assert snapshot == result.err.replace("importing vLLM  ...\n", "")
    assert (3, []) == (result.status, left(tmp_path))


def test_a_vllm_that_does_not_import(slot, monkeypatch, snapshot):
    """Its error, without its traceback."""

    def fail(name):
        raise ImportError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(compat, "installed_release", lambda: "0.33.0")
    monkeypatch.setattr(compat.importlib, "import_module", fail)
    monkeypatch.delitem(sys.modules, "vllm.v1.core.kv_cache_manager", raising=False)
    with pytest.raises(TargetError) as refused:
        compat.import_vllm()

    assert snapshot == str(refused.value)


def test_a_release_that_is_not_at_hand(pure, tmp_path, snapshot):
    """Which one is, and what to do."""
    result = pure("run", "--release", "9.9.9", "--steps", 1)

    assert snapshot == result.err
    assert (3, "", []) == (result.status, result.out, left(tmp_path))


def test_the_installed_release_may_be_named(pure):
    """It changes nothing."""
    result = pure("run", "--release", "0.33.0", "--steps", 1, "--target", target("Sound"), "--aspects", RULES, "--json")

    assert "0.33.0" == json.loads(result.out)["release"]


def test_a_release_whose_rules_are_not_confirmed(pure, monkeypatch):
    """Never green, even if everything agrees."""
    monkeypatch.setattr("harness.run_commands.installed_release", lambda: "0.40.0")
    result = pure("run", "--steps", 1, "--target", target("Sound"), "--aspects", RULES, "--json")

    assert (3, "inconclusive", "rules not confirmed for release 0.40.0") == (
        result.status,
        json.loads(result.out)["verdict"],
        json.loads(result.out)["reasons"][0],
    )


def test_a_short_run_has_not_met_enough(pure):
    """What was missed is named, in the table and in the verdict."""
    result = pure("run", "--steps", 1, "--target", target("Sound"), "--aspects", RULES)

    assert 3 == result.status
    assert "inconclusive: not reached often enough: " in result.out
    assert "MISSED" in result.out


@pytest.mark.parametrize(
    "option", ["mine", "absent:Target", "mine:Absent", "mine:Thing", "broken:Target", "script:Target"]
)
@pytest.mark.parametrize("command", [("run", "--steps", 1), ("canary",)], ids=["run", "canary"])
def test_a_target_that_cannot_be_loaded(pure, tmp_path, snapshot, command, option):
    """The option's value, what is wrong with it."""
    (tmp_path / "mine.py").write_text("class Thing: ...")
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "script.py").write_text("import sys; sys.exit(0)")
    for name in ("mine", "broken", "script"):
        sys.modules.pop(name, None)
    result = pure(*command, "--target", option)

    assert snapshot == result.err
    assert 3 == result.status


def test_ctrl_c(pure, tmp_path, monkeypatch):
    """What was found until then is kept, and it says so."""

    def interrupt(self):
        if self.result.steps:
            raise KeyboardInterrupt
        return turn(self)

    from harness.engine import Engine

    turn = Engine._turn
    monkeypatch.setattr(Engine, "_turn", interrupt)
    result = pure("run", "--steps", 10**9, "--target", target("Sound"), "--aspects", RULES)

    assert 3 == result.status
    assert "inconclusive: interrupted; what was found until then is kept" in result.out
    assert ["slotcheck-out/run.json"] == left(tmp_path)


def test_ctrl_c_before_there_is_anything(pure, monkeypatch, snapshot):
    """While something is loaded."""

    def interrupt(spec):
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.targets.loader.load_target", interrupt)
    result = pure("run", "--steps", 1)

    assert snapshot == plain(result.err)
    assert 3 == result.status
