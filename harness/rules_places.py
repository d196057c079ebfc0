"""The further places that keep a fact of the table, and what each must hold. docs/facts-kept-twice.md lists them."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen
from packaging.version import Version

from oracle.budget import Case, predict
from oracle.methods import NO_PASS
from oracle.rounding import ceil_div


@frozen
class Kept:
    """A fact that is kept once more. `expected`: of the table; `least`: the place may hold more than that, not less.

    since: the first release that has the place.
    """

    name: str
    rule: str
    expected: Callable[[Case], int]
    methods: Callable[[Case], bool]
    least: bool = False
    since: str = "0.20.2"

    def exists(self, release: str) -> bool:
        """Whether a release has the place."""
        return Version(self.since) <= Version(release.partition("+")[0])


def _v2(*names: str) -> Callable[[Case], bool]:
    return lambda case: case.method in names and not case.parallel and case.row.runner == "V2"


def _v1_drafter(case: Case) -> bool:
    return case.method in ("eagle", "eagle3", "mtp", "mtp_modules", "draft_model", "dflash")


def _drafter(case: Case) -> bool:
    return case.method not in ("none", "diffusion")


def own_rows(case: Case) -> int:
    """Rows of one request in a draft pass of its own; 0 where there is none."""
    return case.row.own_rows.of(case.drafts)


def _v2_model(case: Case) -> bool:
    return case.row.rows_in != NO_PASS and not case.parallel and case.row.runner == "V2"


def _states(case: Case) -> int:
    """States of a Mamba layer beside the first: one behind each draft."""
    return case.drafts if case.method != "diffusion" or case.choices.diffusion_states else 0


def _step_slots(case: Case) -> int:
    """Slots (tokens) of a decode with drafts: its rows, and what the drafter writes past them."""
    return case.row.verified_rows(case.drafts) + case.row.reserved.of(case.drafts)


def _loaded_blocks(case: Case) -> int:
    """Blocks of 16 that a prompt of 17 tokens needs to be loaded and go on."""
    leaves = case.choices.load_reserve
    if leaves == "one group":
        return ceil_div(17, 16) + ceil_div(_step_slots(case), 16)
    return ceil_div(17 + (_step_slots(case) if leaves == "each group" else 0), 16)


def _limit(case: Case) -> int:
    """Requests that may run."""
    facts = predict(case)
    return case.seqs if facts.active is None else facts.active


def _running(case: Case) -> int:
    """Requests of the largest batch that the release schedules for this case."""
    facts = predict(case)
    each = 1 if case.choices.charged_up_front else 1 + facts.charged
    return min(_limit(case), (facts.scheduled or case.budget) // each)


def _drops(case: Case) -> int:
    """1 where a hit gives up its last block: hashes that look ahead prove it whole."""
    facts = predict(case)
    return int(facts.block_drop and not facts.hash_lookahead)


def _pass_rows(case: Case) -> int:
    """Rows of the widest pass: all of T that is left after the charge, with the rows added; or the drafter's own."""
    running = _running(case)
    added = case.row.added_rows.of(case.drafts)
    charge = case.row.charged.of(case.drafts)
    tokens = predict(case).scheduled if case.choices.charged_up_front else case.budget - charge * running
    return max((tokens or case.budget) + added * running, own_rows(case) * running)


KEPT: tuple[Kept, ...] = (
    # drafts that would pass max_model_len cannot be verified: a drafter without KV stops K tokens before it
    Kept(
        "v1_room",
        "D-L2",
        lambda case: max(case.row.reserved.of(case.drafts), case.drafts),
        lambda case: _drafter(case) and not case.method.startswith("dspark"),
        since="0.23.0",
    ),
    Kept(
        "backend_query_rows",
        "S21",
        lambda case: case.row.verified_rows(case.drafts) + case.row.added_rows.of(case.drafts) * case.row.parallel,
        _drafter,
        least=True,
        since="0.31.0",
    ),
    Kept("mamba_blocks", "A41", _states, lambda case: True),
    Kept("retained", "D10", lambda case: case.row.rewritten.of(case.drafts), _drafter, since="0.28.0"),
    Kept("nixl_back_off", "D10", lambda case: case.row.rewritten.of(case.drafts), _drafter, since="0.31.0"),
    Kept(
        "v2_rewritten",
        "D10",
        lambda case: case.row.rewritten.of(case.drafts),
        lambda c: _v2("mtp_modules")(c) and c.drafts > 1,
        since="0.29.0",
    ),
    Kept("v2_own_rows", "B5", own_rows, _v2("dflash", "dspark", "dspark_fill_in"), since="0.24.0"),
    Kept("v2_pass_rows", "B-L1", _pass_rows, _v2_model, least=True, since="0.23.0"),
    Kept("v2_added_rows", "B3", lambda case: case.row.added_rows.of(case.drafts), _v2("draft_model"), since="0.31.0"),
    Kept("v2_expanded_rows", "B-L1", _pass_rows, _v2("draft_model"), least=True, since="0.31.0"),
    Kept("v1_added_rows", "B2", lambda case: case.row.added_rows.of(case.drafts), _v1_drafter),
    Kept("v1_pass_rows", "B-L1", _pass_rows, _v1_drafter, least=True),
    Kept("warmup_blocks", "W1", lambda case: 1 + case.row.reserved.of(case.drafts), lambda case: True, since="0.28.0"),
    Kept(
        "dspark_index_width",
        "D7",
        lambda case: 64 - case.drafts % 64 + own_rows(case),
        _v2("dspark"),
        least=True,
        since="0.28.0",
    ),
    # the states between are replayed from one checkpoint: none is kept
    Kept("mamba_blocks_replayed", "A41", lambda case: 0, lambda case: True, since="0.29.0"),
    Kept("dispatcher_query_rows", "S21", lambda case: case.row.verified_rows(case.drafts), lambda case: True),
    Kept(
        "v1_query_rows",
        "B5",
        lambda case: own_rows(case) * _running(case),
        lambda case: case.method == "dflash",
        least=True,
    ),
    Kept(
        "v2_context_rows",
        "B5",
        lambda case: min(2 * case.row.verified_rows(case.drafts), case.budget),
        _v2("dflash", "dspark", "dspark_fill_in"),
        since="0.31.0",
    ),
    Kept("scheduler_lookahead", "S16", lambda case: case.row.reserved.of(case.drafts), _drafter),
    Kept(
        "scheduler_prefill_lookahead",
        "D10",
        lambda case: case.row.prefill_lookahead.of(case.drafts),
        _drafter,
        since="0.28.0",
    ),
    Kept("scheduler_block_drop", "D11", _drops, _drafter),
    # a pass of the encoder, and the outputs that are kept, have as many rows as a pass of the decoder
    Kept("encoder_budget", "S52", lambda case: case.budget, lambda case: True),
    Kept("encoder_cache_size", "S52", lambda case: case.budget, lambda case: True),
    Kept("scheduler_running", "B5", _limit, _drafter, since="0.31.0"),
    # S44: a load must leave room for the step in which the loaded request decodes with drafts for the first time
    Kept(
        "scheduler_step_blocks",
        "S44",
        lambda case: ceil_div(_step_slots(case), 16),
        _drafter,
        since="0.31.0",
    ),
    Kept(
        "scheduler_remaining_blocks",
        "S44",
        _loaded_blocks,
        _drafter,
        since="0.23.0",
    ),
    # the state before the step, and one behind each draft
    Kept("mamba_state_columns", "A41", lambda case: 1 + case.drafts, _drafter),
    Kept("gdn_state_columns", "A41", lambda case: 1 + case.drafts, _drafter),
    Kept("manager_rewritten", "D10", lambda case: case.row.rewritten.of(case.drafts), _drafter, since="0.28.0"),
)


def kept_at(name: str, release: str) -> bool:
    """Whether a release has the place of that name."""
    return any(kept.name == name and kept.exists(release) for kept in KEPT)


NAMES = frozenset(kept.name for kept in KEPT)
