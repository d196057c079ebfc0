"""Runs the warmups of one trace and judges every step: schedule, columns, ids, laws, memory, slots, drafters.

Three parties are held beside each other for each request, step and group. The warmup under test hands out blocks; the
oracle says what the scheduler would hold for the same tokens; the real `KVCacheManager` is asked for them. Where oracle
and manager agree and the warmup does not, the warmup is wrong; where oracle and manager differ, that is a difference of
its own. All differences of a warmup are collected, the first of each kind: a warmup is six steps, and one wrong count
need not hide another.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from harness import warmup_drafts, warmup_slots, warmup_suspects
from harness.compare import show_row
from harness.targets.compat import AbsentKindError
from harness.warmup_memory import WarmupMemory
from oracle import warmup_laws
from oracle.breakdown import Breakdown
from oracle.call import GRANTED, Rows
from oracle.groups import Group, Mamba
from oracle.releases import NEWEST
from oracle.trace import ASPECTS, Difference, Target
from oracle.violation import Violation
from oracle.warmup import (
    WORKER_FAILURE,
    Draft,
    Kernels,
    Left,
    Mixed,
    Part,
    Prediction,
    Ran,
    Recorded,
    Scheduler,
    TraceOperation,
    WarmupOperation,
    WarmupSetting,
    WarmupTrace,
    call_of,
    columns,
    kernel_steps,
    mixed_steps,
    predict,
    roomy,
)

if TYPE_CHECKING:
    from harness.outcome import MakeTarget
    from harness.targets.drafters import Drafter
    from harness.targets.warmup import WarmupTarget
    from harness.warmup_slots import MakeTables


@frozen(kw_only=True)
class WarmupDifference(Difference):
    """A difference of the warmup level; `step` is the operation's index.

    at: the step of that warmup, among those that run or finish a request; request: the request in it; -1: neither. Of
    a draft step: the pass, the number of refused drafts, the token in the pass, the rank.
    """

    level: str = "warmup"
    at: int = -1
    request: int = -1
    token: int = -1
    rank: int = 0


#: step, request, token, rank of a difference
Where = tuple[int, int, int, int]
NOWHERE: Where = (-1, -1, -1, 0)
MakeWarmup = Callable[[WarmupSetting], "WarmupTarget"]


@define
class WarmupOptions:
    """What is checked. make_manager: the party of comparison 2; make_tables and draft: those of comparison 3.

    None leaves any of them out; a draft step without `draft` does nothing. The first and the last rank are looked at.
    release: whose rules hold.
    """

    aspects: frozenset[str] = frozenset(ASPECTS)
    declared: Callable[[Difference], bool] = lambda difference: False
    make_manager: MakeTarget | None = None
    make_tables: MakeTables | None = None
    draft: Drafter | None = None
    keep_entries: bool = False
    memory: bool = True
    release: str = NEWEST


@frozen(kw_only=True)
class Entry:
    """One request in one step and one group, for the table of `explain`.

    row: the blocks it was given. expected, manager: blocks that the scheduler and the manager hold; None: not asked.
    """

    operation: int
    step: int
    what: str
    part: Part
    group: int
    reason: Breakdown
    row: tuple[int, ...]
    expected: int | None
    manager: int | None


@define
class WarmupOutcome:
    """What came of a trace. differences: those that are not declared, the first of each fingerprint."""

    trace: WarmupTrace
    differences: list[Difference] = field(factory=list)
    declared: list[Difference] = field(factory=list)
    entries: list[Entry] = field(factory=list)
    ran: list[Ran] = field(factory=list)
    steps: int = 0
    warmups: int = 0
    drafted: int = 0


def run_warmups(trace: WarmupTrace, make_warmup: MakeWarmup, options: WarmupOptions | None = None) -> WarmupOutcome:
    """Run each operation on one target, in order, and judge it by the rules of the options' release.

    A warmup that raises ends the trace.
    """
    given = options or WarmupOptions()
    if trace.setting.release != given.release:
        trace = evolve(trace, setting=evolve(trace.setting, release=given.release))
    outcome = WarmupOutcome(trace)
    setting = trace.setting
    target = make_warmup(setting)
    adaptive = setting.adaptive_verification
    before = Left(adaptive=adaptive, sampler_adaptive=adaptive)
    for index, operation in enumerate(trace.operations):
        if isinstance(operation, Draft):
            outcome.ran.append(Ran(None, "", (), before))
            if given.draft is not None:
                with suppress(AbsentKindError):  # the release's runner has no such drafter
                    _Judge(outcome, given, index, operation, before).drafts(operation, given.draft)
                    outcome.drafted += 1
            continue
        ran = target.run(operation)
        outcome.ran.append(ran)
        outcome.warmups += 1
        outcome.steps += len(ran.steps)
        _Judge(outcome, given, index, operation, before).judge(ran)
        before = ran.left
        if ran.error and not operation.fail:
            break
    return outcome


class _Judge:
    """One warmup, or one draft step, under the eyes of the oracle."""

    def __init__(
        self, outcome: WarmupOutcome, options: WarmupOptions, index: int, operation: TraceOperation, before: Left
    ) -> None:
        self.outcome, self.options, self.index, self.before = outcome, options, index, before
        self.operation: WarmupOperation = Kernels() if isinstance(operation, Draft) else operation
        self.setting = outcome.trace.setting
        self.seen = {difference.fingerprint for difference in (*outcome.differences, *outcome.declared)}
        sharded = any(group.tokens_per_column(2) > group.block_size for group in self.setting.groups)
        self.causes: dict[int, tuple[str, ...]] = {}
        self.tags = ("dcp",) if self.setting.dcp_size > 1 and sharded else ()

    def judge(self, ran: Ran) -> None:
        """Everything that can be said of one warmup."""
        prediction = predict(self.setting, self.operation)
        self._answer(ran, prediction)
        steps = tuple(step for step in ran.steps if step.parts or step.finished)
        self._schedule(steps, ran, prediction)
        for violation in warmup_laws.check(self.setting, self.operation, ran, self.before):
            self._law(violation)
        run: list[Recorded] = []
        for number, step in enumerate(steps):
            run.append(step)
            if step.finished or step is steps[-1]:
                self._run(run, number + 1 - len(run))
                run = []

    def drafts(self, operation: Draft, draft: Drafter) -> None:
        """The drafter's own code behind one step."""
        tags = (self.setting.method, *(("dcp",) if self.setting.dcp_size > 1 else ()))
        for wrong in warmup_drafts.check(self.setting, operation, draft):
            aspect = "outcome" if wrong.group is None else "law"
            self._differ(
                aspect, wrong.rule, wrong.sign, wrong.expected, wrong.observed, wrong.group, wrong.detail, tags,
                wrong.where,
            )  # fmt: skip

    # ------------------------------------------------------------------------------------------ differences

    def _differ(
        self,
        aspect: str,
        rule: str,
        sign: str,
        expected: str,
        observed: str,
        group: int | None = None,
        detail: str = "",
        tags: tuple[str, ...] | None = None,
        where: Where = NOWHERE,
    ) -> None:
        kind = "pool" if group is None else warmup_laws.kind_of(self.setting.groups[group])
        difference = WarmupDifference(
            aspect=aspect,
            step=self.index,
            group=group,
            kind=kind,
            rule=rule,
            sign=sign,
            expected=expected,
            observed=observed,
            detail=detail,
            tags=self.tags if tags is None else tags,
            at=where[0],
            request=where[1],
            token=where[2],
            rank=where[3],
        )
        if aspect not in self.options.aspects or difference.fingerprint in self.seen:
            return
        self.seen.add(difference.fingerprint)
        found = self.outcome.declared if self.options.declared(difference) else self.outcome.differences
        found.append(difference)

    def _law(self, violation: Violation) -> None:
        tags = list(self.tags)
        if violation.law == "rows" and violation.what.endswith("max_model_len"):
            tags = []
        if violation.what == "outside the pool" and warmup_laws.undersized(self.setting):
            tags.append("undersized pool")
        elif violation.what == "outside the pool" and any(map(_nulls, self.setting.groups)):
            tags.append("recycled")
        elif violation.what == "outside the pool":
            tags += warmup_suspects.of_pool(self.setting)
        if violation.law == "state" and self.operation.fail:
            tags.append("failed half-way")
        if violation.law == "W1":
            tags += self.causes.get(violation.group, ())
        if violation.law in ("state", "budget", "positions", "quiet", "finish"):
            tags = [tag for tag in tags if tag != "dcp"] + [_name(self.operation)]
        self._differ(
            "law", violation.law, violation.what, "the law holds", violation.text,
            violation.group if violation.group >= 0 else None, tags=tuple(tags),
        )  # fmt: skip

    # ----------------------------------------------------------------------------------- what is run, W3 and W4

    def _answer(self, ran: Ran, prediction: Prediction) -> None:
        """Did it run, skip or raise as it should?"""
        fails = self.operation.fail
        if ran.error and not (fails and ran.error == WORKER_FAILURE):
            none = ("no request",) if prediction.requests == 0 else ()
            self._differ("outcome", _rule(self.operation), f"error:{ran.error}", "no error", ran.error, tags=none)
        elif not ran.error and isinstance(self.operation, Mixed) and ran.answer != prediction.answer:
            self._differ(
                "outcome", "W4", "ran" if ran.answer else "skipped",
                f"skipped: {prediction.skipped}" if prediction.skipped else "the mixed step runs",
                "the mixed step ran" if ran.answer else "skipped",
                tags=(*self.tags, *warmup_suspects.of_skip(self.setting, self.operation, bool(ran.answer))),
            )  # fmt: skip

    def _schedule(self, steps: tuple[Recorded, ...], ran: Ran, prediction: Prediction) -> None:
        """The steps, compared with those that this number of requests makes."""
        rule = _rule(self.operation)
        if not steps or ran.answer is False:
            if prediction.runs and prediction.runs[0] and not ran.error and ran.answer is None:
                self._differ("outcome", rule, "nothing ran", f"{len(prediction.steps)} steps", "none", tags=())
            return
        if isinstance(self.operation, Kernels):
            requests = len(steps[0].parts)
            if requests != prediction.requests:
                sign = "more requests" if requests > prediction.requests else "fewer requests"
                tags = (*self.tags, *warmup_suspects.of_requests(self.setting, requests))
                self._differ(
                    "outcome", rule, sign, f"{prediction.requests} requests", f"{requests} requests", tags=tags
                )
            planned = kernel_steps(self.setting, requests)
            passes = max(1, len(prediction.runs))
        else:
            planned, passes = mixed_steps(self.operation.num_tokens), 1
        expected = planned * passes
        for number, (step, plan) in enumerate(zip(steps, expected, strict=False)):
            if (step.parts, step.finished) != (plan.parts, plan.finished):
                self._differ(
                    "outcome", rule, "schedule", f"{plan.what}: {_parts(plan.parts)}", _parts(step.parts), tags=()
                )
                return
            self._sampling(step, number // len(planned) if planned else 0)
        if len(steps) != len(expected) and not ran.error:
            self._differ("outcome", rule, "number of steps", f"{len(expected)} steps", f"{len(steps)} steps", tags=())

    def _sampling(self, step: Recorded, run: int) -> None:
        """How a step is sampled: only the prompt has a bit mask, with a row for each token that is sampled at most."""
        setting = self.setting
        if not step.parts:
            return
        drafts = setting.num_speculative_tokens
        if setting.choices.announces and step.announced is not None and step.announced != drafts:
            self._differ(
                "outcome", "W3", "announced drafts", f"{drafts} drafts announced", f"{step.announced}", tags=()
            )
        greedy = run == 1 or isinstance(self.operation, Mixed)
        if step.greedy is not None and step.greedy != greedy:
            self._differ("outcome", "W3", "greedy", f"greedy: {greedy}", f"greedy: {step.greedy}", tags=())
        if isinstance(self.operation, Kernels) and step.sampled:
            prompt = step.parts[0].computed == 0 and setting.last_pp_rank
            rows = len(step.parts) * setting.masked_rows if prompt else None
            if step.grammar_rows != rows:
                self._differ("outcome", "W3", "grammar rows", f"{rows} rows", f"{step.grammar_rows} rows", tags=())

    # --------------------------------------------------------------------------------- blocks, W1 and W2

    def _run(self, run: list[Recorded], first: int) -> None:
        """One pass, whose first step is `first`: the rows step by step, beside the scheduler's and the manager's."""
        parts = tuple(part for step in run for part in step.parts)
        if not parts:
            return
        scheduler = Scheduler(self.setting, parts)
        manager: Target | None = None
        if self.options.make_manager is not None:
            manager = self.options.make_manager(roomy(self.setting, parts))
        rows: dict[int, Rows] = {}
        memory = None
        if self.options.memory and "law" in self.options.aspects and not self.setting.null_block_redirect:
            memory = WarmupMemory(self.setting, run, self._law)
        following = 1
        plan = self._plan(run)
        for number, step in enumerate(run):
            for part, blocks in zip(step.parts, step.blocks, strict=True):
                held = rows.get(part.request, tuple(() for _ in self.setting.groups))
                new = blocks or tuple(() for _ in held)
                rows[part.request] = tuple(row + more for row, more in zip(held, new, strict=True))
                following = self._ids(new, following)
                which = (first + number, plan[number], part)
                if part.end <= self.setting.max_model_len:
                    self._rows(which, rows[part.request], scheduler, manager)
                elif self.options.keep_entries:  # no scheduler makes the call: a law tells it
                    self._keep(which, rows[part.request])
            if memory is not None:
                memory.step(step, rows)
        if self.options.make_tables is not None:
            self._tables(run, first, self.options.make_tables)

    def _tables(self, run: list[Recorded], first: int, make_tables: MakeTables) -> None:
        """Comparison 3, on the first rank and the last."""
        for rank in sorted({0, self.setting.dcp_size - 1}):
            for wrong in warmup_slots.check(self.setting, run, make_tables, rank):
                group = wrong.group if wrong.group >= 0 else None
                where = (first + wrong.where[0], *wrong.where[1:])
                every = sorted({cause for causes in self.causes.values() for cause in causes})
                tags = (*self.tags, *(every if group is None else self.causes.get(group, ())))
                self._differ(
                    "law", "slots", wrong.sign, wrong.expected, wrong.observed, group, wrong.detail, tags, where
                )

    def _ids(self, new: Rows, following: int) -> int:
        """W2: upwards from 1, request by request and group by group."""
        for group, ids in enumerate(new):
            for block in ids:
                if block != following:
                    self._differ("ids", "W2", "other", f"block {following}", f"block {block}", group)
                following = max(following, block) + 1
        return following

    def _plan(self, run: list[Recorded]) -> list[str]:
        """What each step of a pass is for."""
        if isinstance(self.operation, Mixed):
            steps = mixed_steps(self.operation.num_tokens)
        else:
            steps = kernel_steps(self.setting, len(run[0].parts))
        return [step.what for step in steps] + ["not planned"] * len(run)

    def _rows(self, which: tuple[int, str, Part], rows: Rows, scheduler: Scheduler, manager: Target | None) -> None:
        number, _, part = which
        where = (number, part.request, -1, 0)
        reasons, expected = scheduler.schedule(part)
        held: Rows | None = None
        if manager is not None:
            answer = manager.extend(call_of(self.setting, part))
            if answer.outcome != GRANTED:
                self._differ("outcome", "A16", answer.outcome, "granted", answer.outcome, detail=str(part))
            held = answer.rows
            for group, (ours, theirs) in enumerate(zip(expected, held, strict=True)):
                if [block == 0 for block in ours] != [block == 0 for block in theirs]:
                    self._differ("columns", "manager", "other", show_row(ours), show_row(theirs), group, where=where)
        for group, (ours, theirs) in enumerate(zip(expected, rows, strict=True)):
            if self.options.keep_entries:
                self._keep_one(which, group, reasons[group], theirs, ours, held)
            if len(ours) != len(theirs):
                self._columns(where, part, group, reasons[group], len(ours), len(theirs))
            elif ours.count(0) != theirs.count(0):
                sign = "less" if theirs.count(0) < ours.count(0) else "more"
                self._differ("nulls", "W1", sign, show_row(ours), show_row(theirs), group, str(part), (), where)

    def _columns(self, where: Where, part: Part, group: int, reason: Breakdown, expected: int, observed: int) -> None:
        sign = "more" if observed > expected else "less"
        detail = "\n".join((str(part), str(reason), *reason.blame(observed)))
        known = self.setting.groups[group]
        causes = warmup_suspects.of_columns(self.setting, known, part.end, observed)
        self.causes[group] = causes
        tags = (*(self.tags if known.dcp_sharded else ()), *causes)
        self._differ("columns", "W1", sign, f"{expected} columns", f"{observed} columns", group, detail, tags, where)

    def _keep(self, which: tuple[int, str, Part], rows: Rows) -> None:
        for group, (reason, row) in enumerate(zip(columns(self.setting, which[2]), rows, strict=True)):
            self._keep_one(which, group, reason, row, None, None)

    def _keep_one(
        self, which: tuple[int, str, Part], group: int, reason: Breakdown, row: tuple[int, ...],
        ours: tuple[int, ...] | None, held: Rows | None,
    ) -> None:  # fmt: skip
        number, what, part = which
        self.outcome.entries.append(
            Entry(
                operation=self.index,
                step=number,
                what=what,
                part=part,
                group=group,
                reason=reason,
                row=row,
                expected=None if ours is None else sum(1 for block in ours if block),
                manager=None if held is None else sum(1 for block in held[group] if block),
            )
        )


def _nulls(group: Group) -> bool:
    """Whether the scheduler takes blocks of this kind back while a request runs: start-up sizing counts fewer."""
    return group.recycles or (isinstance(group, Mamba) and group.mode != "none")


def _rule(operation: WarmupOperation) -> str:
    return "W4" if isinstance(operation, Mixed) else "W3"


def _name(operation: WarmupOperation) -> str:
    return "mixed" if isinstance(operation, Mixed) else "kernels"


def _parts(parts: tuple[Part, ...]) -> str:
    return ", ".join(map(str, parts)) or "no request"
