"""Writes the folder of one difference: trace.json, report.md and repro.py, all of them or none."""

from __future__ import annotations

import contextlib
import platform
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from attrs import evolve, fields, frozen
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harness import __version__, tracefile
from harness.compare import show_row
from harness.outcome import MakeTarget, Options, Outcome
from harness.report import words
from harness.report.cached_script import cached_context
from harness.report.calls import WIDTH
from harness.report.reasons import cause_of, places_of, reason_of
from harness.report.script import repro_context, spec_line
from harness.report.table import markdown
from harness.report.terms import glossary_of, law_terms, missing, terms_text
from harness.report.title import title
from harness.report.walk import Moment, moments_of
from harness.shrink import Shrunk, rank
from harness.targets import source
from harness.trace_run import run_trace
from oracle.errors import SlotcheckError
from oracle.setting import Setting
from oracle.trace import Difference

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
Locate = Callable[[str, str], source.Location]


@frozen
class Seen:
    """One fingerprint of a defect: its simplest trace, and how often it was met."""

    shrunk: Shrunk
    count: int

    def with_more(self, other: Seen | None) -> Seen:
        """The same fingerprint met again: the simpler trace, and the sum."""
        if other is None:
            return self
        return Seen(min(self.shrunk, other.shrunk, key=lambda one: rank(one.trace)), self.count + other.count)


def also_names(also: Iterable[Seen]) -> Iterator[tuple[str, Seen]]:
    """The files of a defect's other traces."""
    return ((f"also-{number}.json", one) for number, one in enumerate(also, 1))


@frozen(kw_only=True)
class Versions:
    """What a report was made with; None: not installed."""

    slotcheck: str = __version__
    vllm: str | None
    torch: str | None
    python: str


def versions_here(release: str | None) -> Versions:
    """The versions of this environment; imports neither vLLM nor torch."""
    torch = None
    with contextlib.suppress(metadata.PackageNotFoundError):
        torch = metadata.version("torch")
    return Versions(vllm=release, torch=torch, python=platform.python_version())


def outcome_of(shrunk: Shrunk, make_target: MakeTarget | None) -> tuple[Outcome, bool]:
    """The trace run again with its entries kept, and whether the difference showed again.

    Other differences on the way are passed over, as they were when it was found. What kills or blocks the process is
    not run again on the target: the oracle alone tells its answers.
    """
    difference = shrunk.difference
    options = Options(
        aspects=frozenset({"outcome", difference.aspect}),
        audit_every=1,
        declared=lambda other: other.fingerprint != difference.fingerprint,
        keep_entries=True,
    )
    kills = difference.rule == "process"
    outcome = run_trace(shrunk.trace, None if kills else make_target, options)
    again = kills or make_target is None or any(found == difference for found in outcome.differences)
    return evolve(outcome, trace=shrunk.trace, differences=[difference], declared=[]), again


def setting_rows(setting: Setting) -> list[tuple[str, str]]:
    """The setting, without what has its default."""
    rows = [(f"group {n}", f"`{spec_line(group)}`") for n, group in enumerate(setting.groups)]
    rows.append(("num_blocks", f"{setting.num_blocks} ({setting.num_blocks - 1} usable)"))
    rows.append(("max_model_len", str(setting.max_model_len)))
    for attribute in fields(Setting):
        value = getattr(setting, attribute.name)
        if attribute.name not in ("groups", "num_blocks", "max_model_len") and value != attribute.default:
            rows.append((attribute.name, f"{value}{' (also does what no scheduler would)' * (value == 'hostile')}"))
    return rows


def report_context(shrunk: Shrunk, outcome: Outcome, again: bool, versions: Versions, locate: Locate) -> dict[str, Any]:
    """What the template of report.md needs."""
    difference = shrunk.difference
    reason = reason_of(difference.rule)
    operations = len(shrunk.trace.operations)
    moments = moments_of(outcome)
    law = law_terms(outcome, moments, difference)
    cause = cause_of(difference)
    return {
        "title": title(difference),
        "versions": versions,
        "count": "the construction alone"
        if difference.step < 0
        else f"{operations} operation{'s' * (operations != 1)}",
        "minimal": shrunk.minimal,
        "end": shrunk.end,
        "again": again,
        "setting": setting_rows(shrunk.trace.setting),
        "table": markdown(outcome) if outcome.entries else "",
        "place": "building" if difference.step < 0 else f"step {difference.step}",
        "answers": _answers(outcome, moments, difference),
        "missing": missing(outcome, moments, difference),
        "terms": terms_text(difference.detail, 100) or "\n".join(law),
        "glossary": glossary_of(difference.detail),
        "cause": cause.words if cause else "",
        "rule": difference.rule,
        "law": reason.law,
        "why": reason.why,
        "locations": [locate(*place) for place in places_of(difference)],
        "fingerprint": difference.fingerprint,
    }


#: what an aspect compares beyond the answer of one call
_STATED = {"order": "free queue", "zeroing": "zero list"}
#: what a law's text leaves to its sign
_BROKEN = {"null block": "null block", "outside the row": "outside the row", "state": "it is not there"}


def _answers(outcome: Outcome, moments: list[Moment], difference: Difference) -> list[tuple[str, str, str]]:
    """What was expected and observed at the deciding step."""
    observed = difference.observed
    if difference.aspect == "law":
        what = next((what for sign, what in _BROKEN.items() if difference.sign.endswith(sign)), "")
        return [("law", difference.expected, observed if what in observed else f"{observed}: {what}")]
    stated = [(_STATED.get(difference.aspect, "answer"), difference.expected, observed)]
    if not 0 <= difference.step < len(moments):
        return stated
    moment = moments[difference.step]
    ours, theirs = moment.expected, moment.observed
    if ours is None or theirs is None or ours == theirs:
        return stated
    rows = stated if difference.aspect in _STATED else []
    rows.append(("outcome", ours.outcome, theirs.outcome))
    for index, group in enumerate(outcome.trace.setting.groups):
        if index < len(ours.rows):
            rows.append((f"group {index}, {group.kind}", show_row(ours.rows[index]), show_row(theirs.rows[index])))
    if ours.new != theirs.new:
        rows.append(("new", words.rows(ours.new), words.rows(theirs.new)))
    rows.append(("free blocks", str(ours.free), str(theirs.free)))
    return rows


def comment(text: str) -> str:
    """A text as a comment of Python."""
    return "\n".join(textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# "))


def render_repro(outcome: Outcome, difference: Difference, versions: Versions) -> str:
    """The text of repro.py."""
    reason = reason_of(difference.rule)
    intro = (
        f"Needs vLLM alone (written for {versions.vllm or 'an unknown release'}): no GPU, weights or network. "
        "Exits 1 while the defect is there, 0 once it is gone. Written by slotcheck "
        f"{versions.slotcheck}. Fingerprint: {difference.fingerprint}."
    )
    law = law_terms(outcome, moments_of(outcome), difference)
    caching = outcome.trace.setting.enable_caching and difference.step >= 0
    return TEMPLATES.get_template("cached_repro.py.j2" if caching else "repro.py.j2").render(
        title="\n".join(textwrap.wrap(f"{title(difference)}.", WIDTH)),
        intro="\n".join(textwrap.wrap(intro, WIDTH)),
        why="\n".join(map(comment, (f"{difference.rule}: {reason.why}", *law))),
        **(cached_context if caching else repro_context)(outcome, difference),
    )


def write_report(
    folder: Path,
    shrunk: Shrunk,
    release: str | None,
    make_target: MakeTarget | None = None,
    also: Sequence[Seen] = (),
    *,
    versions: Versions | None = None,
    locate: Locate = source.locate,
) -> Path:
    """Write the report of a difference to `folder`; other files there are left alone. Returns the folder.

    `make_target` None: what the oracle answers is all there is. `also`: other fingerprints of the same defect.
    SlotcheckError when the folder cannot be written.
    """
    outcome, again = outcome_of(shrunk, make_target)
    known = versions or versions_here(release)
    context = report_context(shrunk, outcome, again, known, locate)
    context["also"] = [
        (one.shrunk.difference.fingerprint, len(one.shrunk.trace.operations), one.count, name)
        for name, one in also_names(also)
    ]
    texts = {
        **{name: tracefile.dumps(one.shrunk.trace) for name, one in also_names(also)},
        "trace.json": tracefile.dumps(shrunk.trace),
        "repro.py": render_repro(outcome, shrunk.difference, known),
        "report.md": TEMPLATES.get_template("report.md.j2").render(context),
    }
    return write_texts(folder, texts)


def write_texts(folder: Path, texts: dict[str, str]) -> Path:
    """Write the files of a folder, all of them or none; SlotcheckError when it cannot be written."""
    aside = folder.parent / f".{folder.name}.part"
    try:
        for name, text in texts.items():
            tracefile.write_text(aside / name, text)
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("also-*.json"):
            stale.unlink()
        for name in texts:
            (aside / name).replace(folder / name)
    except OSError as error:
        raise SlotcheckError(f"cannot write {folder}: {error.strerror}; choose another folder with --out") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder
