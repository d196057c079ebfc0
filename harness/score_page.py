"""A score as data and as tables: by file, by level, the survivors with their reasons.

Why a mutant survived is written down in reports/score/survivors.toml, by its name: equivalent (no run can tell it from
the release), unreachable (needs a device or a part that is not run), out of scope (decides on no block), or missed (the
harness should have seen it). Only the last counts against the share; a survivor without a reason fails the command.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from attrs import frozen

from harness import findings
from harness.score import Judged, Plan, Score
from harness.targets.compat import installed_release
from oracle.errors import SlotcheckError

EQUIVALENT, UNREACHABLE, OUTSIDE, MISSED = "equivalent", "unreachable", "out of scope", "missed"
REASONS = (EQUIVALENT, UNREACHABLE, OUTSIDE, MISSED)


@frozen
class Reason:
    """Why a mutant survived."""

    verdict: str
    why: str


def reasons_file() -> Path:
    """Where the reasons are, beside the declared findings."""
    return findings.folder() / "score" / "survivors.toml"


def reasons(path: Path) -> dict[str, Reason]:
    """The reasons by mutant; none where the file is missing. SlotcheckError for one that cannot be used."""
    try:
        text = path.read_text(encoding="utf-8")
        entries = tomllib.loads(text).get("survivor", [])
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SlotcheckError(f"{path} cannot be read: {error}; it holds [[survivor]] tables") from None
    found: dict[str, Reason] = {}
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or set(entry) != {"mutant", "verdict", "why"}:
            raise SlotcheckError(f"{path}: a survivor has mutant, verdict and why, got {entry}")
        if entry["verdict"] not in REASONS:
            raise SlotcheckError(f"{path}: verdict {entry['verdict']!r} of {entry['mutant']}: one of {REASONS}")
        found[entry["mutant"]] = Reason(entry["verdict"], entry["why"])
    return found


def share(judged: Sequence[Judged], why: Mapping[str, Reason]) -> float:
    """Killed, of those that something could have killed: a survivor counts unless it is explained away."""
    counted = [one for one in judged if one.level or verdict_of(one, why) in (MISSED, "")]
    return sum(1 for one in counted if one.level) / len(counted) if counted else 0.0


def verdict_of(one: Judged, why: Mapping[str, Reason]) -> str:
    """A survivor's word; "" while it is not explained."""
    reason = why.get(one.mutant.name)
    return reason.verdict if reason is not None else ""


def percentile(values: Sequence[float], hundredth: int) -> float:
    """A percentile of some values; of none 0."""
    return quantiles(values, n=100, method="inclusive")[hundredth - 1] if len(values) > 1 else sum(values)


def data(score: Score, why: Mapping[str, Reason]) -> dict[str, Any]:
    """The one JSON object of `score --json`."""
    plan = score.plan
    return {
        "release": plan.release,
        "sample": plan.sample,
        "seed": plan.seed,
        "steps": plan.steps,
        "seconds": round(score.seconds, 1),
        "possible": {file: {"executed": some, "all": every} for file, (some, every) in score.possible.items()},
        "killed": sum(1 for one in score.judged if one.level),
        "survived": len(score.survivors),
        "share": round(share(score.judged, why), 4),
        **_medians(score.judged),
        "unexplained": [one.mutant.name for one in score.survivors if not verdict_of(one, why)],
        "mutants": [_row(one, why) for one in score.judged],
    }


def _medians(judged: Sequence[Judged]) -> dict[str, float]:
    seconds = [one.seconds for one in judged if one.level]
    steps = [one.steps for one in judged if one.steps is not None]
    sizes = [one.size for one in judged if one.size is not None]
    return {
        "seconds_median": round(median(seconds), 2) if seconds else 0.0,
        "steps_median": median(steps) if steps else 0.0,
        "size_median": median(sizes) if sizes else 0.0,
        "size_95": percentile(sizes, 95),
    }


def _row(one: Judged, why: Mapping[str, Reason]) -> dict[str, Any]:
    return {
        "mutant": one.mutant.name,
        "file": one.mutant.file,
        "function": one.mutant.function,
        "line": one.mutant.line,
        "operator": one.mutant.operator,
        "asked": list(one.asked),
        "level": one.level,
        "aspect": one.aspect,
        "fingerprint": one.fingerprint,
        "steps": one.steps,
        "seconds": round(one.seconds, 2),
        "operations": one.size,
        "shrink_seconds": round(one.shrink_seconds, 2),
        **({} if one.level else {"survived": verdict_of(one, why) or "unexplained"}),
    }


def page(score: Score, why: Mapping[str, Reason]) -> str:
    """The tables in Markdown."""
    judged = score.judged
    killed = [one for one in judged if one.level]
    lines = [
        *_head(score, why),
        "",
        *_table("file", score, why, lambda one: one.mutant.file, score.possible),
        "",
        *_table("operator", score, why, lambda one: one.mutant.operator, {}),
        "",
        "| killed by | mutants | median steps | median seconds | median operations |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for level in dict.fromkeys(one.level for one in sorted(killed, key=lambda one: one.level)):
        own = [one for one in killed if one.level == level]
        mid = _medians(own)
        numbers = f"{mid['steps_median']:,.0f} | {mid['seconds_median']} | {mid['size_median']:.0f}"
        lines.append(f"| {level} | {len(own)} | {numbers} |")
    aspects = Counter(f"{one.level}: {one.aspect}" for one in killed)
    lines += ["", "By aspect: " + ", ".join(f"{name} {count}" for name, count in sorted(aspects.items())) + ".", ""]
    lines += _survivors(score.survivors, why)
    lines += ["", "<details><summary>Every mutant</summary>", "", *_every(judged), "", "</details>"]
    return "\n".join(lines) + "\n"


def _head(score: Score, why: Mapping[str, Reason]) -> list[str]:
    """What was run, the share, and the medians, in three paragraphs."""
    plan, judged = score.plan, score.judged
    killed = [one for one in judged if one.level]
    raised = sum(1 for one in killed if "error:" in one.fingerprint or one.aspect == "process")
    mid = _medians(judged)
    ran = f"vLLM {plan.release}, {len(judged)} mutants, seed {plan.seed}, at most {plan.steps:,} manager steps each"
    took = f"{score.seconds / 60:.0f} minutes with {plan.workers} worker(s)"
    found = f"**{share(judged, why):.1%} killed**: {len(killed)} of {len(judged)}; {_explained(score.survivors, why)}"
    how = f"{raised} of the killed made the release raise, hang or die; the others answered wrongly"
    time = f"Median time to kill {mid['seconds_median']} s, median steps {mid['steps_median']:,.0f}"
    size = f"shrunk trace {mid['size_median']:.0f} operations (median), {mid['size_95']:.0f} (95th percentile)"
    return [f"{ran}; {took}.", "", f"{found}. {how}.", "", f"{time}, {size}."]


def _explained(survivors: Sequence[Judged], why: Mapping[str, Reason]) -> str:
    words = Counter(verdict_of(one, why) or "unexplained" for one in survivors)
    return ", ".join(f"{count} {word}" for word, count in sorted(words.items())) or "none survived"


def _table(
    head: str,
    score: Score,
    why: Mapping[str, Reason],
    of: Callable[[Judged], str],
    possible: Mapping[str, tuple[int, int]],
) -> list[str]:
    lines = [f"| {head} | mutants | killed | share |{' executed / all |' if possible else ''}"]
    lines.append("| --- | ---: | ---: | ---: |" + (" ---: |" if possible else ""))
    for name in dict.fromkeys(of(one) for one in score.judged):
        own = [one for one in score.judged if of(one) == name]
        killed = sum(1 for one in own if one.level)
        more = " {:,} / {:,} |".format(*possible[name]) if possible else ""
        lines.append(f"| {name} | {len(own)} | {killed} | {share(own, why):.0%} |{more}")
    return lines


def _survivors(survivors: Sequence[Judged], why: Mapping[str, Reason]) -> list[str]:
    if not survivors:
        return ["No mutant survived."]
    lines = ["| survivor | function | verdict | why |", "| --- | --- | --- | --- |"]
    for one in survivors:
        reason = why.get(one.mutant.name, Reason("unexplained", ""))
        lines.append(f"| {_code(one.mutant.name)} | {one.mutant.function} | {reason.verdict} | {reason.why} |")
    return lines


def _every(judged: Sequence[Judged]) -> list[str]:
    lines = ["| mutant | killed by | aspect | steps | operations | s |", "| --- | --- | --- | ---: | ---: | ---: |"]
    for one in judged:
        steps = "" if one.steps is None else f"{one.steps:,}"
        size = "" if one.size is None else str(one.size)
        level = one.level or "-"
        lines.append(f"| {_code(one.mutant.name)} | {level} | {one.aspect} | {steps} | {size} | {one.seconds:.1f} |")
    return lines


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`"


def write_section(path: Path, name: str, text: str) -> None:
    """Put text between the marks `<!-- NAME -->` and `<!-- end of NAME -->` of a page. SlotcheckError without them."""
    try:
        before = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SlotcheckError(f"cannot read {path}: {error.strerror}") from None
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    marks = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not marks.search(before):
        raise SlotcheckError(f"{path} has no lines {begin} and {end}: between them the tables go")
    path.write_text(marks.sub(lambda _: f"{begin}\n\n{text}\n{end}", before), encoding="utf-8")


def plan_of(sample: int, seed: int, steps: int, workers: int, files: Sequence[str]) -> Plan:
    """A plan for the installed release. SlotcheckError for a file that is not scored."""
    from harness.score import FILES

    strange = [file for file in files if file not in FILES]
    if strange:
        raise SlotcheckError(f"file {strange[0]!r} is not scored; those are: {', '.join(FILES)}")
    return Plan(
        sample=sample,
        seed=seed,
        steps=steps,
        workers=workers,
        files=tuple(files) or tuple(FILES),
        release=installed_release(),
    )
