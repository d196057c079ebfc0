"""One release in a process of its own: two releases cannot be imported into one.

`Side` starts it and asks; `main` is what runs there (`python -m harness.side RELEASE`). Questions and answers are lines
of JSON, one object each. What vLLM prints goes to the error stream.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from harness.targets.compat import TargetError
from oracle.releases import NEWEST

if TYPE_CHECKING:
    from harness.warmups import WarmupOptions
    from harness.workload_outcome import MakeScheduler, WorkloadOptions

Answer = dict[str, Any]


class Side:
    """A release that answers. TargetError when it cannot be imported, or ends."""

    def __init__(self, release: str | None, limits: str | None = None) -> None:
        self.name = release or "installed"
        command = [sys.executable, "-m", "harness.side", release or "", limits or ""]
        root = str(Path(__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.release = ""

    def start(self) -> Answer:
        """Wait until it is imported; the release that it is."""
        answer = self.take()
        self.release = answer["release"]
        return answer

    def send(self, question: Answer) -> None:
        """Ask, and go on; `take` waits for the answer."""
        stream: TextIO = self.process.stdin  # type: ignore[assignment]
        try:
            stream.write(json.dumps(question) + "\n")
            stream.flush()
        except BrokenPipeError:
            raise TargetError(f"the process of release {self.name} has ended") from None

    def take(self) -> Answer:
        """The next answer."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise TargetError(f"the process of release {self.name} has ended with status {self.process.wait()}")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise TargetError(answer["error"])
        return answer

    def ask(self, question: Answer) -> Answer:
        """Ask and wait."""
        self.send(question)
        return self.take()

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


# --------------------------------------------------------------------------------------------- in that process


class _Answers:
    """What the process does."""

    def __init__(self, release: str, limits: str | None) -> None:
        from harness import findings
        from harness.outcome import Options
        from harness.targets.loader import load_target

        self.make_target = load_target(None)
        self.release = release or NEWEST
        self.declared = findings.Declared(findings.load(), release)
        self.options = Options(declared=self.declared, release=release, limits=limits)

    def shard(self, question: Answer) -> Answer:
        """Run the traces of one shard; those in which something was seen, with their place in it."""
        if question["profile"] == "warmup":
            return self._warmups(question)
        if question["profile"] == "workload":
            return self._workloads(question)
        from harness import passes
        from harness.reach import Reach
        from strategies.traces import draw

        reach = Reach()
        seen: list[Answer] = []
        drawn: list[bytes] = []
        draw(question["seed"], question["shard"], question["examples"], drawn.append)
        steps = 0
        for place, data in enumerate(drawn):
            outcome = passes.compared(data, question["profile"], self.make_target, self.options, reach)
            steps += outcome.steps
            if outcome.declared or outcome.differences:
                seen.append({"place": place, **self._seen(outcome.declared, outcome.differences)})
        return {"traces": len(drawn), "steps": steps, "seen": seen, "reach": dict(reach.counts)}

    def _warmups(self, question: Answer) -> Answer:
        """The same at the warmup level; a step is a warmup, and the kernels are left out."""
        from harness.targets.warmup import Warmup
        from harness.warmups import run_warmups
        from strategies.warmups import decode, draw

        seen: list[Answer] = []
        drawn: list[bytes] = []
        draw(question["seed"], question["shard"], question["examples"], drawn.append)
        steps = 0
        for place, data in enumerate(drawn):
            trace = decode(data, self._warmup.release, self.options.limits)
            outcome = run_warmups(trace, Warmup, self._warmup)
            steps += outcome.warmups
            if outcome.declared or outcome.differences:
                seen.append({"place": place, **self._seen(outcome.declared, outcome.differences)})
        return {"traces": len(drawn), "steps": steps, "seen": seen, "reach": {}}

    def _workloads(self, question: Answer) -> Answer:
        """The same at the scheduler level."""
        from harness.workloads import run_in_passes
        from strategies.workloads import decode, draw

        seen: list[Answer] = []
        drawn: list[bytes] = []
        draw(question["seed"], question["shard"], question["examples"], drawn.append)
        steps = 0
        for place, data in enumerate(drawn):
            trace = decode(data, self.release, self.options.limits)
            outcome = run_in_passes(trace, self._scheduler, self._workload)
            steps += outcome.steps
            if outcome.declared or outcome.differences:
                seen.append({"place": place, **self._seen(outcome.declared, outcome.differences)})
        return {"traces": len(drawn), "steps": steps, "seen": seen, "reach": {}}

    @cached_property
    def _scheduler(self) -> MakeScheduler:
        from harness.targets.loader import load_scheduler

        return load_scheduler(None)

    @property
    def _workload(self) -> WorkloadOptions:
        from harness.workload_outcome import WorkloadOptions

        return WorkloadOptions(declared=self.declared, release=self.release)

    @property
    def _warmup(self) -> WarmupOptions:
        from harness.warmup_parties import NONE, options

        return options(NONE, self.declared)

    def canary(self, question: Answer) -> Answer:
        """Whether a planted defect is caught on this release."""
        from harness import canary

        return {"caught": canary.caught(self.make_target, self.options) is not None}

    def _seen(self, declared: list[Any], new: list[Any]) -> Answer:
        findings = [finding.name for finding in map(self.declared.explain, declared) if finding is not None]
        return {"declared": sorted(set(findings)), "new": sorted({difference.fingerprint for difference in new})}

    def replay(self, question: Answer) -> Answer:
        """Run one trace file of the manager, the warmup or the scheduler level."""
        from attrs import evolve

        from harness import tracefile
        from harness.targets.warmup import Warmup
        from harness.trace_run import run_trace
        from harness.warmups import run_warmups
        from harness.workloads import run_workload
        from oracle.errors import SettingError
        from oracle.releases import runs
        from oracle.trace import Trace
        from oracle.warmup import WarmupTrace
        from oracle.workload import SchedulerTrace

        trace = tracefile.read_any(Path(question["replay"]))
        try:
            if isinstance(trace, WarmupTrace):
                warmed = run_warmups(trace, Warmup, self._warmup)
                return self._seen(warmed.declared, warmed.differences)
        except TargetError as error:
            return {"cannot": str(error)}
        if isinstance(trace, SchedulerTrace) and not runs(self.options.release, "scheduler"):
            return {"cannot": f"the scheduler level is not specified for {self.options.release}"}
        if not isinstance(trace, Trace | SchedulerTrace):
            return {"cannot": "traces of the levels manager, warmup and scheduler run on other releases"}
        if trace.setting.enable_caching and not runs(self.options.release, "caching"):
            return {"cannot": f"prefix caching is not specified for {self.options.release}"}
        try:
            if isinstance(trace, SchedulerTrace):
                ran = run_workload(trace, self._scheduler, self._workload)
                return self._seen(ran.declared, ran.differences)
            outcome = run_trace(trace, self.make_target, evolve(self.options, audit_every=1))
        except (TargetError, SettingError) as error:
            return {"cannot": str(error)}
        return self._seen(outcome.declared, outcome.differences)

    def report(self, question: Answer) -> Answer:
        """Make a trace that shows a difference minimal and write its report folder."""
        from harness import passes
        from harness.report import folder
        from harness.shrink import shrink

        data, profile = bytes.fromhex(question["data"]), question["profile"]
        if profile == "warmup":
            return self._warmup_report(data, Path(question["out"]))
        if profile == "workload":
            return self._workload_report(data, Path(question["out"]))
        outcome = passes.compared(data, profile, self.make_target, self.options)
        small = shrink(outcome.trace, outcome.differences[0], self.make_target, self.options)
        folder.write_report(Path(question["out"]), small, self.options.release, self.make_target)
        return {"operations": len(small.trace.operations), "fingerprint": small.difference.fingerprint}

    def _warmup_report(self, data: bytes, out: Path) -> Answer:
        from harness.report.warmup import write_warmup_report
        from harness.targets.warmup import Warmup
        from harness.warmup_shrink import shrink_warmup
        from harness.warmups import run_warmups
        from strategies.warmups import decode

        trace = decode(data, self._warmup.release, self.options.limits)
        first = run_warmups(trace, Warmup, self._warmup).differences[0]
        small = shrink_warmup(trace, first, Warmup, self._warmup)
        write_warmup_report(out, small, self.options.release, Warmup, self._warmup)
        return {"operations": len(small.trace.operations), "fingerprint": small.difference.fingerprint}

    def _workload_report(self, data: bytes, out: Path) -> Answer:
        from harness.workload_report import write
        from harness.workload_shrink import shrink_workload
        from harness.workloads import run_workload
        from strategies.workloads import decode

        trace = decode(data, self.release, self.options.limits)
        first = run_workload(trace, self._scheduler, self._workload).differences[0]
        small = shrink_workload(trace, first, self._scheduler, self._workload)
        write(out, small.trace, small.difference, self._scheduler, self._workload, self.options.release)
        return {"operations": len(small.trace.operations), "fingerprint": small.difference.fingerprint}

    def interface(self, question: Answer) -> Answer:
        """What the project uses of the release, by name."""
        from harness.targets import interface

        return interface.used()


def main() -> None:
    """Answer until the input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer: Answer) -> None:
        out.write(json.dumps(answer) + "\n")
        out.flush()

    from harness import store
    from oracle.errors import SlotcheckError

    try:
        release = store.choose(sys.argv[1] or None)
        answers = _Answers(release or "", sys.argv[2] or None)
    except SlotcheckError as error:
        say({"error": str(error)})
        return
    say({"release": release})
    kinds: dict[str, Callable[[Answer], Answer]] = {
        "canary": answers.canary,
        "shard": answers.shard,
        "replay": answers.replay,
        "report": answers.report,
        "interface": answers.interface,
    }
    for line in sys.stdin:
        question = json.loads(line)
        try:
            say(next(answer for name, answer in kinds.items() if name in question)(question))
        except SlotcheckError as error:
            say({"error": str(error)})


if __name__ == "__main__":
    main()
