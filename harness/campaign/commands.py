"""`slotcheck campaign`: shards of all levels on every machine of a Ray cluster, with one store."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

import click

from harness import tracefile
from harness.campaign.plan import LEVELS, SIZE, Plan
from harness.console import console
from harness.options import Duration, Words
from harness.store import find
from harness.targets.compat import installed_release
from harness.verdict import EXIT
from oracle.errors import SlotcheckError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


@click.command("campaign")
@click.option("--budget", type=Duration(), help="Begin no shard after this time (8h).")
@click.option("--shards", type=click.IntRange(min=1), help="End after this many shards.")
@click.option("--ray", "address", metavar="ADDRESS", help="A Ray cluster: auto, HOST:PORT; default: this machine.")
@click.option("--store", metavar="FOLDER|REDIS", default="slotcheck-store", show_default=True, help="What is kept.")
@click.option("--name", default="campaign", show_default=True, help="Which campaign of the store.")
@click.option("--resume", is_flag=True, help="Go on with the campaign; what is finished is not run again.")
@click.option(
    "--levels",
    type=Words("level", LEVELS),
    metavar="WORD,...",
    default=frozenset(LEVELS),
    help=f"Default: {', '.join(LEVELS)}.",
)
@click.option(
    "--release", "releases", multiple=True, metavar="RELEASE|FOLDER", help="May be repeated; default: the installed."
)
@click.option("--target", metavar="MODULE:CLASS", help="In place of the manager's or the scheduler's class.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which traces.")
@click.option(
    "--size", type=click.IntRange(min=1), default=SIZE, show_default=True, help="Work in a shard; 10 is some seconds."
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes a machine at most; default: its CPUs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def campaign_command(
    budget: float | None,
    shards: int | None,
    address: str | None,
    store: str,
    name: str,
    resume: bool,
    levels: frozenset[str],
    releases: tuple[str, ...],
    target: str | None,
    seed: int,
    size: int,
    workers: int | None,
    as_json: bool,
) -> None:
    """Run shards of all levels on many cores and machines; keep what they find in one store."""
    from harness.campaign import outcome, storage
    from harness.campaign.cluster import connect
    from harness.campaign.driver import Campaign
    from harness.campaign.plan import begin, check
    from harness.campaign.table import shown

    if budget is None and shards is None:
        raise SlotcheckError("a campaign ends by --budget (8h) or by --shards; give one of them")
    if not NAME.fullmatch(name):
        raise SlotcheckError(f"--name is of letters, digits and hyphens, got {name!r}")
    if target is not None and (len(levels) > 1 or "warmup" in levels):
        raise SlotcheckError(f"--target {target} is for --levels manager or --levels scheduler, one at a time")
    if address is None:
        releases = tuple(map(_found, releases))
    plan = Plan(
        name=name,
        levels=tuple(level for level in LEVELS if level in levels),
        releases=tuple(dict.fromkeys(releases)) or (installed_release(),),
        seed=seed,
        size=size,
        target=target,
    )
    kept = storage.open_store(store)
    check(kept, plan, resume)
    talk = console(stderr=as_json)
    with redirect_stdout(sys.stderr) if as_json else nullcontext():  # Ray prints there that a worker was lost
        cluster = connect(address, workers, target)
        try:
            if not resume:
                begin(kept, plan)
            talk.print(f"Ray is up{', dashboard: ' * bool(cluster.dashboard)}{cluster.dashboard}", markup=False)
            with shown(talk, cluster.dashboard) as progress:
                campaign = Campaign(plan, kept, cluster, shards, budget, progress)
                campaign.run()
        finally:
            cluster.close()
    found = outcome.data(campaign)
    click.echo(tracefile.json_text(found) if as_json else outcome.text(found) + "\n", nl=False)
    sys.exit(EXIT[found["verdict"]])


def _found(release: str) -> str:
    """A release that is at hand on this machine, a folder by its whole path; TargetError if it is none of these."""
    path = find(release)
    return release if path is None or not Path(release).is_dir() else str(path)
