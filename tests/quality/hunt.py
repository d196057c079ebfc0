"""Looks for a planted defect as a run would: shard by shard, the shortest trace of each fingerprint kept."""

from __future__ import annotations

from attrs import define, field

from harness.outcome import Options
from harness.shrink import Shrunk, shrink
from harness.worker import Found, run_shard
from oracle.trace import Difference
from tests.quality.known import known
from tests.quality.planting import Defect

#: steps within which a defect must show: three shards
LIMIT = 20_000
#: the same for a defect that needs a rare setting as well as a rare step
RARE = 120_000
#: replays of a candidate before the shrinker gives up: a third of what a run spends
TRIES = 2_000
OPTIONS = Options(declared=known)


@define
class Hunt:
    """One defect being looked for from one seed."""

    defect: Defect
    seed: int = 0
    limit: int = LIMIT
    options: Options = OPTIONS
    steps: int = 0
    shards: int = 0
    found: dict[str, Found] = field(factory=dict)
    """By fingerprint."""

    def go_on(self) -> bool:
        """Run one more shard; False when it would pass the limit."""
        if self.steps + self.steps // max(1, self.shards) > self.limit:
            return False
        result = run_shard(self.seed, self.shards, self.defect.make, self.options)
        self.steps += result.steps
        self.shards += 1
        for name, found in result.found.items():
            kept = self.found.get(name)
            if kept is None or len(found.trace.operations) < len(kept.trace.operations):
                self.found[name] = found
        return True

    def until(self, fingerprint: str = "") -> Hunt:
        """Go on until the defect shows, with that fingerprint if one is named."""
        while not (fingerprint in self.found if fingerprint else self.found) and self.go_on():
            pass
        return self

    def usually(self) -> Hunt:
        """Go on until the defect's usual difference shows, if it does within the limit."""
        while self.defect.shows[0] not in self.signs and self.go_on():
            pass
        return self

    @property
    def signs(self) -> set[str]:
        """Its differences as "aspect/rule/sign"."""
        return {sign_of(found.difference) for found in self.found.values()}

    def usual(self) -> list[str]:
        """Fingerprints of the defect's usual difference, or all if it did not show, the shortest trace first."""
        usual = [name for name, one in self.found.items() if sign_of(one.difference) == self.defect.shows[0]]
        return sorted(usual or self.found, key=lambda name: len(self.found[name].trace.operations))

    def minimum(self, fingerprint: str) -> Shrunk:
        """What the shrinker makes of the trace of a fingerprint."""
        found = self.found[fingerprint]
        return shrink(found.trace, found.difference, self.defect.make, self.options, TRIES)


def sign_of(difference: Difference) -> str:
    """What a difference says about its cause: "aspect/rule/sign"."""
    return f"{difference.aspect}/{difference.rule}/{difference.sign}"
