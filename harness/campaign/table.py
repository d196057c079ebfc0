"""The live table of a campaign; on what is no terminal a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from harness.campaign.driver import Campaign
from harness.campaign.outcome import minima_of

#: seconds between two lines where there is no terminal
PLAIN_EVERY = 30.0


def table(campaign: Campaign, dashboard: str = "") -> Table:
    """A row for each release and level."""
    head = f"{campaign.merged:,} shards, {campaign.cluster.machines()} machines, {campaign.lost} lost"
    made = Table(title=head, caption=f"dashboard: {dashboard}" if dashboard else None, box=None, padding=(0, 2))
    for name in ("level", "release", "steps", "steps/s", "reached", "declared", "new"):
        made.add_column(name, justify="left" if name in ("level", "release") else "right")
    for (release, level), result in campaign.of.items():
        least = minima_of(level, release, result)
        met = sum(result.reach[name] >= wanted for name, wanted in least.items())
        speed = result.steps / campaign.elapsed if campaign.elapsed else 0
        cells = (level, release or "installed", f"{result.steps:,}", f"{speed:,.0f}", f"{met} of {len(least)}")
        made.add_row(*cells, f"{sum(result.declared.values()):,}", f"{len(result.found):,}")
    return made


@contextmanager
def shown(out: Console, dashboard: str) -> Iterator[Callable[[Campaign], None]]:
    """A callback that shows how far a campaign is."""
    if not out.is_terminal:
        yield _lines(out)
        return
    with Live(console=out, refresh_per_second=2, transient=True) as live:
        yield lambda campaign: live.update(table(campaign, dashboard))


def _lines(out: Console) -> Callable[[Campaign], None]:
    last = time.monotonic()

    def say(campaign: Campaign) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_EVERY:
            last = time.monotonic()
            steps = sum(result.steps for result in campaign.of.values())
            new = sum(len(result.found) for result in campaign.of.values())
            out.print(f"{campaign.merged:,} shards, {steps:,} steps, {new} new difference(s), {campaign.lost} lost")

    return say
