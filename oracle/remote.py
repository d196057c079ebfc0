"""The far side of a KV connector: what it answers follows from the workload and from what it was told (S42 to S50).

The connector under test and the prediction ask one each, so both hear the same. Lengths are in tokens.
"""

from __future__ import annotations

from collections import Counter

from attrs import evolve

from oracle.groups import Mamba
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import ASYNC, Submit


class FarSide:
    """Which requests have K/V elsewhere, which loads and sendings are under way."""

    def __init__(self, setting: SchedulerSetting) -> None:
        #: a state after the last token serves nobody, since that token is computed again: a connector loads one less
        self.states = any(isinstance(group, Mamba) for group in setting.groups)
        self.waits = setting.waits_for_block_frees
        self.known: dict[int, Submit] = {}
        self.looks: Counter[int] = Counter()
        #: request -> how often it had been preempted or its load had failed when its last load began
        self.matched: dict[int, int] = {}
        self.failures: Counter[int] = Counter()
        self.loading: set[int] = set()
        self.sending: set[int] = set()

    def submitted(self, operation: Submit) -> None:
        """A request arrives."""
        self.known[operation.request] = operation

    def match(self, request: int, local: int, tokens: int, preemptions: int) -> tuple[int | None, bool]:
        """Tokens beyond the local hit, None while it cannot tell; whether the load is asynchronous (S42).

        One load a request; another after a preemption or a failure where the far side keeps what it has (`again`).
        What is loaded at once leaves a token to compute.
        """
        operation = self.known[request]
        if not operation.remote:
            return 0, False
        self.looks[request] += 1
        if self.looks[request] <= operation.unknown:
            return None, False
        turn = preemptions + self.failures[request]
        if request in self.matched and (not operation.again or self.matched[request] == turn):
            return 0, False
        asynchronous = operation.load == ASYNC
        most = tokens if asynchronous and not self.states else tokens - 1
        there = min(operation.remote, operation.prompt, most)
        external = max(0, there - local)
        return external, asynchronous and external > 0

    def cleared(self) -> None:
        """Nothing is there any more, but for what is loaded already."""
        self.known = {name: evolve(operation, remote=0) for name, operation in self.known.items()}

    def started(self, request: int, external: int, preemptions: int) -> None:
        """Blocks are allocated; `external` tokens are to be loaded into them."""
        if external:
            self.matched[request] = preemptions + self.failures[request]
            if self.known[request].load == ASYNC:
                self.loading.add(request)

    def arrived(self, request: int, failed: bool) -> None:
        """A load has ended."""
        self.loading.discard(request)
        self.failures[request] += failed

    def keeps(self, request: int, computed: int) -> bool:
        """Whether a request that has ended keeps its blocks until they are sent (S50)."""
        if not self.known[request].keeps or request in self.loading or not computed:
            return False
        self.sending.add(request)
        return True

    def gives_back(self) -> bool:
        """Whether the scheduler is to wait for blocks that are being sent (S49)."""
        return self.waits and bool(self.sending)

    def sent(self, request: int) -> None:
        """A sending has ended."""
        self.sending.discard(request)
