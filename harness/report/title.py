"""One sentence that says what a difference is: the title of a report."""

from __future__ import annotations

from harness.report.reasons import cause_of
from oracle.call import GRANTED, REFUSED
from oracle.trace import NO_ANSWER, Difference

_SITUATIONS = {
    "hit": "after a prefix-cache hit",
    "async": "in an async load",
    "sync": "with a sync load",
    "loaded": "after a load",
    "session": "when a session goes on",
    "lookahead": "with lookahead",
    "first": "on a first call",
}
_READS = {
    "null block": "a step reads the null block",
    "outside the row": "a step reads past its row",
    "other content": "a step reads what was not written for its prefix",
    "drafter content": "the drafter reads what was computed from other tokens",
    "state": "a step starts from a state that is not there",
}
_LAWS = {
    "W4": "a request holds more blocks than its admission cap",
    "W5": "full_sequence_must_fit admits a request that then cannot run",
    "W6": "two runs of one trace give different answers",
    "A22": "a refused call changes a row",
    "M14": "references or names do not add up",
    "P47": "a consumer of the events does not know what is cached",
}


def title(difference: Difference) -> str:
    """A sentence without its full stop."""
    said = _claim(difference)
    if difference.kind != "pool" and difference.kind not in said:
        said += f" ({difference.kind.replace('+', ', ')})"
    situation = next((words for tag, words in _SITUATIONS.items() if tag in difference.tags), "")
    cause = cause_of(difference)
    said += f" {situation}" if situation else ""
    said += f": {cause.words}" if cause else ""
    return said if "_" in said.split()[0] else said[0].upper() + said[1:]


def _claim(difference: Difference) -> str:
    if difference.rule == "build":
        return f"the manager cannot be built with {difference.kind}: {difference.sign.removeprefix('error:')}"
    if difference.rule in NO_ANSWER:
        return f"a call does not answer: {difference.observed}"
    if difference.aspect == "law":
        return _law(difference)
    if difference.aspect == "outcome" or difference.sign == "passed the gate":
        return _decision(difference)
    more = "more" if difference.sign == "more" else "fewer"
    return {
        "columns": f"allocate_slots gives a row {more} columns than the step needs",
        "nulls": f"removal nulls {more if difference.sign in ('more', 'less') else 'other'} columns than nobody reads",
        "free": f"{more} blocks are free than must be",
        "order": "the free queue is in another order",
        "hits": "a lookup raises instead of answering"
        if difference.sign.startswith("error:")
        else f"a lookup finds {more if difference.sign in ('more', 'less') else 'other blocks'} than it must"
        if difference.rule != "P27"
        else "a lookup marks another junction",
        "copies": "other blocks are copied than must be",
        "hashes": "blocks bear other names than they must",
        "events": "the events do not say what is cached",
        "zeroing": "take_new_block_ids lists other blocks than those to be zeroed",
    }.get(
        difference.aspect,
        "the result lists other blocks than were added"
        if difference.rule == "A20"
        else "a row holds other blocks than it must",
    )


def _decision(difference: Difference) -> str:
    observed, expected = difference.observed, difference.expected
    gate = "A13" in difference.rule
    if difference.sign == "passed the gate":
        return "full_sequence_must_fit lets a request pass that does not fit, and removes columns before the refusal"
    if observed == GRANTED and expected == REFUSED:
        return (
            "full_sequence_must_fit admits a request whose whole sequence does not fit"
            if gate
            else "allocate_slots grants a call that takes more blocks than it may"
        )
    if observed == REFUSED:
        return "allocate_slots refuses a call that fits"
    if observed == GRANTED:
        return f"allocate_slots grants a call that must raise {expected.removeprefix('error:')}"
    instead = "refusing" if expected == REFUSED else "granting" if expected == GRANTED else "raising another error"
    return f"allocate_slots raises {observed.removeprefix('error:')} instead of {instead}"


def _law(difference: Difference) -> str:
    if difference.rule == "M12":
        return _READS.get(difference.sign, f"a step reads something else: {difference.sign}")
    if difference.rule == "W1":
        who, _, what = difference.sign.partition(" ")
        if who == "state":
            return "a step has no block to write its states to"
        return f"the {who} writes {'to the null block' if what == 'null block' else 'past its row'}"
    return _LAWS.get(difference.rule, f"blocks do not add up: {difference.sign}")
