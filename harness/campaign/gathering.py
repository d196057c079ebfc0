"""How a corpus is made: few traces for every crossing, then few for the mutants of a score that those do not kill.

For the crossings of a level traces are drawn as a run draws them, until each is met, and a cover is chosen; for the
mutants see `killing.py`. Only traces on which the clean release agrees in everything are taken, so that an entry that
differs says something of what it is run on. An entry stays: a corpus grows level by level, and can be kept after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from attrs import evolve

from harness import passes, rules_grid, score_levels, warmup_run, workload_run
from harness.campaign.corpus import Corpus, Entry
from harness.campaign.cover import cover
from harness.campaign.killing import level_of, with_killers
from harness.campaign.levels import Levels, ManagerLevel, WarmupLevel, crossings_of
from harness.forks import HarnessError, in_a_fork
from harness.outcome import Options
from harness.reach import Reach
from harness.shrink import shrink
from harness.targets.compat import installed_release
from harness.trace_run import run_trace
from harness.tracefile import LEVELS, AnyTrace
from harness.warmup_parties import SHARE, sampled
from harness.worker import EXAMPLES
from oracle.allocator import Allocator
from oracle.budget import RuleTrace
from oracle.trace import Difference, Trace
from oracle.workload import SchedulerTrace
from strategies import traces, warmups, workloads

#: shards a profile that are drawn at most
SHARDS = 60
#: of the warmup's shards those whose kernels are run, in Triton's interpreter
KERNEL_SHARDS = 12
#: candidates that are tried to make a trace of crossings shorter
TRIES = 400
#: seconds by the clock for the crossings of a level
SECONDS = 7200.0
Met = tuple[AnyTrace, frozenset[str]]
Say = Callable[[str], None]


# ------------------------------------------------------------------------------------------------------ crossings


def reached(levels: Levels, trace: AnyTrace) -> frozenset[str] | None:
    """What a trace crosses on the installed release; None where that shows what a corpus must not."""
    met, agrees = levels[trace.level].crossed(trace)
    return met if agrees else None


def drawn(levels: Levels, name: str, seed: int, shard: int) -> Iterator[Met]:
    """One shard of candidates of a level that agree, with what they cross."""
    data: list[bytes] = []
    level = levels[name]
    if isinstance(level, ManagerLevel):
        traces.draw(seed, shard, EXAMPLES, data.append)
        profile = ("scheduler", "caching", "caching", "hostile")[shard % 4]
        for one in data:
            prediction = passes.predict(one, profile, level.options)
            outcome = prediction.outcome
            if not outcome.differences and not outcome.declared and passes.play(prediction, level.make) is None:
                yield outcome.trace, crossings_of(prediction.reach.counts)
        return
    if name == "rules":
        questions = [*rules_grid.cases((1, 2, 3)), *rules_grid.cases(range(4, 17)), *rules_grid.kept_cases((1, 2, 3))]
        every: list[AnyTrace] = [RuleTrace(case=case) for case in questions[shard::SHARDS]]
        every += [RuleTrace(draft_counts=counts) for counts in rules_grid.count_cases()]
    elif isinstance(level, WarmupLevel):
        warmups.draw(seed, shard, warmup_run.EXAMPLES, data.append)
        decoded = [(one, warmups.decode(one, level.options.release)) for one in data]
        plain = evolve(level, options=evolve(level.options, make_tables=None, draft=None))
        for one, trace in decoded:
            chosen = sampled(SHARE, one, trace) and shard < KERNEL_SHARDS
            crossed, agrees = (level if chosen else plain).crossed(trace)
            if agrees:
                yield trace, crossed if chosen else frozenset(crossed - warmup_run.KERNEL_MINIMA.keys())
        return
    else:
        workloads.draw(seed, shard, workload_run.EXAMPLES, data.append)
        every = [workloads.decode(one) for one in data]
    for each in every:
        met = reached(levels, each)
        if met is not None:
            yield each, met


def crossings(levels: Levels, name: str, seed: int, say: Say, had: AbstractSet[str] = frozenset()) -> Iterator[Entry]:
    """The fewest drawn traces that cross all of a level but what it `had`, each cut to what it is there for."""
    want = levels[name].wanted() - had
    if not want:
        return
    candidates: dict[AnyTrace, set[str]] = {}
    left = set(want)
    for shard in range(SHARDS):
        for trace, met in drawn(levels, name, seed, shard):
            candidates[trace] = set(met) & want
            left -= met
        if not left:
            break
    chosen = cover(candidates)
    while wrong := [trace for trace in chosen if reached(levels, trace) is None]:
        for trace in wrong:
            del candidates[trace]
        chosen = cover(candidates)
    left = want - set().union(*chosen.values())
    say(f"{name}: {len(chosen)} of {len(candidates)} traces reach {len(want) - len(left)} of {len(want)} crossings")
    if left:
        say(f"{name}: not reached: {', '.join(sorted(left))}")
    for trace, for_what in chosen.items():
        small = _cut(levels, trace, frozenset(for_what))
        yield Entry(trace=small, why=tuple(sorted(f"reach {name}: {one}" for one in for_what)))


def _cut(levels: Levels, trace: AnyTrace, need: frozenset[str]) -> AnyTrace:
    """The trace without what its crossings do not need, where it still agrees."""
    if isinstance(trace, Trace):
        small: AnyTrace = _shorter(trace, need)
    elif isinstance(trace, SchedulerTrace):
        small = _prefix(levels, trace, need)
    else:
        return trace
    met = reached(levels, small)
    return small if met is not None and need <= met else trace


def _shorter(trace: Trace, need: frozenset[str]) -> Trace:
    """By the shrinker: a candidate is good when the oracle alone crosses what is needed."""
    plain = Options(release=installed_release())

    def evaluate(candidate: Trace) -> list[Difference]:
        reach = Reach()
        outcome = run_trace(candidate, None, plain, reach)
        crossed = need <= {name for name, count in reach.counts.items() if count}
        return [_wish(len(candidate.operations))] if crossed and not outcome.differences else []

    return shrink(trace, _wish(len(trace.operations)), Allocator, plain, TRIES, evaluate).trace


def _wish(operations: int) -> Difference:
    """What the shrinker keeps: a trace that crosses what is needed."""
    return Difference(
        aspect="law",
        step=operations - 1,
        group=None,
        kind="pool",
        rule="wish",
        sign="crossed",
        expected="",
        observed="",
    )


def _prefix(levels: Levels, trace: SchedulerTrace, need: frozenset[str]) -> SchedulerTrace:
    """The shortest beginning of a workload that still crosses what is needed."""
    low, high = 1, len(trace.operations)
    while low < high:
        middle = (low + high) // 2
        met = reached(levels, evolve(trace, operations=trace.operations[:middle]))
        low, high = (low, middle) if met is not None and need <= met else (middle + 1, high)
    return evolve(trace, operations=trace.operations[:low])


# --------------------------------------------------------------------------------------------------------- corpora


def grown(
    corpus: Corpus,
    seed: int,
    say: Say,
    only: Sequence[str],
    wanted: Mapping[str, str] = {},
    steps: int = 0,
    keep: Callable[[Corpus], object] = lambda corpus: None,
) -> Corpus:
    """A corpus with traces for what came, or became rarer, since it was gathered; what it has stays.

    only: for the crossings of these levels. wanted: also for these mutants, by the level of the score that killed them;
    steps: of the hunt for each. keep: is given the corpus whenever a level is done.
    """
    levels = Levels()
    for name in only:
        _ = levels[name]
        entries, ended = in_a_fork(partial(_lacking, levels, name, corpus.entries, seed, say), SECONDS)
        if ended:
            raise HarnessError(f"the crossings of level {name} were not gathered: {ended}")
        corpus = _sorted([*corpus.entries, *entries])
        keep(corpus)
    for level in score_levels.LEVELS:
        if level_of(level) in only and level in wanted.values():
            corpus = _sorted(with_killers(levels, corpus.entries, level, wanted, seed, steps, say))
            keep(corpus)
    return corpus


def _lacking(levels: Levels, name: str, entries: Sequence[Entry], seed: int, say: Say) -> list[Entry]:
    """Entries for the crossings of a level that these do not have.

    In a fork: Triton reads a kernel at its first call, torch starts its threads; a mutant must find neither done.
    """
    had = [levels[name].crossed(entry.trace)[0] for entry in entries if entry.trace.level == name]
    return list(crossings(levels, name, seed, say, frozenset().union(*had)))


def _sorted(entries: list[Entry]) -> Corpus:
    entries.sort(key=lambda entry: (LEVELS.index(entry.trace.level), entry.name))
    return Corpus(release=installed_release(), entries=tuple(entries))
