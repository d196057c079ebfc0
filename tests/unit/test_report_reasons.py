"""Every rule has its reason, every difference a title and a place."""

from __future__ import annotations

import sys

import pytest
from attrs import evolve

from harness.report import workload_reasons
from harness.report.reasons import CAUSES, REASONS, places_of, reason_of
from harness.report.title import title
from harness.suspects import _GATE, _TEST
from harness.targets import source
from harness.targets.source import locate
from harness.workload_asks import _RULES, ASK_RULES
from oracle.breakdown import FORMULAS
from oracle.groups import KINDS
from oracle.lookup import SUSPECTS
from oracle.scheduled import PLANNED_RULES
from oracle.trace import Difference
from tests.unit.report_samples import KILLED, SAMPLES

#: what compare, the laws, the memory and the engine name
NAMED = ["A2", "A3", "A5", "A10", "A13", "A14", "A15", "A16", "A19", "A20", "A60", "build", "raised", "process"]
LAWS = ["A1", "A2", "A7", "A8", "A14", "A22", "M12", "W1", "W4", "W5", "W6"]
OTHER_RULES = [*_RULES.values(), "S6", "S8", "S9", "S12", "S38", "S40", "S51", "P12", "P27", "raised", "process"]
COLUMNS = sorted({name.split()[0] for name in FORMULAS if "columns" in name or name.endswith("ring")})


@pytest.mark.parametrize("rule", sorted({*NAMED, *LAWS, *COLUMNS}))
def test_every_rule_has_a_reason(rule):
    assert rule in REASONS


def test_a_rule_without_one_is_named():
    assert "Rule A99 of the specification." == reason_of("A99").why


def test_every_suspect_is_explained():
    assert {name for name, _ in (*_GATE, *_TEST)} | {*SUSPECTS} <= set(CAUSES)


def test_reasons_are_sentences():
    assert [] == [rule for rule, reason in REASONS.items() if not reason.why.endswith(".") or len(reason.why) > 420]


def difference(**changes) -> Difference:
    return evolve(SAMPLES["A13"].difference(), **changes)


@pytest.mark.parametrize("kind", [kind.kind for kind in KINDS])
def test_every_kind_has_its_manager(kind):
    """Sinks, windows, rings... have a class of their own; full attention, MLA and hidden states share one."""
    place = places_of(difference(rule="A13", kind=kind))[1]

    assert place[1].endswith("Manager.get_num_blocks_to_allocate")
    assert ("FullAttention" in place[1]) == (
        kind in {"full_attention", "mla_attention", "hidden_state"} or "sink" in kind
    )


def test_a_known_cause_has_places_of_its_own():
    """What a preempted step leaves behind is not the fault of the code that removes columns."""
    places = places_of(difference(aspect="law", rule="M12", kind="full_attention", tags=("dropped step", "hit")))

    assert "Scheduler._preempt_request" in [name for _, name in places]
    assert "SingleTypeKVCacheManager.remove_skipped_blocks" not in [name for _, name in places]


def test_kinds_that_cannot_be_told_apart_give_a_place_each():
    places = places_of(difference(kind="mamba_align+sliding_window"))

    assert [
        "KVCacheManager.allocate_slots",
        "MambaManager.get_num_blocks_to_allocate",
        "SlidingWindowManager.get_num_blocks_to_allocate",
    ] == [name for _, name in places]


TITLES = {
    "A13": "full_sequence_must_fit admits a request whose whole sequence does not fit (sliding_window): dead columns "
    "are taken off the cap, and null columns count as held",
    "A15": "allocate_slots raises ValueError instead of refusing (mamba_align): the block of the loaded state is not "
    "counted beside the running state's",
    "A19": "allocate_slots gives a row fewer columns than the step needs (full_attention) on a first call",
    "A20": "The result lists other blocks than were added on a first call",
    "A5": "The free queue is in another order",
    "A60": "take_new_block_ids lists other blocks than those to be zeroed",
    "A14": "Removal nulls fewer columns than nobody reads (sliding_window)",
    "M12": "A step reads the null block (sliding_window) after a load",
    "W1": "The target writes to the null block (chunked_local_attention) after a load",
    "W5": "full_sequence_must_fit admits a request that then cannot run with lookahead",
    "A2": "Blocks do not add up: conservation",
    "build": "The manager cannot be built with sink_full_attention: TypeError",
}


@pytest.mark.parametrize("rule", SAMPLES)
def test_title(rule):
    assert TITLES[rule] == title(SAMPLES[rule].difference())


def test_title_of_what_kills_the_process():
    assert "A call does not answer: killed by SIGSEGV" == title(KILLED.difference)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"expected": "granted", "observed": "refused", "rule": "A16"}, "allocate_slots refuses a call that fits"),
        ({"expected": "error:ValueError", "rule": "A10"}, "allocate_slots grants a call that must raise ValueError"),
        ({"rule": "A15"}, "allocate_slots grants a call that takes more blocks than it may"),
        ({"aspect": "law", "rule": "W4"}, "A request holds more blocks than its admission cap"),
        ({"aspect": "law", "rule": "M12", "sign": "other content"}, "A step reads what was not written for its prefix"),
        ({"aspect": "law", "rule": "W1", "sign": "drafter outside the row"}, "The drafter writes past its row"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_titles_of_other_differences(changes, expected):
    assert expected == title(difference(tags=(), kind="pool", **changes))


def test_a_place_is_found_in_the_class_that_defines_it(tmp_path, monkeypatch):
    """B inherits from A in the same file; the line is that of A's method."""
    package = tmp_path / "vllm"
    (package / "v1").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    (package / "v1" / "a.py").write_text(
        "class A:\n    def f(self): ...\nclass B(A, Other):\n    x = 1\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)  # another test may have imported the real one
    source._definitions.cache_clear()

    found = [str(source.locate("vllm/v1/a.py", name)) for name in ("B.f", "B.g", "C.f")]
    source._definitions.cache_clear()

    assert ["vllm/v1/a.py:2: A.f", "vllm/v1/a.py: B.g", "vllm/v1/a.py: C.f"] == found


@pytest.mark.parametrize("rule", sorted({*PLANNED_RULES.values(), *ASK_RULES.values(), *OTHER_RULES}))
def test_every_rule_of_the_scheduler_has_a_reason(rule):
    assert "of the specification" not in workload_reasons.reason(rule).why


@pytest.mark.parametrize("rule", sorted(workload_reasons.REASONS))
def test_places_of_the_scheduler_are_there(rule):
    """With the release installed each has its line; without one there is none to say."""
    places = workload_reasons.places(difference(rule=rule))
    known = [locate(*place).line is not None for place in places]
    assert all(known) or not any(known)
    assert places


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"aspect": "error", "sign": "error:KeyError"}, "The scheduler ends the engine: KeyError"),
        (
            {"aspect": "law", "rule": "progress", "sign": "nobody runs"},
            "A law of the scheduler is broken, progress: nobody runs",
        ),
        ({"aspect": "ask", "sign": "new less"}, "The scheduler asks its manager for something else: new less"),
        ({"aspect": "delivered", "sign": "other"}, "The client is given other tokens"),
    ],
)
def test_titles_of_the_scheduler(changes, expected):
    assert expected == workload_reasons.title(difference(level="scheduler", **changes))


def test_a_difference_of_the_manager_has_its_title_at_the_level_of_the_scheduler_too():
    assert title(difference()) == workload_reasons.title(difference())
