"""The film of a manager trace: what every request holds after every operation, who is free, what differs and why.

The trace is replayed once more, with an audit after each operation: the target's where there is one, else the oracle's.
A film is plain data (JSON); `harness.page.render` puts it on a page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, evolve, field

from harness.forks import HANG_SECONDS, in_a_fork, process_difference
from harness.outcome import MakeTarget, Options, Outcome, TargetRaised
from harness.page import deltas
from harness.replay import Replay
from harness.report.reasons import reason_of
from harness.report.table import lines_of
from harness.report.terms import GLOSSARY
from harness.report.title import title
from harness.report.walk import Moment, moments_of
from harness.trace_run import new_replay, run_trace
from oracle.allocator import Allocator
from oracle.breakdown import Breakdown, Formula
from oracle.call import Row, Rows
from oracle.groups import Group
from oracle.setting import Setting
from oracle.trace import Audit, Difference, NamedAudit, Operation, Trace

#: what an operation leaves of a party: rows, free queue, blocks that bear a name
State = tuple[dict[int, Rows], Row, frozenset[int]]
NOTHING: State = ({}, (), frozenset())


@define
class Formulas:
    """The formulas of a film: a step names its own by number, and gives the values of its terms alone."""

    known: dict[Formula, int] = field(factory=dict)
    said: list[dict[str, Any]] = field(factory=list)

    def add(self, what: str, breakdown: Breakdown) -> list[Any]:
        """[formula, what it counts, value, values of its terms]."""
        formula = breakdown.formula
        number = self.known.setdefault(formula, len(self.known))
        if number == len(self.said):
            terms = [[name, GLOSSARY.get(name, "")] for name, _ in breakdown.terms]
            self.said.append({"name": formula.name, "text": formula.text, "terms": terms})
        return [number, what, breakdown.value, [value for _, value in breakdown.terms]]


def describe_groups(groups: Sequence[Group], dcp_size: int) -> list[dict[str, Any]]:
    """Kind and tokens a column of each group."""
    return [{"kind": group.kind, "tokens": group.tokens_per_column(dcp_size)} for group in groups]


@define
class Recorder:
    """Follows a replay and keeps what changed at each operation."""

    replay: Replay
    frames: list[dict[str, Any]] = field(factory=list)
    state: State = NOTHING

    def step(self, operation: Operation) -> None:
        """Run one operation and look at everything."""
        self.replay.step(operation)
        self.frames.append(self._changes(self._look()))

    def _look(self) -> State:
        replay = self.replay
        if replay.target is not None:
            try:
                return _state(replay.target.audit())
            except TargetRaised:  # it is said as a difference where a replay audits; here the last state stays
                return self.state
        return _state(replay.oracle.audit())

    def _changes(self, now: State) -> dict[str, Any]:
        before, self.state = self.state, now
        named = [sorted(now[2] - before[2]), sorted(before[2] - now[2])]
        changes = {
            "rows": deltas.rows(before[0], now[0]),
            "queue": deltas.queue(before[1], now[1]),
            "named": named if any(named) else [],
        }
        return {name: change for name, change in changes.items() if change}

    def expected(self, queue: bool) -> dict[str, Any]:
        """What the oracle holds and the target does not, after the last operation: rows and the free queue."""
        ours, free, _ = _state(self.replay.oracle.audit())
        theirs = self.state[0]
        empty: Rows = tuple(() for _ in self.replay.setting.groups)
        found = []
        for request in sorted({*ours, *theirs}):
            for group, row in enumerate(ours.get(request, empty)):
                if row != theirs.get(request, empty)[group]:
                    found.append([request, group, row])
        said: dict[str, Any] = {"rows": found} if found else {}
        return said | ({"queue": free} if queue and free != self.state[1] else {})


def _state(audit: Audit) -> State:
    named = frozenset(audit.names) if isinstance(audit, NamedAudit) else frozenset()
    return audit.rows, audit.free_order, named


def make_film(trace: Trace, make_target: MakeTarget | None, options: Options, name: str) -> dict[str, Any]:
    """The film of a trace; `make_target` None: of the oracle alone. `name`: what the page is of.

    A target that kills its process or does not answer is survived: the oracle's film, and how the process ended.
    """
    if make_target is None:
        return _film(trace, None, options, name)
    film, ended = in_a_fork(lambda: _film(trace, make_target, options, name), HANG_SECONDS)
    if not ended:
        made: dict[str, Any] = film
        return made
    alone = _film(trace, None, options, name)
    alone["marks"].append(mark(process_difference(trace, ended), ""))
    return alone


def _film(trace: Trace, make_target: MakeTarget | None, options: Options, name: str) -> dict[str, Any]:
    given = evolve(options, audit_every=1, keep_entries=True)
    if given.release is not None:
        trace = evolve(trace, setting=evolve(trace.setting, release=given.release))
    replay = new_replay(trace.setting, make_target, given)
    recorder = Recorder(replay, state=({}, replay.oracle.audit().free_order, frozenset()))
    start = recorder.state[1]
    for operation in trace.operations:
        if replay.over:
            break
        recorder.step(operation)
    expected = recorder.expected(queue=True) if replay.target is not None and recorder.frames else {}
    if not replay.over:
        replay.finish()
    outcome = replay.result()
    _complete(outcome)
    said = {"title": name, "against": _against(trace.setting, make_target), "start": start}
    return said | filmed(outcome, recorder.frames, options.declared, expected, 0)


def filmed(
    outcome: Outcome,
    frames: list[dict[str, Any]],
    declared: Callable[[Difference], bool],
    expected: dict[str, Any],
    first: int,
) -> dict[str, Any]:
    """The film of an outcome that kept its entries, but for its title. frames: of its operations from `first` on."""
    formulas = Formulas()
    _say(outcome, frames, formulas, first)
    marks = [mark(one, declared_as(declared, one)) for one in outcome.declared]
    marks += [mark(one, "") | {"beside": expected} for one in outcome.differences]
    for one in marks:
        one["at"] -= first
    marks = [one for one in marks if one["at"] >= 0]
    setting = outcome.trace.setting
    return {
        "kind": "rows",
        "setting": setting_lines(setting),
        "groups": describe_groups(setting.groups, setting.dcp_size),
        "blocks": setting.num_blocks,
        "begun": first > 0,
        "names": setting.enable_caching,
        "formulas": formulas.said,
        "frames": frames,
        "marks": marks,
    }


def _complete(outcome: Outcome) -> None:
    """The step that raised has no entry: what the oracle alone says of it."""
    if len(outcome.entries) < outcome.steps:
        alone = run_trace(outcome.trace, None, Options(frozenset(), audit_every=1, keep_entries=True))
        outcome.entries += alone.entries[len(outcome.entries) :]


def _say(outcome: Outcome, frames: list[dict[str, Any]], formulas: Formulas, first: int) -> None:
    """What each operation was, in words and numbers."""
    oracle = Allocator(outcome.trace.setting)
    lines, moments = lines_of(outcome)[first:], moments_of(outcome)[first:]
    for frame, line, moment in zip(frames, lines, moments, strict=True):
        said = {"words": line.operation, "expected": line.expected, "observed": line.observed, "free": line.free}
        frame |= {name: "refused" if text == "X" else text for name, text in said.items() if text}
        if moment.call is not None:
            frame["request"] = moment.call.request
            frame["terms"] = _terms(oracle, moment, formulas)


def _terms(oracle: Allocator, moment: Moment, formulas: Formulas) -> list[Any]:
    call, before, groups = moment.call, moment.before, oracle.setting.groups
    assert call is not None
    named = [f"group {index} {group.kind}" for index, group in enumerate(groups)]
    found: list[tuple[str, Breakdown]] = []
    if call.full_sequence_must_fit:
        gate = oracle.gate_reasons(call, before)
        found += [(f"gate, {what}", one) for what, one in zip(named, gate, strict=True)]
    found += zip(named, oracle.reasons(call, before), strict=True)
    return [formulas.add(what, one) for what, one in found]


def declared_as(declared: Callable[[Difference], bool], difference: Difference) -> str:
    """The name of the finding that declares a difference, where what declares it knows names."""
    explain = getattr(declared, "explain", None)
    finding = None if explain is None else explain(difference)
    return "declared" if finding is None else str(finding.name)


def with_findings(
    declared: Callable[[Difference], bool], known: Sequence[Difference], new: Sequence[Difference]
) -> list[tuple[Difference, str]]:
    """Differences with the finding that declares each, "" for none."""
    return [(one, declared_as(declared, one)) for one in known] + [(one, "") for one in new]


def mark(difference: Difference, declared: str) -> dict[str, Any]:
    """A difference at its step. `declared`: the finding that declares it, "" for none.

    Of its detail only what the terms of the step do not say: which of them, changed alone, would give what was seen.
    """
    reason = reason_of(difference.rule)
    return {
        "at": max(difference.step, 0),
        "title": title(difference),
        "rule": f"{difference.rule}: {reason.why}",
        "expected": difference.expected,
        "observed": difference.observed,
        "detail": [line for line in difference.detail.splitlines() if "would give" in line],
        "declared": declared,
    }


def _against(setting: Setting, make_target: MakeTarget | None) -> str:
    if make_target is None:
        return f"The oracle alone, by the rules of {setting.release}."
    return f"The real manager's blocks, the oracle's beside them where they differ; rules of {setting.release}."


def setting_lines(setting: Setting) -> list[tuple[str, str]]:
    """The setting without its defaults, as in a report but without Markdown."""
    from harness.report.folder import setting_rows  # it writes folders, of which a page is a part

    return [(name, text.strip("`")) for name, text in setting_rows(setting)]
