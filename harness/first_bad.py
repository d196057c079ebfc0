"""In which releases does a trace diverge? Each is run in a process of its own, oldest first."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen
from packaging.version import Version

from harness import store
from harness.side import Side
from harness.targets import compat
from harness.targets.compat import TargetError


@frozen
class Row:
    """One release: what the trace showed there. `bad`: it differs; None: it could not be run."""

    release: str
    bad: bool | None
    text: str


def at_hand() -> list[str]:
    """The installed release and the stored ones, oldest first."""
    releases = {each.release for each in store.stored()}
    installed = compat.installed_release()
    if installed is not None:
        releases.add(installed)
    return sorted(releases, key=Version)


def row(release: str, trace: Path) -> Row:
    """Run the trace on one release."""
    try:
        side = Side(release)
        try:
            side.start()
            answer = side.ask({"replay": str(trace)})
        finally:
            side.close()
    except TargetError as error:
        return Row(release, None, str(error))
    if "cannot" in answer:
        return Row(release, None, answer["cannot"])
    names = [*answer["new"], *(f"{name} (declared)" for name in answer["declared"])]
    return Row(release, bool(names), ", ".join(names) or "agrees")


def first(rows: list[Row]) -> str:
    """What the rows say, in one sentence."""
    bad = [row for row in rows if row.bad]
    ran = [row for row in rows if row.bad is not None]
    if not bad:
        return "no release at hand diverges" if ran else "no release could run it"
    oldest = bad[0].release
    before = [row for row in ran if Version(row.release) < Version(oldest)]
    after = [row for row in ran if Version(row.release) > Version(bad[-1].release)]
    known = f"the first is {oldest}" if before else f"{oldest}, the oldest one that ran it, has it already"
    until = f"; {after[0].release} is the first that agrees again" if after else ""
    return known + until
