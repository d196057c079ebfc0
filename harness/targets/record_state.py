"""What a scheduler and its manager hold between two steps: the first line of each part of a recording but the first.

With it a recording is judged from any part on, so that old parts may go. It is taken only where it is simple: no load
is in progress, nothing waits to be given back, no step in flight is one of a request that was preempted since.
"""

from __future__ import annotations

import importlib
from typing import Any

_SIMPLE = ("RUNNING", "WAITING", "PREEMPTED")


def state_of(recorder: Any) -> dict[str, Any] | None:
    """The state behind the line that was written last; None where it is not simple.

    `requests`: number, prompt, tokens, computed, in flight, status, junction, rows. `running`: numbers in their order.
    `flying`: for each step in flight, oldest first, [number, tokens]. `free`: ids from the queue's front.
    With caching on `names`: block, reach, then group and digest of each name; `copies`: of a name with several blocks,
    in their order; `digests` by number; `columns`: what has been considered for naming, by number and group.
    """
    scheduler, manager = recorder.scheduler, recorder.manager
    if recorder.stale or getattr(scheduler, "deferred_frees", None):
        return None
    numbers: dict[str, int] = recorder.numbers
    requests = [(number, scheduler.requests.get(name)) for name, number in numbers.items()]
    if any(request is None or request.status.name not in _SIMPLE for _, request in requests):
        return None
    said: dict[str, Any] = {
        "requests": [
            [
                number,
                request.num_prompt_tokens,
                request.num_tokens,
                request.num_computed_tokens,
                request.num_in_flight_tokens,
                request.status.name,
                getattr(request, "shared_prefix_boundary", 0),
                recorder.rows(request.request_id),
            ]
            for number, request in requests
        ],
        "running": [numbers[request.request_id] for request in scheduler.running],
        "flying": [
            [[numbers[name], tokens] for name, tokens in step.items() if name in numbers] for step in recorder.flying
        ],
        "free": [block.block_id for block in manager.block_pool.free_block_queue.get_all_free_blocks()],
    }
    return said | _cached(recorder, requests) if recorder.caching else said


def _cached(recorder: Any, requests: list[tuple[int, Any]]) -> dict[str, Any]:
    """What is named, and what is about to be."""
    utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    group, of, pool = utils.get_group_id, utils.get_block_hash, recorder.manager.block_pool
    singles = recorder.manager.coordinator.single_type_managers
    digest = recorder.digest

    def name(key: Any) -> list[int]:
        return [group(key), digest(of(key))]

    further = getattr(pool, "cached_block_hashes_by_block", {})
    several = [(key, blocks) for key, blocks in pool.cached_block_hash_to_block._cache.items() if type(blocks) is dict]
    for _, request in requests:
        recorder.hashes[request.request_id] = len(request.block_hashes)
    return {
        "names": [
            [
                block.block_id,
                getattr(block, "block_hash_num_tokens", None) or 0,
                name(block.block_hash),
                *[name(key) for key in further.get(block.block_id, ())],
            ]
            for block in pool.blocks
            if block.block_hash is not None
        ],
        "copies": [[name(key), [*blocks]] for key, blocks in several],
        "digests": [[number, [*map(digest, request.block_hashes)]] for number, request in requests],
        "columns": [
            [number, [single.num_cached_block.get(request.request_id, 0) for single in singles]]
            for number, request in requests
        ],
    }
