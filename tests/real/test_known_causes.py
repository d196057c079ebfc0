"""A finding of prefix caching covers its own defect: the same sign from another cause is a new difference."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from harness.findings import Declared, load
from harness.outcome import Options
from harness.targets.cached import CachingManager
from harness.trace_run import new_replay, run_trace
from oracle.cached_memory import CachingMemory
from oracle.groups import FullAttention, HiddenState, Mamba, SlidingWindow
from oracle.setting import Setting
from oracle.trace import Difference, Evict, Extend, Loaded, NewStep, Release, Settle, Trace

DECLARED = Declared(load(), "0.33.0")
FORGOTTEN = next(finding for finding in load() if finding.name == "refusal-forgets-the-checkpoint").trace()
AHEAD = Trace(
    setting=Setting(
        groups=(Mamba(block_size=1, checkpoint_blocks=1, checkpoint_alignment=1),),
        num_blocks=4,
        max_model_len=4,
        in_flight_depth=2,
        enable_caching=True,
        num_prefill_lookahead_tokens=3,
    ),
    operations=(Extend(request=0, new=2, prompt=2), Extend(request=0, new=0)),
)
#: a hit of two columns, the first null: the window does not need it. Peak 3, one block is held: 2 more, 1 is free. The
#: release takes both columns off the cap: 1
HIT = Trace(
    setting=Setting(
        groups=(SlidingWindow(block_size=2, window=3, extra_retained_tokens=1),),
        num_blocks=4,
        max_model_len=21,
        max_in_flight_tokens=1,
        enable_caching=True,
    ),
    operations=(
        Extend(request=0, new=4, prompt=4),
        Extend(request=1, new=0, prompt=7, full_sequence_must_fit=True),
    ),
)
#: request 1 diverges: full attention hits 8, the hidden states behind 4 are nowhere. Its block for 4..7 gets names when
#: the token behind them has been loaded; request 2 hits 7 and copies that block
COPIED = Trace(
    setting=Setting(
        groups=(
            FullAttention(block_size=4),
            HiddenState(block_size=4),
            Mamba(block_size=2, checkpoint_blocks=1, checkpoint_alignment=1),
        ),
        num_blocks=14,
        max_model_len=11,
        enable_caching=True,
        hash_block_size=1,
        kv_connector=True,
        divergent_hits=True,
    ),
    operations=(
        Extend(request=0, new=8, prompt=8),
        Settle(),
        Evict(blocks=(4, 6)),
        Extend(request=1, new=0, prompt=10, external=1),
        Loaded(request=1),
        Extend(request=2, new=0, prompt=9),
    ),
)


def shown(trace: Trace, make: Any) -> Difference:
    """What ends a trace."""
    return run_trace(trace, make, Options(audit_every=1)).differences[0]


class NoNames(CachingManager):
    """Shows no block's name at all."""

    def audit(self) -> Any:
        return evolve(super().audit(), names={})


class Raises(CachingManager):
    """Fails in its own code when names are given."""

    def publish(self, call: Any, tokens: int) -> Any:
        raise AssertionError("of our own")


@pytest.mark.parametrize(
    ("trace", "name"),
    [
        (FORGOTTEN, "refusal-forgets-the-checkpoint"),
        (AHEAD, "state-named-behind-its-chunk"),
        (HIT, "gate-pays-twice-for-dead-columns"),
        (COPIED, "diverged-hit-of-another-attention-group"),
    ],
)
def test_the_release_shows_it(trace: Trace, name: str) -> None:
    """By its own cause."""
    finding = DECLARED.explain(shown(trace, CachingManager))

    assert name == (finding and finding.name)


@pytest.mark.parametrize(("trace", "other"), [(FORGOTTEN, NoNames), (AHEAD, Raises)])
def test_another_cause_is_new(trace: Trace, other: Any) -> None:
    """Names that are missing everywhere; an assertion of another place."""
    assert None is DECLARED.explain(shown(trace, other))


def test_a_state_of_the_wrong_prefix_is_read() -> None:
    """What the wrong name does: a request that hits it starts from the state after 8 tokens, not after 12."""
    operations = (*FORGOTTEN.operations, Settle(), Settle(), NewStep(), Release(request=1))
    trace = evolve(FORGOTTEN, operations=(*operations, Extend(request=2, new=2, prompt=14), Settle()))
    broken = run_trace(trace, CachingManager, Options(audit_every=1, aspects=frozenset({"law"}))).differences

    assert ["manager/law/mamba_align/M12/state/hit"] == [found.fingerprint for found in broken]


def test_who_takes_an_empty_block_anew_fills_it() -> None:
    """Request 1 leaves block 8 of its diverged hit empty; once it is gone, request 3 holds its state in there."""
    replay = new_replay(COPIED.setting, None, Options())
    lacking = []
    operations = (*COPIED.operations[:5], Release(request=1), Extend(request=3, new=8, prompt=8, forks=(9,)))
    for operation in operations:
        replay.step(operation)
        assert isinstance(replay.memory, CachingMemory)
        lacking.append(set(replay.memory.lacking))

    assert [set()] * 3 + [{8}] * 3 + [set()] == lacking
    assert 8 in replay.oracle.rows[3][2]
