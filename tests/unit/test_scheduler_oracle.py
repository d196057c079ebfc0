"""The oracle's scheduler alone, on the examples of the rules; the allocator answers its asks."""

from __future__ import annotations

from typing import Any

import pytest

from oracle.allocator import Allocator
from oracle.chunks import Chunks
from oracle.errors import SettingError
from oracle.groups import FullAttention
from oracle.scheduled import Planned
from oracle.scheduler import Scheduler
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import Delivered, Submit

STOP = 1


class Engine:
    """The oracle's scheduler with the oracle's allocator, driven step by step."""

    def __init__(self, **fields: Any) -> None:
        base: dict[str, Any] = {"num_blocks": 40, "max_model_len": 40, "max_num_batched_tokens": 16, "max_num_seqs": 4}
        self.setting = SchedulerSetting(groups=(FullAttention(block_size=fields.pop("b", 4)),), **base | fields)
        self.allocator = Allocator(self.setting)
        self.lookaheads: list[int] = []
        self.scheduler = Scheduler(
            self.setting,
            self._ask,
            lambda name: self.allocator.release(name, False) and None,
            lambda request: (0, 0),
            lambda request, call, tokens: None,
        )
        self.arrivals = 0

    def _ask(self, call: Any) -> Any:
        self.lookaheads.append(call.lookahead)
        return self.allocator.extend(call)

    def submit(self, *prompts: int, limit: int = 3, priority: int = 0) -> None:
        for prompt in prompts:
            self.scheduler.submit(
                Submit(request=self.arrivals, prompt=prompt, max_tokens=limit, priority=priority), self.arrivals
            )
            self.arrivals += 1

    def plan(self) -> Planned:
        return self.scheduler.schedule()

    def back(self, accepted: int = 0) -> list[Delivered]:
        """The oldest step's output, with so many drafts of each request accepted; K new ones without overlap."""
        flight = self.scheduler.flights[0]
        sampled = {
            name: [2] * (1 + min(accepted, flight.drafts.get(name, 0)))
            for name, _ in flight.tokens
            if not self.scheduler.requests[name].chunk
        }
        drafts = self.setting.num_speculative_tokens
        proposed = {name: drafts for name, _ in flight.tokens} if self.setting.in_flight_depth == 1 else None
        return self.scheduler.output(sampled, STOP, proposed)

    def step(self, accepted: int = 0) -> list[int]:
        tokens = [count for _, count in self.plan().tokens]
        self.back(accepted)
        return tokens


def test_computed_catches_up_with_what_is_known() -> None:
    """S3: B 16, prompts 10, 20, 3, max_tokens 3."""
    engine = Engine()
    engine.submit(10, 20, 3)

    steps = [engine.step() for _ in range(5)]

    assert [[10, 6], [1, 14, 1], [1, 1, 2], [1, 1], [1]] == steps


def test_charged_draft_slots_take_room() -> None:
    """S1: B 10 and one slot a request; two decodes with three drafts fit exactly: 4 + 1 + 4 + 1."""
    engine = Engine(max_num_batched_tokens=10, method="draft_model", num_speculative_tokens=3)
    engine.submit(4, 4, limit=20)
    engine.step()

    planned = engine.plan()

    assert [(0, 4), (1, 4)] == planned.tokens
    assert [(0, 3), (1, 3)] == planned.drafts


def test_long_prefill_threshold() -> None:
    """S4: T0 8, two prompts of 20; the same alone is not capped."""
    engine = Engine(max_num_batched_tokens=32, long_prefill_token_threshold=8)
    engine.submit(20, 20)
    alone = Engine(max_num_batched_tokens=32, long_prefill_token_threshold=8)
    alone.submit(20)

    assert [[8, 8], [8, 8], [4, 4]] == [engine.step() for _ in range(3)]
    assert [20] == alone.step()


def test_the_last_preempts_itself_and_waits_for_room() -> None:
    """S6, S10: b 4, 7 usable blocks, two prompts of 11; then 13 tokens need 4 blocks and 3 are free."""
    engine = Engine(num_blocks=8, max_model_len=24, max_num_batched_tokens=32)
    engine.submit(11, 11, limit=8)
    engine.step()
    engine.step()

    third = engine.plan()
    engine.back()
    fourth = engine.plan()

    assert ([(0, 1)], [1]) == (third.tokens, third.preempted)
    assert [(0, 1)] == fourth.tokens


def test_drafts_are_cut_first_at_the_end_of_the_model_length() -> None:
    """S18: K 3, M 20, 17 computed of 18 known: two tokens, one draft."""
    engine = Engine(max_model_len=20, max_num_batched_tokens=32, method="eagle", num_speculative_tokens=3)
    engine.submit(17, limit=20)
    engine.step()

    planned = engine.plan()

    assert ([(0, 2)], [(0, 1)]) == (planned.tokens, planned.drafts)


def test_rejected_drafts_are_not_computed() -> None:
    """S19: K 3, prompt 4: schedules 4 with 3 drafts, 2 accepted: (computed, known) = (7, 8)."""
    engine = Engine(method="eagle", num_speculative_tokens=3)
    engine.submit(4, limit=20)
    engine.step()
    engine.step(accepted=2)

    request = engine.scheduler.requests[0]

    assert (7, 8) == (request.comp, request.n)


def test_placeholders_of_overlapping_steps() -> None:
    """S30: K 3, prompt 4, max_tokens 6, one draft accepted each."""
    engine = Engine(in_flight_depth=2, method="eagle", num_speculative_tokens=3)
    engine.submit(4, limit=6)
    request = engine.scheduler.requests[0]
    seen = []
    for action in (engine.plan, engine.plan, engine.back, engine.plan, lambda: engine.back(1)):
        action()
        seen.append((request.comp, request.n, request.ph))

    assert [(4, 4, 1), (8, 4, 5), (8, 5, 4), (12, 5, 8), (10, 7, 4)] == seen


def test_chunk_leaves_what_the_modules_read() -> None:
    """S22: three known tokens are read past a chunk: prompt 10, B 8: 7 then 3."""
    engine = Engine(max_num_batched_tokens=8, method="mtp_modules", num_speculative_tokens=3)
    engine.submit(10)

    assert [[7], [3]] == [engine.step() for _ in range(2)]


def test_full_lookahead_is_asked_for_every_part() -> None:
    """S5, S10: for a chunk that is not the last too."""
    engine = Engine(max_num_batched_tokens=8, method="dflash", num_speculative_tokens=3)
    engine.submit(20)
    for _ in range(3):
        engine.step()

    assert [4, 4, 4] == engine.lookaheads


def test_an_own_draft_pass_limits_who_runs() -> None:
    """S17: DFlash, K 8, B 20, eight seats: 20 // 9 = 2 run."""
    engine = Engine(max_num_batched_tokens=20, max_num_seqs=8, method="dflash", num_speculative_tokens=8)
    engine.submit(2, 2, 2)

    assert [2, 2] == engine.step()


def test_the_least_urgent_is_the_victim() -> None:
    """S27: it may stand before the one that asks, and is taken out of the step (S28)."""
    engine = Engine(num_blocks=8, max_model_len=24, max_num_batched_tokens=32, policy="priority")
    engine.submit(11, limit=8, priority=1)
    engine.submit(11, limit=8, priority=0)
    engine.step()
    engine.step()

    planned = engine.plan()

    assert [(1, 1)] == planned.tokens


@pytest.mark.parametrize(
    ("budget", "prompt", "ahead", "ends"), [(16, 40, 0, [16, 16, 8]), (64, 33, 3, [16, 17])], ids=["grid", "keep"]
)
def test_chunks_of_mamba_blocks(budget: int, prompt: int, ahead: int, ends: list[int]) -> None:
    """S41: u 16, B 16, prompt 40: 16, 16, 8. Hash lookahead 3, B 64, prompt 33: 16, 17."""
    rule = Chunks(16, budget, ahead=ahead)
    chunks, start = [], 0
    while start < prompt:
        chunks.append(rule.end(start, start + min(budget, prompt - start), prompt, prompt) - start)
        start += chunks[-1]

    assert ends == chunks


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"max_num_seqs": 20}, "max_num_batched_tokens must be at least max_num_seqs"),
        ({"max_num_active_seqs": 5}, "max_num_active_seqs must not exceed max_num_seqs"),
        ({"long_prefill_token_threshold": 41}, "long_prefill_token_threshold must not exceed max_model_len 40, got 41"),
        ({"enable_chunked_prefill": False}, "without chunked prefill a step must hold max_model_len 40 tokens"),
        ({"method": "dflash", "num_speculative_tokens": 16}, "max_num_batched_tokens must exceed the method"),
        ({"method": "suffix", "num_speculative_tokens": 2, "in_flight_depth": 2}, "this method cannot overlap steps"),
        ({"num_blocks": 10}, "num_blocks must be at least 11 for a request of max_model_len, got 10"),
    ],
)  # fmt: skip
def test_impossible_setting_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        Engine(**fields)


def test_draft_counts_follow_the_batch() -> None:
    """S24: two requests scheduled: one draft each in the next step; alone all three."""
    engine = Engine(method="ngram", num_speculative_tokens=3, draft_counts=((1, 1, 3), (2, 4, 1)))
    engine.submit(4, 4, limit=20)

    assert 1 == engine.plan().proposals

    alone = Engine(method="ngram", num_speculative_tokens=3, draft_counts=((1, 1, 3), (2, 4, 1)))
    alone.submit(4)

    assert 3 == alone.plan().proposals
