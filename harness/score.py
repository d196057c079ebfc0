"""A score of the harness: which share of small defects, planted one by one in the release, does it find?

First the clean release runs under the same budget: it must show nothing, and the lines that it executes are noted. Then
a sample of mutants of those lines (an equal share of each file, chosen by the seed alone) is run, each in a forked
process on the levels that execute its line, until the first difference that no finding declares. That one is shrunk.
A level that shows none is asked at last whether the findings declared for it still show, as `findings check` does.
"""

from __future__ import annotations

import gc
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

from attrs import define, evolve, field, frozen

from harness import findings, score_levels
from harness.forks import HarnessError, in_a_fork
from harness.mutants import Mutant, mutants_of
from harness.score_levels import CACHING, KERNELS, MANAGER, RULES, SCHEDULER, WARMUP, Level, Met
from harness.targets import mutated
from oracle.errors import SlotcheckError

#: seconds of CPU without a new trace before a mutant counts as hung (a busy machine makes none), and of a whole shrink
HANG_SECONDS, SHRINK_SECONDS = 20.0, 120.0
#: seconds by the clock for a process that waits for ever, and bytes that a mutant may take beside what is there
WAIT_SECONDS, MORE_MEMORY = 1800.0, 4 << 30
#: the files that decide on blocks, below vllm/, and the levels that may be asked about them, the likeliest first
CORE = (MANAGER, CACHING, WARMUP, SCHEDULER)
FILES: dict[str, tuple[str, ...]] = {
    "v1/core/kv_cache_manager.py": CORE,
    "v1/core/single_type_kv_cache_manager.py": CORE,
    "v1/core/kv_cache_coordinator.py": CORE,
    "v1/core/block_pool.py": CORE,
    "v1/core/kv_cache_utils.py": CORE,
    "v1/core/sched/scheduler.py": (SCHEDULER,),
    "v1/core/sched/async_scheduler.py": (SCHEDULER,),
    "v1/worker/gpu/warmup.py": (WARMUP,),
    "v1/worker/gpu/block_table.py": (KERNELS,),
    "config/speculative.py": (RULES, SCHEDULER),
    "config/vllm.py": (RULES, SCHEDULER),
    "config/scheduler.py": (RULES, SCHEDULER),
}
#: of the configuration files only these functions: the others are about models, compilation and devices
RULE_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "config/speculative.py": (
        "max_num_new_slots_for_drafting",
        "use_eagle",
        "needs_eagle_block_drop",
        "use_eagle_block_drop",
        "use_dflash",
        "use_dspark",
        "uses_draft_model",
        "uses_dynamic_speculative_decoding",
        "use_ngram_gpu",
        "use_multi_module_mtp",
        "_verify_args",
    ),
    "config/vllm.py": (
        "max_concurrent_batches",
        "max_in_flight_tokens",
        "num_speculative_tokens",
        "num_lookahead_tokens",
        "num_prefill_lookahead_tokens",
        "num_hash_lookahead_tokens",
        "uniform_decode_query_len",
        "_set_max_num_scheduled_tokens",
    ),
    "config/scheduler.py": ("__post_init__", "verify_max_model_len"),
}
Value = TypeVar("Value")
#: level -> file -> lines that it executes
Reached = dict[str, dict[str, set[int]]]


class ScoreError(SlotcheckError):
    """No score can be told."""


@frozen(kw_only=True)
class Plan:
    """What to score. steps: the manager level's budget for each mutant; the other levels' follow from it."""

    sample: int
    seed: int
    steps: int
    workers: int
    files: tuple[str, ...] = tuple(FILES)
    release: str | None = None


@frozen(kw_only=True)
class Judged:
    """What became of a mutant. level: which killed it, "" if none did. size: operations of the shrunk trace.

    steps: of that level until the difference; None where the process died or hung. seconds: of CPU, in all levels that
    were asked, and in the shrinking after that; by the clock where the process died.
    """

    mutant: Mutant
    asked: tuple[str, ...]
    level: str = ""
    aspect: str = ""
    fingerprint: str = ""
    steps: int | None = None
    seconds: float = 0.0
    size: int | None = None
    shrink_seconds: float = 0.0


@define
class Score:
    """What came of it. possible: mutants on executed lines, and all, by file."""

    plan: Plan
    judged: list[Judged] = field(factory=list)
    possible: dict[str, tuple[int, int]] = field(factory=dict)
    seconds: float = 0.0

    @property
    def survivors(self) -> list[Judged]:
        """Those that no level killed."""
        return [one for one in self.judged if not one.level]


def wait(seconds: float = HANG_SECONDS) -> None:
    """From now on the process may use so much CPU time; then SIGPROF kills it."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


@define(eq=False)
class Ground:
    """What all mutants share: levels ready to be forked, the functions in memory."""

    levels: Mapping[str, Level]
    functions: mutated.Functions
    declared: Sequence[findings.Finding] = ()

    def clean(self, name: str, files: Sequence[str]) -> dict[str, set[int]]:
        """The lines that a level executes, on the release as it is; ScoreError when it shows a difference."""
        met: list[Met | None] = []

        def run() -> tuple[dict[str, set[int]], str]:
            lines = mutated.executed(
                lambda: met.append(self.levels[name].hunt(partial(wait, HANG_SECONDS * 10))), files
            )
            first = met[0] or self.levels[name].gone(self.declared, wait)
            return lines, first.difference.fingerprint if first is not None else ""

        value, ended, _ = survived(run)
        shown = ended if value is None else value[1]
        if value is None or shown:
            raise ScoreError(
                f"the release as it is shows {shown} at level {name}: declare it, or mend the oracle, before a score"
            )
        lines: dict[str, set[int]] = value[0]
        return lines

    def judge(self, mutant: Mutant, asked: tuple[str, ...]) -> Judged:
        """Plant a mutant and ask the levels, one after the other."""
        judged = Judged(mutant=mutant, asked=asked)
        for name in asked:
            met, ended, seconds = self._hunt(mutant, name)
            judged = evolve(judged, seconds=judged.seconds + seconds)
            if ended:
                return evolve(judged, level=name, aspect="process", fingerprint=ended)
            if met is not None:
                said = met.difference
                judged = evolve(judged, level=name, aspect=said.aspect, fingerprint=said.fingerprint, steps=met.steps)
                return self._shrunk(judged, met)
        return judged

    def _hunt(self, mutant: Mutant, name: str) -> tuple[Met | None, str, float]:
        def run() -> tuple[Met | None]:
            self.functions.plant(mutant)
            level = self.levels[name]
            return (level.hunt(wait) or level.gone(self.declared, wait),)

        value, ended, seconds = survived(run)
        return None if value is None else value[0], ended, seconds

    def _shrunk(self, judged: Judged, met: Met) -> Judged:
        def run() -> int | None:
            self.functions.plant(judged.mutant)
            wait(SHRINK_SECONDS)
            return self.levels[judged.level].size(met)

        size, _, seconds = survived(run)
        return evolve(judged, size=size, shrink_seconds=seconds)


def survived(work: Callable[[], Value]) -> tuple[Value | None, str, float]:
    """`work()` in a fork, how the fork ended if it gave nothing, and its CPU seconds (by the clock where it died).

    Memory is limited: a loop without end fills it before it is seen to hang. What stops the harness itself is as
    visible as a killed process.
    """
    start = time.monotonic()

    def limited() -> tuple[Value, float]:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE_MEMORY,) * 2)
        value = work()
        return value, time.process_time()

    try:
        answer, ended = in_a_fork(limited, WAIT_SECONDS)
    except (HarnessError, SlotcheckError) as error:
        answer, ended = None, f"stops the harness: {str(error).splitlines()[0]}"
    ended = "hang" if ended == "killed by SIGPROF" else ended
    return (None, ended, time.monotonic() - start) if answer is None else (answer[0], ended, answer[1])


def choose(
    plan: Plan, reached: Reached, changes: Callable[[Mutant], bool]
) -> tuple[list[Mutant], dict[str, tuple[int, int]]]:
    """The sample, by file in turn, and how many mutants each file has on executed lines and in all.

    `changes`: whether a mutant's code differs from the file's at all.
    """
    queues: list[Iterator[Mutant]] = []
    possible = {}
    for file in plan.files:
        every = [one for one in mutants_of(mutated.source_of(file), file) if _of_rules(one)]
        there = [one for one in every if levels_of(one, reached)]
        possible[file] = len(there), len(every)
        shuffled = Random(f"{plan.seed} {file}").sample(there, len(there))
        queues.append(filter(changes, shuffled))
    taken: dict[str, Mutant] = {}
    while queues and len(taken) < plan.sample:
        for queue in list(queues):
            mutant = next(queue, None)
            if mutant is None:
                queues.remove(queue)
            elif len(taken) < plan.sample:
                taken.setdefault(mutant.name, mutant)
    return sorted(taken.values(), key=lambda one: (plan.files.index(one.file), one.line, one.column)), possible


def _of_rules(mutant: Mutant) -> bool:
    only = RULE_FUNCTIONS.get(mutant.file)
    return only is None or mutant.function.rpartition(".")[2] in only


def levels_of(mutant: Mutant, reached: Reached) -> tuple[str, ...]:
    """The levels that execute a mutant's statement, in the order in which they are asked."""
    lines = range(mutant.first, mutant.last + 1)
    return tuple(
        name
        for name in FILES[mutant.file]
        if name in reached and not reached[name].get(mutant.file, set()).isdisjoint(lines)
    )


def run(plan: Plan, say: Callable[[str], None] = lambda line: None, only: Sequence[str] = ()) -> Score:
    """Score the installed release. `only`: names of mutants to judge in place of a sample."""
    start = time.monotonic()
    named = _named(plan, only)
    names = tuple(name for name in score_levels.LEVELS if any(name in FILES[file] for file in plan.files))
    declared = findings.Declared(findings.load(), plan.release)
    levels = score_levels.build(names, plan.steps, plan.seed, plan.release, declared)
    functions = mutated.Functions(plan.files)
    gc.collect()
    gc.freeze()
    ground = Ground(levels, functions, declared.findings)
    with ThreadPoolExecutor(plan.workers) as pool:
        reached: Reached = {}
        for name, lines in zip(names, pool.map(lambda name: ground.clean(name, plan.files), names), strict=True):
            reached[name] = lines
            say(f"the clean release agrees at level {name}")
        chosen, possible = (named, {}) if named else choose(plan, reached, lambda one: bool(functions.changed(one)))
        score = Score(plan, possible=possible)
        for number, judged in enumerate(pool.map(partial(_judge, ground, reached), chosen), 1):
            score.judged.append(judged)
            say(f"{number}/{len(chosen)} {line_of(judged)}")
    score.seconds = time.monotonic() - start
    return score


def _judge(ground: Ground, reached: Reached, mutant: Mutant) -> Judged:
    return ground.judge(mutant, levels_of(mutant, reached))


def _named(plan: Plan, only: Sequence[str]) -> list[Mutant]:
    """The mutants of these names."""
    known = {one.name: one for file in plan.files for one in mutants_of(mutated.source_of(file), file)} if only else {}
    for name in only:
        if name not in known:
            raise ScoreError(f"the release has no mutant {name!r}: names are as the table of a score prints them")
    return [known[name] for name in only]


def line_of(judged: Judged) -> str:
    """One mutant on one line."""
    name = judged.mutant.name
    if not judged.level:
        return f"survived {', '.join(judged.asked)} ({judged.seconds:.1f} s): {name}"
    steps = "" if judged.steps is None else f" after {judged.steps:,} steps"
    size = "" if judged.size is None else f", {judged.size} operations"
    return f"killed by {judged.level}{steps}{size} ({judged.seconds:.1f} s): {name}: {judged.fingerprint}"
