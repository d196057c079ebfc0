"""The language of traces: operations, what a party answers, and the protocol that every party keeps.

A trace is a setting and operations. Operations are relative to the state ("16 more tokens of request 3"), so that a
trace stays meaningful when a part of it is dropped; `oracle.ledger` resolves them into calls with absolute numbers,
the same for every party.
"""

from __future__ import annotations

from typing import Protocol

from attrs import define, fields, frozen

from oracle.call import Call, Hit, Name, Observation, Query, Row, Rows
from oracle.content import Item, check_items
from oracle.errors import SettingError
from oracle.groups import MOST
from oracle.setting import Setting

# --------------------------------------------------------------------------------------------- operations


@define(kw_only=True, unsafe_hash=True)
class Extend:
    """Ask for slots: `new` more tokens of `request` (drafts included). The first one of a request brings its `prompt`.

    Not frozen: one is made for each step.

    external: tokens that a connector loads (with new = 0: an async load). encoder: encoder tokens. lookahead: None for
    the setting's own. The rest up to `skip_zeroing` are the admission flags of `allocate_slots`.

    With caching on `new` and `external` are a wish, cut to what a scheduler would ask for; the first one of a request
    also says what its content is (`oracle.content`): forks (positions), cache salt, adapter, items (identifier,
    offset), whose embeddings its prompt is (0: tokens); and skip_lookup: whether it may read the cache, report: whether
    a hit is told to the consumers of events (`kv_cache_report_mode` full).
    """

    request: int
    new: int
    prompt: int = 0
    external: int = 0
    encoder: int = 0
    lookahead: int | None = None
    full_sequence_must_fit: bool = False
    reserved_blocks: int = 0
    has_scheduled_reqs: bool = True
    skip_zeroing: tuple[int, ...] = ()
    forks: tuple[int, ...] = ()
    salt: int = 0
    adapter: int = 0
    items: tuple[Item, ...] = ()
    embeds: int = 0
    skip_lookup: bool = False
    report: bool = False


@frozen(kw_only=True)
class Settle:
    """The output of the oldest step in flight comes back. `accepted`: (request, accepted drafts); absent means 0."""

    accepted: tuple[tuple[int, int], ...] = ()


@frozen(kw_only=True)
class Loaded:
    """The async load of `request` has ended; `valid` tokens of it are good (None: all)."""

    request: int
    valid: int | None = None


@frozen(kw_only=True)
class Release:
    """`request` gives its blocks back: finished or aborted, or preempted (it then comes back from token 0).

    deferred: the blocks are popped now and given back by a later GiveBack (a step in flight may still write them).
    """

    request: int
    preempt: bool = False
    deferred: bool = False


@frozen(kw_only=True)
class GiveBack:
    """The oldest deferred release is given back to the pool, in reverse order."""


@frozen(kw_only=True)
class Resume:
    """A session goes on: `request` keeps its row and gets `tokens` more prompt tokens.

    discard: the first of them takes the place of the last sampled token (caching only; rows do not depend on it).
    """

    request: int
    tokens: int
    discard: bool = False


@frozen(kw_only=True)
class Trim:
    """Remove what nobody reads any more, without an allocation (`remove_skipped_blocks`)."""

    request: int


@frozen(kw_only=True)
class NewStep:
    """The scheduler starts its next step: what was scheduled is launched, the zero list is drained."""


@frozen(kw_only=True)
class Lookup:
    """What would a request of this content hit? Changes nothing. `bound`: at most so many tokens (None: tokens - 1)."""

    tokens: int
    forks: tuple[int, ...] = ()
    salt: int = 0
    adapter: int = 0
    items: tuple[Item, ...] = ()
    embeds: int = 0
    bound: int | None = None


@frozen(kw_only=True)
class Evict:
    """These blocks lose their names, in use or not (`evict_blocks`)."""

    blocks: tuple[int, ...] = ()


@frozen(kw_only=True)
class Reset:
    """No names are left, if nothing is in use (`reset_prefix_cache`)."""


@frozen(kw_only=True)
class Pin:
    """A connector keeps the cached blocks of `request`, also when the request ends: one more reference to each."""

    request: int


@frozen(kw_only=True)
class Unpin:
    """The oldest pin ends. watched: its blocks may still be read until the pool hands them out, and it tells that."""

    watched: bool = False


#: numbers of operations that have a least value other than 0; the rest must not be negative
LEAST = {"tokens": 1}


def check_operation(operation: Operation) -> None:
    """Refuse numbers that no operation has. Not a validator of the classes: one of these is made for each step.

    SettingError names the number.
    """
    for attribute in fields(type(operation)):
        value = getattr(operation, attribute.name)
        least = LEAST.get(attribute.name, 0)
        if type(value) is int and value < least:
            raise SettingError(f"{attribute.name} must be at least {least}, got {value}")
        if type(value) is int and value > MOST:
            raise SettingError(f"{attribute.name} must be at most {MOST}, got {value}")
    if isinstance(operation, (Extend, Lookup)):
        check_items(operation.items, operation.embeds)


Operation = (
    Extend | Settle | Loaded | Release | GiveBack | Resume | Trim | NewStep | Lookup | Evict | Reset | Pin | Unpin
)
OPERATIONS: tuple[type, ...] = (
    Extend,
    Settle,
    Loaded,
    Release,
    GiveBack,
    Resume,
    Trim,
    NewStep,
    Lookup,
    Evict,
    Reset,
    Pin,
    Unpin,
)


@frozen(kw_only=True)
class Trace:
    """A setting and the operations to run on it."""

    setting: Setting
    operations: tuple[Operation, ...]
    level: str = "manager"


# ---------------------------------------------------------------------------------------------- the protocol


@frozen
class Audit:
    """Everything: each live request's rows, and the free queue from its front."""

    rows: dict[int, Rows]
    free_order: Row


@frozen
class NamedAudit(Audit):
    """And with caching on what is shared.

    names: of each cached block its first name, that one's reach (tokens), its further names. copies: the blocks that
    bear a name, oldest first. pending: copies of blocks (source, target) whose ends have not been given back. pinned:
    the blocks of each pin.
    """

    references: Row
    names: dict[int, tuple[Name, int, tuple[Name, ...]]]
    copies: dict[Name, Row]
    pending: tuple[tuple[int, int], ...]
    pinned: Rows = ()


class Target(Protocol):
    """A party that can run a trace: the oracle, a real manager, a fork's. Built from a Setting."""

    def extend(self, call: Call) -> Observation: ...

    def release(self, request: int, deferred: bool) -> Observation: ...

    def give_back(self) -> Observation: ...

    def trim(self, request: int, processed: int, prompt: int) -> Observation: ...

    def new_step(self) -> Observation: ...

    def audit(self) -> Audit: ...


class CachingTarget(Target, Protocol):
    """A party that also knows prefix caching."""

    def lookup(self, query: Query) -> Hit: ...

    def explain(self, query: Query) -> str:
        """How a lookup goes, group by group, a line each: where it stops and why. For people."""

    def cut(self, request: int, tokens: int) -> None:
        """The hit found last is cut to `tokens`, because a connector brings more than its tail (P44)."""

    def publish(self, call: Call, tokens: int) -> Observation:
        """Names for the first `tokens` of a request that has a row (P5)."""

    def evict(self, blocks: Row) -> Observation: ...

    def reset(self) -> Observation: ...

    def pin(self, blocks: Row) -> Observation:
        """One more reference to each."""

    def unpin(self, watched: bool) -> Observation:
        """The oldest pin's references end."""

    def return_copies(self) -> Observation:
        """The step with the oldest copies that were drained has run: their ends are given back (P36)."""


#: what a target is asked
METHODS = ("extend", "release", "give_back", "trim", "new_step", "audit")
#: and with caching on
CACHING_METHODS = (*METHODS, "lookup", "cut", "publish", "evict", "reset", "pin", "unpin", "return_copies", "explain")

# ----------------------------------------------------------------------------------------------- differences

#: what is compared, from robust to strict
ASPECTS = (
    "outcome",
    "columns",
    "nulls",
    "free",
    "hits",
    "copies",
    "ids",
    "order",
    "hashes",
    "events",
    "zeroing",
    "law",
)


#: rules of differences that are no wrong answer but none: the call raised, or ended or blocked its process
NO_ANSWER = ("raised", "process")


@frozen(kw_only=True)
class Difference:
    """Two parties disagree, or a law is broken, at one operation of a trace."""

    aspect: str
    step: int
    """Index of the operation; -1 when the party could not be built."""
    group: int | None
    kind: str
    """Kind of the group, or "pool"."""
    rule: str
    """Rule of the spec or law that decides, e.g. A15."""
    sign: str
    """What the real side did against the oracle: "more", "less", "granted", "refused", "error:X", "other"."""
    expected: str
    observed: str
    detail: str = ""
    tags: tuple[str, ...] = ()
    """The situation, part of the fingerprint: "first", "external", "loaded", ..."""
    level: str = "manager"

    @property
    def fingerprint(self) -> str:
        """Groups the differences that one defect makes: level, aspect, kind, rule, sign, situation."""
        parts = [self.level, self.aspect, self.kind, self.rule, self.sign, *self.tags]
        return "/".join(parts)


def knows_caching(make_target: object) -> bool:
    """Whether what makes targets makes such that answer with caching on: all but a class that lacks the methods."""
    return not isinstance(make_target, type) or all(hasattr(make_target, name) for name in CACHING_METHODS)


def methods_of(setting: Setting) -> tuple[str, ...]:
    """The names of what a party of this setting answers."""
    return CACHING_METHODS if setting.enable_caching else METHODS
