"""Does coverage guidance find more for the same budget? Mutants of the score, hunted in four ways.

    python -m tests.quality.guidance --seconds 10 --seeds 2 --json figures.json

runs: as a run draws (keys, unrolled). bytes: Hypothesis draws every byte. target: the same, and Hypothesis climbs by
`target()` on the crossings that a trace meets. hypofuzz: HypoFuzz mutates what reached new branches of vLLM and of the
oracle. Each gets the same CPU seconds in a process of its own, with one mutant planted; the traces are those of the
manager level with caching on. HypoFuzz is no dependency: pip install hypofuzz.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings, target
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase

from harness import passes, score
from harness.campaign.levels import Levels
from harness.mutants import mutants_of
from harness.targets import mutated
from strategies import traces

#: examples of a round of `target()`
ROUND = 60
#: of a score's sample those that caching traces killed only after 700 steps or more, and one that survived
HARD = """
v1/core/block_pool.py:366:8 return: return generate_block_hash_extra_keys(request, start, end, start_mm_idx) -> return None
v1/core/block_pool.py:331:46 negation: not block_mask[i - num_cached_blocks] -> block_mask[i - num_cached_blocks]
v1/core/single_type_kv_cache_manager.py:1592:45 constant: 1 -> 2
v1/core/single_type_kv_cache_manager.py:1593:27 operand: first_boundary - start_block -> first_boundary
v1/core/block_pool.py:552:46 operand: num_hash_blocks * self.hash_block_size -> num_hash_blocks
v1/core/block_pool.py:391:15 argument: BlockStored(..., lookahead_token_ids=lookahead_token_ids) -> BlockStored(...)
v1/core/kv_cache_coordinator.py:118:40 minmax: max(0, num_prefill_lookahead - 1) -> min(0, num_prefill_lookahead - 1)
v1/core/kv_cache_coordinator.py:639:8 argument: super().__init__(..., num_hash_lookahead_tokens=num_hash_lookahead_tokens) -> super().__init__(...)
v1/core/kv_cache_coordinator.py:879:24 operand: self.enable_partial_hash_hits and manager_cls.supports_fine_grained_hash_lookup -> manager_cls.supports_fine_grained_hash_lookup
v1/core/kv_cache_utils.py:742:30 branch: dcp_world_size if spec.dcp_sharded else 1 -> dcp_world_size
v1/core/kv_cache_manager.py:192:61 constant: 0 -> 1
v1/core/kv_cache_coordinator.py:882:34 operand: min( curr_hit_length + eagle_margin, len(block_hashes) * self.hash_block_size, ) -> curr_hit_length + eagle_margin
v1/core/kv_cache_manager.py:529:53 operand: request.num_tokens - 1 -> request.num_tokens
""".strip().splitlines()  # noqa: E501  # names as they are


class Ended(BaseException):  # not an Exception: engines keep those
    """The mutant was found, or the budget is spent."""

    def __init__(self, found: bool) -> None:
        self.found = found


class Hunt:
    """One mutant, one way, one budget."""

    def __init__(self, level, seconds: float) -> None:
        self.level = level
        self.seconds = seconds
        self.begin = time.process_time()
        self.traces = 0
        self.crossed: set[str] = set()

    def try_one(self, data: bytes) -> int:
        """Run a trace; the number of crossings that it met."""
        if time.process_time() - self.begin > self.seconds:
            raise Ended(False)
        self.traces += 1
        options = self.level.options
        prediction = passes.predict(data, "caching", options)
        if (
            passes.play(prediction, self.level.make) is not None
            and passes.lockstep(data, "caching", self.level.make, options).differences
        ):
            raise Ended(True)
        self.crossed |= set(prediction.reach.counts)
        return len(prediction.reach.counts)

    def runs(self, number: int) -> None:
        for shard in range(1000):
            drawn: list[bytes] = []
            traces.draw(number, shard, 46, drawn.append)
            for data in drawn:
                self.try_one(data)

    def bytes(self, number: int) -> None:
        self._drawn(number, 10**6, climb=False)

    def target(self, number: int) -> None:
        """The engine climbs in the second half of its examples: rounds, again and again."""
        for again in range(1000):
            self._drawn(1000 * number + again, ROUND, climb=True)

    def _drawn(self, number: int, examples: int, climb: bool) -> None:
        phases = [Phase.generate, Phase.target] if climb else [Phase.generate]

        @seed(number)
        @settings(
            max_examples=examples, database=None, deadline=None, phases=phases, suppress_health_check=list(HealthCheck)
        )
        @given(st.binary(min_size=traces.RUN_LENGTH, max_size=traces.RUN_LENGTH))
        def each(data: bytes) -> None:
            met = self.try_one(data)
            if climb:
                target(float(met), label="crossings")

        each()

    def hypofuzz(self, number: int) -> None:
        from hypofuzz.database import HypofuzzDatabase
        from hypofuzz.hypofuzz import FuzzTarget

        @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.binary(min_size=traces.RUN_LENGTH, max_size=traces.RUN_LENGTH))
        def each(data: bytes) -> None:
            self.try_one(data)

        fuzz = FuzzTarget.from_hypothesis_test(each, database=HypofuzzDatabase(InMemoryExampleDatabase()))
        fuzz.random.seed(number)
        fuzz._enter_fixtures()
        while True:
            fuzz.run_one()


WAYS = ("runs", "bytes", "target", "hypofuzz")


def hunted(levels: Levels, functions, mutant, way: str, number: int, seconds: float) -> dict:
    """What one hunt came to."""

    def work() -> dict:
        functions.plant(mutant)
        hunt = Hunt(levels["manager"], seconds)
        found = False
        try:
            getattr(hunt, way)(number)
        except Ended as ended:
            found = ended.found
        spent = time.process_time() - hunt.begin
        return {"found": found, "seconds": round(spent, 2), "traces": hunt.traces, "crossings": len(hunt.crossed)}

    value, ended, spent = score.survived(work)
    return value or {"found": True, "seconds": round(spent, 2), "traces": 0, "crossings": 0, "ended": ended}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--mutants", type=int, default=len(HARD))
    parser.add_argument("--json", type=Path)
    given_ = parser.parse_args()
    levels = Levels()
    _ = levels["manager"]
    files = tuple(score.FILES)
    known = {one.name: one for file in files for one in mutants_of(mutated.source_of(file), file)}
    functions = mutated.Functions(files)
    gc.collect()
    gc.freeze()
    figures = []
    for name in HARD[: given_.mutants]:
        for way in given_.ways.split(","):
            for number in range(given_.seeds):
                said = hunted(levels, functions, known[name], way, number, given_.seconds)
                figures.append({"mutant": name, "way": way, "seed": number, **said})
                print(json.dumps(figures[-1]), flush=True)
    for way in given_.ways.split(","):
        mine = [one for one in figures if one["way"] == way]
        print(
            f"{way}: {sum(one['found'] for one in mine)} of {len(mine)} found, "
            f"{sum(one['seconds'] for one in mine):.0f} s of CPU, {sum(one['traces'] for one in mine):,} traces",
            file=sys.stderr,
        )
    if given_.json:
        given_.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
