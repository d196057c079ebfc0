"""The table of rules that upstream changed: value, first and last release that has it, and where upstream discusses it.

`oracle.releases` asks it what holds for a release. A row that the oracle must know of says what it decides. In the
values: K drafts, T and R the limits of a step, n tokens, b block size, s speculative blocks, L lookahead, M
max_model_len.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from oracle.charges import CHARGES


@frozen
class Rule:
    """One value of one rule. `until` None: still so in the newest confirmed release. `spec`: the rule's number."""

    name: str
    value: str
    since: str
    until: str | None
    spec: str
    reference: str
    decides: tuple[str, Any] | None = None
    """What the oracle does where this value is in force: a field of Choices and its value."""


def _charge_rules() -> tuple[Rule, ...]:
    """The charged drafting slots by method, from their own table."""
    return tuple(
        Rule(
            f"charged slots of {charge.row.title}",
            str(charge.policy),
            charge.since,
            charge.until,
            charge.row.budget_rule,
            charge.upstream,
        )
        for charge in CHARGES
    )


#: speculation: lookahead, what is read ahead, charged slots, budgets
_DRAFTING: tuple[Rule, ...] = (
    Rule("lookahead of eagle, eagle3, mtp", "K", "0.20.2", None, "D1", "in code"),
    Rule("lookahead of p-eagle", "K", "0.20.2", None, "D4", "in code"),
    Rule("lookahead of a draft model", "K", "0.20.2", None, "D3", "in code"),
    Rule("lookahead of dflash", "K", "0.20.2", "0.22.1", "D6", "the drafter crashed: #43733"),
    Rule("lookahead of dflash", "K + 1", "0.23.0", None, "D6", "#43733"),
    Rule("lookahead of dspark", "no such method", "0.20.2", "0.24.0", "D7", "in code"),
    Rule("lookahead of dspark", "K", "0.25.1", None, "D7", "in code"),
    Rule("lookahead of dspark, fill-in", "no such method", "0.20.2", "0.24.0", "D8", "in code"),
    Rule("lookahead of dspark, fill-in", "K", "0.25.1", "0.31.0", "D8", "#48909"),
    Rule("lookahead of dspark, fill-in", "K + 1", "0.32.0", None, "D8", "#48909"),
    Rule("lookahead of n-gram, suffix, custom", "0", "0.20.2", None, "D9", "in code"),
    Rule("where lookahead is kept", "Scheduler.__init__ alone", "0.20.2", "0.27.1", "D-L1", "#51438"),
    Rule("where lookahead is kept", "VllmConfig, for scheduler and warmup", "0.28.0", None, "D-L1", "#51438"),
    Rule("lookahead at admission", "0 on any first prefill", "0.20.2", "0.22.1", "S16", "#43733"),
    Rule("lookahead at admission", "0 for async loads of the EAGLE family", "0.23.0", "0.24.0", "S43", "#43733"),
    Rule("lookahead at admission", "0 for async loads, whatever the method", "0.25.1", None, "S43", "in code"),
    Rule("prefill lookahead of several mtp modules", "1", "0.20.2", "0.27.1", "D10", "#50062"),
    Rule("prefill lookahead of several mtp modules", "K", "0.28.0", None, "D10", "#50062"),
    Rule("hash lookahead", "none", "0.20.2", "0.32.0", "D11", "in code"),
    Rule("hash lookahead", "prefill lookahead, where it replaces the block drop", "0.33.0", None, "D11", "in code"),
    Rule("block drop", "the EAGLE family", "0.20.2", "0.29.0", "D11", "in code"),
    Rule("block drop", "the EAGLE family, unless switched off", "0.30.0", "0.32.0", "D11", "in code"),
    Rule("block drop", "the same, unless hashes look ahead", "0.33.0", None, "D11", "in code"),
    Rule("draft counts by batch size", "none", "0.20.2", "0.23.0", "S24", "in code"),
    Rule("draft counts by batch size", "ranges, carried on, cut to K", "0.24.0", None, "S24", "in code"),
    Rule("drafts skipped", "never", "0.20.2", "0.32.0", "S23", "in code"),
    Rule("drafts skipped", "in a step where no request can use them", "0.33.0", None, "S23", "in code"),
    Rule("medusa, mlp_speculator", "accepted, lookahead 0", "0.20.2", "0.32.0", "D9", "in code"),
    Rule("medusa, mlp_speculator", "no such method", "0.33.0", None, "D9", "in code"),
    *_charge_rules(),
    Rule("max_num_scheduled_tokens unset", "T - slots x R", "0.20.2", "0.27.1", "S1", "#51725"),
    Rule("max_num_scheduled_tokens unset", "T; each scheduled request is charged", "0.28.0", None, "S1", "#51725"),
    Rule("budget refused", "what leaves less than slots x R", "0.20.2", "0.27.1", "B6", "#51725"),
    Rule("budget refused", "T <= slots", "0.28.0", "0.32.0", "B6", "#51725"),
    Rule("budget refused", "T <= lookahead", "0.33.0", None, "B6", "in code"),
    Rule("requests of a draft pass", "no limit of its own", "0.20.2", "0.32.0", "S17", "in code"),
    Rule("requests of a draft pass", "T // lookahead for dflash and dspark", "0.33.0", None, "S17", "in code"),
)

#: the V2 warmup: what it reserves, and its steps
_WARMUP: tuple[Rule, ...] = (
    Rule("warmup blocks", "ceil(n / b), whatever the kind", "0.20.2", "0.24.0", "W1", "#47308"),
    Rule(
        "warmup blocks",
        "the same; cross-attention by encoder tokens, align ceil(n / b) + s",
        "0.25.1",
        "0.27.1",
        "W1",
        "#47308",
    ),
    Rule("warmup blocks", "ceil(min(n + L, M) / b) + s, as the scheduler", "0.28.0", "0.28.0", "W1", "#51438"),
    Rule("warmup blocks", "the same; uniform groups unwrapped, rings 1", "0.29.0", None, "W1", "in code"),
    Rule("mixed warmup", "none", "0.20.2", "0.23.0", "W4", "in code", ("mixed_warmup", False)),
    Rule("mixed warmup", "ceil(n / b), whatever the kind", "0.24.0", "0.27.1", "W4", "#51438", ("mixed_warmup", True)),
    Rule("mixed warmup", "blocks as the other warmup", "0.28.0", None, "W4", "#51438", ("mixed_warmup", True)),
    Rule("warmup prompt", "2 + K tokens", "0.20.2", "0.23.0", "W3", "#40746"),
    Rule("warmup prompt", "decode rows + 1", "0.24.0", None, "W3", "in code"),
    Rule("warmup steps", "a prompt and a decode", "0.20.2", "0.26.0", "W3", "#49903", ("decode_shapes", False)),
    Rule("warmup steps", "a prompt and up to five decodes", "0.27.1", None, "W3", "#49903", ("decode_shapes", True)),
    Rule("greedy warmup", "none", "0.20.2", "0.32.0", "W3", "in code", ("greedy_pass", False)),
    Rule("greedy warmup", "the same steps again, with drafts", "0.33.0", None, "W3", "in code", ("greedy_pass", True)),
    Rule("warmup bit mask", "a row a request", "0.20.2", "0.32.0", "W3", "in code", ("masks_each_token", False)),
    Rule("warmup bit mask", "a row a sampled token", "0.33.0", None, "W3", "in code", ("masks_each_token", True)),
    Rule(
        "drafts announced to the worker",
        "none in the warmup",
        "0.20.2",
        "0.31.0",
        "W3",
        "in code",
        ("announces", False),
    ),
    Rule("drafts announced to the worker", "K in the warmup too", "0.32.0", None, "W3", "in code", ("announces", True)),
    Rule("null block after the warmup", "as it was left", "0.20.2", "0.31.0", "W5", "in code", ("cleans_null", False)),
    Rule(
        "null block after the warmup",
        "zeroed, where blocks are",
        "0.32.0",
        None,
        "W5",
        "in code",
        ("cleans_null", True),
    ),
    Rule("writes redirected to the null block", "never", "0.20.2", "0.31.0", "W2", "in code", ("null_redirect", False)),
    Rule(
        "writes redirected to the null block",
        "in a warmup beside parked requests",
        "0.32.0",
        None,
        "W2",
        "in code",
        ("null_redirect", True),
    ),
    Rule("adaptive verification", "none", "0.20.2", "0.27.1", "W5", "in code", ("adaptive_verification", False)),
    Rule(
        "adaptive verification",
        "off in warmup_kernels",
        "0.28.0",
        None,
        "W5",
        "in code",
        ("adaptive_verification", True),
    ),
    Rule(
        "multimodal encoder alone",
        "warmed up like others",
        "0.20.2",
        "0.27.1",
        "W3",
        "in code",
        ("encoder_alone", False),
    ),
    Rule("multimodal encoder alone", "no warmup", "0.28.0", None, "W3", "in code", ("encoder_alone", True)),
)

RULES: tuple[Rule, ...] = (
    *_DRAFTING,
    *_WARMUP,
    Rule("slots needed", "min(computed + new + lookahead, max_model_len)", "0.20.2", None, "A23", "#10730"),
    Rule(
        "align mode columns",
        "ceil((computed + new) / b) + s, without lookahead or cap",
        "0.20.2",
        None,
        "A42",
        "in code",
    ),
    Rule("align mode, fewer columns than held", "assertion", "0.20.2", "0.22.1", "A45", "#39562"),
    Rule("align mode, fewer columns than held", "nothing new", "0.23.0", None, "A45", "#39562"),
    Rule("align mode checkpoint", "none", "0.20.2", "0.28.0", "A44", "in code", ("checkpoints", False)),
    Rule(
        "align mode checkpoint",
        "one more where a chunk saves an inner state; the form changed with each release",
        "0.29.0",
        "0.31.0",
        "A44",
        "in code",
        ("checkpoints", False),
    ),
    Rule(
        "align mode checkpoint",
        "one more where a chunk saves an inner state, at a multiple of the hit unit",
        "0.32.0",
        None,
        "A44",
        "in code",
        ("checkpoints", True),
    ),
    Rule(
        "removal",
        "computed tokens; of a Mamba group less its drafts",
        "0.20.2",
        "0.25.1",
        "A14",
        "in code",
        ("keeps_draft_states", True),
    ),
    Rule(
        "removal",
        "processed tokens: computed less in flight",
        "0.26.0",
        None,
        "A14",
        "in code",
        ("keeps_draft_states", False),
    ),
    Rule("R-SWA", "no such kind", "0.20.2", "0.24.0", "A36", "#46564", ("rswa", False)),
    Rule("R-SWA", "the gap between prompt and window is null", "0.25.1", None, "A36", "#46564", ("rswa", True)),
    Rule("circular buffer", "no such kind", "0.20.2", "0.28.0", "A38", "in code", ("rings", False)),
    Rule("circular buffer", "one block for life", "0.29.0", None, "A38", "in code", ("rings", True)),
    Rule("kpool tail", "no such kind", "0.20.2", "0.29.0", "A38", "in code", ("tail_rings", False)),
    Rule("kpool tail", "a ring of a kind of its own", "0.30.0", "0.31.0", "A38", "in code", ("tail_rings", True)),
    Rule("kpool tail", "a circular buffer", "0.32.0", None, "A38", "in code", ("tail_rings", False)),
    Rule("whole-sequence gate", "can_fit_full_sequence", "0.20.2", "0.20.2", "A12", "in code"),
    Rule("whole-sequence gate", "full_sequence_must_fit of allocate_slots", "0.22.1", None, "A12", "#40946"),
    Rule("window cap budget", "max_num_batched_tokens", "0.20.2", "0.25.1", "A32", "#40946", ("retained", False)),
    Rule("window cap budget", "max_in_flight_tokens", "0.26.0", "0.27.1", "A32", "in code", ("retained", False)),
    Rule(
        "window cap budget",
        "max_in_flight_tokens + extra_retained_tokens",
        "0.28.0",
        None,
        "A32",
        "in code",
        ("retained", True),
    ),
    Rule("reserved blocks", "none", "0.20.2", "0.22.1", "A16", "in code"),
    Rule("reserved blocks", "kept free by an async load for prefills in flight", "0.23.0", None, "A16", "in code"),
    Rule("watermark", "none", "0.20.2", "0.23.0", "A17", "in code"),
    Rule(
        "watermark",
        "int(watermark * num_blocks), for waiting requests while others run",
        "0.24.0",
        None,
        "A17",
        "in code",
    ),
    Rule("deferred free", "none", "0.20.2", "0.23.0", "A8", "in code"),
    Rule(
        "deferred free",
        "pop_blocks_for_free, given back reversed, leading nulls too",
        "0.24.0",
        "0.32.0",
        "A8",
        "in code",
        ("popped_whole", True),
    ),
    Rule("deferred free", "the same without leading nulls", "0.33.0", None, "A8", "in code", ("popped_whole", False)),
    Rule("DCP", "attention alone, in one group", "0.20.2", "0.25.1", "A62", "in code", ("sharded", "one")),
    Rule("DCP", "every group but Mamba is sharded", "0.26.0", "0.28.0", "A62", "in code", ("sharded", "all")),
    Rule("DCP", "full attention, MLA and R-SWA are sharded", "0.29.0", "0.30.0", "A62", "in code", ("sharded", "full")),
    Rule("DCP", "dcp_sharded of each group", "0.31.0", None, "A62", "in code", ("sharded", "each")),
    Rule("freed block, caching off", "to the tail of the queue", "0.20.2", "0.22.1", "A4", "in code"),
    Rule("freed block, caching off", "tail; dropped window blocks to the front", "0.23.0", "0.23.0", "A4", "in code"),
    Rule("freed block, caching off", "to the front", "0.24.0", "0.26.0", "A4", "in code", ("freed_to_front", True)),
    Rule("freed block, caching off", "to the tail", "0.27.1", "0.27.1", "A4", "in code", ("freed_to_front", False)),
    Rule("freed block, caching off", "to the front", "0.28.0", None, "A4", "in code", ("freed_to_front", True)),
    Rule("zero list", "full, MLA, hidden-state groups", "0.20.2", "0.27.1", "A60", "#35219", ("zeroed_exactly", True)),
    Rule(
        "zero list",
        "attention groups but rings, only if zeroing is needed",
        "0.28.0",
        None,
        "A60",
        "#35219",
        ("zeroed_exactly", False),
    ),
    Rule("zeroing is needed for", "Mamba layers", "0.20.2", "0.26.0", "A60", "#35219", ("zeroed_for_formats", False)),
    Rule(
        "zeroing is needed for",
        "Mamba layers, mixed formats",
        "0.27.1",
        None,
        "A60",
        "in code",
        ("zeroed_for_formats", True),
    ),
    Rule("blocks of an async load", "zeroed like others", "0.20.2", "0.31.0", "A60", "in code", ("load_zeroing", True)),
    Rule(
        "blocks of an async load",
        "left out for skip_zeroing_group_ids",
        "0.32.0",
        None,
        "A60",
        "in code",
        ("load_zeroing", False),
    ),
    Rule("Mamba mode all", "a configuration", "0.20.2", "0.31.0", "A41", "in code"),
    Rule("Mamba mode all", "only the manager still knows the word", "0.32.0", None, "A41", "in code"),
)
