"""Makes a failing trace minimal: fewer operations, requests, groups and features, then smaller numbers.

Works on the trace itself, not on the bytes it came from, so it serves generated traces, files and recordings alike.
A reduction proposes candidates (`harness.shorter`, `.plainer`, `.smaller`); one is kept when it is simpler (`rank`)
and shows the same defect (`same_defect`). Operations that became void do no harm, so every candidate is a legal trace.
The reductions repeat until none of them makes progress (a minimum) or the tries are used up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from attrs import NOTHING, evolve, fields, frozen

from harness import plainer, shorter, smaller
from harness.candidates import Reduction, entries_of, with_operations, with_pool
from harness.outcome import MakeTarget, Options
from harness.suspects import NAMES as CAUSES
from harness.trace_run import run_trace
from oracle.call import GRANTED, Observation
from oracle.groups import KINDS
from oracle.trace import Difference, Evict, Settle, Trace

#: families of kinds and the rule that says how many columns their rows have
COLUMNS = {"attention": "A19", "ring": "A38", "cross-attention": "A39", "mamba align": "A42"}
#: tries (replays of a candidate) before the shrinker gives up; a budget in steps of work, not in seconds
MAX_TRIES = 6000
#: factors by which a pool is enlarged to see whether a wrong row is behind a wrong decision
ROOMY = (2, 8)
#: most blocks by which a call may miss being granted, when the pool that only just grants it is looked for
MOST_KEPT = 32

Evaluate = Callable[[Trace], list[Difference]]
REDUCTIONS: tuple[Reduction, ...] = (
    shorter.drop_operations,
    shorter.drop_requests,
    shorter.begin_later,
    shorter.replace_requests,
    shorter.merge_steps,
    plainer.drop_groups,
    plainer.plainer_groups,
    plainer.plainer_setting,
    plainer.plainer_operations,
    smaller.smaller_numbers,
    smaller.scaled_down,
    plainer.renumber,
)
#: many candidates, so it comes when nothing else makes progress
LAST: tuple[Reduction, ...] = (*REDUCTIONS, smaller.smaller_together)


@frozen
class Shrunk:
    """The smallest failing trace found, its difference, and whether it is a minimum. No tries: it was not shrunk."""

    trace: Trace
    difference: Difference
    tries: int
    minimal: bool

    @property
    def end(self) -> str:
        """How the shrinking ended, in words."""
        if self.minimal:
            return "a minimum"
        return "not a minimum: the tries ran out" if self.tries else "not shrunk"


def defect_of(difference: Difference) -> tuple[str, ...]:
    """What is wrong, wherever it shows: level, aspect, rule, sign, and the known causes among its tags."""
    return (difference.level, difference.aspect, difference.rule, difference.sign, *sorted(CAUSES & {*difference.tags}))


def same_defect(one: Difference, other: Difference) -> bool:
    """Whether `other`, seen on a simpler trace, is the defect `one`.

    Where it shows may only become plainer: kinds and situations may be dropped, never added, and any kind may give way
    to full attention, of which no rule is special, also not how many columns it has.
    """
    plain = evolve(one, rule=other.rule) if {one.rule, other.rule} <= {*COLUMNS.values()} else one
    return (
        defect_of(plain if other.kind == "full_attention" else one) == defect_of(other)
        and {*other.tags} <= {*one.tags}
        and {*other.kind.split("+")} <= {*one.kind.split("+"), "full_attention"}
    )


#: from plain to special
_KINDS = {kind: index for index, kind in enumerate(KINDS)}
_METHODS = {name: index for index, name in enumerate(plainer.METHODS)}


def rank(trace: Trace) -> tuple[object, ...]:
    """The simpler the less: operations, requests, groups, special kinds, values that are no defaults, all numbers."""
    operations, setting = trace.operations, trace.setting
    requests = [op.request for op in operations if hasattr(op, "request")]
    special = [_METHODS.get(setting.method, len(_METHODS)), *(_KINDS[type(group)] for group in setting.groups)]
    accepted = [taken for op in operations if isinstance(op, Settle) for _, taken in op.accepted]
    evicted = [block for op in operations if isinstance(op, Evict) for block in op.blocks]
    odd, total = 0, setting.watermark_blocks + sum(accepted) + sum(evicted)
    for part in (setting, *setting.groups, *operations):
        for attribute in fields(type(part)):
            value = getattr(part, attribute.name)
            if value != attribute.default and attribute.name not in ("request", "groups"):
                odd += attribute.default is not NOTHING
                total += value if isinstance(value, int) else 0
    return len(operations), len({*requests}), len(setting.groups), sum(special), odd, total, requests


class Shrinker:
    """One trace being made smaller."""

    def __init__(self, trace: Trace, difference: Difference, evaluate: Evaluate, max_tries: int) -> None:
        self.best = trace
        self.found = self.difference = difference
        self.evaluate = evaluate
        self.max_tries = max_tries
        self.tries = 0
        self.seen: set[Trace] = set()
        self.rank = rank(trace)
        self.tighten = False

    def run(self) -> Shrunk:
        """Repeat the reductions until none makes progress; of a decision also on pools that are as tight as before."""
        decision = _is_decision(self.difference)
        self.tighten = decision
        self._reduce(shorter.drop_requests)
        self.tighten = False
        self._repeat(REDUCTIONS)
        self.tighten = decision
        self._repeat(LAST)
        return Shrunk(self.best, self.difference, self.tries, self.tries < self.max_tries)

    def _repeat(self, reductions: tuple[Reduction, ...]) -> None:
        before = None
        while before is not self.best and self.tries < self.max_tries:
            before = self.best
            self._attempt(with_operations(before, before.operations[: self.difference.step + 1]))
            for reduction in reductions:
                self._reduce(reduction)

    def _reduce(self, reduction: Reduction) -> None:
        """Try what a reduction proposes; it is told the best trace after each."""
        candidates = reduction(self.best)
        with suppress(StopIteration):
            candidate = next(candidates)
            while True:
                if not self._attempt(candidate) and self.tighten and candidate is not None:
                    self._attempt(tightened(candidate, granted=self.difference.rule == "A16"))
                candidate = candidates.send(self.best)

    def _attempt(self, trace: Trace | None) -> bool:
        """Keep a candidate if it is simpler and shows the defect."""
        if trace is None or self.tries >= self.max_tries or trace in self.seen or rank(trace) >= self.rank:
            return False
        self.seen.add(trace)
        self.tries += 1
        for difference in self.evaluate(trace):
            if same_defect(self.found, difference):
                self.best, self.difference, self.rank = trace, difference, rank(trace)
                return True
        return False


def _is_decision(difference: Difference) -> bool:
    return difference.rule in ("A13", "A15", "A16")


def tightened(trace: Trace, granted: bool) -> Trace | None:
    """The trace on the smallest pool in which the oracle grants its last call, or on one block less: it refuses."""
    blocks = trace.setting.num_blocks
    answer = _last_answer(trace, blocks)
    if answer is None:
        return None
    if answer.outcome == GRANTED:  # the rest may only be kept back: for the watermark, for reserved blocks
        blocks = max(2, blocks - answer.free)
    for num_blocks in range(blocks, blocks + MOST_KEPT):
        answer = _last_answer(trace, num_blocks)
        if answer is not None and answer.outcome == GRANTED:
            return with_pool(trace, num_blocks if granted else num_blocks - 1)
    return None


def _last_answer(trace: Trace, num_blocks: int) -> Observation | None:
    """What the oracle says to the last operation on another pool."""
    resized = with_pool(trace, num_blocks)
    entries = [] if resized is None else entries_of(resized)
    return entries[-1].expected if entries else None


def _row_behind(trace: Trace, difference: Difference, evaluate: Evaluate) -> tuple[Trace, Difference] | None:
    """The wrong row from which a wrong decision follows: it shows when there is room for what is asked."""
    if not _is_decision(difference) or CAUSES & {*difference.tags}:
        return None
    asked = with_operations(trace, trace.operations[: difference.step + 1])
    for factor in ROOMY:
        roomy = with_pool(asked, factor * trace.setting.num_blocks)
        if roomy is None:
            break
        for found in evaluate(roomy):
            if found.aspect in ("columns", "nulls", "free", "ids") and found.sign != "passed the gate":
                return roomy, found
    return None


def shrink(
    trace: Trace,
    difference: Difference,
    make_target: MakeTarget,
    options: Options | None = None,
    max_tries: int = MAX_TRIES,
    evaluate: Evaluate | None = None,
) -> Shrunk:
    """The smallest trace that shows the defect `difference` of `trace`. `evaluate`: how a candidate is run.

    With an audit after each step the trace may show an earlier difference: that is where it begins. What does not show
    when the trace is run alone, for example that two runs differ (W6), is not shrunk.
    """
    given = options or Options()
    closely = evolve(given, audit_every=1, keep_entries=False)

    def run(candidate: Trace) -> list[Difference]:
        return run_trace(candidate, make_target, closely).differences

    evaluate = evaluate or run
    shown = evaluate(trace)
    if not any(same_defect(difference, found) for found in shown):
        if not shown or difference.rule in ("W6", "process"):
            return Shrunk(trace, difference, 0, False)
        difference = shown[0]
    begin = _row_behind(trace, difference, evaluate) or (trace, difference)
    small = Shrinker(*begin, evaluate, max_tries).run()
    behind = _row_behind(small.trace, small.difference, evaluate)
    if behind is None:
        return small
    again = Shrinker(*behind, evaluate, max_tries - small.tries).run()
    return evolve(again, tries=small.tries + again.tries)
