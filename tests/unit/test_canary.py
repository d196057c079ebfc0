"""The canary: it is caught on a target that can be caught, whatever is compared, and only there."""

from __future__ import annotations

import pytest

from harness import canary
from harness.outcome import Options
from harness.worker import read_journal
from oracle.allocator import Allocator
from oracle.cached_allocator import CachingAllocator
from oracle.call import Call
from oracle.trace import ASPECTS
from tests.unit.examples import setting
from tests.unit.mutants import Sound

CALL = Call(0, 0, 0, 8, 8, True, False, 4, 3, 0, 0, False, 0, True, ())
EAGLE = {"method": "eagle", "num_speculative_tokens": 3}


@pytest.mark.parametrize("aspects", [ASPECTS, ("law",), ("outcome",), ("order",)], ids=lambda names: names[-1])
def test_it_is_caught_whatever_is_compared(aspects):
    """Within some thousand steps."""
    assert 0 < canary.caught(Sound, Options(aspects=frozenset(aspects)))


class WithoutDrafts(Allocator):
    """Answers as if no canary had been there."""

    def extend(self, call, gate=True, test=True):
        call.lookahead = self.setting.lookahead if call.new else 0
        return super().extend(call, gate, test)


def test_it_is_not_caught_where_nothing_is_lost(monkeypatch):
    """A target that takes its lookahead from elsewhere makes a run that could not have failed."""
    monkeypatch.setattr(canary, "SHARDS", 1)

    assert None is canary.caught(WithoutDrafts, Options(declared=lambda difference: difference.aspect == "law"))


def sound(of):
    """No defect, whatever the setting."""
    return CachingAllocator(of) if of.enable_caching else Sound(of)


def test_the_one_of_the_cache_is_caught():
    """Its lookups find nothing."""
    assert 0 < canary.caught(sound, Options())


def test_a_run_that_sees_no_lost_hit_could_not_have_failed(monkeypatch):
    """The first canary is caught, the second is not."""
    monkeypatch.setattr(canary, "ForgetfulCanary", lambda target: target)

    assert None is canary.caught(sound, Options(declared=lambda difference: difference.aspect == "law"))


def test_it_loses_the_lookahead_of_first_calls():
    """4 tokens are one block of 4; the three drafts behind them would need another."""
    assert ((1,),) == canary.Canary(Sound(setting(**EAGLE))).extend(CALL).rows


def test_it_is_the_target_itself_otherwise():
    """Everything else is passed on."""
    of = setting(**EAGLE)

    assert Sound(of).audit() == canary.Canary(Sound(of)).audit()


def test_what_it_runs_is_on_disk(tmp_path):
    """So that a watchdog can see whether it still makes steps."""
    canary.caught(Sound, Options(), journal=tmp_path / "j")

    assert read_journal(tmp_path / "j").traces > 0
