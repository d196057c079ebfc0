"""What a host is asked and what it answers."""

from __future__ import annotations

from attrs import frozen

from harness.campaign.plan import Shard
from harness.campaign.storage import Stored


@frozen(kw_only=True)
class Canary:
    """Ask whether a level's planted defect is caught."""

    level: str


@frozen(kw_only=True)
class Caught:
    """After so many steps, or not at all. ended: how its process ended, if it did not live. release: that was asked."""

    steps: int | None
    ended: str
    release: str | None


@frozen(kw_only=True)
class Failed:
    """No answer: a sentence, and the exit status that it makes."""

    said: str
    status: int


Request = Shard | Canary | Stored
Answer = str | Stored | Caught | Failed
