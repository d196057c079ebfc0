"""The fast way through a trace: one party after the other instead of both in lockstep.

First the oracle alone, which notes each call with its answer, watched by the laws and the memory. Then the target,
which is given the same calls: each of its answers must equal the one noted, and so what the laws said of the notes
holds for the target. Only when an answer is another one, the trace is run again from its bytes, in lockstep
(`harness.replay`), where that target goes on from where it is: there differences are named, declared ones followed. Two
code bases in turns at each step cost a third more than one after the other, because neither stays in the processor's
caches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from attrs import define, evolve

from harness import cached_compare, compare
from harness.outcome import MakeTarget, Options, Outcome, TargetRaised, raised_by
from harness.reach import Reach
from harness.trace_run import new_replay
from oracle.allocator import Allocator
from oracle.cached_allocator import CachingAllocator
from oracle.call import Call, Drained, Observation
from oracle.releases import Choices
from oracle.setting import Setting
from oracle.trace import ASPECTS, CACHING_METHODS, Audit, Difference, NamedAudit, Target, methods_of

#: told the step that runs next
At = Callable[[int], object]
#: step, method of the target, its arguments, the oracle's answer
Asked = tuple[int, str, tuple[Any, ...], Any]


class Recorder(Allocator):
    """The oracle, which notes each call with its answer."""

    def __init__(self, setting: Setting, choices: Choices | None = None) -> None:
        super().__init__(setting, choices)
        self.step = 0
        self.asked: list[Asked] = []

    def extend(self, call: Call, gate: bool = True, test: bool = True) -> Observation:
        answer = Allocator.extend(self, call, gate, test)
        self.asked.append((self.step, "extend", (call,), answer))
        return answer

    def release(self, request: int, deferred: bool) -> Observation:
        answer = Allocator.release(self, request, deferred)
        self.asked.append((self.step, "release", (request, deferred), answer))
        return answer

    def give_back(self) -> Observation:
        answer = Allocator.give_back(self)
        self.asked.append((self.step, "give_back", (), answer))
        return answer

    def trim(self, request: int, processed: int, prompt: int) -> Observation:
        answer = Allocator.trim(self, request, processed, prompt)
        self.asked.append((self.step, "trim", (request, processed, prompt), answer))
        return answer

    def new_step(self) -> Observation:
        answer = Allocator.new_step(self)
        self.asked.append((self.step, "new_step", (), answer))
        return answer

    def audit(self) -> Audit:
        answer = Allocator.audit(self)
        self.asked.append((self.step, "audit", (), answer))
        return answer


def _noting(name: str) -> Callable[..., Any]:
    """A method that notes what the oracle answers."""
    method = getattr(CachingAllocator, name)

    def ask(self: CachingRecorder, *arguments: object) -> object:
        answer = method(self, *arguments)
        self.asked.append((self.step, name, arguments, answer))
        return answer

    return ask


class CachingRecorder(CachingAllocator):
    """The same with caching on."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.step = 0
        self.asked: list[Asked] = []


for _name in CACHING_METHODS:
    setattr(CachingRecorder, _name, _noting(_name))


@define
class Prediction:
    """The first pass: what a trace is, what came of it beside no target, and what a target must answer."""

    setting: Setting
    outcome: Outcome
    asked: list[Asked]
    reach: Reach


def applies(options: Options) -> bool:
    """Whether answers must be equal in everything, so that an equal answer is all that there is to know."""
    return not options.keep_entries and options.aspects.issuperset(ASPECTS)


def predict(data: bytes, profile: str, options: Options, choices: Choices | None = None) -> Prediction:
    """Run packed bytes on the oracle alone. `choices`: in place of those of the release (caching off)."""
    setting, stream = options.open(data, profile)
    oracle = CachingRecorder(setting) if setting.enable_caching else Recorder(setting, choices)
    replay = new_replay(setting, None, options, oracle=oracle)
    ledger = replay.ledger
    while not replay.over:
        operation = stream.next(ledger)
        if operation is None:
            replay.finish()
            break
        oracle.step = replay.steps
        replay.step(operation)
    return Prediction(setting, replay.result(), oracle.asked, replay.reach)


class Played:
    """The second pass: a new target is given the calls of a prediction, up to its first other answer.

    at: told each step before it. parted: the step of that answer; None if there is none, -1 if no target was built.
    Declared differences of events are kept: nothing follows from an event.
    """

    def __init__(
        self,
        prediction: Prediction,
        make_target: MakeTarget,
        at: At = lambda step: None,
        declared: Callable[[Difference], bool] = lambda difference: False,
    ) -> None:
        self.prediction = prediction
        self.parted: int | None = None
        self.declared: list[Difference] = []
        #: by number of the call what it answered or raised where that is not equal to the oracle's answer
        self.others: dict[int, object] = {}
        try:
            self.target = make_target(prediction.setting)
        except Exception:  # the lockstep run looks into it
            self.parted = -1
            return
        ask = {name: getattr(self.target, name) for name in methods_of(prediction.setting)}
        for number, (step, method, arguments, answer) in enumerate(prediction.asked):
            at(step)
            try:
                seen = ask[method](*arguments)
            except Exception as error:  # the lockstep run names it
                seen = raised_by(error)
            if seen == answer:
                continue
            self.others[number] = seen
            if isinstance(answer, Drained) and isinstance(seen, Drained):
                found = cached_compare.drained(answer, seen, ASPECTS, step, prediction.setting)
                if found is None:
                    continue
                if found.aspect == "events" and declared(found):
                    self.declared.append(found)
                    continue
            elif _same(answer, seen, step):
                continue
            self.parted = step
            return

    def outcome(self) -> Outcome:
        """What the whole trace makes of a target that has not parted."""
        ours = self.prediction.outcome
        declared = sorted([*ours.declared, *self.declared], key=lambda difference: difference.step)
        return evolve(ours, declared=declared) if self.declared else ours

    def again(self) -> Target:
        """The target that parted, for a lockstep run: it gives the answers that it has given, and then goes on."""
        calls = self.prediction.asked[: max(self.others) + 1]
        given = iter([(call[1], self.others.get(number, call[3])) for number, call in enumerate(calls)])

        def answer(name: str, method: Callable[..., object], *arguments: object) -> object:
            asked, seen = next(given, ("", None))
            if not asked:
                return method(*arguments)
            assert name == asked, f"the lockstep run asks {name} where the prediction has {asked}"
            if isinstance(seen, TargetRaised):
                raise TargetRaised(seen.kind, seen.text, seen.frames)
            return seen

        names = methods_of(self.prediction.setting)
        return cast(
            Target, SimpleNamespace(**{name: partial(answer, name, getattr(self.target, name)) for name in names})
        )


def play(prediction: Prediction, make_target: MakeTarget, at: At = lambda step: None) -> int | None:
    """Give a new target the calls; where it parts, as in `Played`."""
    return Played(prediction, make_target, at).parted


def _same(expected: object, observed: object, step: int) -> bool:
    """Whether two audits differ in nothing that counts: a row without columns is no row, names have no fixed order."""
    if not (isinstance(expected, Audit) and isinstance(observed, Audit)):
        return False
    named = isinstance(expected, NamedAudit) and cached_compare.named(expected, observed, ASPECTS, step) is not None
    return not named and compare.audits(expected, observed, ASPECTS, step) is None


def compared(
    data: bytes, profile: str, make_target: MakeTarget, options: Options, reach: Reach | None = None
) -> Outcome:
    """What a target makes of packed bytes: in two passes, and in lockstep where an answer is another one."""
    prediction = predict(data, profile, options)
    played = Played(prediction, make_target, declared=options.declared)
    if played.parted is not None:
        return lockstep(data, profile, make_target, options, reach)
    if reach is not None:
        reach.add(prediction.reach.counts)
    return played.outcome()


def lockstep(
    data: bytes,
    profile: str,
    make_target: MakeTarget,
    options: Options,
    reach: Reach | None = None,
    at: At = lambda step: None,
) -> Outcome:
    """Run packed bytes step by step on both parties."""
    setting, stream = options.open(data, profile)
    replay = new_replay(setting, make_target, options, reach)
    while not replay.over:
        operation = stream.next(replay.ledger)
        if operation is None:
            replay.finish()
            break
        at(replay.steps)
        replay.step(operation)
    return replay.result()
