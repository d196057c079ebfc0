"""A score as data and as tables: by file, by level, the survivors with their reasons.

Why a mutant survived is written down in reports/score/survivors.toml, by its name: equivalent (no run can tell it from
the release), unreachable (needs a device or a part that is not run), out of scope (decides on no block), or missed (the
harness should have seen it). Only the last counts against the share; a survivor without a reason fails the command.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from attrs import frozen

from harness import findings
from harness.score import Judged, Plan, Score
from harness.targets.compat import installed_release
from oracle.errors import SlotcheckError

#: one mutant and what became of it, as `score --json` has it
Row = dict[str, Any]
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


def verdict_of(row: Row, why: Mapping[str, Reason]) -> str:
    """A survivor's word; "" while it is not explained."""
    reason = why.get(row["mutant"])
    return reason.verdict if reason is not None else ""


def share(rows: Sequence[Row], why: Mapping[str, Reason]) -> float:
    """Killed, of those that something could have killed: a survivor counts unless it is explained away."""
    counted = [row for row in rows if row["level"] or verdict_of(row, why) in (MISSED, "")]
    return sum(1 for row in counted if row["level"]) / len(counted) if counted else 0.0


def percentile(values: Sequence[float], hundredth: int) -> float:
    """A percentile of some values; of none 0."""
    return quantiles(values, n=100, method="inclusive")[hundredth - 1] if len(values) > 1 else sum(values)


def data(score: Score, why: Mapping[str, Reason]) -> dict[str, Any]:
    """The one JSON object of `score --json`."""
    plan = score.plan
    found = {
        "release": plan.release,
        "seed": plan.seed,
        "steps": plan.steps,
        "seconds": round(score.seconds, 1),
        "possible": {file: {"executed": some, "all": every} for file, (some, every) in score.possible.items()},
        "mutants": [_row(one) for one in score.judged],
    }
    return judged_again(found, why)


def read(path: Path, why: Mapping[str, Reason]) -> dict[str, Any]:
    """What an earlier `score --json` printed, with today's reasons. SlotcheckError for anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return judged_again(found, why)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SlotcheckError(f"{path} is not what `slotcheck score --json` prints: {error}") from None


def judged_again(found: dict[str, Any], why: Mapping[str, Reason]) -> dict[str, Any]:
    """The object with the numbers that follow from its mutants and the reasons."""
    rows = found["mutants"]
    left = [row for row in rows if not row["level"]]
    numbers = {
        "killed": len(rows) - len(left),
        "survived": len(left),
        "share": round(share(rows, why), 4),
        **_medians(rows),
        "unexplained": [row["mutant"] for row in left if not verdict_of(row, why)],
    }
    return {**{name: value for name, value in found.items() if name != "mutants"}, **numbers, "mutants": rows}


def _medians(rows: Sequence[Row]) -> dict[str, float]:
    seconds = [row["seconds"] for row in rows if row["level"]]
    steps = [row["steps"] for row in rows if row["steps"] is not None]
    sizes = [row["operations"] for row in rows if row["operations"] is not None]
    return {
        "seconds_median": round(median(seconds), 2) if seconds else 0.0,
        "steps_median": median(steps) if steps else 0.0,
        "size_median": median(sizes) if sizes else 0.0,
        "size_95": percentile(sizes, 95),
    }


def _row(one: Judged) -> Row:
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
    }


def page(found: Mapping[str, Any], why: Mapping[str, Reason]) -> str:
    """The tables in Markdown, of the object that `data` or `read` gives."""
    rows = found["mutants"]
    killed = [row for row in rows if row["level"]]
    lines = [
        *_head(found, why),
        "",
        *_table("file", rows, why, found["possible"]),
        "",
        *_table("operator", rows, why, {}),
        "",
        "| killed by | mutants | median steps | median seconds | median operations |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for level in sorted({row["level"] for row in killed}):
        own = [row for row in killed if row["level"] == level]
        mid = _medians(own)
        numbers = f"{mid['steps_median']:,.0f} | {mid['seconds_median']} | {mid['size_median']:.0f}"
        lines.append(f"| {level} | {len(own)} | {numbers} |")
    aspects = Counter(f"{row['level']}: {row['aspect']}" for row in killed)
    lines += ["", "By aspect: " + ", ".join(f"{name} {count}" for name, count in sorted(aspects.items())) + ".", ""]
    lines += _survivors([row for row in rows if not row["level"]], why)
    lines += ["", "<details><summary>Every mutant</summary>", "", *_every(rows), "", "</details>"]
    return "\n".join(lines) + "\n"


def _head(found: Mapping[str, Any], why: Mapping[str, Reason]) -> list[str]:
    """What was run, the share, and the medians, in three paragraphs."""
    rows = found["mutants"]
    killed = [row for row in rows if row["level"]]
    raised = sum(1 for row in killed if "error:" in row["fingerprint"] or row["aspect"] == "process")
    words = Counter(verdict_of(row, why) or "unexplained" for row in rows if not row["level"])
    left = ", ".join(f"{count} {word}" for word, count in sorted(words.items())) or "none survived"
    budget = f"seed {found['seed']}, at most {found['steps']:,} manager steps each"
    ran = f"vLLM {found['release']}, {len(rows)} mutants, {budget}"
    share_of = f"**{share(rows, why):.1%} killed**: {len(killed)} of {len(rows)}; {left}"
    how = f"{raised} of the killed made the release raise, hang or die; the others answered wrongly"
    time = f"Median time to kill {found['seconds_median']} s of CPU, median steps {found['steps_median']:,.0f}"
    size = f"shrunk trace {found['size_median']:.0f} operations (median), {found['size_95']:.0f} (95th percentile)"
    return [f"{ran}.", "", f"{share_of}. {how}.", "", f"{time}, {size}."]


def _table(head: str, rows: Sequence[Row], why: Mapping[str, Reason], possible: Mapping[str, Any]) -> list[str]:
    lines = [f"| {head} | mutants | killed | share |{' executed / all |' if possible else ''}"]
    lines.append("| --- | ---: | ---: | ---: |" + (" ---: |" if possible else ""))
    for name in dict.fromkeys(row[head] for row in rows):
        own = [row for row in rows if row[head] == name]
        killed = sum(1 for row in own if row["level"])
        more = f" {possible[name]['executed']:,} / {possible[name]['all']:,} |" if possible else ""
        lines.append(f"| {name} | {len(own)} | {killed} | {share(own, why):.0%} |{more}")
    return lines


def _survivors(left: Sequence[Row], why: Mapping[str, Reason]) -> list[str]:
    if not left:
        return ["No mutant survived."]
    lines = ["| survivor | function | verdict | why |", "| --- | --- | --- | --- |"]
    for row in left:
        reason = why.get(row["mutant"], Reason("unexplained", ""))
        lines.append(f"| {_code(row['mutant'])} | {row['function']} | {reason.verdict} | {reason.why} |")
    return lines


def _every(rows: Sequence[Row]) -> list[str]:
    lines = ["| mutant | killed by | aspect | steps | operations | s |", "| --- | --- | --- | ---: | ---: | ---: |"]
    for row in rows:
        steps = "" if row["steps"] is None else f"{row['steps']:,}"
        size = "" if row["operations"] is None else row["operations"]
        level = row["level"] or "-"
        lines.append(
            f"| {_code(row['mutant'])} | {level} | {row['aspect']} | {steps} | {size} | {row['seconds']:.1f} |"
        )
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
