"""The packed codec: bytes to a setting and a stream of operations, decoded relative to the state.

Every byte string is a valid trace, and so is every string with bytes dropped: an index is taken modulo what is there, a
token count is scaled to what fits, and where bytes end everything reads as 0, the simplest choice. The first bytes give
the setting; each operation takes two to five. One Hypothesis draw a trace instead of one rule a step is what makes the
generator faster than the manager that it feeds.

Swarm: two bytes switch the features of a trace on or off, so that a trace has few of them and each pair meets often.
Token counts are at and around block, window, chunk and length borders. The setting: `strategies.settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

from oracle.groups import ChunkedLocal
from oracle.ledger import RUNNING, Ledger, Request
from oracle.releases import NEWEST
from oracle.setting import Setting
from oracle.trace import (
    Extend,
    GiveBack,
    Loaded,
    NewStep,
    Operation,
    Release,
    Resume,
    Settle,
    Trace,
    Trim,
)
from strategies.settings import Features, Reader, read_setting

#: operations that are all alike
NOTHING_ACCEPTED, NEW_STEP, GIVE_BACK = Settle(), NewStep(), GiveBack()


@cache
def go_on(request: int, new: int) -> Extend:
    """A request that is running asks for `new` more tokens: half of all operations, so equal ones are one object."""
    return Extend(request=request, new=new)


Decode = Callable[["Operations", "Reader", Ledger], "Operation | None"]


def spread(weights: Iterable[tuple[Decode, int]]) -> tuple[Decode, ...]:
    """Each choice as often as its weight, so that a byte picks one."""
    return tuple(decode for decode, weight in weights for _ in range(weight))


class Operations:
    """The stream of operations that the remaining bytes stand for; `next` decodes one against the ledger's state."""

    def __init__(self, reader: Reader, setting: Setting, features: Features) -> None:
        self.reader = reader
        self.setting = setting
        self.features = features
        self.next_id = 0
        self.borders = self._borders()
        self.depth = setting.in_flight_depth
        self.batched = setting.max_num_batched_tokens
        self.seats = setting.max_num_seqs
        self.longest = setting.max_model_len - 1
        self.connector = "connector" in features
        self.gate = "gate" in features
        self.reserve = "reserve" in features
        self.flagged = self.gate or self.reserve or "watermark" in features
        usual = ((Operations._go_on, 13), (Operations._admit, 6), (Operations._settle, 1))
        # while blocks are short a scheduler preempts, or goes on with what runs: it admits little
        short = (
            (Operations._go_on, 10),
            (Operations._admit, 1),
            (Operations._settle, 1),
            (Operations._finish, 2),
            (Operations._preempt_last, 4 if "preempt" in features else 0),
        )
        optional: tuple[tuple[str, Decode, int], ...] = (
            ("connector", Operations._load, 4),
            ("connector", Operations._loaded, 4),
            ("preempt", Operations._preempt, 2),
            ("abort", Operations._finish, 2),
            ("session", Operations._resume, 2),
            ("trim", Operations._trim, 1),
            ("new_step", Operations._new_step, 3),
        )
        more = [(decode, weight) for name, decode, weight in optional if name in features]
        if "deferred" in features or "connector" in features:
            more.append((Operations._give_back, 2))
        if setting.profile == "hostile":
            more.append((Operations._wild, 6))
        self.menu = spread((*usual, *more))
        self.short = spread((*short, *more))
        self.speculates = setting.num_speculative_tokens > 0
        self.drafts = (setting.num_speculative_tokens,) * 3 + (0, 1)

    def _borders(self) -> tuple[int, ...]:
        """Lengths at which something happens: a column, a window, a chunk of some group."""
        found = []
        for group in self.setting.groups:
            size = group.tokens_per_column(self.setting.dcp_size)
            if size < self.setting.max_model_len:
                found.append(size)
            if isinstance(group, ChunkedLocal):
                found.append(group.chunk)
        return tuple(found) or (4,)

    def next(self, ledger: Ledger) -> Operation | None:
        """The next operation, or None at the end of the bytes."""
        reader = self.reader
        menu = self.short if ledger.short else self.menu
        for choice in reader.rest:
            operation = menu[choice % len(menu)](self, reader, ledger)
            if operation is not None:
                return operation
        return None

    # -------------------------------------------------------------------------------- tokens and requests

    def _amount(self, reader: Reader, start: int, most: int) -> int:
        """A token count in 1 .. most: all, one, at or beside a border, or any."""
        choice = reader.byte()
        how = choice & 7
        if how <= 2 or most <= 1:
            return most
        if how == 3:
            return 1
        if how == 7:
            return 1 + (choice >> 3) % most
        border = self.borders[(choice >> 3) % len(self.borders)]
        end = (start // border + 1 + (choice >> 6)) * border + (how - 5)
        return min(max(1, end - start), most)

    def _clip(self, ledger: Ledger, request: Request, start: int, new: int) -> int:
        """Shorten a chunk to a border of the align groups; 0 if it cannot be."""
        if start + new >= max(request.prompt, request.tokens - 1):
            return new
        return max(0, (start + new) // ledger.align * ledger.align - start)

    def _room(self, ledger: Ledger) -> int:
        """Tokens that the step being put together still takes."""
        step = ledger.open
        return self.batched - step.new if len(step.steps) < self.seats else 0

    # ------------------------------------------------------------------------------------- the operations

    def _go_on(self, reader: Reader, ledger: Ledger) -> Operation | None:
        launched = len(ledger.launched)
        if launched >= self.depth:
            return self._settle(reader, ledger)
        twice = launched + 1 < self.depth  # the step being put together may be launched for the next one
        count = len(ledger.running)
        choice = reader.byte()
        for turn in range(count):
            request = ledger.running[(choice + turn) % count]
            start = request.computed
            known = request.tokens + request.placeholders - start
            if known > 0 and (twice or not request.scheduled):
                break
        else:
            return self._settle(reader, ledger) if ledger.open.steps else self._admit(reader, ledger)
        step = ledger.open
        room = self.batched - step.new if len(step.steps) < self.seats else 0
        if room > self.longest - start:
            room = self.longest - start
        most = known if known < room else room
        if most < 1:
            return self._settle(reader, ledger) if step.steps else self._finish(reader, ledger)
        new = self._amount(reader, start, most)
        if ledger.align:
            new = self._clip(ledger, request, start, new)
        if new == known and self.speculates:
            new += min(self.drafts[reader.byte() % len(self.drafts)], room - new)
        return go_on(request.id, new) if new > 0 else None

    def _candidate(self, reader: Reader, ledger: Ledger) -> tuple[Request, int]:
        """A waiting request, or a new one with its prompt length."""
        requests = ledger.requests
        waiting = [r for r in requests.values() if r.status != RUNNING and not r.loading and not r.in_flight]
        which = reader.byte()
        if waiting and (which & 3 or len(requests) >= self.seats + 2):
            return waiting[(which >> 2) % len(waiting)], 0
        prompt = self._amount(reader, (which >> 2) % max(1, self.longest - 1), self.longest)
        if reader.byte() & 3 == 0:
            prompt = max(1, prompt // 3)
        self.next_id += 1
        return Request(self.next_id - 1, prompt, prompt), prompt

    def _admit(self, reader: Reader, ledger: Ledger) -> Operation | None:
        room = self._room(ledger)
        if room < 1 or len(ledger.launched) >= self.depth:
            return self._settle(reader, ledger)
        request, prompt = self._candidate(reader, ledger)
        tokens = request.tokens
        external = 0
        if self.connector and not request.holds and tokens > 1 and reader.byte() & 1:
            external = self._amount(reader, 0, tokens - 1)
        start = request.computed + external
        room = min(room, self.longest - start)
        most = min(tokens - start, room)
        if most < 1:
            return self._finish(reader, ledger) if request.holds else None
        new = self._amount(reader, start, most)
        if ledger.align:
            new = self._clip(ledger, request, start, new)
        if new < 1:
            return None
        if tokens - start == 1 and start > 0 and self.speculates and reader.byte() & 1:
            new = min(1 + self.setting.num_speculative_tokens, room)
        return self._ask(reader, ledger, request, prompt, new, external)

    def _ask(self, reader: Reader, ledger: Ledger, request: Request, prompt: int, new: int, external: int) -> Extend:
        encoder = 0
        if ledger.cross and not request.holds:
            encoder = 1 + reader.below(self.setting.max_encoder_len)
        flags = reader.byte() if self.flagged else 0
        skip: tuple[int, ...] = ()
        if new == 0 and "mixed_precision" in self.features:
            skip = tuple(range(flags % (len(self.setting.groups) + 1)))
        return Extend(
            request=request.id,
            new=new,
            prompt=prompt,
            external=external,
            encoder=encoder,
            full_sequence_must_fit=self.gate and flags & 3 != 3,
            reserved_blocks=flags >> 5 if self.reserve and new == 0 else 0,
            has_scheduled_reqs=bool(ledger.running),
            skip_zeroing=skip,
        )

    def _load(self, reader: Reader, ledger: Ledger) -> Operation | None:
        request, prompt = self._candidate(reader, ledger)
        most = request.tokens - ledger.mamba
        if request.holds or most < 1:
            return None
        external = self._amount(reader, 0, most)
        return self._ask(reader, ledger, request, prompt, 0, external)

    def _loaded(self, reader: Reader, ledger: Ledger) -> Operation | None:
        loading = [r for r in ledger.requests.values() if r.loading]
        if not loading:
            return None
        which = reader.byte()
        request = loading[(which >> 3) % len(loading)]
        if which & 7 == 7:
            return Loaded(request=request.id, valid=0)
        if which & 7 == 6 and len(self.setting.groups) == 1:
            size = self.setting.scheduler_block_size
            return Loaded(request=request.id, valid=request.loading // size // 2 * size)
        return Loaded(request=request.id)

    def _settle(self, reader: Reader, ledger: Ledger) -> Operation | None:
        batch = ledger.launched[0] if ledger.launched else ledger.open
        if not batch.steps:
            return None
        accepted = []
        for step in batch.steps:
            if step.drafts:
                taken = reader.byte() % (step.drafts + 1)
                if taken:
                    accepted.append((step.request.id, taken))
        return Settle(accepted=tuple(accepted)) if accepted else NOTHING_ACCEPTED

    def _held(self, reader: Reader, ledger: Ledger) -> Request | None:
        held = [r for r in ledger.requests.values() if r.holds]
        return held[reader.byte() % len(held)] if held else None

    def _preempt(self, reader: Reader, ledger: Ledger) -> Operation | None:
        running = [r for r in ledger.running if r.holds]
        if not running:
            return None
        request = running[reader.byte() % len(running)]
        return Release(request=request.id, preempt=True, deferred=self._defer(reader, request))

    def _preempt_last(self, reader: Reader, ledger: Ledger) -> Operation | None:
        """The victim of a first-come first-served scheduler: the last request, but for what this step admitted."""
        admitted = [step.request for step in ledger.open.steps if step.admission]
        for request in reversed(ledger.running):
            if request.holds and request not in admitted:
                return Release(request=request.id, preempt=True, deferred=self._defer(reader, request))
        return self._settle(reader, ledger)

    def _finish(self, reader: Reader, ledger: Ledger) -> Operation | None:
        request = self._held(reader, ledger)
        if request is None:
            return None
        return Release(request=request.id, deferred=bool(request.loading) or self._defer(reader, request))

    def _defer(self, reader: Reader, request: Request) -> bool:
        if self.setting.kv_connector and request.in_flight:
            return True
        return "deferred" in self.features and bool(reader.byte() & 1)

    def _give_back(self, reader: Reader, ledger: Ledger) -> Operation | None:
        return GIVE_BACK if ledger.deferred else None

    def _resume(self, reader: Reader, ledger: Ledger) -> Operation | None:
        idle = [r for r in ledger.running if not r.in_flight and r.computed >= r.tokens - 1 and r.holds]
        if not idle:
            return None
        request = idle[reader.byte() % len(idle)]
        most = self.setting.max_model_len - 1 - request.tokens
        return Resume(request=request.id, tokens=self._amount(reader, request.tokens, most)) if most > 0 else None

    def _trim(self, reader: Reader, ledger: Ledger) -> Operation | None:
        request = self._held(reader, ledger)
        return None if request is None else Trim(request=request.id)

    def _new_step(self, reader: Reader, ledger: Ledger) -> Operation | None:
        return NEW_STEP

    def _wild(self, reader: Reader, ledger: Ledger) -> Operation | None:
        """What no scheduler does: any request, any count, any lookahead."""
        setting = self.setting
        request = reader.below(self.next_id + 1)
        self.next_id = max(self.next_id, request + 1)
        which = reader.byte()
        known = ledger.requests.get(request)
        if which % 8 == 7:
            return Release(request=request, preempt=bool(which & 8), deferred=bool(which & 16))
        if which % 8 == 6:
            return Resume(request=request, tokens=1 + reader.below(8))
        left = setting.max_model_len - (0 if known is None else known.computed)
        # a request that has a row takes external tokens only if it took some in its first call
        external = reader.below(max(1, left)) if which & 32 and (known is None or not known.holds) else 0
        return Extend(
            request=request,
            new=reader.below(max(1, left - external + 1)),
            prompt=1 + reader.below(setting.max_model_len) if known is None else 0,
            external=external,
            encoder=reader.below(setting.max_encoder_len + 1) if setting.max_encoder_len else 0,
            lookahead=reader.below(9),
            full_sequence_must_fit=bool(which & 64),
            reserved_blocks=which >> 6 & 2,
            has_scheduled_reqs=bool(which & 16),
        )


def open_trace(
    data: bytes, profile: str = "scheduler", release: str = NEWEST, limits: str | None = None
) -> tuple[Setting, Operations]:
    """The setting and the operation stream of packed bytes; release and limits as in `read_setting`."""
    reader = Reader(data)
    setting, features = read_setting(reader, profile, release, limits)
    return setting, Operations(reader, setting, features)


def iterate(trace: Trace) -> Iterator[Operation]:
    """The operations of a trace as they are, for a replay."""
    return iter(trace.operations)
