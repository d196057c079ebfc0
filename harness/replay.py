"""Runs one trace: every party gets the same calls, each answer is compared, the memory and the laws watch the target.

`Replay.step` takes one operation. The operations come from anywhere: packed bytes (`run`), a file (`replay`), a
shrinker, a state machine. The oracle answers first; a difference that is not declared ends the trace, because from
there on the two states have nothing to do with each other. Without a target it is the oracle alone that is watched;
`harness.passes` makes a run of that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ClassVar

from harness import compare, differences
from harness.outcome import Entry, MakeTarget, Options, Outcome, TargetRaised, guarded
from harness.reach import Reach
from oracle.allocator import Allocator
from oracle.call import (
    GRANTED,
    REFUSED,
    Call,
    Observation,
    Rows,
)
from oracle.laws import Laws
from oracle.ledger import Ledger
from oracle.memory import Memory
from oracle.setting import Setting
from oracle.trace import (
    Audit,
    Difference,
    Evict,
    Extend,
    GiveBack,
    Loaded,
    Lookup,
    NewStep,
    Operation,
    Pin,
    Release,
    Reset,
    Resume,
    Settle,
    Target,
    Trace,
    Trim,
    Unpin,
    methods_of,
)
from oracle.violation import Violation


class Replay:
    """One trace being run on a target beside the oracle. `target` None: the oracle alone."""

    #: what runs each operation; set below
    handlers: ClassVar[dict[type, Callable[..., None]]]

    def __init__(
        self,
        setting: Setting,
        make_target: MakeTarget | None,
        options: Options,
        reach: Reach | None = None,
        oracle: Allocator | None = None,
    ) -> None:
        self.setting = setting
        self.handler = self.handlers
        self.options = options
        self.aspects: Collection[str] = options.aspects
        self.ledger = Ledger(setting)
        self.oracle = Allocator(setting) if oracle is None else oracle
        self.reach = reach if reach is not None else Reach()
        self.reach.setting(setting)
        self.operations: list[Operation] = []
        self.outcome_differences: list[Difference] = []
        self.declared: list[Difference] = []
        self.entries: list[Entry] = []
        self.rows: dict[int, Rows] = {}
        self.steps = 0
        self.over = False
        #: the number of steps at which everything is compared next
        self.audit_at = options.audit_every
        watch = "law" in options.aspects
        drafting = ("lookahead",) if setting.lookahead else ()
        #: laws broken in this step, with their tags. Neither watcher knows the replay: no cycle is left to be collected
        self.broken: list[tuple[Violation, tuple[str, ...]]] = []
        note = self.broken.append
        self.laws = Laws(setting, lambda violation: note((violation, drafting))) if watch else None
        self.memory = None
        if watch and options.memory and setting.profile == "scheduler":
            self.memory = Memory(setting, lambda violation, contents: note((violation, tuple(sorted(contents.tags)))))
        self.target: Target | None = None
        if make_target is not None:
            try:
                self.target = guarded(make_target(setting), methods_of(setting))
            except Exception as error:  # the target's own: whatever it raises is its answer
                self._built(error)

    # ---------------------------------------------------------------------------------------- differences

    def _differ(self, difference: Difference) -> bool:
        """Take note of a difference; True when the trace may go on."""
        if self.options.declared(difference):
            self.declared.append(difference)
            return True
        self.outcome_differences.append(difference)
        self.over = True
        return False

    def _built(self, error: Exception) -> None:
        from harness.targets.compat import TargetError

        if isinstance(error, TargetError):
            raise error
        self._differ(differences.not_built(error, self.setting))
        self.over = True

    def _raised(self, error: TargetRaised) -> None:
        """The target did not answer: the trace ends, nobody knows what it left behind."""
        self._differ(differences.raised(error, self.ledger.index, self._known_cause(error)))
        self.over = True

    def _known_cause(self, error: TargetRaised) -> tuple[str, ...]:
        """What is known to make a target raise so."""
        return ()

    def _laws_broken(self) -> None:
        """Take note of the violations of this step."""
        for violation, tags in self.broken:
            self._differ(differences.law_broken(violation, tags, self.setting))
        self.broken.clear()

    # --------------------------------------------------------------------------------------------- steps

    def step(self, operation: Operation) -> None:
        """Run one operation on every party."""
        self.operations.append(operation)
        self.ledger.index = self.steps
        self.steps += 1
        try:
            self.handler[type(operation)](self, operation)
        except TargetRaised as error:
            self._raised(error)
        if self.broken:
            self._laws_broken()
        if self.steps >= self.audit_at and not self.over:
            self.audit()

    def audit(self) -> None:
        """Compare everything."""
        self.audit_at = self.steps + self.options.audit_every
        seen = self.oracle.audit()
        if self.target is not None:
            try:
                expected, seen = seen, self.target.audit()
            except TargetRaised as error:
                self._raised(error)
                return
            difference = self._audits(expected, seen)
            if difference is not None:
                self._differ(difference)
                self.over = True  # the two states have parted, declared or not
        if self.laws is not None:
            self.laws.audited(self.ledger.index, seen)
            self._laws_broken()

    def _audits(self, expected: Audit, observed: Audit) -> Difference | None:
        return compare.audits(expected, observed, self.aspects, self.ledger.index)

    def finish(self) -> None:
        """The end of the trace: what is in flight settles, everything is audited."""
        while not self.over and (self.ledger.launched or self.ledger.open.steps):
            settled = self.ledger.settle(Settle())
            if settled is not None and self.memory is not None:
                self.memory.settled(settled)
                self._laws_broken()
        if not self.over:
            self.audit()

    def _keep(
        self,
        operation: Operation,
        call: Call | None,
        before: Rows,
        expected: Observation | None,
        observed: Observation | None,
    ) -> None:
        if self.options.keep_entries:
            self.entries.append(Entry(self.ledger.index, operation, call, before, expected, observed))

    def _hold(
        self,
        expected: Observation,
        observed: Observation | None,
        call: Call | None = None,
        before: Rows | None = None,
        zeroing: bool = False,
    ) -> Difference | None:
        """Compare two answers; the difference, if there is one and the trace cannot go on as if there were none."""
        if observed is None or expected == observed:
            return None
        return compare.observations(
            expected, observed, self.aspects, self.oracle, self.ledger.index, call, before, zeroing
        )

    def _extend(self, operation: Extend) -> None:
        ledger, oracle = self.ledger, self.oracle
        call = ledger.extend(operation)
        if call is None:
            self.reach.hit("void")
            self._keep(operation, None, (), None, None)
            return
        request = call.request
        before = self.rows.get(request, oracle.nothing)
        seen = expected = oracle.extend(call)
        agreed_on = False
        if self.target is not None:
            seen = observed = self.target.extend(call)
            self._keep(operation, call, before, expected, observed)
            difference = self._hold(expected, observed, call, before)
            if difference is not None:
                agreed = self._differ(difference)
                if not (agreed and expected.outcome == REFUSED and oracle.follow(call, observed.outcome) == observed):
                    self.over = True
                    return
                agreed_on = True
        elif self.options.keep_entries:
            self._keep(operation, call, before, expected, None)
        self.rows[request] = rows = seen.rows
        self.reach.extend(oracle, call, seen, before)
        if self.laws is not None:
            self.laws.extended(ledger.index, call, seen, before)
            if agreed_on:
                self.laws.not_alone()
        parted = seen.outcome != expected.outcome and not agreed_on
        if parted and (expected.outcome != REFUSED or oracle.follow(call, seen.outcome).outcome != seen.outcome):
            self.over = True  # decisions are not compared; the oracle could not follow, the two states have parted
            return
        if seen.outcome == GRANTED:
            step = ledger.granted(call)
            if step is not None:
                step.rows = rows
            if self.memory is not None:
                self.memory.scheduled(call, ledger.requests[request], step, rows)
        elif seen.outcome == REFUSED:
            ledger.refused()
        else:
            self.over = True  # an error from inside the pool leaves a half-changed state

    def _settle(self, operation: Settle) -> None:
        settled = self.ledger.settle(operation)
        if self.options.keep_entries:
            self._keep(operation, None, (), None, None)
        if settled is None:
            return
        if self.setting.num_speculative_tokens:
            self.reach.settle(settled)
        if self.memory is not None:
            self.memory.settled(settled)

    def _loaded(self, operation: Loaded) -> None:
        result = self.ledger.loaded(operation)
        if result == "failed":
            self._free(operation, operation.request, False)
        else:
            self._keep(operation, None, (), None, None)
        if result is not None:
            self.reach.loaded(operation, result)

    def _release(self, operation: Release) -> None:
        scheduled = len(self.ledger.open.steps)
        request = self.ledger.release(operation)
        if request is None:
            self._keep(operation, None, (), None, None)
            return
        if operation.preempt and len(self.ledger.open.steps) < scheduled:
            self.reach.hit("preempted in its own step")
        self.reach.release(operation, request)
        self._free(operation, operation.request, operation.deferred)

    def _free(self, operation: Operation, request: int, deferred: bool) -> None:
        before = self.rows.pop(request, ())
        expected = self.oracle.release(request, deferred)
        observed = self.target.release(request, deferred) if self.target is not None else None
        self._keep(operation, None, before, expected, observed)
        self._plain(expected, observed)
        if self.laws is not None:
            self.laws.released(request, before, deferred)

    def _plain(self, expected: Observation, observed: Observation | None, zeroing: bool = False) -> None:
        """Compare answers that decide nothing; after a declared difference of rows the two states have parted."""
        difference = self._hold(expected, observed, zeroing=zeroing)
        if difference is not None:
            self._differ(difference)
            self.over = self.over or not zeroing

    def _give_back(self, operation: GiveBack) -> None:
        if not self.ledger.give_back():
            self._keep(operation, None, (), None, None)
            return
        expected = self.oracle.give_back()
        observed = self.target.give_back() if self.target is not None else None
        self._keep(operation, None, (), expected, observed)
        self._plain(expected, observed)
        self.reach.hit("give back")
        if self.laws is not None:
            self.laws.given_back()

    def _resume(self, operation: Resume) -> None:
        self._keep(operation, None, (), None, None)
        if self.ledger.resume(operation):
            self.reach.hit("session")
            if self.laws is not None:
                self.laws.not_alone()

    def _trim(self, operation: Trim) -> None:
        request = self.ledger.trim(operation.request)
        if request is None:
            self._keep(operation, None, (), None, None)
            return
        before = self.rows.get(operation.request, self.oracle.nothing)
        expected = self.oracle.trim(operation.request, request.processed, request.prompt)
        observed = None
        if self.target is not None:
            observed = self.target.trim(operation.request, request.processed, request.prompt)
        self._keep(operation, None, before, expected, observed)
        self._plain(expected, observed)
        seen = observed or expected
        self.rows[operation.request] = seen.rows
        self.reach.hit("trim")

    def _new_step(self, operation: NewStep) -> None:
        self.ledger.launch()
        expected = self.oracle.new_step()
        observed = self.target.new_step() if self.target is not None else None
        self._keep(operation, None, (), expected, observed)
        self._plain(expected, observed, zeroing=True)
        if expected.new[0]:
            self.reach.hit("zero list")

    def _nothing(self, operation: Operation) -> None:
        """With caching off there is nothing to look up or to forget."""
        self._keep(operation, None, (), None, None)

    def result(self) -> Outcome:
        """What came of it."""
        return Outcome(
            Trace(setting=self.setting, operations=tuple(self.operations)),
            self.outcome_differences,
            self.declared,
            self.entries,
            self.steps,
        )


HANDLERS: dict[type, Callable[..., None]] = {
    Extend: Replay._extend,  # noqa: SLF001  # the table belongs to the class
    Settle: Replay._settle,  # noqa: SLF001
    Loaded: Replay._loaded,  # noqa: SLF001
    Release: Replay._release,  # noqa: SLF001
    GiveBack: Replay._give_back,  # noqa: SLF001
    Resume: Replay._resume,  # noqa: SLF001
    Trim: Replay._trim,  # noqa: SLF001
    NewStep: Replay._new_step,  # noqa: SLF001
    Lookup: Replay._nothing,  # noqa: SLF001
    Evict: Replay._nothing,  # noqa: SLF001
    Reset: Replay._nothing,  # noqa: SLF001
    Pin: Replay._nothing,  # noqa: SLF001
    Unpin: Replay._nothing,  # noqa: SLF001
}
Replay.handlers = HANDLERS
