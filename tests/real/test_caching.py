"""Prefix caching: examples of the specification, on the oracle and on the real manager, name by name."""

from __future__ import annotations

import pytest

from harness.outcome import Options
from harness.targets.cached import CachingManager
from harness.targets.loader import manager_of
from harness.trace_run import new_replay, run_operations, run_trace
from oracle.groups import ChunkedLocal, CircularBuffer, FullAttention, Mamba, SlidingWindow
from oracle.setting import Setting
from oracle.trace import Evict, Extend, Lookup, NewStep, Pin, Release, Reset, Resume, Settle, Trace, Unpin

BOTH = Options(audit_every=1, keep_entries=True)


def setting(*groups, blocks=40, **more) -> Setting:
    """A setting with caching on and room for long prompts."""
    return Setting(groups=groups, num_blocks=blocks, max_model_len=320, enable_caching=True, **more)


def said(built: Setting, *operations) -> list[str]:
    """What each operation did, after both parties agreed on all of it."""
    outcome = run_trace(Trace(setting=built, operations=operations), manager_of, BOTH)

    assert [] == outcome.differences
    return [entry.said for entry in outcome.entries]


def computed(tokens: int, request: int = 0, **content) -> tuple:
    """A prompt that is computed in one chunk."""
    return Extend(request=request, new=tokens, prompt=tokens, **content), Settle()


FULL = FullAttention(block_size=4)
ALIGN = Mamba(block_size=4)


@pytest.mark.parametrize(
    ("groups", "first", "lookup", "hit"),
    [
        ((FullAttention(block_size=16),), 64, {"tokens": 64}, 48),
        ((FullAttention(block_size=16),), 64, {"tokens": 65}, 64),
        ((FullAttention(block_size=16),), 64, {"tokens": 65, "forks": (40,)}, 32),
        ((SlidingWindow(block_size=4, window=10),), 30, {"tokens": 31}, 28),
        ((SlidingWindow(block_size=4, window=10),), 30, {"tokens": 31, "forks": (13,)}, 12),
        (
            (FullAttention(block_size=16), ChunkedLocal(block_size=16, chunk=64)),
            100,
            {"tokens": 100, "forks": (90,)},
            80,
        ),
    ],
    ids=["resend", "extension", "fork", "window", "run from the start", "chunk"],
)
def test_a_hit(groups, first, lookup, hit):
    """P16 to P19."""
    assert f": hit {hit}" in said(setting(*groups), *computed(first), Lookup(**lookup))[-1] + " "


@pytest.mark.parametrize(
    ("cached", "asked", "hit"),
    [
        ({"salt": 1}, {"salt": 1}, 8),
        ({"salt": 1}, {}, 0),
        ({"salt": 1}, {"salt": 2}, 0),
        ({"adapter": 1}, {"adapter": 1}, 8),
        ({"adapter": 1}, {"adapter": 2}, 0),
        ({"items": ((3, 2),)}, {"items": ((3, 2),)}, 8),
        ({"items": ((3, 2),)}, {"items": ((8, 2),)}, 0),
        ({"items": ((3, 2),)}, {"items": ((3, 1),)}, 0),
        ({"items": ((3, 2),)}, {}, 0),
        ({"embeds": 1}, {"embeds": 1}, 8),
        ({"embeds": 1}, {"embeds": 2}, 0),
        ({"embeds": 1}, {}, 0),
        ({"embeds": 1}, {"embeds": 1, "forks": (5,)}, 4),
    ],
)
def test_what_tells_contents_apart(cached, asked, hit):
    """P1, P2, P4: salt, adapter (name and path), item and its offset, embeddings."""
    assert f"hit {hit}" in said(setting(FULL), *computed(12, **cached), Lookup(tokens=12, **asked))[-1]


def test_copies_of_one_name():
    """P10: b and c take the oldest copy, b makes a second one of the third block."""
    operations = (
        Extend(request=0, new=12, prompt=12),
        Extend(request=1, new=12, prompt=12),
        Extend(request=2, new=13, prompt=13),
    )
    outcome = run_trace(Trace(setting=setting(FULL, blocks=12), operations=operations), manager_of, BOTH)

    assert [((1, 2, 3),), ((1, 2, 4),), ((1, 2, 3, 5),)] == [entry.observed.rows for entry in outcome.entries]


def test_an_evicted_block_shortens_the_hit():
    """P11: a hole ends the run, what lies behind it keeps its name."""
    lookups = said(setting(FULL), *computed(16), Lookup(tokens=17), Evict(blocks=(2,)), Lookup(tokens=17))

    assert ["lookup of 17 tokens: hit 16", "lookup of 17 tokens: hit 4"] == [one for one in lookups if "lookup" in one]


def test_a_fine_hit_is_copied():
    """P24, P36: two requests share 6 of 7 tokens; the block that the sixth lies in is copied."""
    built = setting(FULL, ALIGN, hash_block_size=2)
    chunks = (Extend(request=0, new=7, prompt=7), Settle(), Extend(request=0, new=7), Settle())
    outcome = run_trace(
        Trace(
            setting=built,
            operations=(*chunks, Extend(request=0, new=7), Settle(), Extend(request=1, new=4, prompt=10, forks=(6,))),
        ),
        manager_of,
        BOTH,
    )

    assert outcome.entries[-1].call.local == 6
    assert [] == outcome.differences


@pytest.mark.parametrize(("interval", "hit"), [(None, 192), (0, 0), (64, 192), (128, 128)])
def test_retention(interval, hit):
    """P30: what a window keeps decides how far a sibling gets that leaves 60 tokens before the end."""
    groups = (FullAttention(block_size=16), SlidingWindow(block_size=16, window=40))
    built = setting(*groups, prefix_cache_retention_interval=interval)
    resend, sibling = said(built, *computed(260), Lookup(tokens=260), Lookup(tokens=260, forks=(200,)))[-2:]

    assert "hit 256" in resend
    assert f"hit {hit}" in sibling


def test_plain_blocks_are_used_before_named_ones():
    """P13: 60 tokens in blocks of 16 name three blocks; the fourth is plain and comes first."""
    built = setting(FullAttention(block_size=16), blocks=10)
    replay = new_replay(built, manager_of, BOTH)
    run_operations(replay, (*computed(60), Release(request=0)))

    assert [] == replay.outcome_differences
    assert (4, 5, 6, 7, 8, 9, 3, 2, 1) == replay.target.audit().free_order


def test_a_ring_takes_no_part():
    """P21: its row of a hit is empty, and its block size counts for the hit unit but not for the hashes."""
    built = setting(FULL, CircularBuffer(block_size=8, dcp_sharded=False))

    assert ("hit 8", 4) == (said(built, *computed(15), Lookup(tokens=15))[-1][-5:], built.hash_size)


@pytest.mark.parametrize(("ahead", "forks", "hit"), [(0, (), 8), (0, (8,), 12), (1, (), 8), (1, (8,), 4)])
def test_a_session_discards_a_token(ahead, forks, hit):
    """Another takes the place of the sampled one at position 8: names of what lies behind contain the new one.

    With a hash lookahead of 1 the name of 8 contains the discarded token, for which the drafter wrote its K/V: a
    request with that token finds it, one with the new token does not, nor anything behind it.
    """
    built = setting(FULL, num_hash_lookahead_tokens=ahead, num_prefill_lookahead_tokens=ahead)
    session = (*computed(8), Resume(request=0, tokens=6, discard=True), Extend(request=0, new=6), Settle())

    assert said(built, *session, Lookup(tokens=14, forks=forks))[-1].endswith(f"hit {hit}")


@pytest.mark.parametrize(("watched", "order"), [(False, (4, 3, 2, 1)), (True, (3, 4, 2, 1))])
def test_pinned_blocks(watched, order):
    """P13, P15: a pin keeps blocks when their request ends; then they are given back like any others, or at the end."""
    built = setting(FULL, blocks=6)
    replay = new_replay(built, manager_of, BOTH)
    run_operations(replay, (*computed(12), Pin(request=0), Release(request=0), Reset(), Unpin(watched=watched)))

    assert [] == replay.outcome_differences
    assert ("False", (4, 5)) == (replay.entries[-2].observed.outcome, replay.target.audit().free_order[:2])
    run_operations(replay, (Extend(request=1, new=20, prompt=20, salt=1), NewStep()))
    assert ((), (1, 2, 3))[watched] == replay.entries[-1].observed.reused


def test_a_hit_for_a_connector():
    """P26: attention up to 8, no state: 8 if a connector brings that state with what it loads, else nothing."""
    built = setting(FULL, ALIGN, kv_connector=True, divergent_hits=True)
    first = (Extend(request=0, new=8, prompt=9), Settle())
    sibling = Extend(request=1, new=14, prompt=14, forks=(9,))
    entries = [
        run_trace(Trace(setting=built, operations=(*first, Evict(blocks=(3,)), op)), manager_of, BOTH).entries[-1]
        for op in (sibling, Extend(request=1, new=14, prompt=14, forks=(9,), external=3))
    ]

    assert [(0, 0), (8, 3)] == [(entry.call.local, entry.call.external) for entry in entries]


class _Forgetful(CachingManager):
    """A manager that does not find block 6."""

    def __init__(self, setting):
        super().__init__(setting)
        find = self.pool.get_cached_block

        def finds(name, groups):
            found = find(name, groups)
            return found if found and 6 not in [block.block_id for block in found] else None

        self.pool.get_cached_block = finds


def test_a_hit_difference_shows_both_lookups():
    """Group by group: under which bound each was looked up, what it found, and which names were lacking."""
    built = setting(FULL, SlidingWindow(block_size=4, window=5))
    operations = (*computed(13), Extend(request=1, new=13, prompt=13, forks=(11,)))
    [found] = run_trace(Trace(setting=built, operations=operations), _Forgetful, BOTH).differences

    assert [
        "expected:",
        "group 0 full_attention: at most 12: 8, no copy of 12",
        "group 1 sliding_window: at most 8: 8, window of columns 1..1",
        "observed:",
        "group 0 full_attention: at most 12: 8, no copy of 12",
        "group 1 sliding_window: at most 8: 4, no copy of 8",
    ] == found.detail.split("\n")
