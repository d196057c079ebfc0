"""A KV connector of our own, against the public interface: what it answers is the workload's affair (`oracle.remote`).

vLLM builds it by name from this module. It moves no bytes; what the worker's side would report comes with the steps.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from oracle.call import DONE, Observation, Rows
from oracle.remote import FarSide
from oracle.scheduled import CLEAR, ENDED, MATCH, START, Event

NAME = "FarConnector"


@cache
def _connector_class() -> Any:
    base: Any = importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")

    class FarConnector(base.KVConnectorBase_V1, base.SupportsHMA):  # type: ignore[misc]
        """The scheduler's side. `far` and `tell` are set when the scheduler stands."""

        far: FarSide
        tell: Callable[[Event], None]

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
            name = int(request.request_id)
            found = self.far.match(name, num_computed_tokens, request.num_tokens, request.num_preemptions)
            self.tell(Event(MATCH, name, None, None, 0, -1 if found[0] is None else found[0]))
            return found

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            name = int(request.request_id)
            self.far.started(name, num_external_tokens, request.num_preemptions)
            self.tell(Event(START, name, None, None, 0, num_external_tokens))

        def build_connector_meta(self, scheduler_output: Any) -> Any:
            return base.KVConnectorMetadata()

        def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
            name = int(request.request_id)
            kept = self.far.keeps(name, request.num_computed_tokens)
            rows: Rows = tuple(map(tuple, block_ids))
            self.tell(Event(ENDED, name, None, Observation(DONE, (), rows, 0), 0, int(kept)))
            return kept, None

        def has_pending_block_frees(self) -> bool:
            return self.far.gives_back()

        def reset_cache(self) -> bool:
            self.far.cleared()
            self.tell(Event(CLEAR, -1, None, None, 0))
            return True

        def start_load_kv(self, forward_context: Any, **more: Any) -> None: ...

        def wait_for_layer_load(self, layer_name: str) -> None: ...

        def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **more: Any) -> None: ...

        def wait_for_save(self) -> None: ...

    return FarConnector


def __getattr__(name: str) -> Any:
    if name == NAME:
        return _connector_class()
    raise AttributeError(name)
