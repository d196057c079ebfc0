"""May we move from one release to another? The same traces on both, each beside the oracle by its own rules.

Every difference is sorted: **regression** (new, and the older release did it right), **fixed** (the older one's,
no finding of the newer one), **intended** (the rules say so: a row of the table, with its reference), **declared** (a
finding that covers the newer one, with what the same traces showed on the older), **unknown**
(both have it, or the rules of the newer one are not confirmed). Then interface drift: parameters and fields that the
project uses. The manager level runs with caching off and, where it is specified for both releases, on; so does the
scheduler level; the warmup level runs without its kernels.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from harness.findings import Finding, load
from harness.outcome import Options
from harness.passes import Asked, predict
from harness.reach import plain_minima
from harness.side import Side
from harness.verdict import folder_name
from harness.worker import EXAMPLES
from harness.workload_run import EXAMPLES as WORKLOADS
from oracle.release_table import Rule
from oracle.releases import OF_TRACES, Choices, changed, choices_of, confirmed, in_force, runs
from strategies.traces import draw
from strategies.warmups import draw as draw_warmups
from strategies.workloads import draw as draw_workloads

#: what the shards of a gate have, in turn
TURNS = ("scheduler", "caching", "scheduler", "warmup", "hostile", "workload")
#: what a turn is called on the page
CALLED = {
    "scheduler": "manager, caching off",
    "hostile": "manager, caching off",
    "caching": "manager, caching on",
    "warmup": "warmup",
    "workload": "scheduler",
}
#: which level's rules a turn is judged by, and must be specified for both releases; the manager's where none is given
LEVELS = {"caching": "caching", "warmup": "warmup", "workload": "scheduler"}
#: traces a shard, by turn
SIZES = {"workload": WORKLOADS}
#: rules that no field of Choices decides and traces show all the same: lookahead, charges, blocks of a warmup
CHOSEN_ELSEWHERE = ("D-L", "B", "W")
#: regressions that are shrunk and reported
MOST_REPORTS = 8
ALONE = Options(aspects=frozenset(), memory=False)


@define
class Sorted:
    """What a gate found. Counters hold traces, by fingerprint, finding or rule."""

    older: str
    newer: str
    seed: int = 0
    shards: int = 0
    traces: int = 0
    steps: int = 0
    seconds: float = 0.0
    by_level: Counter[str] = field(factory=Counter)
    """Steps of each level; a step of the warmup level is a warmup."""
    regressions: Counter[str] = field(factory=Counter)
    unknown: Counter[str] = field(factory=Counter)
    fixed: Counter[str] = field(factory=Counter)
    intended: Counter[str] = field(factory=Counter)
    declared: Counter[str] = field(factory=Counter)
    declared_before: Counter[str] = field(factory=Counter)
    """What the older release showed of the newer one's findings."""
    findings: dict[str, Finding] = field(factory=dict)
    """The declared ones, by name."""
    reports: dict[str, str] = field(factory=dict)
    """Fingerprint of a regression -> its report folder, beside the page."""
    tree: str = ""
    """The folder that the newer one was imported from, if it is no release at hand."""
    canary: bool = True
    """A planted defect was caught on both."""
    reach: Counter[str] = field(factory=Counter)
    """Crossings that the traces met on the newer one."""
    drift: list[tuple[str, str, str]] = field(factory=list)
    """Name, what the older one has that the newer one has not, and the other way round."""

    def covered(self, name: str) -> bool:
        """Whether a finding is the newer release's too."""
        return name in self.findings and self.findings[name].covers(self.newer)

    @property
    def bad(self) -> bool:
        """Something stands in the way of the newer release."""
        return bool(self.regressions or self.unknown)

    @property
    def missed(self) -> list[str]:
        """Crossings that were not met often enough, of those that the older release can show."""
        return [name for name, least in plain_minima(self.older).items() if self.reach[name] < least]

    @property
    def passed(self) -> bool:
        """Nothing stands in the way, and the gate could have seen it."""
        return not self.bad and self.canary and not self.missed

    @property
    def verdict(self) -> str:
        """In a sentence."""
        if self.bad:
            return "**Not yet:** there are regressions or unknown differences."
        if not self.canary:
            return "**Broken:** a planted defect was not caught: this gate could not have failed."
        if self.missed:
            return f"**Inconclusive:** not reached often enough: {', '.join(self.missed)}; give it more --budget."
        return "Nothing stands in the way."

    @property
    def changed(self) -> list[tuple[Rule | None, Rule]]:
        """The rows of the table that are not the same in both: the older one's, the newer one's."""
        return changed(self.older, self.newer)

    def data(self) -> dict[str, Any]:
        """The object of `--json`."""
        return {
            "from": self.older,
            "to": self.newer,
            "tree": self.tree,
            "passed": self.passed,
            "canary": self.canary,
            "missed": self.missed,
            "seed": self.seed,
            "traces": self.traces,
            "steps": self.steps,
            "levels": dict(sorted(self.by_level.items())),
            "seconds": round(self.seconds, 1),
            "regressions": dict(sorted(self.regressions.items())),
            "unknown": dict(sorted(self.unknown.items())),
            "fixed": dict(sorted(self.fixed.items())),
            "intended": dict(sorted(self.intended.items())),
            "declared": dict(sorted(self.declared.items())),
            "declared_before": dict(sorted(self.declared_before.items())),
            "reports": dict(sorted(self.reports.items())),
            "drift": [{"name": name, "gone": gone, "new": new} for name, gone, new in self.drift],
        }


def run(
    older: str,
    newer: str,
    *,
    seconds: float | None,
    seed: int,
    out: Path,
    steps: int | None = None,
    show: Callable[[Sorted], object] = lambda now: None,
) -> Sorted:
    """Compare two releases for some seconds or steps, in whole shards. TargetError when one cannot be imported."""
    start = time.monotonic()
    sides = [Side(older, older), Side(newer, older)]
    try:
        first, second = [str(side.start()["release"]) for side in sides]
        found = Sorted(first, second, seed=seed, tree="" if newer == second else newer)
        found.findings = {finding.name: finding for finding in load()}
        for side in sides:
            side.send({"canary": True})
        caught = [side.take()["caught"] for side in sides]
        found.canary = all(caught)
        examples: dict[str, tuple[bytes, str]] = {}
        while _goes_on(found, time.monotonic() - start, seconds, steps):
            _one_shard(found, sides, examples)
            show(found)
        for name, (data, profile) in list(examples.items())[:MOST_REPORTS]:
            folder = folder_name(name)
            sides[1].ask({"report": True, "data": data.hex(), "profile": profile, "out": str(out / folder)})
            found.reports[name] = folder
        for side in sides:
            side.send({"interface": True})
        found.drift = drift(*[side.take() for side in sides])
    finally:
        for side in sides:
            side.close()
    found.seconds = time.monotonic() - start
    return found


def _goes_on(found: Sorted, passed: float, seconds: float | None, steps: int | None) -> bool:
    """Whether another shard is wanted: one in any case, then until a limit that is given is reached."""
    ended = (seconds is not None and passed >= seconds) or (steps is not None and found.steps >= steps)
    return found.shards == 0 or not ended


def _one_shard(found: Sorted, sides: list[Side], examples: dict[str, tuple[bytes, str]]) -> None:
    """The next traces on both sides at once, and on the oracle with both sets of rules meanwhile."""
    number, profile = found.shards, TURNS[found.shards % len(TURNS)]
    level = LEVELS.get(profile, "manager")
    if not (runs(found.older, level) and runs(found.newer, level)):
        profile, level = "scheduler", "manager"
    size = SIZES.get(profile, EXAMPLES)
    question = {"shard": number, "seed": found.seed, "examples": size, "profile": profile}
    for side in sides:
        side.send(question)
    drawn: list[bytes] = []
    {"warmup": draw_warmups, "workload": draw_workloads}.get(profile, draw)(found.seed, number, size, drawn.append)
    for data in drawn if profile in ("scheduler", "hostile") else ():
        found.intended.update(responsible(data, profile, found.older, found.newer))
    answers = [side.take() for side in sides]
    found.shards += 1
    found.traces += answers[1]["traces"]
    found.steps += answers[1]["steps"]
    found.by_level[CALLED[profile]] += answers[1]["steps"]
    found.reach.update(answers[1]["reach"])
    before, after = ({seen["place"]: seen for seen in answer["seen"]} for answer in answers)
    for place in sorted({*before, *after}):
        _sort(found, before.get(place, _NOTHING), after.get(place, _NOTHING), level)
        for name in after.get(place, _NOTHING)["new"]:
            if name in found.regressions:
                examples.setdefault(name, (drawn[place], profile))


_NOTHING: dict[str, Any] = {"new": [], "declared": []}


def _sort(found: Sorted, before: dict[str, Any], after: dict[str, Any], level: str) -> None:
    """Sort what one trace showed on the two releases."""
    for name in after["new"]:
        kind = found.regressions if confirmed(found.newer, level) and name not in before["new"] else found.unknown
        kind[name] += 1
    both = [name for name in before["declared"] if name in after["declared"] or found.covered(name)]
    if not after["new"]:
        found.fixed.update([*before["new"], *(name for name in before["declared"] if name not in both)])
    found.declared.update(after["declared"])
    found.declared_before.update(both)


def _alone(data: bytes, profile: str, release: str, limits: str, choices: Choices) -> list[Asked]:
    return predict(data, profile, evolve(ALONE, release=release, limits=limits), choices).asked


def _answers(rule: Rule) -> bool:
    """Whether a rule decides what a manager with caching off answers to a trace that both releases can have."""
    return rule.decides is not None and rule.decides[0] not in OF_TRACES and rule.spec[0] == "A"


def responsible(data: bytes, profile: str, older: str, newer: str) -> list[str]:
    """The rules that make the oracle answer one trace otherwise for the newer release; each is taken alone."""
    ours, theirs = choices_of(older), choices_of(newer)
    changed = [
        (rule.name, rule.decides)
        for rule in in_force(newer).values()
        if _answers(rule)
        and rule.decides is not None
        and getattr(ours, rule.decides[0]) != getattr(theirs, rule.decides[0])
    ]
    if not changed:
        return []
    before = _alone(data, profile, newer, older, ours)
    return [
        name
        for name, (field_name, value) in changed
        if _alone(data, profile, newer, older, evolve(ours, **{field_name: value})) != before
    ]


def drift(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[tuple[str, str, str]]:
    """Parameters and fields that one of two interfaces has alone."""
    rows = []
    for name in sorted({*before, *after}):
        if name not in after or name not in before:
            rows.append((name, "all of it" if name not in after else "", "all of it" if name not in before else ""))
            continue
        gone = [part for part in before[name] if part not in after[name]]
        new = [part for part in after[name] if part not in before[name]]
        if gone or new:
            rows.append((name, ", ".join(gone), ", ".join(new)))
    return rows


# -------------------------------------------------------------------------------------------------------- pages


NUMBERS = """\
The numbers of one that covers both may differ: other rules lead the trace elsewhere, or another defect comes first."""
LEGEND = """\
Each release is judged by its own. A number: so many traces of the manager with caching off get another answer by this
rule alone. *Compared*: its cases are among what the traces are drawn from. *Not compared*: no trace that both can run
shows it."""


def _levels(found: Sorted) -> str:
    """What was run, by level."""
    said = [
        f"{name} {count:,} {'warmups' if name == 'warmup' else 'steps'}"
        for name, count in sorted(found.by_level.items())
    ]
    return "; ".join(said) or "nothing"


def _unseen(old: Rule | None, rule: Rule) -> str:
    """Why a changed rule has no number: both sides have it in their oracle, or no trace can show it."""
    if rule.decides is None or (old is not None and old.decides == rule.decides):
        drawn = rule.spec.startswith(CHOSEN_ELSEWHERE)
    else:
        drawn = rule.decides[0] not in OF_TRACES
    return "compared" if drawn else "not compared"


def _section(title: str, counts: Counter[str], none: str) -> list[str]:
    lines = [f"## {title}", ""]
    if not counts:
        return [*lines, none, ""]
    rows = [f"| {name} | {count:,} |" for name, count in sorted(counts.items())]
    return [*lines, "| what | traces |", "| --- | --- |", *rows, ""]


def _declared(found: Sorted) -> list[str]:
    """The newer release's findings that either met."""
    lines = [f"## Declared findings of {found.newer}", ""]
    names = sorted({*found.declared, *found.declared_before})
    if not names:
        return [*lines, "None was met.", ""]
    said = (
        f"Each is argued in its folder under reports/. Those that do not cover {found.older} came with {found.newer}."
    )
    lines += [f"{said} {NUMBERS}", "", f"| what | releases | traces on {found.older} | on {found.newer} |"]
    lines.append("| --- | --- | --- | --- |")
    for name in names:
        releases = found.findings[name].releases if name in found.findings else ""
        lines.append(f"| {name} | {releases} | {found.declared_before[name]:,} | {found.declared[name]:,} |")
    return [*lines, ""]


def markdown(found: Sorted) -> str:
    """The page."""
    size = f"{found.traces:,} traces, {found.steps:,} steps on both releases (seed {found.seed})"
    lines = [
        f"# vLLM {found.older} to {found.newer}{f' in {found.tree}' if found.tree else ''}: KV-cache slot allocation",
        "",
        f"{found.verdict} {size}, kinds and fields that both have: {_levels(found)}.",
        "",
        *_section("Regressions", found.regressions, "None."),
        *[f"- `{name}`: {folder}/report.md" for name, folder in sorted(found.reports.items())],
        *([""] if found.reports else []),
        *_section("Unknown", found.unknown, "None."),
        *_section("Fixed", found.fixed, "Nothing that these traces met."),
        *_declared(found),
        "## Rules that changed on purpose",
        "",
    ]
    if found.changed:
        lines += [LEGEND, "", "| rule | before | now | upstream | traces that show it |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        for old, rule in found.changed:
            seen = f"{found.intended[rule.name]:,}" if _answers(rule) else _unseen(old, rule)
            before = old.value if old else "-"
            lines.append(f"| {rule.name} ({rule.spec}) | {before} | {rule.value} | {rule.reference} | {seen} |")
    else:
        lines.append("None in the table.")
    lines += ["", "## Interface", ""]
    if found.drift:
        lines += ["| name | gone | new |", "| --- | --- | --- |"]
        lines += [f"| `{name}` | {_code(gone)} | {_code(new)} |" for name, gone, new in found.drift]
    else:
        lines.append("What the project uses is the same.")
    return "\n".join(lines).rstrip() + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def junit(found: Sorted) -> str:
    """One test case a difference that stands in the way, and one for the rest."""
    from xml.etree import ElementTree as ET

    bad = [("regression", name, count) for name, count in sorted(found.regressions.items())]
    bad += [("unknown", name, count) for name, count in sorted(found.unknown.items())]
    suite = ET.Element(
        "testsuite",
        name=f"slotcheck gate {found.older} to {found.newer}",
        tests=str(len(bad) + 1),
        failures=str(len(bad)),
        time=f"{found.seconds:.1f}",
    )
    ET.SubElement(suite, "testcase", classname="gate", name=f"{found.traces} traces")
    for kind, name, count in bad:
        case = ET.SubElement(suite, "testcase", classname=f"gate.{kind}", name=name)
        ET.SubElement(case, "failure", message=f"{kind} in {count} trace(s)").text = found.reports.get(name, "")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"
