"""The scheduler's accounting: what a relative operation means, in absolute numbers.

The ledger belongs to the trace, not to a party: it is what a scheduler knows of its requests (computed, in flight,
known tokens). It resolves an operation to the call that every party gets, or to None when the operation is void:
when it has nothing to act on or, in the profile "scheduler", when no scheduler would do it. So every trace, shortened
by hand or by a machine, is a legal one.

Accounting (scheduling spec, sections 2 and 5), all in tokens:
  computed is optimistic, it advances when a step is scheduled and falls by the rejected drafts when its output is back;
  in_flight is the part of computed whose outcome is open, so computed - in_flight can never be rolled back;
  a step that ends at the end of the known tokens (placeholders included) samples, what goes beyond are drafts.
"""

from __future__ import annotations

from collections import deque

from attrs import define
from mypy_extensions import mypyc_attr

from oracle.call import Call, Rows
from oracle.content import Content
from oracle.groups import RSWA, CrossAttention, Mamba
from oracle.setting import Setting
from oracle.trace import Extend, Loaded, Release, Resume, Settle

WAITING, RUNNING, PREEMPTED = "waiting", "running", "preempted"


@define(eq=False)
class Request:
    """What the scheduler knows of one request (tokens)."""

    id: int
    prompt: int
    tokens: int
    """Known tokens: prompt and output so far."""
    computed: int = 0
    in_flight: int = 0
    placeholders: int = 0
    """Outputs, drafts included, of steps in flight."""
    status: str = WAITING
    loading: int = 0
    """External tokens of the async load in progress."""
    holds: bool = False
    """Has a row."""
    calls: int = 0
    """Granted calls since the row began."""
    scheduled: bool = False
    """Part of the step that is being put together."""
    content: Content | None = None
    """What its tokens are; with caching on only."""
    junction: int = 0
    """J of its last lookup (P27)."""
    found: int = 0
    """Tokens that the hit brought of the load in progress."""
    diverged: bool = False
    """Some group lacked a part of its hit, which a connector is to bring (P26)."""
    reports: bool = False
    """Its hits are told to the consumers of events."""

    @property
    def processed(self) -> int:
        """Computed tokens that no outcome can take back."""
        return max(0, self.computed - self.in_flight)


@define(eq=False)
class Step:
    """One request's part of one engine step."""

    request: Request
    new: int
    drafts: int
    samples: bool
    index: int
    """Operation that scheduled it."""
    admission: bool = False
    """It was the request's admission, which nobody preempts in the same step."""
    external: int = 0
    """Tokens that a connector loads before the step runs (a sync load)."""
    stale: bool = False
    """The request was preempted since: the outcome brings tokens but moves no count."""
    rows: Rows = ()
    """The rows that the worker has for it."""


@define(eq=False)
class Batch:
    """The requests of one engine step."""

    steps: list[Step]
    new: int = 0


@define(eq=False)
class Deferred:
    """Blocks popped but not given back; `until` is the batch whose output must be back before."""

    request: Request
    until: Batch | None


@define(eq=False)
class Settled:
    """What came back: each step with its accepted drafts."""

    batch: Batch
    accepted: list[int]


@mypyc_attr(allow_interpreted_subclasses=True)
class Ledger:
    """Resolves the operations of one trace; see the module's docstring."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.requests: dict[int, Request] = {}
        #: those with status RUNNING, in the order of their admission
        self.running: list[Request] = []
        self.open = Batch([])
        self.launched: deque[Batch] = deque()
        self.deferred: deque[Deferred] = deque()
        self.index = -1
        #: a call was refused, and nothing has been given back since
        self.short = False
        self.strict = setting.profile == "scheduler"
        self.lookahead = setting.lookahead
        self.drafts = setting.num_speculative_tokens
        self.cross = any(isinstance(g, CrossAttention) for g in setting.groups)
        self.mamba = any(isinstance(g, Mamba) for g in setting.groups)
        self.rswa = any(isinstance(g, RSWA) for g in setting.groups)
        sizes = [g.block_size for g in setting.groups if isinstance(g, Mamba) and g.mode == "align"]
        #: chunks must end on multiples of this (A40); 0 where they need not
        self.align = max(sizes, default=0) if max(sizes, default=0) <= setting.max_num_batched_tokens else 0

    # ------------------------------------------------------------------------------------------ extend

    def extend(self, op: Extend) -> Call | None:
        """The call for `op`, or None when it is void."""
        request = self.requests.get(op.request)
        if request is None:
            if op.prompt < 1 or (self.strict and op.prompt >= self.setting.max_model_len):
                return None
            request = Request(id=op.request, prompt=op.prompt, tokens=op.prompt)
        waiting = request.status != RUNNING
        if request.computed + op.external > self.setting.max_model_len:
            return None  # no party has a place for it
        if self.strict and not (self._may_admit(request, op) if waiting else self._may_go_on(request, op)):
            return None
        self.requests[op.request] = request
        lookahead = op.lookahead
        if lookahead is None or self.strict:
            lookahead = 0 if op.new == 0 else self.lookahead
        return Call(
            op.request,
            request.computed,
            request.in_flight,
            request.prompt,
            request.tokens,
            waiting,
            request.status == PREEMPTED,
            op.new,
            lookahead,
            op.external,
            op.encoder,
            op.full_sequence_must_fit,
            op.reserved_blocks,
            op.has_scheduled_reqs,
            op.skip_zeroing,
        )

    def _room(self, request: Request, new: int) -> bool:
        """Whether the batch that the next step of `request` would join has room for `new` tokens."""
        setting, batch = self.setting, self.open
        if request.scheduled:  # a batch of its own, behind the one that is open
            return len(self.launched) + 1 < setting.in_flight_depth and new <= setting.max_num_batched_tokens
        return (
            len(self.launched) < setting.in_flight_depth
            and batch.new + new <= setting.max_num_batched_tokens
            and len(batch.steps) < setting.max_num_seqs
        )

    def _ends_well(self, request: Request, end: int) -> bool:
        """Whether a chunk may end at `end` in a setting with align groups: inside a prompt only on their border."""
        return end % self.align == 0 or end >= max(request.prompt, request.tokens - 1)

    def _may_admit(self, request: Request, op: Extend) -> bool:
        setting = self.setting
        first = not request.holds
        if request.loading or request.in_flight:
            return False
        if op.external and not (first and setting.kv_connector):
            return False
        if op.encoder > setting.max_encoder_len or (op.encoder > 0) != (first and self.cross):
            return False
        start = request.computed + op.external
        if op.new == 0:
            # a state after all T tokens serves nobody, since token T - 1 is computed again: connectors load one less
            return 0 < op.external <= request.tokens - self.mamba
        left = request.tokens - start
        padded = left == 1 and start > 0 and op.new <= 1 + self.drafts
        return (
            (op.new <= left or padded)
            and left > 0
            and start + op.new <= setting.max_model_len - 1
            and (not self.align or self._ends_well(request, start + op.new))
            and self._room(request, op.new)
        )

    def _may_go_on(self, request: Request, op: Extend) -> bool:
        if op.external or op.encoder or op.full_sequence_must_fit or op.reserved_blocks:
            return False
        known = request.tokens + request.placeholders - request.computed
        most = known + self.drafts if known == 1 else known  # drafts follow a sampled token
        return (
            1 <= op.new <= most
            and request.computed + op.new <= self.setting.max_model_len - 1
            and (not self.align or self._ends_well(request, request.computed + op.new))
            and self._room(request, op.new)
        )

    def granted(self, call: Call) -> Step | None:
        """Account for a granted call; the step that it schedules, or None for an async load."""
        request = self.requests[call.request]
        request.holds = True
        request.calls += 1
        start = call.computed + call.external
        if call.new == 0:
            request.loading = call.external
            return None
        end = start + call.new
        known = request.tokens + request.placeholders
        drafts = end - known
        step = Step(
            request, call.new, drafts if drafts > 0 else 0, drafts >= 0, self.index, call.waiting, call.external
        )
        if request.scheduled:
            self.launch()
        self.open.steps.append(step)
        self.open.new += call.new
        request.scheduled = True
        if request.status != RUNNING:
            request.status = RUNNING
            self.running.append(request)
        request.computed = end
        request.in_flight += call.new
        if step.samples:
            request.placeholders += 1 + step.drafts
        return step

    def refused(self) -> None:
        """Account for a refused call: the scheduler knows now that blocks are short."""
        self.short = True

    def launch(self) -> None:
        """What has been scheduled starts to run."""
        if self.open.steps:
            for step in self.open.steps:
                step.request.scheduled = False
            self.launched.append(self.open)
            self.open = Batch([])

    # ------------------------------------------------------------------------------------------ settle

    def settle(self, op: Settle) -> Settled | None:
        """The oldest batch's output is back."""
        if not self.launched:
            self.launch()
            if not self.launched:
                return None
        batch = self.launched.popleft()
        answers = dict(op.accepted)
        accepted = []
        for step in batch.steps:
            request = step.request
            request.in_flight -= step.new
            if not step.samples:
                accepted.append(0)
                continue
            taken = min(answers.get(request.id, 0), step.drafts) if step.drafts else 0
            accepted.append(taken)
            if not step.stale:
                request.computed -= step.drafts - taken
                request.placeholders -= 1 + step.drafts
            request.tokens += 1 + taken
        return Settled(batch, accepted)

    # ------------------------------------------------------------------------------------------- loads

    def loaded(self, op: Loaded) -> str | None:
        """The end of an async load: "kept", or "failed" when the row must be released; None when void."""
        request = self.requests.get(op.request)
        if request is None or not request.loading:
            return None
        valid = request.loading if op.valid is None else op.valid
        if valid > request.loading or valid < 0:
            return None
        if 0 < valid < request.loading and not self._may_keep(valid, request.loading):
            return None
        request.loading = 0
        if valid == 0:
            self._start_over(request)
            return "failed"
        request.computed = min(valid, request.tokens - 1)
        return "kept"

    def _may_keep(self, valid: int, loading: int) -> bool:
        """Whether a load may fail in its middle: one group only, at the start of a block that was loaded (S48)."""
        group, *others = self.setting.groups
        size = self.setting.scheduler_block_size
        # a state is not made of positions: of a load that failed in its middle nothing is left
        return not others and not self.mamba and valid % size == 0 and valid >= group.live(loading) // size * size

    # ----------------------------------------------------------------------------------------- release

    def release(self, op: Release) -> Request | None:
        """The request whose blocks are given back (or popped); None when void."""
        request = self.requests.get(op.request)
        if request is None or (self.strict and not self._may_release(request, op)):
            return None
        if request.status == RUNNING:
            self.running.remove(request)
        if op.preempt:
            self._start_over(request)
            request.status = PREEMPTED
        else:
            del self.requests[op.request]
            if request.scheduled:
                self.launch()
        if op.deferred:
            newest = [batch for batch in self.launched if any(s.request is request for s in batch.steps)]
            self.deferred.append(Deferred(request, newest[-1] if newest else None))
        request.holds = self.short = False
        return request

    def _may_release(self, request: Request, op: Release) -> bool:
        if op.preempt and (request.status != RUNNING or not request.holds or self._just_admitted(request)):
            return False
        if request.loading and not op.deferred:
            return False
        if self.setting.kv_connector and not op.deferred:
            started = request.in_flight
            if op.preempt:
                started -= sum(step.new for step in self.open.steps if step.request is request)
            return started == 0
        return True

    def _just_admitted(self, request: Request) -> bool:
        return any(step.request is request and step.admission for step in self.open.steps)

    def _start_over(self, request: Request) -> None:
        """The row is gone: out of the step being scheduled (S28), stale in those launched (S33), computed 0 (S7)."""
        if request.scheduled:
            for step in self.open.steps:
                if step.request is request:
                    request.in_flight -= step.new
                    self.open.new -= step.new
            self.open.steps = [step for step in self.open.steps if step.request is not request]
            request.scheduled = False
        for batch in self.launched:
            for step in batch.steps:
                if step.request is request:
                    step.stale = True
        request.computed = request.placeholders = request.loading = request.calls = 0
        request.holds = False

    def give_back(self) -> bool:
        """Whether the oldest deferred release may be given back now."""
        if not self.deferred:
            return False
        until = self.deferred[0].until
        if self.strict and until is not None and until in self.launched:
            return False
        self.deferred.popleft()
        self.short = False
        return True

    # ------------------------------------------------------------------------------------------- other

    def resume(self, op: Resume) -> bool:
        """A session goes on with more prompt tokens."""
        request = self.requests.get(op.request)
        if request is None or not self._may_resume(request, op):
            return False
        request.tokens += op.tokens
        request.prompt = request.tokens
        if request.status == RUNNING:
            self.running.remove(request)
        request.status = WAITING
        return True

    def _may_resume(self, request: Request, op: Resume) -> bool:
        if not request.holds or request.loading:
            return False
        return not self.strict or not (
            request.in_flight
            or request.status != RUNNING
            or request.computed < request.tokens - 1
            or request.tokens + op.tokens >= self.setting.max_model_len
            or self.rswa
        )

    def trim(self, request: int) -> Request | None:
        """The request whose dead columns are removed."""
        found = self.requests.get(request)
        return found if found is not None and found.holds else None
