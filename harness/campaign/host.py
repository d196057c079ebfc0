"""A process that has imported one vLLM and works in forks of itself: shards, canaries, shrinking, many at a time.

    python -m harness.campaign.host FILE-DESCRIPTOR RELEASE TARGET

It knows nothing of Ray: whoever started it holds the other end of a socket and asks. When that end is closed it kills
itself and what it forked.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection

from harness.campaign.levels import Levels
from harness.campaign.messages import Answer, Caught, Failed, Request
from harness.campaign.plan import Shard
from harness.campaign.storage import Stored
from harness.campaign.survived import run_range, shrink_stored
from harness.errors import EXIT_HARNESS, EXIT_INCONCLUSIVE
from harness.forks import HANG_SECONDS, in_a_fork
from harness.targets.compat import TargetError, installed_release
from oracle.errors import SlotcheckError
from oracle.releases import CONFIRMED, runs

CANARY_SECONDS = 600.0


def answer(levels: Levels, request: Request, hang_seconds: float = HANG_SECONDS) -> Answer:
    """What a request gives: the text of a shard's result, what became of a canary, a difference made smaller."""
    try:
        if isinstance(request, Shard):
            level = levels[request.level]
            return run_range(level, request.profile, request.seed, request.numbers, hang_seconds).text()
        if isinstance(request, Stored):
            return shrink_stored(levels[request.trace.level], request, hang_seconds)
        return _canary(levels, request.level)
    except SlotcheckError as error:
        return Failed(said=str(error), status=EXIT_INCONCLUSIVE if isinstance(error, TargetError) else 2)
    except Exception as error:
        return Failed(said=f"the harness itself failed: {type(error).__name__}: {error}", status=EXIT_HARNESS)


def _canary(levels: Levels, level: str) -> Caught:
    release = installed_release()
    if not runs(release, level):
        raise TargetError(f"level {level} is specified for {', '.join(CONFIRMED[level])}, not for {release}")
    steps, ended = in_a_fork(levels[level].canary, CANARY_SECONDS)
    return Caught(steps=steps, ended=ended, release=release)


def serve(line: Connection, levels: Levels) -> None:
    """Answer requests as they come, each in a thread, until the other end is closed."""
    one_at_a_time = threading.Lock()

    def work(number: int, request: Request) -> None:
        said = answer(levels, request)
        with one_at_a_time:
            line.send((number, said))

    while True:
        try:
            number, request = line.recv()
        except (EOFError, OSError):
            return
        threading.Thread(target=work, args=(number, request), daemon=True).start()


def main() -> None:
    """Import the release and serve. The process leads a group of its own."""
    descriptor, release, target = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks
    line = Connection(int(descriptor))
    os.register_at_fork(after_in_child=line.close)  # what is forked does not keep it open
    try:
        from harness import store

        store.choose(release or None)
        levels = Levels(target or None)
        serve(line, levels)
    except SlotcheckError as error:
        refused = Failed(said=str(error), status=EXIT_INCONCLUSIVE if isinstance(error, TargetError) else 2)
        while True:  # each request is told so
            try:
                number, _ = line.recv()
                line.send((number, refused))
            except (EOFError, OSError):
                break
    finally:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
