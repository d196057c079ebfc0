"""The real GPUModelRunner of a tiny local model with dummy weights: the warmup of a real engine start, recorded.

Needs a CUDA device. Nothing here was ever run: no device was at hand.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from harness.targets.manager import Manager
from harness.warmups import WarmupOptions, run_warmups
from oracle.call import Rows
from oracle.warmup import Kernels, WarmupTrace

pytestmark = pytest.mark.cuda

#: without a drafter, with one that writes no KV, and with a draft model, which has lookahead
ENGINES = {"no drafter": (0, "none"), "ngram": (3, "ngram"), "draft model": (3, "draft_model")}


@pytest.fixture(scope="module", params=list(ENGINES))
def live(release: Any, request: pytest.FixtureRequest) -> Any:
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: a real engine cannot be started")
    from harness.targets.live import start

    drafts, method = ENGINES[request.param]
    return start(drafts, method)


def test_warmup_of_a_real_start_agrees(live: Any) -> None:
    """What the stand-in is judged by: schedule, columns, ids, laws, memory, and the real manager on the same steps."""
    trace = WarmupTrace(setting=live.setting, operations=(Kernels(),))

    assert [] == run_warmups(trace, lambda setting: live, WarmupOptions(make_manager=Manager)).differences


def test_worker_holds_the_rows_that_it_was_given(live: Any) -> None:
    """After each step the worker's own block tables hold what the outputs handed out so far."""
    rows: dict[int, Rows] = {}
    empty: Rows = tuple(() for _ in live.setting.groups)
    for step, held in zip(live.ran.steps, live.held, strict=True):
        for part, blocks in zip(step.parts, step.blocks, strict=True):
            before = () if part.computed == 0 else rows[part.request]
            new = blocks or empty
            rows[part.request] = tuple(row + more for row, more in zip(before or empty, new, strict=True))

        assert {part.request: rows[part.request] for part in step.parts} == held


def test_engine_serves_after_its_warmup(live: Any) -> None:
    """The warmup's requests are gone, and a request runs to its end."""
    vllm = importlib.import_module("vllm")
    sampling = vllm.SamplingParams(max_tokens=5, ignore_eos=True, detokenize=False)

    (output,) = live.llm.generate({"prompt_token_ids": [1, 2, 3]}, sampling)

    assert 5 == len(output.outputs[0].token_ids)
