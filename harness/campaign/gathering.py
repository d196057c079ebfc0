"""How a corpus is made: traces for every crossing, traces for every mutant that a score killed, the fewest of both.

For the crossings traces are drawn as a run draws them, until each is met; for a mutant the levels hunt as the score's
do, where no trace so far kills it, and what they find is made minimal. Then a cover is chosen. Only traces on
which the clean release agrees in everything are taken, so that an entry that differs says something of what it is run
on.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from attrs import define, evolve, field

from harness import findings, passes, rules_grid, score, score_levels, warmup_run, workload_run
from harness.campaign.corpus import Corpus, Entry
from harness.campaign.cover import cover
from harness.campaign.levels import Levels, ManagerLevel, WarmupLevel, crossings_of
from harness.mutants import Mutant, mutants_of
from harness.outcome import Options
from harness.reach import Reach
from harness.shrink import shrink
from harness.targets import mutated
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
SHARDS = 12
#: of the warmup's shards those whose kernels are run, in Triton's interpreter
KERNEL_SHARDS = 4
#: candidates that are tried to make a trace of crossings shorter
TRIES = 400
Met = tuple[AnyTrace, frozenset[str]]
Say = Callable[[str], None]
NOTHING: Mapping[str, AbstractSet[str]] = {}


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


def crossings(
    levels: Levels, names: Sequence[str], seed: int, say: Say, had: Mapping[str, AbstractSet[str]] = NOTHING
) -> Iterator[Entry]:
    """The fewest drawn traces that cross everything but what a level `had`, each cut to what it is there for."""
    for name in names:
        want = levels[name].wanted() - had.get(name, frozenset())
        if not want:
            continue
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


# -------------------------------------------------------------------------------------------------------- mutants


def killed(page: Path) -> dict[str, str]:
    """Name and level of the mutants that a page of a score (docs/score.md) shows as killed."""
    text = page.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \| (\w+) \| \S+ \|", text, re.MULTILINE)
    return {name: level for name, level in rows if level in score_levels.LEVELS}


@define(eq=False)
class Killers:
    """Traces that kill mutants: `entries` so far, those of crossings first."""

    levels: Levels
    ground: score.Ground
    entries: list[Entry]
    kills: dict[str, set[str]] = field(factory=dict)
    """Mutant -> names of the entries that kill it."""

    def hunt(self, mutant: Mutant, name: str) -> Entry | None:
        """A trace for a mutant that no entry kills, at the level that the score says; None where there is none."""

        def run() -> AnyTrace | None:
            self.ground.functions.plant(mutant)
            level = self.ground.levels[name]
            met = level.hunt(score.wait)
            score.wait(score.SHRINK_SECONDS)
            return None if met is None else level.smallest(met) or met.trace

        trace, _, _ = score.survived(run)
        if trace is None or reached(self.levels, trace) is None:
            return None
        return Entry(trace=trace, why=())

    def known(self, mutant: Mutant, entries: list[Entry]) -> bool:
        """Note which of some entries kill a mutant; whether one does."""
        self.kills[mutant.name] = self.try_all(mutant, entries)
        return bool(self.kills[mutant.name])

    def try_all(self, mutant: Mutant, entries: list[Entry]) -> set[str]:
        """Names of the entries on which a mutant shows."""
        asked = {_level_of(name) for name in score.FILES[mutant.file]}
        chosen = [entry for entry in entries if entry.trace.level in asked]
        shown: set[str] = set()
        while chosen:
            with tempfile.NamedTemporaryFile() as stream:
                progress = Path(stream.name)

                def run(chosen: list[Entry] = chosen, progress: Path = progress) -> set[str]:
                    self.ground.functions.plant(mutant)
                    found: set[str] = set()
                    for number, entry in enumerate(chosen):
                        progress.write_text(f"{number} {' '.join(sorted(found))}", encoding="ascii")
                        score.wait()
                        if _shows(self.levels, entry.trace):
                            found.add(entry.name)
                    return found

                found, ended, _ = score.survived(run)
                if not ended:
                    return shown | (found or set())
                number, *before = progress.read_text(encoding="ascii").split() or ["0"]
            shown |= {*before, chosen[int(number)].name}
            chosen = chosen[int(number) + 1 :]
        return shown


def _shows(levels: Levels, trace: AnyTrace) -> bool:
    """Whether a mutant answers otherwise; what it raises in our code is its doing too."""
    try:
        return bool(levels[trace.level].differences(trace)[0])
    except Exception:
        return True


def _level_of(name: str) -> str:
    """A level of the score as a trace has it."""
    return {score_levels.CACHING: "manager", score_levels.KERNELS: "warmup"}.get(name, name)


def build(page: Path, seed: int, steps: int, say: Say, only: Sequence[str] = LEVELS) -> Corpus:
    """The corpus of the installed release. page: of the score whose mutants are wanted; seed, steps: of that score.

    only: these levels' crossings, and the mutants that they have killed.
    """
    levels = Levels()
    for name in only:
        _ = levels[name]
    entries = list(crossings(levels, only, seed, say))
    targets = {name: level for name, level in killed(page).items() if _level_of(level) in only}
    files = tuple(score.FILES)
    known = {one.name: one for file in files for one in mutants_of(mutated.source_of(file), file)}
    declared = findings.Declared(findings.load(), installed_release())
    names = tuple(name for name in score_levels.LEVELS if name in targets.values())
    ground = score.Ground(
        score_levels.build(names, steps, seed, installed_release(), declared), mutated.Functions(files)
    )
    killers = Killers(levels, ground, entries)
    for number, (name, level) in enumerate(targets.items(), 1):
        mutant = known.get(name)
        if mutant is None:
            say(f"{number}/{len(targets)} not in this release: {name}")
            continue
        if killers.known(mutant, killers.entries):
            say(f"{number}/{len(targets)} killed already: {name}")
            continue
        entry = killers.hunt(mutant, level)
        if entry is not None and killers.known(mutant, [entry]):
            killers.entries.append(entry)
            say(f"{number}/{len(targets)} a trace of its own: {name}")
        else:
            say(f"{number}/{len(targets)} not killed by a trace alone: {name}")
    return _fewest(killers, say)


def grown(corpus: Corpus, seed: int, say: Say) -> Corpus:
    """A corpus with traces for the crossings that came, or became rarer, since it was gathered; what it has stays."""
    levels = Levels()
    names = [name for name in LEVELS if any(entry.trace.level == name for entry in corpus.entries)]
    had: dict[str, set[str]] = {name: set() for name in names}
    for entry in corpus.entries:
        had[entry.trace.level] |= levels[entry.trace.level].crossed(entry.trace)[0]
    return _sorted([*corpus.entries, *crossings(levels, names, seed, say, had)])


def _sorted(entries: list[Entry]) -> Corpus:
    entries.sort(key=lambda entry: (LEVELS.index(entry.trace.level), entry.name))
    return Corpus(release=installed_release(), entries=tuple(entries))


def _fewest(killers: Killers, say: Say) -> Corpus:
    """The cover of crossings and mutants."""
    every = {entry.name: entry for entry in killers.entries}
    covers = {name: set(entry.why) for name, entry in every.items()}
    for name, entry in every.items():
        met = reached(killers.levels, entry.trace) or frozenset()
        covers[name] |= {
            f"reach {entry.trace.level}: {one}" for one in met & killers.levels[entry.trace.level].wanted()
        }
    for mutant, names in killers.kills.items():
        for name in names:
            covers[name].add(f"mutant {mutant}")
    chosen = cover(covers)
    covered: set[str] = set().union(*covers.values())
    say(f"{len(chosen)} of {len(every)} traces: {sum(one.startswith('mutant') for one in covered)} mutants killed")
    return _sorted([evolve(every[name], why=tuple(sorted(why))) for name, why in chosen.items()])
