"""The speculative methods of 0.33.0: what a drafter writes, what it reads, and so what must be kept for it.

One row a method (rules D1 to D11 and B1 to B5). Tokens and rows are counts for one request in one step, as functions of
K, the draft tokens a step. The reasons:

- The target writes positions up to n - 1. The drafter runs in the same step, before anybody can hand out a block, so
  each position that it writes past n - 1 (`needed`) must lie in a slot that the request already holds (`reserved`).
- Rows that a drafter adds to the target's batch (`added_rows`) are in the worker's buffers of T rows beside the
  target's, so the scheduler charges them (`charged`). A pass of its own (`own_rows`) has the same T rows to itself.
- A drafter that reads the target's hidden states needs the token after each position (`prefill_lookahead`): at the end
  of a chunk that is a prompt token which the target has not been given yet.
"""

from __future__ import annotations

from attrs import evolve, field, frozen

from oracle.breakdown import Breakdown, Formula
from oracle.errors import SettingError
from oracle.groups import at_least, one_of


def _evaluate(terms: dict[str, int]) -> int:
    return max(0, terms["per_draft"] * terms["K"] + terms["more"])


@frozen
class Count:
    """A count that is linear in K: `per_draft` x K + `more`, never below 0."""

    per_draft: int = 0
    more: int = 0

    def of(self, drafts: int) -> int:
        """The count for K = `drafts`; 0 where nothing is drafted."""
        return max(0, self.per_draft * drafts + self.more) if drafts else 0

    def because(self, what: str, drafts: int) -> Breakdown:
        """The same with its terms, for a difference to name the one that differs."""
        text = f"per_draft * K + more [{self}]"
        return Formula(what, text, _evaluate).of(per_draft=self.per_draft, K=drafts, more=self.more)

    def __str__(self) -> str:
        if not self.per_draft:
            return str(self.more)
        return "K" if not self.more else f"K {'+' if self.more > 0 else '-'} {abs(self.more)}"


NONE = Count()
ONE = Count(0, 1)
K = Count(1)
K_LESS_1 = Count(1, -1)
K_MORE_1 = Count(1, 1)

#: where a drafter's rows are: no model runs, in the target's batch, in a pass of its own
NO_PASS, TARGET_PASS, OWN_PASS = "none", "target", "own"


@frozen(kw_only=True)
class Method:
    """One speculative method.

    name, parallel: our key. word: the release's word for `SpeculativeConfig.method`. rule: the row of the rule tables.
    runner: the model runner that 0.33.0 takes ("V2", or "V1" where V2 lacks the method). overlaps: async scheduling is
    accepted. pads: a resumed decode of one token is padded to 1 + K rows (S21). sampled: rows of a decode step that are
    no drafts. rewritten: computed tokens that a later step may write again (D10). modules: the draft tokens one pass
    over all modules makes; K must not exceed it unless it is a multiple.
    """

    name: str
    why: str
    rule: str
    budget_rule: str
    parallel: bool = False
    word: str = ""
    needed: Count = NONE
    reserved: Count = NONE
    prefill_lookahead: Count = NONE
    rewritten: Count = NONE
    charged: Count = NONE
    added_rows: Count = NONE
    own_rows: Count = NONE
    rows_in: str = field(default=NO_PASS, validator=one_of(NO_PASS, TARGET_PASS, OWN_PASS))
    eagle: bool = False
    block_drop: bool = False
    runner: str = field(default="V2", validator=one_of("V1", "V2"))
    overlaps: bool = True
    pads: bool = True
    sampled: int = 1
    modules: int = field(default=1, validator=at_least(1))

    @property
    def title(self) -> str:
        """The method as the reports and the reach table name it."""
        return f"{self.name} parallel" if self.parallel else self.name

    @property
    def release_word(self) -> str:
        """What `SpeculativeConfig.method` holds."""
        return self.word or self.name

    def furthest(self, drafts: int, rejected: int = 0) -> int:
        """Positions past n - 1 that the drafter writes when `rejected` drafts were rejected (0: none past it).

        It starts from v = n - 1 - rejected, the last valid position, so each rejection takes one off.
        """
        return max(0, self.needed.of(drafts) - rejected)

    def verified_rows(self, drafts: int) -> int:
        """Query rows of one request in a decode step: the drafts and the token sampled before."""
        return self.sampled + drafts


# ----------------------------------------------------------------------------------------------------- the table

_NGRAM = Method(name="ngram", why="drafts come from the prompt, no KV is written", rule="D9", budget_rule="B1")
_SUFFIX = evolve(_NGRAM, name="suffix", why="drafts come from a suffix tree", runner="V1", overlaps=False)
_CUSTOM = evolve(_SUFFIX, name="custom_class", why="a proposer of the user's, without KV")
_HIDDEN = evolve(
    _NGRAM, name="extract_hidden_states", why="keeps hidden states at the target's own positions, its draft is no draft"
)
_EAGLE = Method(
    name="eagle",
    why="first pass at the target's own positions, then K - 1 single steps at v + 1 .. v + K - 1",
    rule="D1",
    budget_rule="B1",
    eagle=True,
    block_drop=True,
    needed=K_LESS_1,
    reserved=K,
    prefill_lookahead=ONE,
    rows_in=TARGET_PASS,
)
_MODULES = evolve(
    _EAGLE,
    name="mtp_modules",
    word="mtp",
    why="each module writes its own cache at the target's positions, module i reads i tokens ahead",
    rule="D10",
    needed=NONE,
    prefill_lookahead=K,
    rewritten=K_LESS_1,
    modules=3,
)
_P_EAGLE = evolve(
    _EAGLE,
    name="eagle3",
    parallel=True,
    why="P-EAGLE: K - 1 masked queries after the reused one",
    rule="D4",
    budget_rule="B2",
    charged=K_LESS_1,
    added_rows=K_LESS_1,
    runner="V1",
)
_DRAFT_MODEL = Method(
    name="draft_model",
    why="the expanded pass keeps one unsliced token, at n; then K - 1 single steps at v + 2 .. v + K",
    rule="D3",
    budget_rule="B3",
    needed=K,
    reserved=K,
    charged=ONE,
    added_rows=ONE,
    rows_in=TARGET_PASS,
)
_DFLASH = Method(
    name="dflash",
    why="a query for the last sampled token and K masked ones, in a pass of their own: v + 1 .. v + 1 + K",
    rule="D6",
    budget_rule="B5",
    eagle=True,
    needed=K_MORE_1,
    reserved=K_MORE_1,
    prefill_lookahead=ONE,
    own_rows=K_MORE_1,
    rows_in=OWN_PASS,
)


def _flagged(row: Method) -> Method:
    """The same method with the flag of parallel drafting: nothing to draft in parallel, and the V1 runner takes it."""
    why = "no draft model: nothing is drafted in parallel, whatever the flag says"
    return evolve(row, parallel=True, why=why, runner="V1", overlaps=row.overlaps and row.name != "ngram")


_ROWS = (
    Method(name="none", why="no drafter", rule="D9", budget_rule="B1", pads=False),
    _NGRAM,
    evolve(_NGRAM, name="ngram_gpu"),
    _SUFFIX,
    _CUSTOM,
    _HIDDEN,
    _flagged(_NGRAM),
    _flagged(evolve(_NGRAM, name="ngram_gpu")),
    _flagged(_SUFFIX),
    _flagged(_CUSTOM),
    _flagged(_HIDDEN),
    Method(
        name="diffusion",
        why="the canvas of K tokens is the step's own: nothing is written past it, nothing is sampled beside it",
        rule="D9",
        budget_rule="B1",
        pads=False,
        sampled=0,
    ),
    _EAGLE,
    evolve(_EAGLE, name="eagle3"),
    evolve(_EAGLE, name="mtp"),
    evolve(
        _EAGLE,
        name="mtp_constant",
        word="mtp",
        why="every draft at position v: nothing past it",
        rule="D2",
        needed=NONE,
    ),
    _MODULES,
    evolve(_P_EAGLE, name="eagle"),
    _P_EAGLE,
    evolve(_P_EAGLE, name="mtp"),
    evolve(_P_EAGLE, name="mtp_modules", word="mtp", prefill_lookahead=K, rewritten=K_LESS_1, modules=3),
    _DRAFT_MODEL,
    evolve(
        _DRAFT_MODEL,
        parallel=True,
        why="PARD: K queries, none reused",
        rule="D5",
        budget_rule="B4",
        charged=K,
        added_rows=K,
        runner="V1",
    ),
    _DFLASH,
    evolve(
        _DFLASH,
        name="dspark",
        why="K queries in a pass of their own, the anchor is the first prediction: v + 1 .. v + K",
        rule="D7",
        needed=K,
        reserved=K,
        own_rows=K,
    ),
    evolve(_DFLASH, name="dspark_fill_in", word="dspark", why=f"as dflash: {_DFLASH.why}", rule="D8"),
)

METHODS: dict[tuple[str, bool], Method] = {(row.name, row.parallel): row for row in _ROWS}

#: what 0.33.0 takes for `SpeculativeConfig.method`, beside the names of model families that it replaces with mtp
#: (each with its first release of those in the tables)
WORDS = tuple(sorted({row.release_word for row in _ROWS} - {"none", "diffusion"}))
MTP_FAMILIES = {
    "bailing_hybrid_mtp": "0.25.1",
    "bailing_hybrid_v3_mtp": "0.28.0",
    "deepseek_mtp": "0.20.2",
    "dots3_note_mtp": "0.28.0",
    "ernie_mtp": "0.20.2",
    "exaone4_5_mtp": "0.20.2",
    "exaone_moe_mtp": "0.20.2",
    "gemma4_mtp": "0.22.1",
    "glm4_moe_mtp": "0.20.2",
    "glm4_moe_lite_mtp": "0.20.2",
    "glm5_next_mtp": "0.30.0",
    "glm_ocr_mtp": "0.20.2",
    "hy_v3_mtp": "0.20.2",
    "hy_v4_mtp": "0.29.0",
    "inkling_mtp": "0.26.0",
    "kimi_k3_mtp": "0.27.1",
    "longcat_flash_mtp": "0.20.2",
    "mimo_mtp": "0.20.2",
    "mimo_v2_mtp": "0.22.1",
    "minimax_m3_mtp": "0.24.0",
    "nemotron_h_mtp": "0.20.2",
    "pangu_ultra_moe_mtp": "0.20.2",
    "qwen3_5_mtp": "0.20.2",
    "qwen3_next_mtp": "0.20.2",
    "qwen4_exp_mtp": "0.29.0",
    "step3p5_mtp": "0.20.2",
    "step5_mtp": "0.33.0",
}
#: words that were taken up to a release
PAST_WORDS = {"medusa": "0.32.0", "mlp_speculator": "0.32.0"}

#: drafting in parallel is what these do: the release sets the flag itself
ALWAYS_PARALLEL = ("dflash", "dspark", "dspark_fill_in")

#: methods whose drafter writes KV past the target's range
WRITERS = tuple(sorted(key for key, row in METHODS.items() if row.reserved != NONE))


def method(name: str, parallel: bool = False) -> Method:
    """The row of the table; SettingError for a method that the release does not have."""
    found = METHODS.get((name, parallel and name not in ALWAYS_PARALLEL))
    if found is None:
        names = ", ".join(sorted({key[0] for key in METHODS}))
        how = " with parallel drafting" if parallel else ""
        raise SettingError(f"no speculative method {name!r}{how}; known: {names}")
    return found


def lookahead_tokens(name: str, parallel: bool, drafts: int) -> int:
    """`num_lookahead_tokens` (tokens) of a method with `drafts` (K) draft tokens a step."""
    return method(name, parallel).reserved.of(drafts)


#: methods whose V1 drafters take another K at each step; without that the V1 runner ignores draft counts (S24)
COUNTS_ON_V1 = frozenset(("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"))


def takes_counts(row: Method) -> bool:
    """Whether the number of drafts may follow the batch size."""
    return row.runner == "V2" or row.release_word in COUNTS_ON_V1


def draft_counts(ranges: tuple[tuple[int, int, int], ...], drafts: int, max_num_seqs: int) -> tuple[int, ...]:
    """Dynamic draft counts: K of the next drafts for 1 .. `max_num_seqs` scheduled requests (S24).

    ranges: (first, last, K), inclusive. A gap and what lies past the last range keep the count before; no count exceeds
    `drafts`, so what is reserved for `drafts` is enough for each of them. SettingError for ranges that overlap, or that
    leave a batch of one without a count.
    """
    if not ranges:
        raise SettingError("draft counts need at least one range, got none")
    order = sorted(ranges)
    last = 0
    for first, end, count in order:
        if first < 1 or end < first or count < 0:
            raise SettingError(
                f"a range of draft counts is (first >= 1, last >= first, count >= 0), got {first, end, count}"
            )
        if first <= last:
            raise SettingError(f"ranges of draft counts must not overlap, got {first} after {last}")
        last = end
    if order[0][0] != 1:
        raise SettingError(f"the first range of draft counts must start at 1, got {order[0][0]}")
    counts = []
    for batch in range(1, max_num_seqs + 1):
        before = [count for first, _, count in order if first <= batch]
        counts.append(min(drafts, before[-1]))
    return tuple(counts)


# ------------------------------------------------------------------------------------------------------ the laws


def unreserved(row: Method, drafts: int, rejected: int = 0) -> int:
    """Law D-L1: positions that the drafter writes without a slot reserved (must be 0)."""
    return max(0, row.furthest(drafts, rejected) - row.reserved.of(drafts))


def uncharged(row: Method, drafts: int) -> int:
    """Law B-L1, target's batch: rows that the drafter adds to it without being charged (must be 0)."""
    return max(0, row.added_rows.of(drafts) - row.charged.of(drafts))
