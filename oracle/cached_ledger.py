"""The scheduler's accounting with prefix caching on.

An operation is resolved in two parts, because what is asked for depends on the hit: `asks` says what to look up, and
`resolve` makes the call. Token counts of an operation are wishes: they are cut to what a scheduler would ask for, by
the step's room, the known tokens and the chunk rule (P40). So an operation stays meaningful whatever is hit.
"""

from __future__ import annotations

from attrs import evolve
from mypy_extensions import mypyc_attr

from oracle.call import Call, Hit, Query
from oracle.chunks import chunks_of
from oracle.content import Prefixes
from oracle.groups import Mamba
from oracle.ledger import RUNNING, Ledger, Request, Settled, Step
from oracle.setting import Setting
from oracle.trace import Extend, Loaded, Lookup, Release, Resume, Settle


@mypyc_attr(allow_interpreted_subclasses=True)
class CachingLedger(Ledger):
    """Resolves the operations of one trace with caching on."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.prefixes = Prefixes()
        #: pins of connectors that have not ended
        self.pins = 0
        self.chunks = chunks_of(setting)
        #: chunk ends are cut by the chunk rule, not refused
        self.align = 0
        self.longest = setting.max_model_len - 1
        self.ahead = setting.num_prefill_lookahead_tokens
        self.unit, self.fine = setting.scheduler_block_size, setting.fine_hits
        self.states = any(isinstance(group, Mamba) for group in setting.groups)

    # ----------------------------------------------------------------------------------------- lookup

    def probe(self, op: Lookup) -> Query | None:
        """The query of a lookup that belongs to no request."""
        if op.tokens < 1:
            return None
        content = self.prefixes.begin(op.forks, op.salt, op.adapter, op.items, op.embeds, op.tokens)
        self.prefixes.grow(content, op.tokens)
        bound = op.tokens - 1 if op.bound is None else min(op.bound, op.tokens - 1)
        return Query(-1, content, op.tokens, bound)

    def asks(self, op: Extend) -> Request | None:
        """The request that `op` is about, a new one if there is none yet; None when it is void."""
        request = self.requests.get(op.request)
        if request is None:
            if op.prompt < 1 or op.prompt > self.longest:
                return None
            request = Request(id=op.request, prompt=op.prompt, tokens=op.prompt)
            request.content = self.prefixes.begin(op.forks, op.salt, op.adapter, op.items, op.embeds, op.prompt)
            request.reports = op.report
            self.prefixes.grow(request.content, op.prompt)
        if request.status != RUNNING and (request.loading or request.in_flight):
            return None
        return request if self._has_room(request) else None

    def query(self, op: Extend, request: Request) -> Query | None:
        """P16, S37: what the request looks up first; None if it has computed tokens."""
        if request.holds or request.computed or request.content is None:
            return None
        request.content = request.content.renewed()
        apart = self.setting.divergent_hits
        return Query(
            request.id, request.content, request.tokens, request.tokens - 1, op.skip_lookup, request.reports, apart
        )

    def together(self, op: Extend, request: Request, query: Query, hit: Hit) -> Query | None:
        """P26: the common lookup, when no connector brings what a group lacks; None when the hit stands."""
        if not hit.diverged or (self._may_load(op, request) and self._loads(op, request, hit.tokens)[1]):
            return None
        return evolve(query, apart=False)

    def _may_load(self, op: Extend, request: Request) -> bool:
        first = not request.holds and not request.computed and request.status != RUNNING
        return bool(op.external and first and self.setting.kv_connector)

    def starts_a_step(self, request: Request) -> bool:
        """Whether the step being put together must be launched before the request can be scheduled again."""
        return request.scheduled

    def _has_room(self, request: Request) -> bool:
        launched = len(self.launched) + (1 if request.scheduled else 0)
        return launched < self.setting.in_flight_depth and self._left(request) > 0

    def _left(self, request: Request) -> int:
        """Tokens that the request's next step has room for."""
        setting = self.setting
        if request.scheduled:
            return setting.max_num_batched_tokens
        return setting.max_num_batched_tokens - self.open.new if len(self.open.steps) < setting.max_num_seqs else 0

    # ------------------------------------------------------------------------------------------- call

    def resolve(self, op: Extend, request: Request, hit: Hit | None, loads: bool = True) -> tuple[Call | None, int]:
        """The call for `op` after its lookup, or None when it is void, and the hit that it adopts (tokens).

        A smaller hit than was found means that the party must cut it (P44). `loads`: a connector may bring more.
        """
        waiting = request.status != RUNNING
        local = 0
        if hit is not None:
            local, request.junction = hit.tokens, hit.junction
        external = 0
        if loads and self._may_load(op, request):
            local, external = self._loads(op, request, local)
        request.diverged = hit is not None and hit.diverged and external > 0
        start = request.computed + local + external
        if external and op.new == 0:
            new = 0
        else:
            new = self._new(op, request, start, waiting)
            if new < 1:
                return None, 0
        self.requests[op.request] = request
        call = Call(
            op.request,
            request.computed + local,
            request.in_flight,
            request.prompt,
            request.tokens,
            waiting,
            request.status == "preempted",
            new,
            self.lookahead if new else 0,
            external,
            0,
            waiting and op.full_sequence_must_fit,
            op.reserved_blocks if not new else 0,
            op.has_scheduled_reqs,
            op.skip_zeroing,
            local,
            request.junction,
            request.content,
        )
        return call, local

    def _loads(self, op: Extend, request: Request, local: int) -> tuple[int, int]:
        """What a connector brings beyond the local hit, and what is left of that (P44, S42)."""
        tail = local % self.unit if self.setting.choices.loads_cut_hits else 0
        most = request.tokens - self.states - (local - tail)
        external = min(op.external, most)
        if op.new and external > 0:
            external = min(external, request.tokens - 1 - (local - tail))
        if external <= tail:
            return local, 0
        return local - tail, external

    def _new(self, op: Extend, request: Request, start: int, waiting: bool) -> int:
        """Tokens of the step: the wish, cut to what is known, to the room, to the chunk rule."""
        known = request.tokens + (0 if waiting else request.placeholders) - start
        if known < 1:
            return 0
        drafts = self.drafts if known == 1 and (not waiting or start > 0) else 0
        room = min(self._left(request), self.longest - start)
        new = min(max(1, op.new), known + drafts, room)
        if new < 1:
            return 0
        end = self.chunks.end(start, start + min(new, known), request.prompt, request.tokens, request.junction)
        if end < start + min(new, known):
            new = end - start
        remaining = request.tokens - start - new
        if 0 < remaining < self.ahead:
            new -= self.ahead - remaining
        return new

    def granted(self, call: Call) -> Step | None:
        step = super().granted(call)
        if step is None:
            self.requests[call.request].found = call.local
        return step

    # ------------------------------------------------------------------------------------------ after

    def settle(self, op: Settle) -> Settled | None:
        settled = super().settle(op)
        for step in settled.batch.steps if settled is not None else ():
            self._grow(step.request)
        return settled

    def publishes(self, settled: Settled) -> list[Request]:
        """P5: whose output came back and names what is now verified: with drafts, or with steps in flight."""
        if not (self.drafts or self.setting.in_flight_depth > 1):
            return []
        return [
            step.request
            for step in settled.batch.steps
            if step.samples and not step.stale and self.requests.get(step.request.id) is step.request
        ]

    def _grow(self, request: Request) -> None:
        if request.content is not None:
            self.prefixes.grow(request.content, request.tokens)

    def as_call(self, request: Request) -> Call:
        """The request's numbers, for a publication."""
        return Call(
            request.id,
            request.computed,
            request.in_flight,
            request.prompt,
            request.tokens,
            False,
            False,
            0,
            0,
            0,
            0,
            False,
            0,
            False,
            (),
            0,
            request.junction,
            request.content,
        )

    def loaded(self, op: Loaded) -> str | None:
        """The end of an async load; one that fails leaves nothing, and only where nothing was found locally (S48)."""
        request = self.requests.get(op.request)
        if request is None or not request.loading:
            return None
        if op.valid is not None and not (op.valid == 0 and request.found == 0):
            return None
        result = super().loaded(op)
        if result == "kept":
            request.computed = min(request.found + request.computed, request.tokens - 1)
        return result

    def resume(self, op: Resume) -> bool:
        request = self.requests.get(op.request)
        discard = op.discard and request is not None and request.tokens > request.prompt
        resumed = super().resume(op)
        if resumed and request is not None:
            if discard and request.content is not None:
                request.tokens -= 1
                request.prompt = request.tokens
                keep = request.tokens - op.tokens
                boundary = keep + 1 - self.setting.num_hash_lookahead_tokens
                named = 0 < boundary <= keep and boundary % self.setting.hash_size == 0
                request.content = self.prefixes.discarded(request.content, keep, named)
            self._grow(request)
        return resumed

    def launches(self, op: Release) -> bool:
        """Whether releasing this request first launches the step that it is part of."""
        request = self.requests.get(op.request)
        return request is not None and request.scheduled and not op.preempt
