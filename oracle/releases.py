"""Rules that upstream changed, by release: value, first and last release that has it, and where upstream discusses it.

An upgrade then gives differences that a row here explains. This version of slotcheck specifies one release in full
(`CONFIRMED`); the rows before it say what changed on the way, so that a reader of an older release knows where to look.
"""

from __future__ import annotations

from attrs import frozen

#: releases that the oracle was compared with, rule by rule
CONFIRMED = ("0.33.0",)


@frozen
class Rule:
    """One value of one rule. `until` None: still so in the newest confirmed release. `spec`: the rule's number."""

    name: str
    value: str
    since: str
    until: str | None
    spec: str
    reference: str


RULES: tuple[Rule, ...] = (
    Rule("lookahead of dflash", "K", "0.20.2", "0.22.1", "D6", "the drafter crashed: #43733"),
    Rule("lookahead of dflash", "K + 1", "0.23.0", None, "D6", "#43733"),
    Rule("lookahead of dspark", "K", "0.25.1", None, "D7", "first release that has the method"),
    Rule("lookahead of dspark, fill-in", "K", "0.25.1", "0.31.0", "D8", "#48909"),
    Rule("lookahead of dspark, fill-in", "K + 1", "0.32.0", None, "D8", "#48909"),
    Rule("lookahead at admission", "0 on any first prefill", "0.20.2", "0.22.1", "S16", "#43733"),
    Rule("lookahead at admission", "0 for async loads with a drafter, else all", "0.23.0", None, "S43", "#43733"),
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
    Rule("align mode checkpoint", "none", "0.20.2", "0.28.0", "A44", "in code"),
    Rule("align mode checkpoint", "one more where a chunk saves an inner state", "0.29.0", None, "A44", "in code"),
    Rule("removal", "computed tokens", "0.20.2", "0.25.1", "A14", "in code"),
    Rule("removal", "processed tokens: computed less in flight", "0.26.0", None, "A14", "in code"),
    Rule("R-SWA", "no such kind", "0.20.2", "0.24.0", "A36", "#46564"),
    Rule("R-SWA", "the gap between prompt and window is null", "0.25.1", None, "A36", "#46564"),
    Rule("circular buffer", "no such kind", "0.20.2", "0.28.0", "A38", "in code"),
    Rule("circular buffer", "one block for life", "0.29.0", None, "A38", "in code"),
    Rule("whole-sequence gate", "can_fit_full_sequence", "0.20.2", "0.20.2", "A12", "in code"),
    Rule("whole-sequence gate", "full_sequence_must_fit of allocate_slots", "0.22.1", None, "A12", "#40946"),
    Rule("window cap budget", "max_num_batched_tokens", "0.20.2", "0.25.1", "A32", "#40946"),
    Rule("window cap budget", "max_in_flight_tokens", "0.26.0", "0.27.1", "A32", "in code"),
    Rule("window cap budget", "max_in_flight_tokens + extra_retained_tokens", "0.28.0", None, "A32", "in code"),
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
    Rule("deferred free", "pop_blocks_for_free, given back reversed", "0.24.0", None, "A8", "in code"),
    Rule("freed block, caching off", "to the tail of the queue", "0.20.2", "0.22.1", "A4", "in code"),
    Rule("freed block, caching off", "tail; dropped window blocks to the front", "0.23.0", "0.23.0", "A4", "in code"),
    Rule("freed block, caching off", "to the front", "0.24.0", "0.26.0", "A4", "in code"),
    Rule("freed block, caching off", "to the tail", "0.27.1", "0.27.1", "A4", "in code"),
    Rule("freed block, caching off", "to the front", "0.28.0", None, "A4", "in code"),
    Rule("zero list", "an exact-type list of kinds", "0.20.2", "0.27.1", "A60", "#35219"),
    Rule("zero list", "attention groups but rings, only if zeroing is needed", "0.28.0", None, "A60", "#35219"),
    Rule("blocks of an async load", "zeroed like others", "0.20.2", "0.31.0", "A60", "in code"),
    Rule("blocks of an async load", "left out for skip_zeroing_group_ids", "0.32.0", None, "A60", "in code"),
    Rule("Mamba mode all", "a configuration", "0.20.2", "0.31.0", "A41", "in code"),
    Rule("Mamba mode all", "only the manager still knows the word", "0.32.0", None, "A41", "in code"),
)


def confirmed(release: str | None) -> bool:
    """Whether every rule was compared with this release; a local label (0.33.0+cpu) names a build, not a release."""
    return release is not None and release.partition("+")[0] in CONFIRMED


def same_release(asked: str, installed: str | None) -> bool:
    """Whether a release that somebody names is the installed one; a build of it is."""
    return installed is not None and asked in (installed, installed.partition("+")[0])
