"""What a law or the model of the memory tells: something that cannot be right, whatever the rules predict."""

from __future__ import annotations

from attrs import frozen


@frozen
class Violation:
    """A read or write that cannot be right. `index` is the operation that scheduled the step."""

    index: int
    group: int
    law: str
    """W1 (a write without a block) or M12 (a read of something else)."""
    what: str
    """Short and stable: "null block", "outside the row", "other content", "state"."""
    text: str
    column: int = -1
    """Of a read: the column that is wrong."""
