"""Who waits for tokens, as known from outside the scheduler: what was asked for and delivered (tokens)."""

from __future__ import annotations

from attrs import define, field

from oracle.content import MOST_PLACES, Item, behind
from oracle.scheduled import ERROR
from oracle.workload import Update


@define(eq=False, slots=True)
class Client:
    """One request. limit: outputs that the piece of input may have at most, out: those delivered.

    A session has pieces: those that are not taken yet, whether it waits for one, whether its end has been told.
    """

    prompt: int
    limit: int
    out: int = 0
    session: bool = False
    pieces: list[Update] = field(factory=list)
    waits: bool = False
    told: bool = False
    kept: int = 0
    """Tokens of the session that an answer left, which its last is none of."""
    items: tuple[Item, ...] = ()
    """Multimodal items of all pieces that were taken, each with its offset in the whole."""

    def takes(self, operation: Update, max_model_len: int) -> bool:
        """Whether this is a session that goes on, and the piece fits whatever is answered before it."""
        if not self.session or self.told:
            return False
        pieces = (*self.pieces, operation)
        if operation.items and len(self.items) + sum([len(piece.items) for piece in pieces]) > MOST_PLACES:
            return False
        return not operation.prompt or self.leaves(max_model_len) + operation.prompt < max_model_len

    def leaves(self, max_model_len: int) -> int:
        """Tokens that stand before the next piece, if all answers before it have their length."""
        kept = self.prompt + (self.out if self.waits else self.limit) - 1
        for piece in self.pieces:
            kept = min(kept, max_model_len - 1) + piece.prompt + piece.max_tokens - 1
        return min(kept, max_model_len - 1)

    def most(self) -> int:
        """Prompt and outputs, those of the pieces that wait too."""
        return self.prompt + self.limit + sum(piece.prompt + piece.max_tokens for piece in self.pieces)

    def update(self, operation: Update) -> bool:
        """A piece, or the end of the input; whether the session ends by it."""
        self.told = not operation.prompt
        if not self.waits:
            self.pieces.append(operation)
            return False
        self.waits = False
        if operation.prompt:
            self._next(operation)
        return self.told

    def over(self, reason: str) -> bool:
        """What was asked for is answered; whether the request ends by it, too."""
        if not self.session or reason == ERROR:
            return True
        self.kept = self.prompt + self.out - 1
        if not self.pieces:
            self.waits = True
            return False
        piece = self.pieces.pop(0)
        if piece.prompt:
            self._next(piece)
        return not piece.prompt

    def _next(self, piece: Update) -> None:
        """The last token is discarded, the piece stands in its place."""
        self.items += behind(self.kept, piece.items)
        self.prompt = self.kept + piece.prompt
        self.limit, self.out = piece.max_tokens, 0
