"""One row of the table."""

from __future__ import annotations

from typing import Any

from attrs import frozen


@frozen
class Rule:
    """One value of one rule. `until` None: still so in the newest confirmed release. `spec`: the rule's number."""

    name: str
    value: str
    since: str
    until: str | None
    spec: str
    reference: str
    decides: tuple[str, Any] | None = None
    """What the oracle does where this value is in force: a field of Choices and its value."""
