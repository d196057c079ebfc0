"""Streaming sessions beside the real scheduler: what they say, who hits it, and what a reset does to them."""

from __future__ import annotations

import pytest
from attrs import evolve

from harness.targets.scheduler import Scheduler
from harness.workload_outcome import WorkloadOutcome
from harness.workloads import run_workload
from oracle.content import Prefixes
from oracle.groups import FullAttention, Mamba
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import STOP, Reset, SchedulerOperation, SchedulerTrace, Step, Submit, Update

pytestmark = pytest.mark.usefixtures("release")

SETTING = SchedulerSetting(
    groups=(FullAttention(block_size=4),),
    num_blocks=40,
    max_model_len=40,
    max_num_batched_tokens=32,
    max_num_seqs=4,
    enable_caching=True,
)


def run(setting: SchedulerSetting, *operations: SchedulerOperation) -> WorkloadOutcome:
    """The workload beside the three oracles, nothing declared."""
    return run_workload(SchedulerTrace(setting=setting, operations=operations), Scheduler)


def test_another_request_hits_a_later_piece() -> None:
    """Prompt 6 and an answer of 3 leave 8 tokens; the piece of 8 goes on there. Of 17 tokens alike 16 are found."""
    outcome = run(
        SETTING,
        Submit(request=0, prompt=6, max_tokens=3, session=True),
        *[Step()] * 3,
        Update(request=0, prompt=8),
        *[Step()] * 2,
        Submit(request=1, prompt=17, forks=(8,)),
        Step(),
    )

    assert [] == outcome.differences
    assert 1 == outcome.reach["session's piece hit"]


def test_the_discarded_token_is_part_of_no_name() -> None:
    """Prompt 6 and an answer of 3: the ninth token is discarded, a request that shares it finds 8 tokens, not 12."""
    outcome = run(
        SETTING,
        Submit(request=0, prompt=6, max_tokens=3, session=True),
        *[Step()] * 3,
        Update(request=0, prompt=8),
        *[Step()] * 2,
        Submit(request=1, prompt=17),
        Step(),
    )

    assert [] == outcome.differences
    assert (1, 0) == (outcome.reach["hit"], outcome.reach["session's piece hit"])


def test_a_piece_told_early_has_the_tokens_of_an_answer_of_full_length() -> None:
    prefixes = Prefixes()
    content = prefixes.begin()
    prefixes.grow(content, 9)

    said = prefixes.piece(content, 8, 4)
    waited = prefixes.continued(content, 8, said, boundary=False)
    forked = prefixes.begin((8,))
    prefixes.grow(forked, 12)

    assert forked.path == waited.path


def test_an_answer_that_stops_has_names_behind_a_discarded_token() -> None:
    """5 of 6 tokens stay, the sixth was part of a name; a piece of 2 and a stop make 8 tokens, all with names."""
    prefixes = Prefixes()
    content = prefixes.begin()
    prefixes.grow(content, 6)

    goes_on = prefixes.continued(content, 5, prefixes.piece(content, 5, 2), boundary=True)
    prefixes.put(goes_on, 7, STOP)

    assert 9 == len(goes_on.path) == len(goes_on.named)


@pytest.mark.parametrize("caching", [False, True])
def test_the_place_of_a_session_shows_in_whose_turn_it_is(caching: bool) -> None:
    """Request 0 goes on behind request 1, whose load has failed: its turn begins with its blocks, 0 asks instead."""
    setting = evolve(SETTING, kv_connector=True, policy="priority", enable_caching=caching)
    step = Step(loaded=((1, 1),))
    submits = Submit(request=0, prompt=1, session=True), Submit(request=1, prompt=1, remote=1, again=True)

    (found,) = run(setting, *submits, step, step, Update(request=0, prompt=1), Step()).differences

    assert ("S8", "request other", "request 1 frees", "request 0 asks") == (
        found.rule, found.sign, found.expected, found.observed
    )  # fmt: skip
    assert ("place of a continued session",) == found.tags


@pytest.mark.parametrize(("drafts", "wrong"), [(0, []), (2, ["state among those of drafts"])])
def test_a_state_behind_accepted_drafts_is_not_found_again(drafts: int, wrong: list[str]) -> None:
    """Two drafts are accepted in the answer's last step: the state is two blocks behind the first."""
    setting = SchedulerSetting(
        groups=(Mamba(block_size=20, mode="none", speculative_blocks=drafts),),
        num_blocks=9,
        max_model_len=20,
        max_num_batched_tokens=9,
        max_num_seqs=1,
        method="ngram",
        num_speculative_tokens=drafts,
    )

    outcome = run(
        setting,
        Submit(request=0, prompt=1, max_tokens=4, session=True),
        Step(),
        Step(accepted=((0, 2),)),
        *[Step()] * (2 - drafts),
        Update(request=0, prompt=1),
        Step(),
    )

    assert wrong == [tag for found in outcome.differences for tag in found.tags if tag != "session"]


@pytest.mark.parametrize("depth", [1, 2])
def test_reset_beside_a_connector_is_in_vain_while_a_step_is_in_flight(depth: int) -> None:
    outcome = run(
        evolve(SETTING, kv_connector=True, in_flight_depth=depth),
        Submit(request=0, prompt=6, max_tokens=3, remote=4, again=True),
        Step(loaded=((0, 0),)),
        Step(loaded=((0, 0),)),
        Step(loaded=((0, 0),)),
        Reset(connector=True),
    )

    assert ["reset"] * (depth - 1) == [found.rule for found in outcome.differences]
    assert depth - 1 == outcome.reach["reset in vain"]


def test_what_a_discarded_token_left_in_a_block_is_told_by_its_cause_in_a_copy_of_it() -> None:
    """The drafter wrote position 2 from the token at 3, which is discarded. A hit inside the block copies it."""
    setting = SchedulerSetting(
        groups=(FullAttention(block_size=6), Mamba(block_size=4, speculative_blocks=4)),
        num_blocks=9,
        max_model_len=6,
        max_num_batched_tokens=2,
        max_num_seqs=1,
        method="eagle",
        num_speculative_tokens=1,
        enable_caching=True,
        num_hash_lookahead_tokens=1,
        num_prefill_lookahead_tokens=1,
    )
    outcome = run(
        setting,
        Submit(request=0, prompt=2, max_tokens=2, session=True),
        Submit(request=1, prompt=5, forks=(3,)),
        Update(request=0, prompt=2),
    )

    assert ["scheduler/law/full_attention/M12/drafter content/discarded token/hit"] == [
        difference.fingerprint for difference in outcome.differences
    ]
