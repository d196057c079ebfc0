"""Did the dangerous crossings happen? Counters, a minimum each; a run that misses one is inconclusive, not green."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from oracle.allocator import Allocator
from oracle.call import REFUSED, Call, Drained, Hit, Observation, Query, Rows
from oracle.groups import ChunkedLocal, Mamba
from oracle.ledger import Request, Settled
from oracle.releases import NEWEST, choices_of, runs
from oracle.setting import Setting
from oracle.trace import Loaded, Release, knows_caching

#: crossings of the manager level and how often a run must meet each
MINIMA: dict[str, int] = {
    "kind full_attention": 5,
    "kind mla_attention": 5,
    "kind hidden_state": 5,
    "kind sliding_window": 5,
    "kind sliding_window_mla": 5,
    "kind chunked_local_attention": 5,
    "kind rswa": 5,
    "kind circular_buffer": 5,
    "kind cross_attention": 5,
    "kind mamba none": 5,
    "kind mamba all": 5,
    "kind mamba align": 5,
    "hybrid": 5,
    "speculation": 5,
    "overlap": 5,
    "dcp sharded": 5,
    "uniform group": 5,
    "granted": 100,
    "refused by the gate": 20,
    "refused by the test": 20,
    "exact fit": 20,
    "watermark decides": 3,
    "reserved blocks decide": 3,
    "cap at max_model_len": 10,
    "window removal": 20,
    "window removal in flight": 5,
    "gap removal": 5,
    "chunk border": 5,
    "align jump": 10,
    "align scratch moved": 10,
    "align checkpoint": 3,
    "draft rejected": 20,
    "draft accepted": 20,
    "all drafts accepted": 5,
    "async load": 10,
    "sync load": 10,
    "whole-prompt load": 5,
    "failed load": 3,
    "preempted": 20,
    "preempted with drafts": 5,
    "preempted in its own step": 3,
    "preempted in flight": 3,
    "readmitted with output": 5,
    "aborted in flight": 5,
    "deferred release": 5,
    "give back": 5,
    "session": 5,
    "trim": 5,
    "zero list": 5,
}

#: those of prefix caching
CACHING_MINIMA: dict[str, int] = {
    "hit": 100,
    "hit inside a block": 20,
    "hit with null columns": 50,
    "hit x hybrid": 50,
    "hit x window": 20,
    "hit x mamba": 20,
    "hit x speculation": 20,
    "hit x drop": 20,
    "hit x drop x hybrid": 10,
    "hit x drop, looked up for a connector": 3,
    "hit x hash lookahead": 10,
    "hit x retention": 20,
    "hit x dcp": 5,
    "hit x preemption": 10,
    "hit x external tokens": 10,
    "hit on own output": 10,
    "hit x overlap": 20,
    "junction": 20,
    "copy on write": 20,
    "copy for the owner": 3,
    "deferred to the next step": 2,
    "name evicted": 100,
    "hit x ring": 10,
    "hit x embeddings": 5,
    "hit diverged": 5,
    "hit reported": 20,
    "token discarded": 5,
    "pinned": 10,
    "reused while read": 1,
    "evicted by id": 10,
    "reset True": 1,
    "reset False": 1,
    "event stored": 50,
    "event removed": 50,
}


#: crossings of prefix caching that a run must meet at least once in so many steps of its traces with caching
CROSSINGS = (
    *("hit x hybrid", "hit x speculation", "hit x window", "hit x mamba", "hit x preemption", "hit x external tokens"),
    *("hit inside a block", "copy on write", "copy for the owner", "junction", "deferred to the next step"),
)
STEPS_A_CROSSING = 1_000
CACHING_STEPS = "steps with caching"


class Reach:
    """Counts crossings. Cheap: a dictionary, and only what one look at a call can tell."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.windows: list[int] = []
        self.gaps: list[int] = []
        self.aligns: list[int] = []
        self.chunks: list[int] = []
        self.rings = False
        self.drafts = 0
        self.max_model_len = 0

    def hit(self, name: str) -> None:
        """One more of `name`."""
        self.counts[name] += 1

    def add(self, counts: Mapping[str, int]) -> None:
        """What another one has counted."""
        for name, count in counts.items():
            self.counts[name] += count

    def setting(self, setting: Setting) -> None:
        """A new trace begins."""
        counts = self.counts
        for group in setting.groups:
            name = f"{group.kind} {group.mode}" if isinstance(group, Mamba) else group.kind
            counts[f"kind {name}"] += 1
            if group.uniform_layers:
                counts["uniform group"] += 1
            if setting.dcp_size > 1 and group.dcp_sharded:
                counts["dcp sharded"] += 1
        if len(setting.groups) > 1:
            counts["hybrid"] += 1
        if setting.num_speculative_tokens:
            counts["speculation"] += 1
            counts[f"method {setting.method}{' parallel' if setting.parallel_drafting else ''}"] += 1
        if setting.in_flight_depth > 1:
            counts["overlap"] += 1
        self.windows = [i for i, g in enumerate(setting.groups) if g.recycles]
        self.gaps = [i for i, g in enumerate(setting.groups) if g.kind == "rswa"]
        self.aligns = [i for i, g in enumerate(setting.groups) if isinstance(g, Mamba) and g.mode == "align"]
        self.chunks = [g.chunk for g in setting.groups if isinstance(g, ChunkedLocal)]
        self.rings = any(group.kind == "circular_buffer" for group in setting.groups)
        self.max_model_len = setting.max_model_len
        self.drafts = setting.num_speculative_tokens

    def extend(self, oracle: Allocator, call: Call, seen: Observation, before: Rows) -> None:
        """An `allocate_slots` was answered."""
        if seen.outcome == REFUSED:
            self._refused(oracle, call)
        else:
            self._granted(oracle, call, seen, before)

    def _refused(self, oracle: Allocator, call: Call) -> None:
        counts = self.counts
        counts[f"refused by the {oracle.refused_by}"] += 1
        if oracle.refused_by == "test" and call.reserved_blocks and oracle.short <= call.reserved_blocks:
            counts["reserved blocks decide"] += 1
        if call.waiting and call.has_scheduled_reqs and 0 < oracle.short <= oracle.watermark_blocks:
            counts["watermark decides"] += 1

    def _granted(self, oracle: Allocator, call: Call, seen: Observation, before: Rows) -> None:
        counts = self.counts
        counts["granted"] += 1
        if seen.free == 0:
            counts["exact fit"] += 1
        end = call.computed + call.external + call.new
        if call.lookahead and end + call.lookahead > self.max_model_len:
            counts["cap at max_model_len"] += 1
        if call.external:
            counts["async load" if call.new == 0 else "sync load"] += 1
            if call.external == call.tokens:
                counts["whole-prompt load"] += 1
        if call.preempted and call.tokens > call.prompt:
            counts["readmitted with output"] += 1
        if any(before):
            rows = seen.rows
            for index in self.windows:
                if rows[index].count(0) > before[index].count(0):
                    counts["window removal in flight" if call.in_flight else "window removal"] += 1
            for chunk in self.chunks:
                if call.computed % chunk == 0 and call.computed:
                    counts["chunk border"] += 1
            for index in self.gaps:
                if rows[index].count(0) > before[index].count(0):
                    counts["gap removal"] += 1
            for index in self.aligns:
                self._align(before[index], rows[index])
        for index in self.aligns:
            if oracle.rules[index].checkpointed:
                counts["align checkpoint"] += 1

    def _align(self, before: tuple[int, ...], row: tuple[int, ...]) -> None:
        if len(row) <= len(before):
            return
        added = row[len(before) :]
        if 0 in added:
            self.counts["align jump"] += 1
        if any(block and block in before for block in added):
            self.counts["align scratch moved"] += 1

    def settle(self, settled: Settled) -> None:
        """A batch's outcome came back."""
        for step, accepted in zip(settled.batch.steps, settled.accepted):  # noqa: B905  # a hot path
            if step.drafts:
                if accepted < step.drafts:
                    self.counts["draft rejected"] += 1
                if accepted:
                    self.counts["draft accepted"] += 1
                if accepted == step.drafts:
                    self.counts["all drafts accepted"] += 1

    def loaded(self, operation: Loaded, result: str) -> None:
        """An async load ended."""
        if result == "failed" or operation.valid is not None:
            self.counts["failed load"] += 1

    def release(self, operation: Release, request: Request) -> None:
        """A request gave its blocks back; `request` is as the ledger left it."""
        counts = self.counts
        if operation.preempt:
            counts["preempted"] += 1
            if self.drafts:
                counts["preempted with drafts"] += 1
            if request.in_flight:
                counts["preempted in flight"] += 1
        elif request.in_flight:
            counts["aborted in flight"] += 1
        if operation.deferred:
            counts["deferred release"] += 1

    def found(self, setting: Setting, query: Query, hit: Hit) -> None:
        """A lookup was answered."""
        counts = self.counts
        if query.request < 0:
            counts["lookup alone"] += 1
            return
        if hit.junction:
            counts["junction"] += 1
        if not hit.tokens:
            counts["miss"] += 1
            return
        counts["hit"] += 1
        if hit.tokens % setting.scheduler_block_size:
            counts["hit inside a block"] += 1
        if hit.diverged:
            counts["hit diverged"] += 1
        if query.report and setting.enable_kv_cache_events:
            counts["hit reported"] += 1
        if query.content.embeds:
            counts["hit x embeddings"] += 1
        if any(0 in row for row in hit.rows):
            counts["hit with null columns"] += 1
        if len(setting.groups) > 1:
            counts["hit x hybrid"] += 1
        if setting.drop_groups:
            counts["hit x drop"] += 1
            counts["hit x drop x hybrid"] += len(setting.groups) > 1
            counts["hit x drop, looked up for a connector"] += query.apart
        if setting.num_hash_lookahead_tokens:
            counts["hit x hash lookahead"] += 1
        if setting.prefix_cache_retention_interval is not None:
            counts["hit x retention"] += 1
        if setting.dcp_size > 1:
            counts["hit x dcp"] += 1

    def adopted(self, setting: Setting, call: Call) -> None:
        """A call with a hit was granted."""
        counts = self.counts
        if setting.num_speculative_tokens:
            counts["hit x speculation"] += 1
        if self.windows:
            counts["hit x window"] += 1
        if self.aligns:
            counts["hit x mamba"] += 1
        if self.rings:
            counts["hit x ring"] += 1
        if call.preempted:
            counts["hit x preemption"] += 1
        if call.tokens > call.prompt:
            counts["hit on own output"] += 1
        if call.external:
            counts["hit x external tokens"] += 1
        if call.in_flight or setting.in_flight_depth > 1:
            counts["hit x overlap"] += 1

    def drained(self, setting: Setting, seen: Drained) -> None:
        """A step was launched with caching on."""
        self.counts["copy on write"] += len(seen.copies)
        self.counts["reused while read"] += len(seen.reused)
        for event in seen.events:
            self.counts[f"event {event[0]}"] += 1


def with_caching(make_target: object, release: str | None) -> bool:
    """Whether a run has traces with caching on.

    None for a Target of the user's own that knows no caching, and for a release whose caching rules are not specified
    while the others are.
    """
    return knows_caching(make_target) and runs(release, "caching")


def plain_minima(release: str | None) -> dict[str, int]:
    """What traces with caching off must reach, of the crossings that a release can show."""
    choices = choices_of(release or NEWEST)
    absent = {"kind circular_buffer": not choices.rings, "align checkpoint": not choices.checkpoints}
    return {name: least for name, least in MINIMA.items() if not absent.get(name)}


def minima(release: str | None, make_target: object = None, caching_steps: int = 0) -> dict[str, int]:
    """What a run of a target must reach; crossings of caching by the steps that its traces with caching had."""
    if not with_caching(make_target, release):
        return plain_minima(release)
    choices = choices_of(release or NEWEST)
    absent = {"hit x hash lookahead": not choices.hash_lookahead}
    absent |= dict.fromkeys(("pinned", "reused while read"), not choices.pins) | {
        "hit x ring": not choices.rings,
        "hit diverged": not choices.apart,
        "hit x drop, looked up for a connector": not choices.apart,
    }
    least = caching_steps // STEPS_A_CROSSING
    caching = CACHING_MINIMA | {name: max(least, CACHING_MINIMA[name]) for name in CROSSINGS}
    return plain_minima(release) | {name: count for name, count in caching.items() if not absent.get(name)}
