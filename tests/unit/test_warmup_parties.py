"""Which traces have their kernels run: by their bytes, whoever runs them."""

from __future__ import annotations

from harness.warmup_parties import ALL, FEW, NONE, SHARE, sampled
from oracle.warmup import Draft, kernel_requests
from strategies.warmups import decode, draw


def chosen(kernels: str, shard: int) -> list[bytes]:
    found: list[bytes] = []

    def visit(data: bytes) -> None:
        if sampled(kernels, data, decode(data)):
            found.append(data)

    draw(0, shard, 300, visit)
    return found


def test_share_is_the_same_each_time_and_small():
    first, second = chosen(SHARE, 3), chosen(SHARE, 3)

    assert first == second
    assert 5 <= len(first) <= 40


def test_share_has_few_requests_and_draft_steps_more_often():
    traces = [decode(data) for shard in range(4) for data in chosen(SHARE, shard)]
    drafts = [trace for trace in traces if any(isinstance(operation, Draft) for operation in trace.operations)]

    assert max(kernel_requests(trace.setting) for trace in traces) <= FEW
    assert len(drafts) * 5 >= len(traces)


def test_all_and_none():
    data = bytes(64)

    assert [True, False] == [sampled(kernels, data, decode(data)) for kernels in (ALL, NONE)]
