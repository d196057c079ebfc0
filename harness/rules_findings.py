"""Declared findings of the rules level on 0.33.0: what differs, which law or promise breaks, who can meet it.

They are `harness.findings.Finding`s without a folder, for a case of this level is a sentence, not a trace: the smallest
case is in the difference itself.
"""

from __future__ import annotations

from harness.findings import Declared, Finding, Match

_FLAGGED = tuple(
    f"{name} parallel" for name in ("ngram", "ngram_gpu", "suffix", "custom_class", "extract_hidden_states")
)

RULE_FINDINGS: tuple[Finding, ...] = (
    Finding(
        name="parallel-flag-charges-without-drafter",
        title="parallel_drafting charges K - 1 rows a request to methods that have no draft model",
        releases="==0.33.0",
        law="B1: n-gram, suffix, custom and extract-hidden-states add no row to the target's batch, so none may "
        "be charged. SpeculativeConfig.max_num_new_slots_for_drafting looks at the flag before the method. "
        "The charge then exceeds num_lookahead_tokens (0), against the comment at the refusal in VllmConfig "
        "that the lookahead is at least every method's draft slots: with T <= K - 1 the configuration is "
        "accepted and nothing is ever scheduled.",
        match=(Match(level="rules", aspect="charged", rule="B1", signs=("more",), kinds=_FLAGGED),),
        reference="none known",
        reachable="Whoever leaves parallel_drafting on while changing the method; the flag's text says that only "
        "EAGLE and draft models take it, nothing refuses it, and V1 is taken instead of V2. It costs (K - "
        "1) x requests of budget.",
    ),
    Finding(
        name="resumed-decode-never-fits",
        title="an accepted token budget in which a resumed decode is never scheduled",
        releases="==0.33.0",
        law="Progress: a request that could run alone must not wait for ever. A newcomer with one token left is "
        "padded to 1 + K rows (S21) and, where these exceed the room, admission ends instead of leaving the "
        "padding out. The refusal asks for T > lookahead only; the padded request needs T >= 1 + K + "
        "charged slots (draft model K + 2, PARD 2K + 1, P-EAGLE 2K, n-gram, suffix and extract-hidden- "
        "states K + 1) and max_num_scheduled_tokens >= 1 + K.",
        match=(Match(level="rules", aspect="law", rule="progress"),),
        reference="none known",
        reachable="A budget below 2K + 1 tokens (tests, tiny devices), or max_num_scheduled_tokens set below 1 + K; "
        "with prefix caching or a connector, a prompt that is cached but for one token, alone in the "
        "engine.",
    ),
    Finding(
        name="diffusion-decode-counted-with-a-bonus-token",
        title="uniform_decode_query_len is one too long for diffusion models",
        releases="==0.33.0",
        law="S21: a diffusion step verifies its canvas and samples no token beside it, so a decode has K rows; "
        "the V2 runner uses K (num_new_sampled_tokens_per_step 0), VllmConfig.uniform_decode_query_len says "
        "1 + K.",
        match=(Match(level="rules", aspect="query_rows", rule="S21", signs=("more",), kinds=("diffusion",)),),
        reference="none known",
        reachable="Every diffusion model; the property only sizes CUDA-graph captures, so it costs captured sizes "
        "that no step uses, not correctness.",
    ),
    Finding(
        name="v1-dflash-says-k-new-slots",
        title="the V1 DFlash proposer still says that it adds K rows a request",
        releases="==0.33.0",
        law="B5: DFlash drafts in a pass of its own and adds no row. net_num_new_slots_per_request of "
        "SpecDecodeBaseProposer is K for DFlash, max_num_new_slots_for_drafting is 0.",
        match=(Match(level="rules", aspect="v1_added_rows", rule="B2", signs=("more",), kinds=("dflash",)),),
        reference="#51256",
        reachable="Nobody today: DFlashProposer overrides every use of the number but a kernel's warm-up key.",
    ),
)


def declared(release: str | None) -> Declared:
    """The findings of this level that cover a release."""
    return Declared(RULE_FINDINGS, release)
