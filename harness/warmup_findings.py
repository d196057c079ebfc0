"""Declared findings of the warmup level on 0.33.0: what differs, which rule or law breaks, who can meet it.

`harness.findings.Finding`s without a folder so far: a report of this level has no script that needs vLLM alone yet.
"""

from __future__ import annotations

from functools import partial

from harness.findings import Declared, Finding, Match

_Warmup = partial(Match, level="warmup")
_RECYCLED = ("sliding_window", "sliding_window_mla", "chunked_local_attention", "rswa", "mamba_align", "mamba_all")

WARMUP_FINDINGS: tuple[Finding, ...] = (
    Finding(
        name="warmup-without-dcp-factor",
        title="the warmup reserves by the rank's block size, not by the DCP-sharded column",
        releases="==0.33.0",
        law="W1, A62: a sharded group needs ceil(tokens / (block size x DCP)) columns; the warmup leaves the "
        "factor out, takes DCP times the blocks, therefore fewer requests or none, and can pass the end of the row.",
        match=(
            _Warmup(aspect="columns", rule="W1", signs=("more",), tags=("dcp",)),
            _Warmup(aspect="outcome", rule="W3", signs=("fewer requests",), tags=("dcp",)),
            _Warmup(aspect="outcome", rule="W4", signs=("skipped",), tags=("dcp",)),
            _Warmup(aspect="law", rule="rows", signs=("past the row",), tags=("dcp",)),
            _Warmup(aspect="law", rule="ids", signs=("outside the pool",), tags=("dcp",)),
        ),
        reference="none known",
        reachable="Decode context parallelism. Ordinary small warmups only reserve too much; a mixed warmup of "
        "thousands of tokens (4096 at block 16, DCP 4, max_model_len 8192) asks for 256 ids in a row of 128.",
    ),
    Finding(
        name="warmup-keeps-what-the-scheduler-nulls",
        title="the warmup keeps blocks in columns that the scheduler has nulled",
        releases="==0.33.0",
        law="W1: rows after a step are those of the scheduler. Windows, chunks, the R-SWA gap and old Mamba "
        "states are nulled by the scheduler within a warmup's length when blocks are so small; it counts by position.",
        match=(_Warmup(aspect="nulls", rule="W1", signs=("less",), kinds=_RECYCLED),),
        reference="none known",
        reachable="Windows or blocks shorter than a warmup's few tokens. Harmless but for the pool.",
    ),
    Finding(
        name="warmup-one-request-whatever-the-pool",
        title="the warmup's lower bound of one request ignores the pool",
        releases="==0.33.0",
        law="Ids lie inside the pool. With a pool that does not hold one warmup request, or just holds a recycling "
        "one, the warmup hands out ids at or past num_blocks.",
        match=(
            _Warmup(aspect="law", rule="ids", signs=("outside the pool",), tags=("undersized pool",)),
            _Warmup(aspect="law", rule="ids", signs=("outside the pool",), tags=("recycled",)),
        ),
        reference="none known",
        reachable="Start-up refuses a pool below one request of max_model_len; at exactly that size it takes a "
        "windowed or chunked model with tiny blocks.",
    ),
    Finding(
        name="warmup-past-max-model-len",
        title="the warmup schedules positions at and past max_model_len",
        releases="==0.33.0",
        law="No position at or past max_model_len is scheduled: its row and its position tables end there.",
        match=(
            _Warmup(aspect="law", rule="positions", signs=("past max_model_len",)),
            _Warmup(aspect="law", rule="rows", signs=("past the row, past max_model_len",)),
        ),
        reference="none known",
        reachable="max_model_len below about 4K + 5 tokens, as in tests: 32 with K = 7 writes position 33.",
    ),
    Finding(
        name="warmup-index-error-without-requests",
        title="the warmup indexes request 0 when the token budget holds none",
        releases="==0.33.0",
        law="W3: as many requests as fit, at least one. With T < K + 2 the count is 0 and a later step takes "
        "the first: IndexError at engine start.",
        match=(_Warmup(aspect="outcome", rule="W3", signs=("error:IndexError",), tags=("no request",)),),
        reference="none known",
        reachable="Budgets that the configuration accepts: eagle K 7 with T 8, n-gram K 16 with T 17.",
    ),
    Finding(
        name="warmup-leaves-connector-disabled",
        title="a warmup that fails half-way leaves the KV connector disabled",
        releases="==0.33.0",
        law="W5: the connector is enabled afterwards, whatever happens. warmup_kernels has no finally; the "
        "mixed entry point is right.",
        match=(_Warmup(aspect="law", rule="state", signs=("connector off",)),),
        reference="none known",
        reachable="Only where the exception is survived; a normal start dies of it.",
    ),
    Finding(
        name="warmup-mixed-ignores-active-cut",
        title="the mixed warmup ignores the cut of active sequences",
        releases="==0.33.0",
        law="B5: a drafter with a pass of its own needs lookahead rows a request within T; the mixed "
        "warmup always runs two.",
        match=(_Warmup(aspect="law", rule="budget", signs=("draft rows",), tags=("mixed",)),),
        reference="none known",
        reachable="DFlash or DSpark with lookahead < T < 2 x lookahead, as K 15 with T 31.",
    ),
)


def declared(release: str | None) -> Declared:
    """The findings of this level that cover a release."""
    return Declared(WARMUP_FINDINGS, release)
