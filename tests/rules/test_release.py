"""The table beside the real configurations of the installed release, and the places that keep its facts again."""

from __future__ import annotations

import pytest

from harness import rules_level
from harness.findings import Declared, load
from harness.rules_grid import ALL_DRAFTS
from harness.rules_level import Release
from harness.targets import compat, config, kept, resumed
from oracle.budget import Case, cut_padding, stuck
from oracle.methods import METHODS

pytestmark = pytest.mark.usefixtures("vllm")

#: K = 4 and 7 are no whole turns of 3 modules, 16 is the largest
SOME = (1, 2, 3, 4, 7, 8, 16)


def declared(release):
    """The findings of this level that cover a release."""
    return Declared([finding for finding in load() if finding.level == "rules"], release)


@pytest.fixture(scope="module")
def result(vllm):
    return rules_level.run(rules_level.installed(), drafts=SOME)


def test_what_differs_is_declared(result):
    known = declared(compat.installed_release())

    assert [] == [name for name, difference in result.found.items() if known.explain(difference) is None]


def test_every_declared_finding_is_met(result):
    known = declared(compat.installed_release())
    met = {known.explain(difference) for difference in result.found.values()}

    assert {finding.name for finding in known.findings} == {finding.name for finding in met if finding is not None}


def test_every_crossing_is_met(result):
    """But those of the K that are left out here."""
    assert {f"K {drafts}" for drafts in ALL_DRAFTS if drafts not in SOME} == set(result.missed)


def test_every_place_is_asked(result):
    assert [] == [name for name in kept.PLACES if result.reach[f"place {name}"] < 2]


def test_the_budget_that_overflowed():
    """T = 2048, R = 256, K = 8, DFlash: 2048 // 9 = 227 requests, 227 x 9 = 2043 rows of 2048."""
    case = Case(method="dflash", drafts=8, budget=2048, seqs=256)
    facts = config.facts(case)

    assert (9, 0, 2048, 227) == (facts.lookahead, facts.charged, facts.scheduled, facts.active)
    assert 2048 == kept.PLACES["v2_pass_rows"](case)


def test_each_method_is_built_by_its_own_constructors():
    """No method is stepped over but suffix, which asks for a package; that is said in `BYPASSED`."""
    refused = {
        row.title: facts.refused
        for row in METHODS.values()
        if (facts := config.facts(Case(method=row.name, parallel=row.parallel, drafts=int(row.name != "none")))).refused
    }

    assert {} == refused
    assert {"suffix"} == set(config.BYPASSED)


def test_suffix_is_refused_without_the_package():
    """What the step over stands for: vLLM asks for Arctic Inference before anything else."""
    vllm_config = config.import_config()

    with pytest.raises(ImportError, match="Arctic Inference"):
        vllm_config.SpeculativeConfig(
            method="suffix",
            num_speculative_tokens=3,
            target_model_config=config.target_model("suffix"),
            target_parallel_config=vllm_config.ParallelConfig(),
        )


def _in_the_release(monkeypatch, owner, name, formula):
    """Replace one property of the release's classes by a formula of its object."""
    monkeypatch.setattr(getattr(config.import_config(), owner), name, property(formula))


DEFECTS = [
    # F-47: DFlash reserves K. The clamp divides by the same property: 2048 // 8 = 256 requests of 9 rows
    ("VllmConfig", "num_lookahead_tokens", lambda c: c.num_speculative_tokens, {"D-L1", "B-L1"}),
    # F-29: one token of lookahead for several modules
    ("VllmConfig", "num_prefill_lookahead_tokens", lambda c: 1, set()),
    # a connector does not know the longer hashes
    ("VllmConfig", "num_hash_lookahead_tokens", lambda c: c.num_prefill_lookahead_tokens, set()),
    # F-71: one row a request where K - 1 are added
    ("SpeculativeConfig", "max_num_new_slots_for_drafting", lambda s: 1, {"B-L1"}),
    # one step in flight whatever overlaps
    ("VllmConfig", "max_in_flight_tokens", lambda c: c.scheduler_config.max_num_batched_tokens, set()),
]


@pytest.mark.parametrize(("owner", "name", "formula", "laws"), DEFECTS, ids=[defect[1] for defect in DEFECTS])
def test_defect_planted_in_the_release_is_found(monkeypatch, owner, name, formula, laws):
    """Each is new, none is taken for a declared finding, and the laws that it breaks see it on their own."""
    _in_the_release(monkeypatch, owner, name, formula)
    known = declared(compat.installed_release())
    found = [
        d for d in rules_level.run(Release(config.facts), drafts=(3, 8)).found.values() if known.explain(d) is None
    ]

    assert found
    assert laws == {difference.rule for difference in found if difference.aspect == "law"}


#: K = 3; the least budget in which a resumed decode runs, and one less
PROGRESS = [
    Case(method="ngram", drafts=3, budget=4, seqs=1),
    Case(method="ngram", drafts=3, budget=3, seqs=1),
    Case(method="eagle3", drafts=3, budget=4, seqs=1),
    Case(method="draft_model", drafts=3, budget=5, seqs=1),
    Case(method="draft_model", drafts=3, budget=4, seqs=1),
    Case(method="draft_model", parallel=True, drafts=3, budget=7, seqs=1),
    Case(method="draft_model", parallel=True, drafts=3, budget=6, seqs=1),
    Case(method="eagle3", parallel=True, drafts=3, budget=6, seqs=1),
    Case(method="eagle3", parallel=True, drafts=3, budget=5, seqs=1),
    Case(method="eagle3", drafts=3, scheduled=4, seqs=1),
    Case(method="eagle3", drafts=3, scheduled=3, seqs=1),
    Case(method="dflash", drafts=3, budget=5, seqs=1),
    Case(method="ngram", parallel=True, drafts=8, budget=16, seqs=1),
    Case(method="ngram", parallel=True, drafts=8, budget=15, seqs=1),
]


@pytest.mark.parametrize("case", PROGRESS, ids=str)
def test_law_of_progress_says_what_the_real_scheduler_does(case):
    """The real scheduler plans 100 empty steps exactly where the law lacks rows (`stuck`), none elsewhere."""
    lacking = stuck(case, config.facts(case).charged)

    assert (100 if lacking else 0) == resumed.empty_steps(config.build(case))


#: K = 3: the cap at the rows of a decode, below them, and off
PADDING = [
    *(Case(method=name, drafts=3, threshold=cap) for name in ("ngram", "eagle3", "dflash") for cap in (1, 3, 4)),
    Case(method="eagle3", drafts=3),
    Case(method="eagle3", drafts=3, threshold=3, caching=False),
]


@pytest.mark.parametrize("case", PADDING, ids=str)
def test_law_of_padding_says_what_the_real_scheduler_does(case):
    """Two resumed decodes: the real scheduler's assertion fails exactly where the cap cuts the padding."""
    cut = cut_padding(case, config.facts(case).charged)

    assert ("AssertionError out of schedule()" if cut else "both end") == resumed.two_resumed(config.build(case))


#: architectures of DFlash drafters that have a speculator of their own, and what their config.json holds beside
ARCHITECTURES = {
    "Qwen3XPressModel": {},
    "LiLiCorrDraftModel": {"lilicorr_candidate_topk": 4},
    "DFlash2DraftModel": {"selector_top_k": 4},
    "DFlash2BeamDraftModel": {"selector_top_k": 4},
}


@pytest.mark.parametrize("drafts", [1, 8])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_dflash_architecture_is_a_row_of_the_table(monkeypatch, name, drafts):
    """One row for all: facts, rows of the pass, the buffers that it must fit."""
    pair = config.MODELS["dflash"]
    options = {**pair.drafter["dflash_config"], **ARCHITECTURES[name]}
    drafter = {**pair.drafter, "architectures": [name], "dflash_config": options, **ARCHITECTURES[name]}
    monkeypatch.setitem(config.MODELS, "dflash", config.Models(pair.target, drafter))
    config.drafter.cache_clear()
    case = Case(method="dflash", drafts=drafts, budget=2048, seqs=256)
    release = Release(config.facts, {place: kept.PLACES[place] for place in kept.PLACES if place.startswith("v2_")})
    found = rules_level.compare(case, release)
    made = type(kept.v2_drafter(config.build(case))).__name__
    config.drafter.cache_clear()

    assert ([], True) == (found, made != "DFlashSpeculator")
