"""Did the walk meet what matters? Counters of the rules level, a minimum each; a miss makes a run inconclusive."""

from __future__ import annotations

from collections import Counter

from harness.rules_grid import ALL_DRAFTS, MANY, methods_at
from harness.rules_places import KEPT, own_rows
from oracle.budget import ACTIVE, LONGEST, REFUSALS, THRESHOLD, Case, Facts
from oracle.methods import METHODS, TARGET_PASS
from oracle.released import rows_of
from oracle.releases import NEWEST, choices_of

#: crossings of the grid and how often a run must meet each
MINIMA: dict[str, int] = {
    **{f"method {row.title}": 5 for row in METHODS.values()},
    **{f"K {drafts}": 50 for drafts in ALL_DRAFTS},
    "parallel": 50,
    "not parallel": 50,
    **{f"R {seqs}": 50 for seqs in (1, 2, 7, MANY)},
    **{f"refused {why}": 5 for why in REFUSALS},
    "T = lookahead": 5,
    "T = lookahead + 1": 5,
    "active clamped": 5,
    "active kept": 5,
    "own pass filled exactly": 5,
    "hash lookahead": 5,
    "hash lookahead of several modules": 5,
    "hash off by connector": 5,
    "hash off by caching": 5,
    "hash off by switch": 5,
    "drop off by switch": 5,
    "overlap on V1": 5,
    "overlap on V2": 5,
    "rows added and charged": 5,
    "T = padded decode": 5,
    "T = padded decode - 1": 5,
    "G given": 5,
    "A given": 5,
    "threshold = decode rows": 5,
    "threshold = decode rows - 1": 5,
    "threshold = max_model_len": 5,
    **{f"place {kept.name}": 2 for kept in KEPT},
    "draft counts": 5,
}


def minima_of(release: str | None) -> dict[str, int]:
    """The minima of a release: without what it does not have."""
    known = release or NEWEST
    choices, here = choices_of(known), methods_at(known)
    rows = rows_of(known)
    absent = {f"method {row.title}" for key, row in METHODS.items() if key not in here}
    absent |= {f"place {kept.name}" for kept in KEPT if not kept.exists(known)}
    for has, names in (
        (choices.hash_lookahead, [name for name in MINIMA if name.startswith("hash ")]),
        (choices.drop_option, ["drop off by switch"]),
        (choices.own_pass_limited, ["active clamped"]),
        (choices.active_option, [f"refused {ACTIVE}", "A given"]),
        (choices.threshold_bounded, [f"refused {THRESHOLD}"]),
        (choices.draft_counts, ["draft counts"]),
        (any(row.runner == "V2" for row in rows.values()), ["overlap on V2"]),
    ):
        absent |= set() if has else set(names)
    return {name: least for name, least in MINIMA.items() if name not in absent}


def meet(case: Case, expected: Facts, reach: Counter[str]) -> None:
    """Count the crossings of one case."""
    row = case.row
    reach[f"method {row.title}"] += 1
    reach[f"K {case.drafts}"] += 1
    reach[f"R {case.seqs}"] += 1
    reach["parallel" if case.parallel else "not parallel"] += 1
    reach["G given"] += case.scheduled is not None
    reach["A given"] += case.active is not None
    if case.threshold is not None:
        reach["threshold = decode rows"] += case.threshold == row.verified_rows(case.drafts)
        reach["threshold = decode rows - 1"] += case.threshold == row.verified_rows(case.drafts) - 1
        reach["threshold = max_model_len"] += case.threshold == LONGEST
    if row.pads:
        padded = row.verified_rows(case.drafts) + row.charged.of(case.drafts)
        reach["T = padded decode"] += case.budget == padded
        reach["T = padded decode - 1"] += case.budget == padded - 1
    lookahead = row.reserved.of(case.drafts)
    if lookahead:
        reach["T = lookahead"] += case.budget == lookahead
        reach["T = lookahead + 1"] += case.budget == lookahead + 1
    if expected.refused:
        reach[f"refused {expected.refused}"] += 1
        return
    own = own_rows(case)
    if own:
        reach["active clamped"] += expected.active != case.active
        reach["active kept"] += expected.active == case.active
        reach["own pass filled exactly"] += own * (expected.active or case.seqs) == case.budget
    if row.block_drop:
        reach["hash lookahead"] += expected.hash_lookahead == 1
        reach["hash lookahead of several modules"] += expected.hash_lookahead > 1
        reach["hash off by connector"] += case.connector and case.caching
        reach["hash off by caching"] += not case.caching
        reach["hash off by switch"] += case.hash_disabled
        reach["drop off by switch"] += case.drop_disabled
    if case.overlap:
        reach[f"overlap on {expected.runner}"] += 1
    if row.rows_in == TARGET_PASS and expected.charged:
        reach["rows added and charged"] += 1
