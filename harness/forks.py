"""Work in a process of its own, watched: what it gives, or how it ended.

Whatever a target does to its process, raise, exit, crash or never answer, the parent is told in a word:
"error:ValueError", "exit 9", "killed by SIGSEGV", "hang". What is not the target's doing is raised again in the parent.
"""

from __future__ import annotations

import gc
import multiprocessing as mp
import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from harness.outcome import MakeTarget, Options, Outcome
from harness.shrink import Shrunk, shrink
from harness.targets.compat import TargetError
from harness.trace_run import run_trace
from harness.worker import Progress, read_journal
from oracle.errors import SlotcheckError
from oracle.trace import Difference, Trace

#: seconds without a step before a process counts as hung
HANG_SECONDS = 60.0
#: a candidate of a shrinker, one trace, takes milliseconds; how many that hang are waited for
TRY_SECONDS = 3.0
MAX_HANGS = 20
FORK = mp.get_context("fork")
#: where targets are called from
_CALLERS = ("outcome.py", "replay.py", "passes.py", "canary.py", "warmups.py", "workloads.py")
_ROOT = Path(__file__).parent.parent
_OURS = tuple(str(_ROOT / name) + os.sep for name in ("oracle", "strategies", "harness"))
_TARGETS = str(_ROOT / "harness" / "targets") + os.sep


class HarnessError(Exception):
    """The harness itself failed in a forked process; the text ends with the traceback there."""


@frozen
class Raised:
    """An exception on its way from a forked process to its parent."""

    kind: str
    text: str
    trace: str
    whose: str

    def sign(self) -> str:
        """The word for what the target raised; anything else is raised here."""
        if self.whose == "target":
            return f"error:{self.kind}"
        if self.whose == "loading":
            raise TargetError(self.text)
        if self.whose == "person":
            raise SlotcheckError(self.text)
        raise HarnessError(f"{self.kind}: {self.text}\n{self.trace}")


def raised(error: Exception) -> Raised:
    """An exception, and whose it is."""
    return Raised(type(error).__name__, str(error), "".join(traceback.format_exception(error)), _whose(error))


def _whose(error: Exception) -> str:
    """The target's is what was raised behind a call of it; the last frame of ours is then that of the caller."""
    if isinstance(error, TargetError):
        return "loading"
    if isinstance(error, SlotcheckError):
        return "person"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        index
        for index, frame in enumerate(frames)
        if frame.filename.startswith(_OURS) and not frame.filename.startswith(_TARGETS)
    ]
    called = bool(ours) and ours[-1] < len(frames) - 1 and Path(frames[ours[-1]].filename).name in _CALLERS
    return "target" if called else "harness"


def plain_signals() -> None:
    """In a forked process: Ctrl-C is the parent's, and a crash kills at once instead of printing stacks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL):
        signal.signal(number, signal.SIG_DFL)


def death(code: int | None) -> str:
    """The word for an exit status."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit {code}"


class Watch:
    """Says when the process behind a journal has made no step for `seconds`."""

    def __init__(self, journal: Path | None, seconds: float) -> None:
        self.journal = journal
        self.seconds = seconds
        self.begin()

    def begin(self) -> None:
        """Something new begins."""
        self.seen, self.since = (0, 0), time.monotonic()

    def progress(self) -> Progress:
        """What the journal says; nothing when there is none yet."""
        try:
            return Progress(0, 0, b"", "scheduler") if self.journal is None else read_journal(self.journal)
        except (OSError, ValueError):
            return Progress(0, 0, b"", "scheduler")

    def hangs(self) -> bool:
        """Whether it has stood still for too long."""
        progress = self.progress()
        now = (progress.traces, progress.step)
        if now != self.seen:
            self.seen, self.since = now, time.monotonic()
        return time.monotonic() - self.since > self.seconds


def in_a_fork(work: Callable[[], Any], seconds: float, journal: Path | None = None) -> tuple[Any, str]:
    """`work()` in a process of its own: its value and "", or None and how the process ended.

    It counts as hung after `seconds`, with a `journal` after so long without a step. Raises what is not the target's.
    """
    ours, theirs = FORK.Pipe(duplex=False)

    def body() -> None:
        plain_signals()
        gc.freeze()  # what was there before stays: a collection would look at all of vLLM, and copy its pages
        try:
            value = work()
        except Exception as error:
            value = raised(error)
        theirs.send(value)
        theirs.close()
        os._exit(0)

    process = FORK.Process(target=body, daemon=True)
    process.start()
    theirs.close()
    watch = Watch(journal, seconds)
    try:
        while not ours.poll(0.2):
            if watch.hangs():
                return None, "hang"
        value = ours.recv()
    except (EOFError, OSError):
        process.join()
        return None, death(process.exitcode)
    finally:
        process.kill()
        process.join()
        ours.close()
    return (None, value.sign()) if isinstance(value, Raised) else (value, "")


def process_difference(trace: Trace, sign: str) -> Difference:
    """The last operation of `trace` got no answer."""
    return Difference(
        aspect="outcome",
        step=len(trace.operations) - 1,
        group=None,
        kind="pool",
        rule="process",
        sign=sign,
        expected="an answer",
        observed=sign,
    )


def replay_in_a_fork(trace: Trace, make_target: MakeTarget, options: Options) -> Outcome:
    """`run_trace`, survived: when the target kills or blocks its process, the oracle alone says what came before."""
    outcome, ended = in_a_fork(lambda: run_trace(trace, make_target, options), HANG_SECONDS)
    if not ended:
        found: Outcome = outcome
        return found
    alone = run_trace(trace, None, evolve(options, aspects=frozenset({"outcome"})))
    return evolve(alone, differences=[process_difference(trace, ended)])


class Isolated:
    """Runs each candidate of a shrinker in a process of its own, whose death is the difference.

    A candidate that hangs costs its `seconds`; after `MAX_HANGS` of them none is run any more.
    """

    def __init__(self, difference: Difference, make_target: MakeTarget, options: Options, seconds: float) -> None:
        self.difference = difference
        self.make_target = make_target
        self.options = options
        self.seconds = seconds
        self.hangs = 0

    @property
    def exhausted(self) -> bool:
        """Whether it has waited often enough."""
        return self.hangs >= MAX_HANGS

    def __call__(self, trace: Trace) -> list[Difference]:
        if self.exhausted:
            return []
        value, ended = in_a_fork(lambda: run_trace(trace, self.make_target, self.options).differences, self.seconds)
        if not ended:
            return list(value)
        self.hangs += ended == "hang"
        return [evolve(self.difference, sign=ended, observed=ended, step=len(trace.operations) - 1)]


def shrink_isolated(
    trace: Trace,
    difference: Difference,
    make_target: MakeTarget,
    options: Options,
    max_tries: int = 200,
    seconds: float = TRY_SECONDS,
) -> Shrunk:
    """`shrink` for a trace that kills or blocks its process: a process a try."""
    evaluate = Isolated(difference, make_target, options, seconds)
    small = shrink(trace, difference, make_target, options, max_tries, evaluate)
    return evolve(small, minimal=small.minimal and not evaluate.exhausted)
