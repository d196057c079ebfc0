"""The film of a recording: the recorded answers beside the oracle's, the last operations of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.outcome import Options
from harness.page.film import NOTHING, Recorder, filmed
from harness.page.of_trace import titled
from harness.record_commands import one_recording
from harness.recorded import Judged
from harness.recording import Recording
from oracle.errors import TraceError
from oracle.trace import Difference, Operation

#: operations that are shown, up to the last; a page of more is slow to open
SHOWN = 10_000


def recorded_film(path: Path, declared: Callable[[Difference], bool]) -> dict[str, Any]:
    """The film of the one recording at a path: it is judged once to count its operations, once to look at the last."""
    recording = one_recording(path)
    judged = _judge(recording, Judged(recording.head, Options(declared=declared)))
    if judged.began is not None:
        raise TraceError(f"the beginning of {recording.name} was dropped: shrink it, and look at what comes of that")
    first = max(0, judged.replay.steps - SHOWN)
    recording = one_recording(path)
    judged = Judged(recording.head, Options(declared=declared, keep_entries=True))
    replay = judged.replay
    recorder = Recorder(replay, state=NOTHING)

    def look(operation: Operation) -> None:
        (replay.step if replay.steps < first else recorder.step)(operation)

    judged.step = look
    _judge(recording, judged)
    expected = recorder.expected(queue=False) if judged.difference is not None else {}
    when = f"{judged.head.began:%Y-%m-%d %H:%M:%S} to {judged.at:%H:%M:%S}"
    counts = f"{judged.steps:,} engine steps, {replay.steps:,} operations"
    rules = judged.head.setting.release
    said = {
        "title": "The end of a recording" if first else "A recording",
        "against": f"Recorded by {recording.name}, {when}, {counts}; beside it the oracle by the rules of {rules}."
        + (f" Not judged to its end: {judged.parted}." if judged.parted else ""),
        "start": None,
    }
    return titled(said | filmed(replay.result(), recorder.frames, declared, expected, first))


def _judge(recording: Recording, judged: Judged) -> Judged:
    for line in recording.lines():
        judged.feed(line)
    return judged
