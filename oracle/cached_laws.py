"""Laws of the pool with prefix caching on: blocks are shared, and only through their names (M14)."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from oracle.laws import Laws
from oracle.trace import Audit, NamedAudit


class CachingLaws(Laws):
    """The laws of one trace with caching on."""

    def audited(self, index: int, audit: Audit) -> None:
        """Free or referenced, never both; references are what rows, deferred blocks and copies hold."""
        assert isinstance(audit, NamedAudit)
        free = audit.free_order
        held = {block for block, count in enumerate(audit.references) if count}
        if len(set(free)) != len(free) or held & set(free):
            twice = sorted(block for block in self.blocks if free.count(block) + (block in held) > 1)
            self._broken(index, "A2", "owner", f"blocks {twice} are free twice, or held and free")
        elif len(free) + len(held) != self.usable:
            self._broken(index, "M14", "conservation", f"{len(free)} free and {len(held)} held, of {self.usable}")
        rows = Counter(filter(None, chain.from_iterable(chain.from_iterable(audit.rows.values()))))
        rows.update(chain.from_iterable(self.popped))
        rows.update(chain.from_iterable(audit.pending))
        rows.update(chain.from_iterable(audit.pinned))
        if any(audit.references[block] != rows[block] for block in held | set(rows)):
            wrong = sorted(block for block in held | set(rows) if audit.references[block] != rows[block])
            said = ", ".join(f"{block}: {audit.references[block]} instead of {rows[block]}" for block in wrong)
            self._broken(index, "M14", "references", f"references of blocks {said}")
        bearers: dict[object, set[int]] = {}
        for block, (first, _, further) in audit.names.items():
            for name in (first, *further):
                bearers.setdefault(name, set()).add(block)
        if bearers != {name: set(blocks) for name, blocks in audit.copies.items()}:
            self._broken(index, "M14", "names", "the copies of a name are not the blocks that bear it")
