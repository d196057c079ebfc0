"""The real `KVCacheManager` with prefix caching on, behind the protocol.

Its hashes are the release's own, made from the tokens, salts, adapters and items of a trace's contents. To be compared
they are translated into the nodes of the tree of contents; a hash that stands for two contents, or a content with two
hashes, then shows as a difference of hits and names.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from harness.targets import compat
from harness.targets.event_keys import LABELS, LOOKAHEAD, Odd, odd_keys, odd_labels
from harness.targets.manager import BLOCK_ID, Manager, StubRequest
from harness.targets.visits import lacking, visits_of
from oracle.call import DONE, Call, Drained, Event, Hit, Name, Observation, Query, Row
from oracle.content import Content, item_length
from oracle.event_labels import ANY, group_labels, request_labels
from oracle.setting import Setting
from oracle.trace import NamedAudit


class CachedRequest(StubRequest):
    """What the manager and the hasher read of a request with caching on."""

    kv_cache_report_mode = "incremental"

    def __init__(self, request_id: str, content: Content) -> None:
        super().__init__(request_id)
        self.session_id = f"session {request_id}"
        self.content = content
        self.all_token_ids = content.tokens
        self.prompt_embeds = compat.embeddings(content.embeds, content.values) if content.embeds else None
        self._prompt_embeds_per_block_hashes: dict[Any, bytes] = {}
        self.cache_salt = f"salt {content.salt}" if content.salt else None
        self.lora_request = _adapter(content.adapter) if content.adapter else None
        self.mm_features = [
            SimpleNamespace(
                identifier=f"item {identifier}",
                mm_position=SimpleNamespace(offset=offset, length=item_length(identifier)),
            )
            for identifier, offset in content.items
        ]


def _adapter(number: int) -> Any:
    """Two adapters share a name and differ in their path (P1)."""
    name = f"adapter {(number + 1) // 2}"
    return SimpleNamespace(name=name, lora_name=name, lora_path=f"path {number}", adapter_id=number)


class CachingManager(Manager):
    """A manager of the installed release, or of a fork, with caching on."""

    def __init__(self, setting: Setting, manager_class: Any = None) -> None:
        super().__init__(setting, manager_class)
        self.hasher = compat.block_hasher(setting)
        self.group_of, self.hash_of = compat.hash_parts()
        self.hash_size, self.ahead = setting.hash_size, setting.num_hash_lookahead_tokens
        self.kinds = [group.kind for group in setting.groups]
        self.nodes: dict[Any, int] = {}
        self.holders: dict[int, tuple[Content, int]] = {}
        self.found: dict[int, Any] = {}
        self.defers, self.tells = setting.defers_copies, setting.enable_kv_cache_events
        self.pins: deque[Row] = deque()
        self.reused: list[int] = []
        self.retained: deque[list[Any]] = deque()
        self.group_labels = [group_labels(group) for group in setting.groups]
        #: of each event since the last step, what it says of the request that made it
        self.tellers: list[dict[str, object]] = []

    # -------------------------------------------------------------------------------------- requests

    def _stub(self, request: int, content: Content) -> CachedRequest:
        stub = self.stubs.get(request)
        if stub is None:
            stub = self.stubs[request] = CachedRequest(str(request), content)
        assert isinstance(stub, CachedRequest)
        if stub.content is not content:  # a session has discarded a token, or begins anew
            if content.kept:
                self._know(stub, content.kept + 1)
            stub.content, stub.all_token_ids = content, content.tokens
            del stub.block_hashes[content.kept // self.hash_size :]
        return stub

    def _know(self, stub: CachedRequest, tokens: int) -> None:
        """The request has so many tokens now: hash what has become whole."""
        stub.num_tokens = tokens
        new = self.hasher(stub)
        boundary = len(stub.block_hashes) * self.hash_size
        for block_hash in new:
            boundary += self.hash_size
            node = stub.content.named[boundary + self.ahead]
            self.nodes.setdefault(block_hash, node)
            if self.tells:  # as events name it
                told = int.from_bytes(block_hash, "big") & ((1 << 64) - 1)
                self.nodes.setdefault(told, node)
                self.holders.setdefault(told, (stub.content, boundary))
        stub.block_hashes.extend(new)

    def look_up(self, query: Query) -> Any:
        """The bare lookup: blocks, tokens, junction; nothing observed."""
        nobody = query.request < 0
        stub = CachedRequest("nobody", query.content) if nobody else self._stub(query.request, query.content)
        stub.skip_reading_prefix_cache = query.skip
        stub.kv_cache_report_mode = "full" if query.report else "incremental"
        self._know(stub, query.tokens)
        look = self.manager.get_computed_blocks_for_connector if query.apart else self.manager.get_computed_blocks
        found = look(stub, **self._bound(query))
        if self.tells:
            self._told(stub)
        if not nobody:
            self.found[query.request] = found[0]
        return found

    def _bound(self, query: Query) -> dict[str, int]:
        """The bound of a lookup, where it is not the release's own."""
        return {} if query.bound == query.tokens - 1 else {"max_cache_hit_length": query.bound}

    def lookup(self, query: Query) -> Hit:
        blocks, tokens, junction, *diverged = self.look_up(query)
        return Hit(tokens, junction, tuple([tuple(map(BLOCK_ID, group)) for group in blocks.blocks]), any(diverged))

    def explain(self, query: Query) -> str:
        """The visits of the release's lookup, a line each: groups, bound, drop, hit, and which names are lacking."""
        stub = CachedRequest("nobody", query.content)
        stub.skip_reading_prefix_cache = query.skip
        self._know(stub, query.tokens)
        look = self.manager.get_computed_blocks_for_connector if query.apart else self.manager.get_computed_blocks
        with visits_of(self.manager.coordinator) as visits:
            look(stub, **self._bound(query))
        sizes = [single.block_size for single in self.manager.coordinator.single_type_managers]
        lines = []
        for visit in visits:
            kinds = ", ".join(f"group {group} {self.kinds[group]}" for group in visit.groups)
            drop = ", drops its last unit" if visit.drops else ""
            lacks = lacking(self.pool, visit, stub.block_hashes, self.hash_size, sizes[visit.groups[0]])
            lines.append(f"{kinds}: at most {visit.bound}{drop}: {visit.hit}, {lacks}")
        return "\n".join(lines)

    def cut(self, request: int, tokens: int) -> None:
        self.found[request] = self.manager.truncate_computed_blocks(self.found[request], tokens)

    def allocate(self, call: Call) -> Any:
        assert call.content is not None
        stub = self._stub(call.request, call.content)
        stub.num_computed_tokens = call.computed - call.local
        stub.num_in_flight_tokens = call.in_flight
        stub.num_prompt_tokens = call.prompt
        stub.shared_prefix_boundary = call.junction
        self._know(stub, call.tokens)
        stub.status = self.preempted if call.preempted else self.waiting if call.waiting else self.running
        more = {"skip_zeroing_group_ids": call.skip_zeroing} if self.zeroing and call.skip_zeroing else {}
        granted = self.manager.allocate_slots(
            stub,
            call.new,
            num_new_computed_tokens=call.local,
            new_computed_blocks=self.found[call.request] if call.local else None,
            num_lookahead_tokens=call.lookahead,
            num_external_computed_tokens=call.external,
            delay_cache_blocks=call.new == 0,
            full_sequence_must_fit=call.full_sequence_must_fit,
            reserved_blocks=call.reserved_blocks,
            has_scheduled_reqs=call.has_scheduled_reqs,
            **more,
        )
        if self.tells:
            self._told(stub)
        return granted

    def name(self, call: Call, tokens: int) -> None:
        """The bare publication."""
        assert call.content is not None
        stub = self._stub(call.request, call.content)
        stub.num_computed_tokens = call.computed
        stub.num_in_flight_tokens = call.in_flight
        stub.num_prompt_tokens = call.prompt
        stub.shared_prefix_boundary = call.junction
        self._know(stub, call.tokens)
        self.manager.cache_blocks(stub, tokens)
        if self.tells:
            self._told(stub)

    def publish(self, call: Call, tokens: int) -> Observation:
        self.name(call, tokens)
        return Observation(DONE, self.nothing, self._rows(call.request), self._free())

    # ------------------------------------------------------------------------------------------ other

    def evict(self, blocks: Row) -> Observation:
        self.manager.evict_blocks({block for block in blocks if 0 < block < self.limit})
        return Observation(DONE, self.nothing, self.nothing, self._free())

    def reset(self) -> Observation:
        return Observation(str(self.manager.reset_prefix_cache()), self.nothing, self.nothing, self._free())

    def pin(self, blocks: Row) -> Observation:
        self.pool.touch([self.pool.blocks[block] for block in blocks])
        self.pins.append(blocks)
        return Observation(DONE, self.nothing, self.nothing, self._free())

    def unpin(self, watched: bool) -> Observation:
        blocks = [self.pool.blocks[block] for block in (self.pins.popleft() if self.pins else ())]
        if watched:
            self.pool.unpin_blocks(blocks, lambda block: self.reused.append(block.block_id))
        else:
            self.pool.free_blocks(blocks)
        return Observation(DONE, self.nothing, self.nothing, self._free())

    def new_step(self) -> Observation:
        zeroed = tuple(self.manager.take_new_block_ids())
        copies, retained = self.manager.take_kv_cache_block_copies()
        if not self.defers:
            self.pool.free_blocks(retained)
        elif retained:
            self.retained.append(retained)
        self.manager.new_step_starts()
        pairs = tuple([(copy.src_block_id, copy.dst_block_id) for copy in copies])
        events = self._events()
        reused, self.reused = tuple(self.reused), []
        return Drained(DONE, (zeroed,), self.nothing, self._free(), pairs, events, reused)

    def return_copies(self) -> Observation:
        if self.retained:
            self.pool.free_blocks(self.retained.popleft())
        return Observation(DONE, self.nothing, self.nothing, self._free())

    def _told(self, stub: CachedRequest) -> None:
        """The events since the last call are this request's; those of removed names may be older, and are nobody's."""
        new = len(self.pool.kv_event_queue) - len(self.tellers)
        if new > 0:
            self.tellers += [request_labels(stub.content, stub.session_id)] * new

    def _events(self) -> tuple[Event, ...]:
        events, tellers, self.tellers = self.manager.take_events(), self.tellers, []
        tellers += [{}] * (len(events) - len(tellers))
        return tuple([self._event(event, teller) for event, teller in zip(events, tellers, strict=True)])

    def _event(self, event: Any, teller: dict[str, object]) -> Event:
        told = self._named_event(event)
        if told[0] == "stored":
            known = 0 <= event.group_idx < len(self.group_labels)
            odd = odd_labels(event, {**self.group_labels[event.group_idx], **teller}) if known else ()
        else:
            odd = odd_labels(event, ANY if told[0] == "removed" else {})
        return (LABELS, odd, *told) if odd else told

    def _named_event(self, event: Any) -> Event:
        kind = type(event).__name__
        if kind == "BlockStored":
            parent = event.parent_block_hash
            told = (
                "stored",
                event.group_idx,
                tuple([self.nodes.get(name, -1) for name in event.block_hashes]),
                0 if parent is None else self.nodes.get(parent, -1),
                event.block_size,
                tuple(event.token_ids),
            )
            odd = self._odd_lists(event)
            return (*told, odd) if odd else told
        if kind == "BlockRemoved":
            return ("removed", event.group_idx, *[self.nodes.get(name, -1) for name in event.block_hashes])
        return ("cleared",) if kind == "AllBlocksCleared" else (kind,)

    def _odd_lists(self, event: Any) -> Odd:
        """Lists of an event with an entry a name (P46) of another length, or wrong entries."""
        names = len(event.block_hashes)
        keys = len(event.extra_keys) if event.extra_keys else names
        tokens = len(event.lookahead_token_ids or ()) if self.ahead else names
        for field, entries in (("extra_keys", keys), (LOOKAHEAD, tokens)):
            if entries != names:
                return field, f"{entries} entries", f"{names} entries"
        return odd_keys(event, self.holders, self.ahead)

    def _name(self, key: Any) -> Name:
        return self.group_of(key), self.nodes.get(self.hash_of(key), -1)

    def audit(self) -> NamedAudit:
        seen = super().audit()
        further = self.pool.cached_block_hashes_by_block
        names = {
            block.block_id: (
                self._name(block.block_hash),
                block.block_hash_num_tokens,
                tuple(sorted(self._name(key) for key in further.get(block.block_id, ()))),
            )
            for block in self.pool.blocks
            if block.block_hash is not None
        }
        copies = {}
        for key, blocks in self.pool.cached_block_hash_to_block._cache.items():  # nothing else shows it
            copies[self._name(key)] = tuple(blocks) if isinstance(blocks, dict) else (blocks.block_id,)
        references = (0, *[block.ref_cnt for block in self.pool.blocks[1:]])
        queued = [
            (source.block_id, target.block_id)
            for single in self.manager.coordinator.single_type_managers
            for source, target in single._pending_cow_copies  # taking them would clear them
        ]
        held = [block.block_id for blocks in self.retained for block in blocks]
        pending = (*zip(held[::2], held[1::2], strict=True), *queued)
        return NamedAudit(seen.rows, seen.free_order, references, names, copies, pending, tuple(self.pins))
