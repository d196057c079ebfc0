"""The scheduler level by the rules of a release; needs no vLLM but for the last test."""

from __future__ import annotations

from itertools import pairwise

import pytest

from harness.findings import Declared, load
from harness.tracefile import read_any
from harness.workload_outcome import WorkloadOptions
from harness.workload_run import MINIMA, OF_ITEMS, minima_of
from harness.workloads import run_workload
from oracle.budget import Case, predict
from oracle.errors import SettingError
from oracle.groups import FullAttention, Mamba
from oracle.methods import METHODS
from oracle.released import method_of
from oracle.releases import CONFIRMED, NEWEST, choices_of
from oracle.scheduler_party import OracleScheduler
from oracle.scheduler_setting import SchedulerSetting
from oracle.workload import Pause, Reset, SchedulerTrace, Step, Submit, of_release
from strategies.workloads import decode, draw

RELEASES = CONFIRMED["scheduler"]
FULL = FullAttention(block_size=4)
STEPS = (Step(),)


def setting(release: str = NEWEST, **more: object) -> SchedulerSetting:
    """One full-attention group, a roomy pool."""
    wanted: dict[str, object] = {
        "groups": (FULL,),
        "num_blocks": 41,
        "max_model_len": 64,
        "max_num_batched_tokens": 16,
        "max_num_seqs": 4,
        "release": release,
    }
    return SchedulerSetting(**wanted | more)  # type: ignore[arg-type]


def planned(of: SchedulerSetting, *submits: Submit) -> list[dict[int, int]]:
    """Tokens of each request in each step that the rules plan."""
    outcome = run_workload(
        SchedulerTrace(setting=of, operations=(*submits, *STEPS)),
        OracleScheduler,
        WorkloadOptions(keep_entries=True, release=of.release),
    )
    return [dict(entry.planned.tokens) for entry in outcome.entries]


@pytest.mark.parametrize("release", RELEASES)
def test_the_rules_agree_with_themselves(release: str) -> None:
    """The oracle's scheduler beside prediction, laws and memory: what a release broke is declared."""
    options = WorkloadOptions(declared=Declared(load(), release), release=release)
    found: list[str] = []

    def visit(data: bytes) -> None:
        found.extend(
            difference.fingerprint
            for difference in run_workload(decode(data, release), OracleScheduler, options).differences
        )

    draw(11, 0, 20, visit)
    assert [] == found


@pytest.mark.parametrize("release", RELEASES)
def test_settings_have_what_a_release_has(release: str) -> None:
    """Nothing that came later."""
    choices = choices_of(release)
    seen: set[str] = set()

    def visit(data: bytes) -> None:
        of = decode(data, release).setting
        assert of.release == release
        seen.update(
            name for name in ("max_num_active_seqs", "long_prefill_token_threshold_adaptive") if getattr(of, name)
        )
        seen.update({"hashes"} if of.num_hash_lookahead_tokens else ())

    draw(7, 0, 150, visit)
    later = {
        "max_num_active_seqs": choices.active_option,
        "long_prefill_token_threshold_adaptive": choices.adaptive_threshold,
        "hashes": choices.hash_lookahead,
    }
    assert {name for name, there in later.items() if there} == seen


@pytest.mark.parametrize(("older", "newer"), list(pairwise(RELEASES)))
def test_two_releases_are_drawn_the_same_workload(older: str, newer: str) -> None:
    """What the gate compares: only what the engine tells the manager follows the release."""

    def visit(data: bytes) -> None:
        one, other = decode(data, older, older), decode(data, newer, older)
        assert one.operations == other.operations
        assert of_release(one, newer) == other

    draw(5, 0, 40, visit)


def test_minima_of_a_release() -> None:
    """No skipped drafts, sessions and items before 0.33.0."""
    assert minima_of(None) == minima_of(NEWEST) == MINIMA
    later = {name for name in MINIMA if name.startswith("session")} | OF_ITEMS | {"drafts skipped"}
    assert later == MINIMA.keys() - minima_of("0.32.0").keys()
    waits = [release for release in RELEASES if "refused while blocks are sent" in minima_of(release)]
    assert [release for release in RELEASES if choices_of(release).asks_for_frees] == waits
    assert [*RELEASES] != waits


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("dflash", "charged", {"0.27.1": 2, "0.32.0": 3, "0.33.0": 0}),
        ("dflash", "scheduled", {"0.27.1": 32, "0.28.0": 40, "0.33.0": 40}),
        ("dspark_fill_in", "lookahead", {"0.31.0": 3, "0.32.0": 4}),
        ("dflash", "block_drop", {"0.32.0": True, "0.33.0": False}),
        ("mtp_modules", "prefill_lookahead", {"0.27.1": 1, "0.28.0": 3}),
        ("eagle", "hash_lookahead", {"0.32.0": 0, "0.33.0": 1}),
        ("ngram", "runner", {"0.31.0": "V1", "0.32.0": "V2"}),
        ("draft_model", "runner", {"0.30.0": "V1", "0.31.0": "V2"}),
        ("mtp", "runner", {"0.28.0": "V1", "0.29.0": "V2"}),
    ],
)
def test_facts_of_a_release(name: str, field: str, values: dict[str, object]) -> None:
    """K = 3, T = 40, R = 4; read off the releases' own configurations."""
    case = Case(method=name, drafts=3, budget=40, seqs=4)

    assert values == {release: getattr(predict(case, release), field) for release in values}


def test_the_newest_release_has_the_table_as_it_stands() -> None:
    """A row is changed for older releases only."""
    assert [] == [key for key, row in METHODS.items() if method_of(*key) != row]


@pytest.mark.parametrize(("release", "first"), [("0.30.0", 4), ("0.31.0", 16)])
def test_the_long_prefill_cap_of_a_lone_request(release: str, first: int) -> None:
    """Since 0.31.0 nobody is capped who is alone (S4)."""
    of = setting(release, long_prefill_token_threshold=4)

    assert {0: first} == planned(of, Submit(request=0, prompt=20))[0]


@pytest.mark.parametrize(("release", "parts"), [("0.31.0", [8, 1]), ("0.32.0", [8, 1]), ("0.29.0", [8, 1])])
def test_a_chunk_ends_at_a_block_border(release: str, parts: list[int]) -> None:
    """9 tokens of Mamba blocks of 8: the last border has a token behind it in any release (S41)."""
    of = setting(release, groups=(Mamba(block_size=8, mode="align"),))

    assert parts == [step[0] for step in planned(of, Submit(request=0, prompt=9))[:2]]


@pytest.mark.parametrize(("release", "parts"), [("0.31.0", [8, 8]), ("0.32.0", [8, 8])])
def test_a_chunk_ends_with_the_prompt(release: str, parts: list[int]) -> None:
    """16 tokens: up to 0.31.0 the border at 16 is kept, later the one at 8; both are where a chunk ends anyway."""
    of = setting(release, groups=(Mamba(block_size=8, mode="align"),), max_num_batched_tokens=12)

    assert parts == [step[0] for step in planned(of, Submit(request=0, prompt=16))[:2]]


@pytest.mark.parametrize(("release", "second"), [("0.27.1", 8), ("0.28.0", 10)])
def test_charges_of_a_release(release: str, second: int) -> None:
    """A draft model's row is charged for all four seats at once, or for each of the two that are scheduled (S1)."""
    of = setting(release, method="draft_model", num_speculative_tokens=2)

    assert {0: 4, 1: second} == planned(of, Submit(request=0, prompt=4), Submit(request=1, prompt=20))[0]


def test_a_setting_that_a_release_refuses() -> None:
    """Overlap with n-gram drafts came with 0.33.0: the trace cannot be run before."""
    trace = SchedulerTrace(
        setting=setting(method="ngram", num_speculative_tokens=2, in_flight_depth=2), operations=STEPS
    )

    with pytest.raises(SettingError, match="cannot overlap steps"):
        of_release(trace, "0.32.0")


@pytest.mark.parametrize(("release", "again"), [("0.28.0", [0]), ("0.29.0", [])])
def test_the_runner_of_models_that_pool(release: str, again: list[int]) -> None:
    """A pause between two chunks: V1 forgets the tokens of who was not in the step before, V2 does not (S10, S55)."""
    paused = SchedulerTrace(
        setting=setting(release, pooling=True, max_num_batched_tokens=4),
        operations=(Submit(request=0, prompt=8), Step(), Pause(state="paused_all"), Step(), Pause(), Step()),
    )
    options = WorkloadOptions(keep_entries=True, release=release)
    entries = run_workload(paused, OracleScheduler, options).entries

    assert again == [name for name, _ in entries[2].planned.again]


@pytest.mark.parametrize(("release", "shown"), [("0.32.0", ["blocks of cut tokens"]), ("0.33.0", [])])
def test_tokens_behind_the_end_are_handed_over(release: str, shown: list[str]) -> None:
    """One output is asked for and two are sampled: until 0.32.0 the second counts as computed (S12), a block more."""
    trace = read_any(next(one for one in load() if one.name == "handover-of-tokens-behind-the-end").file)
    assert isinstance(trace, SchedulerTrace)
    options = WorkloadOptions(release=release)

    assert shown == [one.sign for one in run_workload(of_release(trace, release), OracleScheduler, options).differences]


@pytest.mark.parametrize(("release", "step"), [("0.26.0", 1), ("0.27.1", 2)])
def test_a_poolers_output_in_flight_at_a_reset(release: str, step: int) -> None:
    """0.26.0 drops as many outputs as there are placeholders, of a pooler none: it ends the request (S33)."""
    trace = SchedulerTrace(
        setting=setting(release, pooling=True, in_flight_depth=2),
        operations=(Submit(request=0, prompt=8), Step(), Reset(), Step(), Step()),
    )
    entries = run_workload(trace, OracleScheduler, WorkloadOptions(keep_entries=True, release=release)).entries

    assert [step] == [number for number, entry in enumerate(entries) if entry.delivered]
