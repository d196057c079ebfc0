"""Laws of prefix caching that need no model: the release keeps them, and each is seen broken by a planted defect.

Where the release breaks a law by its choice of what to keep, the test says which, and that generated prompts find it.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.targets.loader import manager_of
from oracle.cached_allocator import CachingAllocator
from oracle.call import Hit
from oracle.groups import FullAttention, SlidingWindow
from oracle.setting import Setting
from tests.differential.caching_laws import LAWS, Cache, Make, edited_oracle
from tests.quality.in_the_cache import CACHE_DEFECTS

LOOSE = settings(
    deadline=None, database=None, derandomize=True, max_examples=40, suppress_health_check=list(HealthCheck)
)
MANY = settings(LOOSE, max_examples=400, report_multiple_bugs=False)


def holds(name: str, make: Make, how: settings) -> None:
    """Run one law; AssertionError when it is broken."""

    @how
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        LAWS[name](make, data.draw)

    run()


@pytest.mark.parametrize("name", LAWS)
def test_the_release_keeps(name):
    """A law."""
    holds(name, manager_of, LOOSE)


def _names_outlive_their_block(target: CachingAllocator) -> None:
    """P11: a name that has ended is still found."""
    pool = target.pool
    pool.forget = lambda block, told=True: pool.names.pop(block, None)  # type: ignore[method-assign]


def _salt_is_dropped(target: CachingAllocator) -> None:
    """P2: whoever has a salt finds nothing."""
    _hits(target, lambda query, hit: 0 if query.content.salt else hit)


def _wide_windows_find_more(target: CachingAllocator) -> None:
    """P18: the window's need is taken from its complement."""
    for one in target.finder.classes:
        if isinstance(one.kind, SlidingWindow):
            one.kind = evolve(one.kind, window=max(2, 16 - one.kind.window))


def _two_groups_find_nothing(target: CachingAllocator) -> None:
    """P22: with two groups."""
    if len(target.setting.groups) == 2:
        _hits(target, lambda query, hit: 0)


def _no_hit_of_eight(target: CachingAllocator) -> None:
    """P22: some length is never a hit."""
    _hits(target, lambda query, hit: hit if hit != 8 else 0)


def _nothing_is_removed(target: CachingAllocator) -> None:
    """A14: with caching on, dead columns stay."""
    for rule in target.rules:
        rule.remove = lambda *arguments: None  # type: ignore[method-assign]


def _full_attention_must_come_first(target: CachingAllocator) -> None:
    """P21: in the order of the configuration too."""
    dense = [isinstance(group, FullAttention) for group in target.setting.groups]
    if any(dense) and not dense[0]:
        _hits(target, lambda query, hit: 0)


def _the_drop_costs_three(target: CachingAllocator) -> None:
    """P23: units."""
    if target.setting.use_eagle:
        _hits(target, lambda query, hit: max(0, hit - 2 * target.setting.scheduler_block_size))


def _a_remainder_of_seven(target: CachingAllocator) -> None:
    """P16: a bound with a remainder is rounded away."""
    _hits(target, lambda query, hit: hit if query.tokens % 7 else 0)


def _hits(target: CachingAllocator, change: Any) -> None:
    lookup = target.lookup

    def looks(query):
        hit = lookup(query)
        tokens = change(query, hit.tokens)
        return hit if tokens == hit.tokens else Hit(tokens, hit.junction, tuple(() for _ in hit.rows))

    target.lookup = looks  # type: ignore[method-assign]


BREAKS = {
    "m1_a_longer_common_prefix_never_hits_less": _no_hit_of_eight,
    "m3_a_longer_own_tail_never_hits_less": _a_remainder_of_seven,
    "m4_caching_changes_no_columns": _nothing_is_removed,
    "m5_chunks_do_not_matter": CACHE_DEFECTS["named_late"],
    "m6_a_second_group_of_the_same_spec_changes_nothing": _two_groups_find_nothing,
    "m7_the_order_of_groups_does_not_matter": _full_attention_must_come_first,
    "m8_a_group_fewer_never_hits_less": _two_groups_find_nothing,
    "m9_a_narrower_window_never_hits_less": _wide_windows_find_more,
    "m10_the_drop_costs_at_most_one_unit": _the_drop_costs_three,
    "m11_a_resend_hits_as_with_dense_retention": CACHE_DEFECTS["window_one_block_long"],
    "m13_renaming_changes_nothing": _salt_is_dropped,
    "an_unrelated_request_changes_no_hit": CACHE_DEFECTS["plain_blocks_last"],
    "hits_are_those_of_what_survived": _names_outlive_their_block,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_a_planted_defect_breaks(name):
    """Each law, by a defect of an oracle."""

    def make(setting: Setting) -> CachingAllocator:
        target = CachingAllocator(setting)
        BREAKS[name](target)
        return target

    with pytest.raises(AssertionError):
        holds(name, edited_oracle(make), MANY)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_the_oracle_keeps(name):
    """A law, by itself."""
    holds(name, edited_oracle(CachingAllocator), LOOSE)


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
        dense, sparse = (
            Cache(manager_of, groups, tokens, prefix_cache_retention_interval=interval) for interval in (None, 0)
        )
        forks = () if which == "extension" else (tokens - back,)
        asked = tokens + 5 if which == "extension" else tokens
        if _loses(sparse, dense, asked, *forks):
            found.append((tokens, sparse.hit(asked, *forks)))

    look()

    assert found
    assert which == "extension" or any(hit == 0 for _, hit in found)
