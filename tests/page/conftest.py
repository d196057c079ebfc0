"""Films of planted defects and a headless browser to look at their pages; both without vLLM."""

from __future__ import annotations

import shutil

import pytest
from attrs import evolve

from harness import tracefile
from harness.page.of_trace import film_of
from oracle.allocator import Allocator
from oracle.groups import FullAttention, SlidingWindow
from oracle.setting import Setting
from oracle.trace import Extend, Release, Settle, Trace
from tests.unit.examples import ask, setting, trace

#: a first call that agrees, a second one whose lookahead is lost by `NoLookahead` of request 1 alone
DRAFTED = trace(
    setting(
        FullAttention(block_size=4),
        SlidingWindow(block_size=4, window=8),
        num_blocks=24,
        method="dflash",
        num_speculative_tokens=3,
    ),
    *(
        ask(9, prompt=9, full_sequence_must_fit=True),
        Settle(),
        ask(1),
        Settle(),
        ask(6, request=1, prompt=9),
        Release(request=0),
    ),
)


class LateNoLookahead(Allocator):
    """`--target` of a manager that loses the lookahead of request 1."""

    def extend(self, call, gate=True, test=True):
        return super().extend(evolve(call, lookahead=0) if call.request == 1 else call, gate, test)


def undeclared(difference):
    return False


def film(shown, target=None):
    """The film of a trace, of the oracle alone or beside a planted target."""
    release = None if target is None else "0.33.0"
    return film_of(shown, release, target, undeclared)


@pytest.fixture
def planted(monkeypatch):
    """The film of a difference at step 4: the real row has a column less."""
    monkeypatch.setattr("harness.targets.loader.import_vllm", lambda: None)
    return film(DRAFTED, "tests.page.conftest:LateNoLookahead")


def long_trace(operations):
    """Eight requests at a time that decode 60 tokens each."""
    groups = (FullAttention(block_size=4), SlidingWindow(block_size=4, window=16))
    made, first = [], 0
    while len(made) < operations:
        names = range(first, first + 8)
        made += [Extend(request=name, new=6, prompt=6) for name in names]
        for _ in range(60):
            made += [Settle(), *(Extend(request=name, new=1) for name in names)]
        made += [Settle(), *(Release(request=name) for name in names)]
        first += 8
    given = Setting(groups=groups, num_blocks=600, max_model_len=400, max_num_batched_tokens=64, max_num_seqs=16)
    return Trace(setting=given, operations=tuple(made[:operations]))


@pytest.fixture(scope="session")
def chromium():
    """Debian's chromium, headless."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: it drives the browser")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def look(chromium, tmp_path):
    """`look(text)`: the page in a browser without network; what it prints to its console fails the test."""
    said, context = [], chromium.new_context(offline=True, viewport={"width": 1200, "height": 900})

    def at(text):
        path = tmp_path / "page.html"
        tracefile.write_text(path, text)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield at
    context.close()
    assert said == []
