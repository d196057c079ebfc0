"""A recording by hand: what the recorder writes of an engine of one group, blocks of 4 tokens, 8 of them usable."""

from __future__ import annotations

import json

HEAD = {
    "slotcheck": "recording",
    "format": 1,
    "began": "2026-03-01T10:00:00+0000",
    "process": 7,
    "setting": {"groups": [{"kind": "full_attention", "block_size": 4}], "num_blocks": 9, "max_model_len": 32},
    "part": 1,
    "dropped": 0,
}


def admission(request, prompt, blocks, free):
    """A prompt that is admitted whole."""
    return [
        0,
        {
            "q": request,
            "new": prompt,
            "computed": 0,
            "got": [blocks],
            "prompt": prompt,
            "status": "WAITING",
            "in_flight": 0,
            "tokens": prompt,
            "rows": [blocks],
            "free": free,
        },
    ]


#: a prompt of 7 tokens takes blocks 1 and 2; the 8th token has a place, the 9th takes block 3; then it ends
LINES = [
    {"s": 10, "e": [admission(0, 7, [1, 2], 6)]},
    {"s": 20, "back": 1, "p": [0]},
    {"s": 30, "back": 1, "same": 1, "t": [[0, 8, 5, [3]]]},
    {"u": 40, "e": [[0, {"free": 8, "of": 0, "preempt": 0}]]},
    {"s": 50},
    {"u": 60, "of": 0},
]


def text(lines, head=None):
    """As it lies in a file."""
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (head or HEAD, *lines))
