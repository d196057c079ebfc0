"""Laws of prefix caching that need no model, each a function of what is under test and of what Hypothesis draws.

`Cache` is a manager that has computed prompts and let them go. Its hits are asked for by the length of the common
prefix; nothing predicts them, two answers are held beside each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from harness.outcome import Options
from harness.trace_run import new_replay
from oracle.call import Query
from oracle.groups import FullAttention, Group, Mamba, SlidingWindow
from oracle.ledger import RUNNING
from oracle.setting import Setting
from oracle.trace import Evict, Extend, Release, Settle

Groups = tuple[Group, ...]
FULL = st.builds(FullAttention, block_size=st.sampled_from((2, 4, 8)))
WINDOWS = st.builds(SlidingWindow, block_size=st.sampled_from((2, 4)), window=st.integers(2, 14))
POSITIONAL: st.SearchStrategy[Groups] = st.one_of(
    st.tuples(FULL), st.tuples(FULL, WINDOWS), st.tuples(FULL, WINDOWS, WINDOWS), st.tuples(WINDOWS, WINDOWS)
)
HYBRIDS: st.SearchStrategy[Groups] = st.one_of(
    POSITIONAL, st.tuples(st.builds(FullAttention, block_size=st.just(4)), st.just(Mamba(block_size=4)))
)

Make = Callable[[Setting], Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]
Law = Callable[[Make, Draw], None]
LAWS: dict[str, Law] = {}


def law(function: Law) -> Law:
    """Add a law."""
    LAWS[function.__name__] = function
    return function


class Cache:
    """A manager with prompts that were computed and released. `make`: a target's class, or an edited oracle's maker."""

    def __init__(self, make: Make, groups: Groups, *prompts: int, chunk: int = 200, blocks: int = 600, **more: Any):
        self.setting = Setting(groups=groups, num_blocks=blocks, max_model_len=200, **({"enable_caching": True} | more))
        options = Options(aspects=frozenset(), memory=False)
        edited = getattr(make, "oracle", False)
        party = make(self.setting) if edited else None
        self.replay = new_replay(self.setting, None if edited else make, options, oracle=party)
        self.party = party if edited else self.replay.target
        self.chunk, self.next = chunk, 0
        for tokens in prompts:
            self.compute(tokens)

    def compute(self, tokens: int, *, keep: bool = False, upto: int = 200, **content: Any) -> int:
        """One more request, chunk by chunk; its number. It is released unless it is kept."""
        request, self.next = self.next, self.next + 1
        chunk = Extend(request=request, new=self.chunk, prompt=tokens, **content)
        for _ in range(tokens + 2):
            self.replay.step(chunk)
            known = self.replay.ledger.requests.get(request)
            if known is None or known.status != RUNNING:
                return request  # refused
            if known.computed >= min(upto, tokens):
                break
            self.replay.step(Settle())
        self.replay.step(Settle())
        if not keep:
            self.replay.step(Release(request=request))
        return request

    def hit(self, tokens: int, *forks: int, **content: Any) -> int:
        """The hit of a prompt that leaves the cached one at `forks`."""
        prefixes = self.replay.ledger.prefixes
        asked = prefixes.begin(forks, **content)
        prefixes.grow(asked, tokens)
        return int(self.party.lookup(Query(-1, asked, tokens, tokens - 1)).tokens)

    def hits(self, tokens: int) -> list[int]:
        """The hits for each length of the common prefix."""
        return [self.hit(tokens + 3, common) for common in range(1, tokens)]

    def content_of(self, name: tuple[int, int]) -> tuple[Any, ...]:
        """A name's group and what it stands for: the tokens, from the last one back."""
        group, node = name
        parents = {one: key for key, one in self.replay.ledger.prefixes.nodes.items()}
        said: list[Any] = [group]
        while node:
            node, *rest = parents[node]
            said.append(tuple(rest))
        return tuple(said)

    def named(self) -> dict[int, set[tuple[Any, ...]]]:
        """What each cached block stands for."""
        names = self.party.audit().names
        return {block: {self.content_of(one) for one in (first, *more)} for block, (first, _, more) in names.items()}

    def shapes(self, request: int) -> list[tuple[int, list[int]]]:
        """Per group the row's length and its null columns."""
        rows = self.party.audit().rows[request]
        return [(len(row), [column for column, block in enumerate(row) if not block]) for row in rows]


@law
def m1_a_longer_common_prefix_never_hits_less(make: Make, draw: Draw) -> None:
    """And a hit is never longer than what is common (M2)."""
    groups, tokens = draw(HYBRIDS), draw(st.integers(8, 60))
    sparse = any(not isinstance(group, FullAttention) for group in groups)
    interval = draw(st.sampled_from((None, 0))) if sparse else None
    hits = Cache(make, groups, tokens, prefix_cache_retention_interval=interval).hits(tokens)

    assert sorted(hits) == hits
    assert all(hit <= common for common, hit in enumerate(hits, start=1))


@law
def m3_a_longer_own_tail_never_hits_less(make: Make, draw: Draw) -> None:
    """Behind the same common prefix."""
    groups, tokens, tail = draw(HYBRIDS), draw(st.integers(8, 60)), draw(st.integers(1, 20))
    common = draw(st.integers(1, tokens - 1))
    cache = Cache(make, groups, tokens)

    assert cache.hit(common + tail, common) <= cache.hit(common + tail + 1, common)


@law
def m4_caching_changes_no_columns(make: Make, draw: Draw) -> None:
    """A request that begins with a hit of c tokens has the row of one that computed them, caching off."""
    groups, tokens, new = draw(POSITIONAL), draw(st.integers(8, 60)), draw(st.integers(1, 9))
    cache = Cache(make, groups, tokens, chunk=new)
    request = cache.compute(tokens + 20, keep=True, upto=1)
    computed = cache.replay.ledger.requests[request].computed - new
    assume(computed > 0)
    plain = Cache(type_of_uncached(make), groups, chunk=computed, enable_caching=False)
    plain.compute(tokens + 20, keep=True, upto=1)
    plain.replay.step(Extend(request=0, new=new))
    for one, number in ((plain, 0), (cache, request)):
        one.replay.step(Settle())
        one.replay.step(Extend(request=number, new=new))

    assert plain.shapes(0) == cache.shapes(request)


@law
def m5_chunks_do_not_matter(make: Make, draw: Draw) -> None:
    """What is found later does not depend on how a prompt was cut (without Mamba, whose states are chunk ends)."""
    groups, tokens = draw(POSITIONAL), draw(st.integers(8, 60))
    one, other = (Cache(make, groups, tokens, chunk=draw(st.integers(1, 60))) for _ in range(2))

    assert one.hits(tokens) == other.hits(tokens)


@law
def m6_a_second_group_of_the_same_spec_changes_nothing(make: Make, draw: Draw) -> None:
    """They are looked up together."""
    groups, tokens = draw(HYBRIDS.filter(lambda groups: len(groups) > 1)), draw(st.integers(8, 60))

    assert Cache(make, groups, tokens).hits(tokens) == Cache(make, (*groups, groups[-1]), tokens).hits(tokens)


@law
def m7_the_order_of_groups_does_not_matter(make: Make, draw: Draw) -> None:
    """Without the drop."""
    groups, tokens = draw(HYBRIDS), draw(st.integers(8, 60))
    other = tuple(draw(st.permutations(groups)))

    assert Cache(make, groups, tokens).hits(tokens) == Cache(make, other, tokens).hits(tokens)


@law
def m8_a_group_fewer_never_hits_less(make: Make, draw: Draw) -> None:
    """With the same hit unit."""
    groups, tokens = draw(HYBRIDS.filter(lambda groups: len(groups) > 2)), draw(st.integers(8, 60))
    more, fewer = (Cache(make, kept, tokens) for kept in (groups, groups[:-1]))
    assume(more.setting.hit_unit == fewer.setting.hit_unit)

    assert all(a <= b for a, b in zip(more.hits(tokens), fewer.hits(tokens), strict=True))


@law
def m9_a_narrower_window_never_hits_less(make: Make, draw: Draw) -> None:
    """With dense retention."""
    size, window, tokens = draw(st.sampled_from((2, 4))), draw(st.integers(3, 14)), draw(st.integers(8, 60))
    wide, narrow = (
        Cache(make, (FullAttention(block_size=4), SlidingWindow(block_size=size, window=one)), tokens)
        for one in (window, draw(st.integers(2, window)))
    )

    assert all(a <= b for a, b in zip(wide.hits(tokens), narrow.hits(tokens), strict=True))


@law
def m10_the_drop_costs_at_most_one_unit(make: Make, draw: Draw) -> None:
    """And never lengthens a hit; full attention of two sizes, where no finding is in the way."""
    sizes, tokens = draw(st.tuples(*[st.sampled_from((2, 4, 8))] * 2)), draw(st.integers(8, 60))
    groups = tuple(FullAttention(block_size=size) for size in sizes)
    plain, dropping = (
        Cache(make, groups, tokens, use_eagle=drops, method="eagle", num_speculative_tokens=1)
        for drops in (False, True)
    )
    unit = plain.setting.scheduler_block_size

    assert all(a - unit <= b <= a for a, b in zip(plain.hits(tokens), dropping.hits(tokens), strict=True))


@law
def m11_a_resend_hits_as_with_dense_retention(make: Make, draw: Draw) -> None:
    """P32: sparser retention keeps what a resend needs, and never gives a longer hit."""
    groups = draw(HYBRIDS.filter(lambda groups: any(not isinstance(group, FullAttention) for group in groups)))
    tokens = draw(st.integers(8, 60))
    dense, sparse = (Cache(make, groups, tokens, prefix_cache_retention_interval=one) for one in (None, 0))

    assert sparse.hit(tokens) == dense.hit(tokens)
    assert all(a <= b for a, b in zip(sparse.hits(tokens), dense.hits(tokens), strict=True))


@law
def m13_renaming_changes_nothing(make: Make, draw: Draw) -> None:
    """Other tokens, another salt, another request's number: cached and found as the first one is."""
    groups, tokens = draw(HYBRIDS), draw(st.integers(8, 60))
    salt, forks = draw(st.integers(0, 3)), draw(st.sampled_from(((), (0,), (1,), (0, 0))))
    cache = Cache(make, groups, tokens)
    cache.next += draw(st.integers(0, 5))
    cache.compute(tokens, salt=salt, forks=forks)

    assert cache.hits(tokens) == [
        cache.hit(tokens + 3, *sorted((*forks, common)), salt=salt) for common in range(1, tokens)
    ]


@law
def an_unrelated_request_changes_no_hit(make: Make, draw: Draw) -> None:
    """As long as it fits in the free blocks that bear no name."""
    groups, tokens, left = draw(POSITIONAL), draw(st.integers(8, 40)), draw(st.integers(0, 6))
    need = sum(-(-tokens // group.block_size) for group in groups)
    cache = Cache(make, groups, tokens, blocks=1 + need + left)
    seen = cache.party.audit()
    plain = sum(1 for block in seen.free_order if block not in seen.names)
    other = max((n for n in range(40) if sum(-(-n // group.block_size) for group in groups) <= plain), default=0)
    assume(other > 0)
    before = cache.hits(tokens)
    cache.compute(other, salt=1)

    assert cache.hits(tokens) == before


@law
def hits_are_those_of_what_survived(make: Make, draw: Draw) -> None:
    """Whatever happened: as if all had been computed in a large pool and what is lost had been evicted there."""
    groups = draw(POSITIONAL)
    prompts = draw(st.lists(st.tuples(st.integers(4, 30), st.integers(0, 30)), min_size=2, max_size=7))
    small = Cache(make, groups, blocks=12 + draw(st.integers(0, 30)))
    large = Cache(make, groups)
    for tokens, fork in prompts:
        for cache in (small, large):
            cache.compute(tokens, forks=(fork,))
    survived = set().union(*small.named().values())
    lost = [block for block, names in large.named().items() if not survived & names]
    large.replay.step(Evict(blocks=tuple(lost)))

    for tokens, fork in prompts:
        assert small.hit(tokens + 1, fork) == large.hit(tokens + 1, fork)


def type_of_uncached(make: Make) -> Make:
    """The same party with caching off: the plain manager, or the plain oracle."""
    if getattr(make, "oracle", False):
        from oracle.allocator import Allocator

        return edited_oracle(Allocator)
    return make


def edited_oracle(make: Make) -> Make:
    """Marks what makes an oracle, which then runs alone."""

    def made(setting: Setting) -> Any:
        return make(setting)

    made.oracle = True  # type: ignore[attr-defined]
    return made
