"""A campaign being run: shards are given out, their results kept and merged in order, each new difference shrunk once.

The store has every finished shard, so that nothing is lost but what was running. The merged result is that of the
longest prefix of shards that is finished: it does not depend on who ran them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from attrs import define, field

from harness.campaign.cluster import Cluster
from harness.campaign.messages import Canary, Caught, Failed
from harness.campaign.plan import Plan
from harness.campaign.results import Result, read_result
from harness.campaign.storage import FINDING, SHARD, Store, Stored, read_stored
from harness.errors import EXIT_HARNESS, EXIT_INCONCLUSIVE
from harness.forks import HarnessError
from harness.targets.compat import TargetError
from harness.tracefile import AnyTrace
from oracle.errors import SlotcheckError

#: times that a shard may be lost with its machine before it is the shard that is at fault
TRIES = 4
#: differences that are shrunk; more distinct ones are kept as they were met
MAX_SHRUNK = 50
#: results kept at hand, should the store forget its last seconds
RECENT = 1000
#: seconds to wait for the first answer: a machine has to take the actor, and to import vLLM
FIRST_SECONDS = 900.0
Part = tuple[str | None, str]


@define(eq=False)
class Campaign:
    """State of a campaign. shards, seconds: where it ends. of: merged results by release and level."""

    plan: Plan
    store: Store
    cluster: Cluster
    shards: int | None
    seconds: float | None
    progress: Callable[[Campaign], None] = lambda campaign: None
    of: dict[Part, Result] = field(init=False)
    merged: int = 0
    """Shards merged: the prefix."""
    ran: int = 0
    """Shards that were run, and not found in the store."""
    lost: int = 0
    machines: int = 0
    caught: dict[Part, Caught] = field(factory=dict)
    kept: dict[str, Stored] = field(factory=dict)
    """Differences by the fingerprint under which they were met."""
    elapsed: float = 0.0
    interrupted: bool = False
    done: dict[int, str] = field(factory=dict)
    known: set[int] = field(factory=set)
    todo: deque[tuple[str, Any]] = field(factory=deque)
    running: set[int] = field(factory=set)
    next: int = 0
    tries: dict[Any, int] = field(factory=dict)
    recent: deque[tuple[int, str]] = field(factory=lambda: deque(maxlen=RECENT))
    shrinking: int = 0
    started: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.of = {(release, level): Result() for release in self.plan.releases for level in self.plan.levels}

    def run(self) -> None:
        """Until the shards are done, the time is up, or Ctrl-C."""
        self.known = {index for key in self.store.names(SHARD) if (index := self.plan.index(key)) is not None}
        self.todo.extend(("canary", part) for part in self.of if part not in self.caught)
        self.started = time.monotonic()
        try:
            self._merge()
            while not self._over():
                self._give()
                for token, said in self.cluster.wait(0.5):
                    self._take(token, said)
                self._merge()
                self.elapsed = time.monotonic() - self.started
                self.machines = max(self.machines, self.cluster.machines())
                self._someone()
                self.progress(self)
        except KeyboardInterrupt:
            self.interrupted = True
        self.elapsed = time.monotonic() - self.started
        self._remember()

    # --------------------------------------------------------------------------------------------- giving

    def _more(self) -> bool:
        """Whether another shard is to be begun."""
        late = self.seconds is not None and time.monotonic() - self.started >= self.seconds
        return not late and (self.shards is None or self.next < self.shards)

    def _over(self) -> bool:
        return not (self.todo or self.running or self.shrinking or self._more()) and len(self.caught) == len(self.of)

    def _someone(self) -> None:
        if not self.caught and not self.ran and self.elapsed > FIRST_SECONDS:
            raise TargetError(f"no machine of the cluster answered in {FIRST_SECONDS:.0f} s; has it free CPUs?")

    def _give(self) -> None:
        """Give out what there is to do, as much as the machines take."""
        for _ in range(self.cluster.free()):
            if self.todo:
                what, about = self.todo.popleft()
            elif self._more():
                while self.next in self.known:
                    self.next += 1
                if not self._more():
                    return
                what, about = "shard", self.next
                self.next += 1
            else:
                return
            if what == "canary":
                release, level = about
                self.cluster.give((what, about), release, Canary(level=level))
            elif what == "shrink":
                met = self.kept[about]
                self.cluster.give((what, about), self._release_of(met), met)
            else:
                self.running.add(about)
                shard = self.plan.shard(about)
                self.cluster.give((what, about), shard.release, shard)

    def _release_of(self, met: Stored) -> str | None:
        return met.release if met.release in self.plan.releases else None

    # --------------------------------------------------------------------------------------------- taking

    def _take(self, token: tuple[str, Any], said: object) -> None:
        what, about = token
        if isinstance(said, Failed):
            kinds = {EXIT_INCONCLUSIVE: TargetError, EXIT_HARNESS: HarnessError}
            raise kinds.get(said.status, SlotcheckError)(said.said)
        if said is None:
            self.lost += 1
            self.tries[token] = self.tries.get(token, 0) + 1
            if self.tries[token] >= TRIES:
                raise HarnessError(f"{what} {about} was lost {TRIES} times with the process that ran it")
            self.todo.appendleft(token)
        elif isinstance(said, Caught):
            self.caught[about] = said
        elif isinstance(said, Stored):
            self.shrinking -= 1
            self.kept[about] = said
            self.store.put(FINDING, said.name, said.text())
        else:
            text = str(said)
            self.running.discard(about)
            self.ran += 1
            self.store.put(SHARD, self.plan.key(about), text)
            self.recent.append((about, text))
            self.done[about] = text

    # -------------------------------------------------------------------------------------------- merging

    def _merge(self) -> None:
        """Take in finished shards in order, as far as there is none missing."""
        while self.merged != self.shards and (self.merged in self.done or self.merged in self.known):
            index = self.merged
            text = self.done.pop(index, None) or self.store.get(SHARD, self.plan.key(index))
            result = None if text is None else read_result(text)
            if result is None:  # cut off, or gone: it is run again
                self.known.discard(index)
                if index < self.next:
                    self.todo.append(("shard", index))
                    self.running.add(index)
                return
            shard = self.plan.shard(index)
            self.of[shard.release, shard.level].merge(result)
            self.merged += 1
            for fingerprint, trace in sorted(result.found.items()):
                self._met(fingerprint, trace, shard.release)

    def _met(self, fingerprint: str, trace: AnyTrace, release: str | None) -> None:
        """A difference in order: whoever keeps it first shrinks it, everybody else counts."""
        if fingerprint in self.kept:
            return
        met = Stored(found=fingerprint, trace=trace, fingerprint=fingerprint, release=release, by=self.plan.name)
        if not self.store.claim(FINDING, met.name, met.text()):
            there = self.store.get(FINDING, met.name)
            met = met if there is None else read_stored(there, f"{self.store.address}#{met.name}")
        self.kept[fingerprint] = met
        if met.by == self.plan.name and not met.shrunk and len(self.kept) <= MAX_SHRUNK:
            self.shrinking += 1
            self.todo.appendleft(("shrink", fingerprint))

    def _remember(self) -> None:
        """What a store forgot of the last shards, because it was killed, is written again."""
        there = set(self.store.names(SHARD))
        for index, text in self.recent:
            if self.plan.key(index) not in there:
                self.store.put(SHARD, self.plan.key(index), text)
        for met in self.kept.values():
            self.store.claim(FINDING, met.name, met.text())
