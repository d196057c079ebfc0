"""What holds for a release: the rows of `oracle.release_table` that are in force, and what they decide.

An upgrade gives differences that a row explains. `choices_of` collects what the rows decide for a release. CONFIRMED
lists the releases that were compared, level by level.
"""

from __future__ import annotations

from functools import cache

from attrs import define
from packaging.version import Version

from oracle.release_table import RULES, Rule

NEWEST = "0.33.0"
#: releases that the oracle was compared with, by level; the manager level with caching on apart
CONFIRMED = {
    "manager": ("0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", NEWEST),
    "caching": ("0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", NEWEST),
    "rules": ("0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", NEWEST),
    "warmup": ("0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", NEWEST),
    "kernels": ("0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", NEWEST),
    "scheduler": ("0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", NEWEST),
}


@define(slots=True)
class Choices:
    """What a release chose where the oracle follows more than one release; the newest one's by default.

    Made of RULES by `choices_of`. Not frozen: read at each step.
    """

    freed_to_front: bool = True
    """A freed block is the next to be used (A4)."""
    popped_whole: bool = False
    """A deferred release pops a row with its leading nulls (A8)."""
    keeps_draft_states: bool = False
    """Removal takes the drafts of a Mamba group for rejected, instead of what is in flight (A14)."""
    retained: bool = True
    """A window may keep extra tokens (A31)."""
    zeroed_for_formats: bool = True
    """Mixed formats alone ask for zeroing (A60)."""
    zeroed_exactly: bool = False
    """Only full attention, MLA and hidden-state groups are zeroed (A60)."""
    load_zeroing: bool = False
    """Blocks of an async load are zeroed like others (A60)."""
    sharded: str = "each"
    """Groups that DCP shards (A62): "one" attention group alone, "all" but Mamba, "full" attention, as "each" says."""
    rings: bool = True
    """Circular buffers exist (A38)."""
    tail_rings: bool = False
    """The ring of an indexer's tail is a kind of its own (A38)."""
    checkpoints: bool = True
    """Prefill checkpoints as A44 has them; the forms before are not specified, traces have none there."""
    hash_lookahead: bool = True
    """A block's hash can cover tokens behind it, which replaces the drop (D11)."""
    junction_below: bool = True
    """A group that drops keeps the block before a junction too (P29)."""
    names_again: bool = False
    """A state that bears its name already is named again: who hits it waits for the next step (P34, P39)."""
    tail: str = "resume"
    """The boundary inside a block that gets a name: the prompt's "end", of Mamba one unit less for its "own drop" or
    for "any drop"; or where a resend can "resume" (P33, P34)."""
    adapter_paths: bool = True
    """Two adapters of one name are told apart (P1)."""
    items_resume: bool = True
    """Hashes that are extended later see every multimodal item (P1)."""
    kept_for_drop: bool = True
    """With the drop retention keeps where a resend and an extension land (P29)."""
    bounded_lookup: bool = True
    """A lookup can be asked for less (P16)."""
    pins: bool = True
    """A connector can hold blocks and watch whether they are used again (P15)."""
    counts_cap: bool = False
    """A Mamba group that takes any block is counted the most that a call can take (A15)."""
    junction_option: bool = True
    """Chunks can be made to end at a junction (P34)."""
    drop_within_bound: bool = False
    """What is dropped lies within the tokens that may be hit (P23)."""
    kept_at_hit_units: bool = True
    """Retention keeps what borders at hit units need, else what borders at multiples of all block sizes do (P29)."""
    sharded_fine_hits: bool = True
    """With DCP too hits may end inside a block (P24)."""
    loads_cut_hits: bool = True
    """A connector is asked from the last border of blocks on, and what it brings replaces the hit behind (P44)."""
    apart: bool = True
    """A connector that brings the state that a hit lacks is asked by a lookup of its own (P26)."""
    coarse_groups_end_fine_hits: bool = True
    """Hits end at borders of blocks where a window's or a chunk's blocks are larger than a hash block (P24)."""
    cuts_every_row: bool = True
    """Each full-attention row is cut to the common hit, not those of the first spec alone (P22)."""
    one_class: bool = True
    """Several groups may all have one spec (P21)."""
    retention_configured: bool = True
    """The configuration says what retention keeps; else the environment, whose 0 needs a sparse group (P28)."""
    rswa: bool = True
    """R-SWA exists (A36)."""
    mixed_warmup: bool = True
    """The mixed warmup exists (W4)."""
    decode_shapes: bool = True
    """The warmup decodes in each shape of a batch, not once (W3)."""
    greedy_pass: bool = True
    """With drafts the warmup runs a second time, greedily (W3)."""
    masks_each_token: bool = True
    """The warmup's bit mask has a row a sampled token, not one a request (W3)."""
    announces: bool = True
    """The warmup's outputs say how many drafts are to be made (W3)."""
    cleans_null: bool = True
    """The warmup zeroes the null block at its end, where blocks are zeroed (W5)."""
    null_redirect: bool = True
    """Block tables can write the null block instead of the ids given (W2)."""
    masks_windows: bool = True
    """The forward pass sees null blocks where a window's columns are dead (W2)."""
    refused_as_context: bool = False
    """DFlash and DSpark store what was refused as context, before the queries go over it (D6)."""
    ends_in_null: bool = False
    """Their queries behind the row's last block are written to the null block, not nowhere (D-L2)."""
    adaptive_verification: bool = True
    """The runner can cut drafts while it serves (W5)."""
    encoder_alone: bool = True
    """An engine that runs a multimodal encoder alone has no warmup (W3)."""
    drop_option: bool = True
    """The EAGLE block drop can be switched off (D11)."""
    draft_counts: bool = True
    """The number of drafts can follow the batch size (S24)."""
    in_flight: bool = True
    """The configuration says how many tokens may be in flight (S30)."""
    pads: bool = True
    """A newcomer with one token left is padded to 1 + K rows (S21)."""
    diffusion_states: bool = True
    """A Mamba layer of a diffusion model has a state for each token of the canvas (A41)."""
    dflash_lookahead: bool = True
    """DFlash has the K + 1 slots that it writes (D6)."""
    fill_in_lookahead: bool = True
    """DSpark that does not sample from its anchor has the K + 1 slots that it writes (D8)."""
    all_eagles_drop: bool = False
    """DFlash and DSpark drop a block too, though their drafters read no further (D11)."""
    modules_read_ahead: bool = True
    """The chunks of a drafter of several modules leave K known tokens (D10)."""
    charged_up_front: bool = False
    """Draft slots of all R requests are taken off the budget once, not those of each that is scheduled (S1)."""
    refused_by_lookahead: bool = True
    """A budget is refused that does not exceed the lookahead, else one that does not exceed the slots (B6)."""
    own_pass_limited: bool = True
    """Where drafters have a pass of their own, no more requests run than it has rows for (S17)."""
    first_runner: tuple[str, ...] = ()
    """Methods that the V1 runner takes beside those that it takes for ever, with the models of this harness (S23)."""
    constant_models: bool = True
    """A model whose MTP drafts are all made at one position can be configured, with the transformers of today (D2)."""
    ngram_overlaps: bool = True
    """N-gram drafts can be made while a step is in flight (S30)."""
    counts_checked: bool = True
    """The V1 runner takes draft counts with those methods alone whose drafters can follow them (S24)."""
    skips_drafts: bool = True
    """The worker is told when nobody can use drafts (S23)."""
    own_cadence: bool = True
    """An engine without data parallelism holds prefills by itself (S15)."""
    goes_on_behind_victim: bool = True
    """Under priority the running pass goes on after a request was its own victim (S29)."""
    empty_part_aside: bool = True
    """A candidate that is left with no token is set aside, else the admission pass ends (S8)."""
    named_after_drafts: bool = True
    """With drafts too an output gives names, up to what is not in flight (S40)."""
    sessions: bool = True
    """A session that goes on keeps all but its last token; the forms before are not specified, workloads have none."""
    active_option: bool = True
    """Fewer requests can be let run than there are seats (S8)."""
    chunks_to_the_end: bool = False
    """A chunk ends at the last border of a sequence, though no token may be behind it (S41)."""
    chunk_tail_drops: bool = True
    """With the drop a chunk ends one unit before a prompt's last boundary inside a block (S41)."""
    chunks_loose: bool = False
    """Chunks are aligned up to the last border that is kept, not up to the end of the prefill (S41)."""
    tells_stale: bool = True
    """Outputs in flight of a preempted request are known as stale; else their placeholders stay with it (S33)."""
    drops_for_delivery: bool = True
    """What a producer has in flight for a request is dropped at its preemption (S33, S50)."""
    resets_drafts: bool = True
    """A reset while drafts are in flight drops one step's output, not as many as it had placeholders (S33)."""
    tail_unchecked: bool = False
    """A chunk ends at a prompt's last hash block wherever that is smaller, though no hit may end in a block (S41)."""
    pause_spares_holders: bool = True
    """Who holds blocks goes on while the engine takes nobody new (S8)."""
    load_reserve: str = "each group"
    """What the drafts of a step add to what a load leaves free (S44): blocks of "each group", of "one group" for each
    request, or "nothing"."""
    holders_first: bool = True
    """Who waits with blocks has a queue of his own, which goes first; else whoever was set aside has one (S8)."""
    threshold_alone: bool = False
    """The long-prefill cap holds for a request that is alone too (S4)."""
    threshold_bounded: bool = True
    """A long-prefill cap above the longest request is refused (S4)."""
    adaptive_threshold: bool = True
    """The long-prefill cap can follow the number of requests (S4)."""
    pads_alone: bool = True
    """A newcomer with a hit is padded though nobody runs (S21)."""
    pads_whole: bool = True
    """A newcomer is padded to all 1 + K rows or not at all; else a cut leaves it K placeholders (S21)."""
    place_kept: bool = True
    """A victim before the request that asks moves the place in the running list, scheduled or not (S28)."""
    spares_unfreed: bool = True
    """Nobody is preempted whose blocks would not come free now (S49)."""
    asks_for_frees: bool = True
    """A connector can ask to wait for blocks that it gives back (S49)."""
    load_failures_whole: bool = True
    """A load can be told to have failed as a whole (S48)."""
    tells_loads: bool = True
    """The worker is told whether a step reads what is loaded in it (S59)."""
    skip_covers_loads: bool = True
    """Who does not read the prefix cache loads nothing either (S42)."""
    pooled_keeps_place: bool = False
    """A position is kept for a sampled token where the model pools and none comes (S56)."""
    pools_on_v2: bool = True
    """The V2 runner takes models that pool (S10)."""
    stop_takes_back: bool = True
    """Tokens cut at a stop are no longer counted as computed (S12)."""


#: choices that say what a trace may have; the others decide answers
OF_TRACES = frozenset(
    {
        "apart",
        "loads_cut_hits",
        "sharded",
        "adapter_paths",
        "items_resume",
        "bounded_lookup",
        "pins",
        "hash_lookahead",
        "junction_option",
        "one_class",
        "retention_configured",
        "rings",
        "tail_rings",
        "retained",
        "checkpoints",
        "rswa",
        "mixed_warmup",
        "null_redirect",
        "adaptive_verification",
        "encoder_alone",
        "active_option",
        "sessions",
        "adaptive_threshold",
        "load_failures_whole",
        "ngram_overlaps",
        "constant_models",
        "resets_drafts",
    }
)


def in_force(release: str) -> dict[str, Rule]:
    """The row of each rule that a release has, by the rule's name. A release between two of the table has the older."""
    version = Version(release.partition("+")[0])
    return {rule.name: rule for rule in RULES if Version(rule.since) <= version}


@cache
def choices_of(release: str) -> Choices:
    """What the oracle does for a release; for one that is newer than the table, what the newest one does."""
    rows = in_force(release).values()
    return Choices(**dict(rule.decides for rule in rows if rule.decides is not None))


def confirmed(release: str | None, level: str = "manager") -> bool:
    """Whether every rule was compared with this release; a local label (0.33.0+cpu) names a build, not a release."""
    return release is not None and release.partition("+")[0] in CONFIRMED.get(level, ())


def specified(release: str, level: str) -> bool:
    """Whether a level's rules are known for a release: one that was compared, or a newer one."""
    version = Version(release.partition("+")[0])
    return confirmed(release, level) or version > Version(NEWEST) or version == Version("0")


def runs(release: str | None, level: str) -> bool:
    """Whether a level can run a release: manager, rules and warmup any, the others what they specify or a newer one."""
    if release is None or level in ("manager", "rules", "warmup"):
        return True
    return specified(release, level)


def changed(older: str, newer: str) -> list[tuple[Rule | None, Rule]]:
    """The rows of the table that are not the same in two releases: the older one's, the newer one's."""
    before, after = in_force(older), in_force(newer)
    return [(before.get(name), rule) for name, rule in after.items() if before.get(name) != rule]


def rules_for(release: str | None) -> str:
    """The release of the tables whose rules hold for one that runs: the newest one's where it is not known."""
    if release is None or Version(release) == Version("0"):
        return NEWEST
    return release.partition("+")[0]


def same_release(asked: str, installed: str | None) -> bool:
    """Whether a release that somebody names is the installed one; a build of it is."""
    return installed is not None and asked in (installed, installed.partition("+")[0])
