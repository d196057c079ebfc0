"""From a recording of thousands of steps to a trace of a few operations that shows the same defect on a target.

A recording cannot be asked what would have been; a target can. So the deciding call is put behind the shortest past
that may do: its request alone, prefilled to where it was; then all requests that were there; then windows of what was
recorded, from a past rebuilt in that way; then everything. What shows the defect first is shrunk as any other trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve

from harness.outcome import MakeTarget, Options
from harness.recorded import Judged, account
from harness.recorded_state import begin
from harness.shrink import Shrunk, same_defect, shrink
from harness.trace_run import new_replay, run_trace
from oracle.ledger import Ledger, Request
from oracle.setting import Setting
from oracle.trace import Extend, Operation, Settle, Trace

WINDOWS = (8, 64, 512, 4096)
#: values that a token of a trace's contents has
_BASE = 3


def shrink_recording(judged: Judged, make_target: MakeTarget, options: Options, tries: int) -> Shrunk | None:
    """The smallest trace found; None when the target does not show the recorded difference on any."""
    difference = judged.difference
    if difference is None:
        return None
    for trace in pasts(judged):
        for found in run_trace(trace, make_target, options).differences:
            if same_defect(difference, found):
                cut = evolve(trace, operations=trace.operations[: found.step + 1])
                return shrink(cut, found, make_target, options, tries)
    return None


def pasts(judged: Judged) -> Iterator[Trace]:
    """Traces that end with the deciding operation, the shortest past first."""
    operations = judged.replay.operations
    setting = judged.head.setting
    last = operations[-1]
    named = getattr(last, "request", None)
    forks = forks_of(setting, judged.digests)
    live = judged.replay.ledger.requests
    if isinstance(last, Extend) and named in live:
        alone = [*rebuilt(setting, [live[named]], forks), again(last, live[named], forks)]
        yield Trace(setting=setting, operations=tuple(alone))
        yield evolve(Trace(setting=setting, operations=tuple(alone)), setting=cut_pool(judged, live[named]))
        others = [request for request in live.values() if request.id != named and request.holds]
        everybody = [*rebuilt(setting, [*others, live[named]], forks), again(last, live[named], forks)]
        yield Trace(setting=setting, operations=tuple(everybody))
    for window in WINDOWS:
        if window < len(operations):
            yield Trace(setting=setting, operations=tuple(windowed(judged, len(operations) - window, forks)))
    yield Trace(setting=setting, operations=tuple(windowed(judged, 0, forks)))


def cut_pool(judged: Judged, request: Request) -> Setting:
    """The setting with as many blocks as the request held and were free: the others' are taken away."""
    held = sum(1 for row in judged.replay.rows.get(request.id, ()) for block in row if block)
    return evolve(judged.head.setting, num_blocks=max(2, 1 + held + judged.replay.oracle.pool.free))


def rebuilt(setting: Setting, requests: Sequence[Request], forks: Mapping[int, tuple[int, ...]]) -> list[Operation]:
    """Each request prefilled to its computed tokens, as if all its known tokens were its prompt."""
    made: list[Operation] = []
    for request in requests:
        left, first = min(request.computed, request.tokens), True
        while left > 0:
            new = min(left, setting.max_num_batched_tokens)
            prompt = request.tokens if first else 0
            content = forks.get(request.id, ()) if first else ()
            made += [Extend(request=request.id, new=new, prompt=prompt, forks=content), Settle()]
            left, first = left - new, False
    return made


def again(last: Extend, request: Request, forks: Mapping[int, tuple[int, ...]]) -> Extend:
    """The deciding call behind a rebuilt past."""
    if min(request.computed, request.tokens) > 0:
        return evolve(last, prompt=0)
    return evolve(last, prompt=request.tokens, forks=forks.get(request.id, ()))


def windowed(judged: Judged, start: int, forks: Mapping[int, tuple[int, ...]]) -> list[Operation]:
    """The operations from `start` on, behind whoever held blocks then."""
    setting, operations = judged.head.setting, judged.replay.operations
    ledger = ledger_at(setting, judged, start)
    there = [request for request in ledger.requests.values() if request.holds]
    made = rebuilt(setting, there, forks)
    return [*made, *with_forks(operations[start:], forks)]


def ledger_at(setting: Setting, judged: Judged, start: int) -> Ledger:
    """The accounting before operation `start`: the oracle alone runs what came before."""
    replay = new_replay(setting, None, Options(frozenset(), memory=False, audit_every=1 << 60))
    account(replay, setting)
    if judged.began is not None:
        begin(replay, judged.began)
    for operation in with_forks(judged.replay.operations[:start], forks_of(setting, judged.digests)):
        if replay.over:
            break
        replay.step(operation)
    return replay.ledger


def with_forks(operations: Sequence[Operation], forks: Mapping[int, tuple[int, ...]]) -> list[Operation]:
    """Operations whose first calls say what the content of their requests is."""
    return [
        evolve(operation, forks=forks.get(operation.request, ()))
        if isinstance(operation, Extend) and operation.prompt
        else operation
        for operation in operations
    ]


def forks_of(setting: Setting, digests: Mapping[int, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    """Contents of a trace with the same equal prefixes as those of a recording.

    Each hash block of a content is the n-th that follows its prefix; n, to the base of the token values, is the number
    of forks at each position of the block.
    """
    children: dict[int, dict[int, int]] = {}
    found: dict[int, tuple[int, ...]] = {}
    size, ahead = setting.hash_size, setting.num_hash_lookahead_tokens
    for request, blocks in digests.items():
        forks: list[int] = []
        parent = 0
        for index, digest in enumerate(blocks):
            known = children.setdefault(parent, {})
            number, position = known.setdefault(digest, len(known)), index * size + (ahead if index else 0)
            while number:
                number, times = divmod(number, _BASE)
                forks += [position] * times
                position += 1
            parent = digest
        found[request] = tuple(forks)
    return found
