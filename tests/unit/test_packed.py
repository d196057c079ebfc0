"""The packed codec: every byte string is a legal trace, the same bytes are the same trace."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.outcome import Options
from harness.reach import Reach
from harness.replay import Replay
from harness.worker import decode
from oracle.groups import KINDS, KpoolTail, Sink
from oracle.methods import WRITERS
from oracle.trace import check_operation
from strategies import packed as codec
from strategies import settings as sizes
from strategies.traces import RUN_LENGTH, draw, packed

PROFILES = st.sampled_from(["scheduler", "hostile"])
BLIND = Options(aspects=frozenset())


def run(data: bytes, profile: str, reach: Reach | None = None) -> Replay:
    """All operations of packed bytes on the oracle alone; it raises where they make no sense."""
    setting, stream = codec.open_trace(data, profile)
    replay = Replay(setting, None, BLIND, reach)
    while not replay.over:
        operation = stream.next(replay.ledger)
        if operation is None:
            break
        check_operation(operation)
        replay.step(operation)
    return replay


@given(data=st.binary(max_size=160), profile=PROFILES)
def test_every_byte_string_is_a_trace(data, profile):
    """A setting that validates, and operations with numbers that operations have."""
    assert profile == run(data, profile).setting.profile


@given(data=packed((48, 120)), profile=PROFILES, drop=st.sets(st.integers(0, 119), max_size=20))
def test_dropping_bytes_keeps_it_a_trace(data, profile, drop):
    """What a shrinker does to the bytes never gives what is no trace."""
    kept = bytes(byte for index, byte in enumerate(data) if index not in drop)

    assert profile == run(kept, profile).setting.profile


@given(data=packed((120,)), profile=PROFILES)
def test_the_same_bytes_are_the_same_trace(data, profile):
    """Nothing but the bytes and the profile has a say."""
    assert run(data, profile).result().trace == run(data, profile).result().trace


@given(data=packed((120,)), steps=st.integers(0, 20), profile=PROFILES)
def test_the_first_operations_do_not_depend_on_the_rest(data, steps, profile):
    """A journal that says how far a worker came gives a prefix of the whole trace."""
    whole = decode(data, 10_000, profile).operations

    assert whole[: steps + 1] == decode(data, steps, profile).operations


@pytest.mark.parametrize("profile", ["scheduler", "hostile"])
def test_no_bytes_are_the_simplest_trace(profile):
    """Everything reads as 0: one full-attention group, no feature, no operation."""
    replay = run(b"", profile)

    assert (["full_attention"], "none", 1, []) == (
        [group.kind for group in replay.setting.groups],
        replay.setting.method,
        replay.setting.in_flight_depth,
        replay.operations,
    )


@given(data=packed((240,)))
@settings(max_examples=30)
def test_few_operations_of_the_schedulers_profile_are_void(data):
    """The decoder knows the ledger: what it gives is mostly what a scheduler would do."""
    reach = Reach()
    replay = run(data, "scheduler", reach)

    assert reach.counts["void"] <= 1 + len(replay.operations) // 5


def drawn(seed: int, shard: int, count: int = 12) -> list[bytes]:
    """The examples of one shard."""
    found: list[bytes] = []
    draw(seed, shard, count, found.append)
    return found


def test_a_shard_draws_the_same_examples_again():
    """Whoever runs it, wherever."""
    assert drawn(3, 1) == drawn(3, 1)


@pytest.mark.parametrize(("seed", "shard"), [(3, 2), (4, 1)], ids=["another shard", "another seed"])
def test_shards_and_seeds_draw_other_examples(seed, shard):
    """Only the very first example, the simplest one, may be shared."""
    assert not set(drawn(3, 1)[1:]) & set(drawn(seed, shard)[1:])


def test_a_shard_draws_as_many_as_were_wanted():
    """One visit an example, each of a run's length."""
    assert [RUN_LENGTH] * 12 == [len(data) for data in drawn(0, 0)]


def test_every_kind_is_drawn():
    """But sinks: they cannot be built with this release, which is declared; and what the newest release has not."""
    assert set(KINDS) - {Sink, KpoolTail} == set(sizes.KINDS)


def test_every_method_that_writes_is_drawn():
    """And some that draft without KV, whose drafts are verified like any."""
    assert set(WRITERS) < set(sizes.DRAFTERS)
