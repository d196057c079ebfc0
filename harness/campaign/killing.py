"""Traces that kill mutants of a score: what a corpus has for a level's mutants, and hunts for what it lacks.

A mutant is planted in a fork. The traces at hand are asked first; where none shows it the level hunts as the score's
does, and what it finds is made minimal. Only traces on which the clean release agrees are taken.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from attrs import define, evolve, field

from harness import findings, score, score_levels
from harness.campaign.corpus import Corpus, Entry
from harness.campaign.cover import cover
from harness.campaign.levels import Levels
from harness.mutants import Mutant, mutants_of
from harness.targets import mutated
from harness.targets.compat import installed_release
from harness.tracefile import AnyTrace
from oracle.errors import SlotcheckError

MUTANT = "mutant "
Say = Callable[[str], None]


def killed(page: Path) -> dict[str, str]:
    """Name and level of the mutants that a page of a score (docs/score.md) shows as killed."""
    if not page.is_file():
        raise SlotcheckError(f"no page of a score {page}; slotcheck score --page writes one")
    text = page.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \| (\w+) \| \S+ \|", text, re.MULTILINE)
    return {name: level for name, level in rows if level in score_levels.LEVELS}


def level_of(name: str) -> str:
    """A level of the score as a trace has it."""
    return {score_levels.CACHING: "manager", score_levels.KERNELS: "warmup"}.get(name, name)


def mutants_by(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Mutants that entries are there for, each with those entries."""
    told: dict[str, list[Entry]] = {}
    for entry in entries:
        for why in entry.why:
            if why.startswith(MUTANT):
                told.setdefault(why.removeprefix(MUTANT), []).append(entry)
    return told


@cache
def mutants() -> dict[str, Mutant]:
    """Those of the imported release, by name."""
    return {one.name: one for file in score.FILES for one in mutants_of(mutated.source_of(file), file)}


@define(eq=False)
class Planter:
    """Plants mutants in forks of this process and asks traces. Built when the levels that are asked have been."""

    levels: Levels
    functions: mutated.Functions = field(factory=lambda: mutated.Functions(tuple(score.FILES)))

    def killers(self, mutant: Mutant, entries: Sequence[Entry]) -> set[str]:
        """Names of the entries on which a mutant shows; one that ends or blocks its process shows."""
        shown: set[str] = set()
        left = list(entries)
        while left:
            with tempfile.NamedTemporaryFile() as stream:
                progress = Path(stream.name)
                found, ended, _ = score.survived(partial(self._asked, mutant, left, progress))
                if not ended:
                    return shown | (found or set())
                number, *before = progress.read_text(encoding="ascii").split() or ["0"]
            shown |= {*before, left[int(number)].name}
            left = left[int(number) + 1 :]
        return shown

    def _asked(self, mutant: Mutant, entries: Sequence[Entry], progress: Path) -> set[str]:
        self.functions.plant(mutant)
        found: set[str] = set()
        for number, entry in enumerate(entries):
            progress.write_text(f"{number} {' '.join(sorted(found))}", encoding="ascii")
            score.wait()
            if _shows(self.levels, entry.trace):
                found.add(entry.name)
        return found

    def hunted(self, mutant: Mutant, ground: score_levels.Level) -> Entry | None:
        """A trace on which a mutant shows and the release agrees, as small as a score's time for shrinking makes it.

        None where the level's budget has none.
        """

        def hunt() -> score_levels.Met | None:
            self.functions.plant(mutant)
            return ground.hunt(score.wait)

        met, _, _ = score.survived(hunt)
        if met is None:
            return None

        def smallest() -> AnyTrace | None:
            self.functions.plant(mutant)
            score.wait(score.SHRINK_SECONDS)
            return ground.smallest(met)

        small, _, _ = score.survived(smallest)
        return self._agreeing(small or met.trace)

    def _agreeing(self, trace: AnyTrace | None) -> Entry | None:
        if trace is None:
            return None
        agrees, _, _ = score.survived(lambda: self.levels[trace.level].crossed(trace)[1])
        return Entry(trace=trace, why=()) if agrees else None


def _shows(levels: Levels, trace: AnyTrace) -> bool:
    """Whether a mutant answers otherwise; what it raises in our code is its doing too."""
    try:
        return bool(levels[trace.level].differences(trace)[0])
    except Exception:
        return True


def with_killers(
    levels: Levels, entries: Sequence[Entry], name: str, wanted: Mapping[str, str], seed: int, steps: int, say: Say
) -> list[Entry]:
    """Entries that also kill the mutants of one level of the score; those that were there stay, and say what they kill.

    wanted: mutants and the level that killed them. seed, steps: which traces are hunted, and how many; the score's.
    """
    there = mutants_by(entries)
    lacking = [mutant for mutant, level in wanted.items() if level == name and mutant not in there]
    if not lacking:
        return list(entries)
    _ = levels[level_of(name)]
    ground = score_levels.build((name,), steps, seed, installed_release(), _declared())[name]
    planter = Planter(levels)
    had = [entry for entry in entries if entry.trace.level == level_of(name)]
    new: dict[str, Entry] = {}
    kills: dict[str, set[str]] = {entry.name: set() for entry in had}
    hunted: list[Mutant] = []
    for number, text in enumerate(lacking, 1):
        mutant = mutants().get(text)
        if mutant is None:
            said = "not in this release"
        elif old := planter.killers(mutant, had):
            said = "killed already"
            kills[min(old)].add(text)
        elif planter.killers(mutant, list(new.values())):
            said = "killed by another's trace"
            hunted.append(mutant)
        elif (entry := planter.hunted(mutant, ground)) and planter.killers(mutant, [entry]):
            said = "a trace of its own"
            new[entry.name] = entry
            hunted.append(mutant)
        else:
            said = "not killed by a trace alone"
        say(f"{name} {number}/{len(lacking)} {said}: {text}")
    covers: dict[str, set[str]] = {key: set() for key in new}
    for mutant in hunted:
        for key in planter.killers(mutant, list(new.values())):
            covers[key].add(mutant.name)
    chosen = cover(covers)
    kept = [*entries, *(new[key] for key in chosen)]
    return [_told(entry, (kills | chosen).get(entry.name, set())) for entry in kept]


def _told(entry: Entry, kills: set[str]) -> Entry:
    return evolve(entry, why=tuple(sorted({*entry.why, *(MUTANT + one for one in kills)})))


def _declared() -> findings.Declared:
    return findings.Declared(findings.load(), installed_release())


def surviving(corpus: Corpus, only: Sequence[str], say: Say) -> list[str]:
    """The mutants that do not show on the entries that are there for them. only: of these, all if empty."""
    told = mutants_by(corpus.entries)
    for name in only:
        if name not in told or name not in mutants():
            raise SlotcheckError(f"the corpus kills no mutant {name!r} of this release: names are as its file has them")
    chosen = only or tuple(name for name in told if name in mutants())
    levels = Levels()
    for level in sorted({entry.trace.level for name in chosen for entry in told[name]}):
        _ = levels[level]
    planter = Planter(levels)
    lived = []
    for number, name in enumerate(chosen, 1):
        shown = planter.killers(mutants()[name], told[name])
        say(f"{number}/{len(chosen)} {'killed' if shown else 'lives'}: {name}")
        if not shown:
            lived.append(name)
    return lived
