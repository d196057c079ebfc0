"""The harness's own score on a small sample, the same each time: it fails when the share falls."""

from __future__ import annotations

import gc

import pytest

from harness import score, score_page
from harness.mutants import mutants_of
from harness.targets import mutated
from harness.targets.compat import installed_release

#: of each file a few; the configuration files and the kernels take too long for a test
FILES = tuple(file for file in score.FILES if not file.startswith("config/") and "block_table" not in file)
POOL = "v1/core/block_pool.py"
#: by the beginnings of their names, some of each file's: a sample that does not move with the lines that a run executes
SAMPLE = (
    "v1/core/kv_cache_manager.py:324:12 operand",
    "v1/core/kv_cache_manager.py:485:16 comparison",
    "v1/core/kv_cache_manager.py:529:53 operand",
    "v1/core/kv_cache_manager.py:718:15 negation",
    "v1/core/single_type_kv_cache_manager.py:109:26 arithmetic",
    "v1/core/single_type_kv_cache_manager.py:889:11 negation",
    "v1/core/single_type_kv_cache_manager.py:1182:12 operand",
    "v1/core/block_pool.py:344:12 deletion",
    "v1/core/block_pool.py:592:30 branch",
    "v1/core/block_pool.py:635:11 comparison",
    "v1/core/kv_cache_utils.py:983:11 logic",
    "v1/core/sched/scheduler.py:767:43 operand",
    "v1/core/sched/scheduler.py:1871:16 deletion",
    "v1/core/sched/async_scheduler.py:45:16 arithmetic",
    "v1/worker/gpu/warmup.py:64:11 arithmetic",
    "v1/worker/gpu/warmup.py:274:32 negation",
)


def by_name(part: str):
    """A mutant of the pool's file."""
    return next(one for one in mutants_of(mutated.source_of(POOL), POOL) if part in one.name)


@pytest.fixture(scope="module")
def scored(vllm):
    """The score of a small sample."""
    mutants = [one.name for file in FILES for one in mutants_of(mutated.source_of(file), file)]
    names = [next(name for name in mutants if name.startswith(begins)) for begins in SAMPLE]
    plan = score.Plan(sample=len(names), seed=1, steps=4_000, workers=2, files=FILES, release=installed_release())
    return score.run(plan, only=names)


@pytest.mark.slow
def test_the_share_does_not_fall(scored):
    """Of those that can be told from the release; survivors of this budget that a longer run kills are counted."""
    found = score_page.data(scored, score_page.reasons(score_page.reasons_file()))

    assert found["share"] >= 0.85, "\n".join(found["unexplained"])


@pytest.mark.slow
def test_it_is_small_and_quick(scored):
    """Median seconds and operations, as promised in docs/score.md."""
    found = score_page.data(scored, {})

    assert (True, True) == (found["seconds_median"] <= 10, found["size_median"] <= 5)


def test_a_planted_mutant_is_met_wherever_the_function_was_imported(vllm):
    """`BlockPool.get_num_free_blocks` of every pool that is there."""
    gc.freeze()
    functions = mutated.Functions([POOL])
    mutant = by_name("return: return self.free_block_queue.num_free_blocks")
    ((function, code),) = functions.changed(mutant)
    before = function.__code__
    try:
        functions.plant(mutant)
        assert code == function.__code__
        assert ("BlockPool.get_num_free_blocks", before.co_firstlineno) == (code.co_qualname, code.co_firstlineno)
    finally:
        function.__code__ = before


def test_lines_that_run_are_noted(vllm):
    """Those of the function alone."""
    from vllm.v1.core.block_pool import BlockPool

    begins = BlockPool.get_num_free_blocks.__code__.co_firstlineno
    pool = BlockPool(num_gpu_blocks=4, enable_caching=False, hash_block_size=16)
    lines = mutated.executed(pool.get_num_free_blocks, [POOL])[POOL]

    assert lines
    assert all(begins <= line < begins + 10 for line in lines)


def test_an_unknown_mutant_is_refused(vllm):
    """By its name, before anything long."""
    with pytest.raises(score.ScoreError, match="no mutant 'nothing'"):
        score.run(
            score.Plan(sample=1, seed=0, steps=100, workers=1, files=("v1/core/sched/async_scheduler.py",)),
            only=["nothing"],
        )
