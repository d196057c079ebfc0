"""The table of rules that upstream changed: value, first and last release that has it, and where upstream discusses it.

`oracle.releases` asks it what holds for a release. A row that the oracle must know of says what it decides. In the
values: K drafts, T and R the limits of a step, n tokens, b block size, s speculative blocks, L lookahead, M
max_model_len.
"""

from __future__ import annotations

from oracle.changed.allocation import ALLOCATION
from oracle.changed.caching import CACHING
from oracle.changed.drafting import DRAFTING
from oracle.changed.rule import Rule
from oracle.changed.scheduling import SCHEDULING
from oracle.changed.warmup import WARMUP

__all__ = ["RULES", "Rule"]

RULES: tuple[Rule, ...] = (*DRAFTING, *SCHEDULING, *WARMUP, *CACHING, *ALLOCATION)
