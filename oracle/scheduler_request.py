"""What the oracle's scheduler knows of a request, and of a step in flight (scheduling spec, section 1)."""

from __future__ import annotations

from attrs import define, field

from oracle.call import Query
from oracle.content import Content, Item
from oracle.scheduled import WAITING, State
from oracle.workload import Update


@define(eq=False, slots=True)
class Request:
    """What the scheduler knows of one request; names as in section 1 of the spec."""

    id: int
    prompt: int
    limit: int
    """mx: most output tokens."""
    priority: int
    arrival: int
    out: int = 0
    comp: int = 0
    spec: int = 0
    ph: int = 0
    fl: int = 0
    stale: int = 0
    drop: bool = False
    """Stale outputs are dropped instead of delivered: the request was made to run again at once (a reset)."""
    chunk: bool = False
    status: str = WAITING
    preemptions: int = 0
    junction: int = 0
    """J of its last lookup (caching spec, P27)."""
    content: Content | None = None
    encoder: int = 0
    """Tokens of its encoder's input, which its first call carries."""
    items: tuple[Item, ...] = ()
    """Multimodal items of its prompt, each with its offset (tokens)."""
    grammar: int = 0
    """Looks until its grammar is compiled, and one more; 0: none."""
    skip: bool = False
    """It does not read the prefix cache."""
    session: bool = False
    pieces: list[tuple[Update, int]] = field(factory=list)
    """Pieces of a session's input that wait for its answer to end, with their arrivals."""
    left: int = 0
    """Placeholders that a release without stale outputs keeps at a preemption, until they are back (S33)."""
    counts_left: bool = False
    """Whether its release shows those instead of stale tokens."""
    last: int = 0
    """Number of the last step that it was scheduled in, where steps are numbered (S49)."""

    @property
    def n(self) -> int:
        """Known tokens."""
        return self.prompt + self.out

    def query(self) -> Query:
        """S38: what is looked up for it; one token at least is left to compute."""
        assert self.content is not None
        return Query(self.id, self.content, self.n, self.n - 1, self.skip)

    @property
    def urgency(self) -> tuple[int, int]:
        """Smaller goes first under priority; the largest is the victim (S26, S27)."""
        return (self.priority, self.arrival)

    def state(self) -> State:
        """The request as a real scheduler shows it."""
        return State(
            self.id,
            self.status,
            self.comp,
            self.n,
            self.ph + self.left,
            self.fl,
            0 if self.counts_left else self.stale,
            self.spec,
            self.preemptions,
            self.chunk,
        )


@define(slots=True)
class InFlight:
    """A step whose output is not back."""

    tokens: list[tuple[int, int]]
    drafts: dict[int, int]
    skipped: bool
