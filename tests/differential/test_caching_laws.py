"""Laws of prefix caching that need no model: what a longer prefix, another tail, more groups must not change.

Each example caches one prompt on the real manager alone and looks up others. Where the release breaks a law by its
choice of what to keep, the test says which, and that generated prompts find it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from harness.replay import Options, new_replay
from harness.targets.loader import manager_of
from oracle.groups import FullAttention, Group, Mamba, SlidingWindow
from oracle.setting import Setting
from oracle.trace import Extend, Query, Release, Settle

LOOSE = settings(deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))

WINDOWS = st.builds(SlidingWindow, block_size=st.sampled_from((2, 4)), window=st.integers(2, 14))
HYBRIDS: st.SearchStrategy[tuple[Group, ...]] = st.one_of(
    st.tuples(st.builds(FullAttention, block_size=st.sampled_from((2, 4)))),
    st.tuples(st.builds(FullAttention, block_size=st.sampled_from((2, 4, 8))), WINDOWS),
    st.tuples(st.builds(FullAttention, block_size=st.just(4)), st.just(Mamba(block_size=4))),
    st.tuples(st.builds(FullAttention, block_size=st.just(4)), WINDOWS, WINDOWS),
)


class Cache:
    """A real manager that has computed one prompt of `tokens` tokens and let it go."""

    def __init__(self, groups: tuple[Group, ...], tokens: int, **more: Any) -> None:
        self.setting = Setting(groups=groups, num_blocks=600, max_model_len=200, enable_caching=True, **more)
        self.replay = new_replay(self.setting, manager_of, Options(aspects=frozenset({"outcome", "hits"})))
        chunk = Extend(request=0, new=tokens, prompt=tokens)
        while not self.replay.ledger.requests or self.replay.ledger.requests[0].computed < tokens:
            self.replay.step(chunk)
            self.replay.step(Settle())
        self.replay.step(Release(request=0))

    def hit(self, tokens: int, *forks: int) -> int:
        """The hit of a prompt that leaves the cached one at `forks`."""
        prefixes = self.replay.ledger.prefixes
        content = prefixes.begin(forks)
        prefixes.grow(content, tokens)
        return self.replay.target.lookup(Query(-1, content, tokens, tokens - 1)).tokens


@LOOSE
@given(groups=HYBRIDS, tokens=st.integers(8, 90), interval=st.sampled_from((None, 0)))
def test_a_longer_common_prefix_never_hits_less(groups, tokens, interval):
    """M1, M2: and a hit is never longer than what is common."""
    sparse = any(not isinstance(group, FullAttention) for group in groups)
    cache = Cache(groups, tokens, prefix_cache_retention_interval=interval if sparse else None)
    hits = [cache.hit(tokens + 3, common) for common in range(1, tokens)]

    assert sorted(hits) == hits
    assert all(hit <= common for common, hit in enumerate(hits, start=1))


@LOOSE
@given(groups=HYBRIDS, tokens=st.integers(8, 60), common=st.integers(1, 59), tail=st.integers(1, 20))
def test_a_longer_own_tail_never_hits_less(groups, tokens, common, tail):
    """M3."""
    assume(common < tokens)
    cache = Cache(groups, tokens)

    assert cache.hit(common + tail, common) <= cache.hit(common + tail + 1, common)


@LOOSE
@given(groups=HYBRIDS, tokens=st.integers(8, 60), common=st.integers(1, 59))
def test_a_second_group_of_the_same_spec_changes_nothing(groups, tokens, common):
    """M6."""
    assume(common < tokens and len(groups) > 1)

    assert Cache(groups, tokens).hit(tokens, common) == Cache((*groups, groups[-1]), tokens).hit(tokens, common)


@LOOSE
@given(groups=HYBRIDS, tokens=st.integers(8, 60), salt=st.integers(1, 3))
def test_renaming_changes_nothing(groups, tokens, salt):
    """M13: another sequence of tokens is cached and found as the first one is."""
    plain, renamed = Cache(groups, tokens), Cache(groups, tokens)
    renamed.replay.step(Extend(request=1, new=tokens, prompt=tokens, salt=salt))

    assert plain.hit(tokens) == renamed.hit(tokens)


@LOOSE
@given(groups=HYBRIDS, tokens=st.integers(8, 90))
def test_a_resend_hits_as_with_dense_retention(groups, tokens):
    """P32: sparser retention keeps what a resend needs."""
    assume(any(not isinstance(group, FullAttention) for group in groups))
    dense, sparse = (Cache(groups, tokens, prefix_cache_retention_interval=interval) for interval in (None, 0))

    assert sparse.hit(tokens) == dense.hit(tokens)


def _loses(cache: Cache, dense: Cache, tokens: int, *forks: int) -> bool:
    return cache.hit(tokens, *forks) < dense.hit(tokens, *forks)


@pytest.mark.parametrize("which", ["extension", "sibling"])
def test_what_retention_loses_is_found(which):
    """Generated prompts find both: an aligned prompt's extension loses a unit, a sibling near the end loses all.

    A choice of the release (a default of the engine since 0.30), reported as issue 57610 for the sibling.
    """
    found: list[tuple[int, int]] = []

    @LOOSE
    @given(window=st.integers(4, 14), tokens=st.integers(16, 60), back=st.integers(2, 14))
    def look(window: int, tokens: int, back: int) -> None:
        groups = (FullAttention(block_size=4), SlidingWindow(block_size=2, window=window))
        dense, sparse = (Cache(groups, tokens, prefix_cache_retention_interval=interval) for interval in (None, 0))
        forks = () if which == "extension" else (tokens - back,)
        asked = tokens + 5 if which == "extension" else tokens
        if _loses(sparse, dense, asked, *forks):
            found.append((tokens, sparse.hit(asked, *forks)))

    look()

    assert found
    assert which == "extension" or any(hit == 0 for _, hit in found)
