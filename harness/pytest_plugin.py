"""The pytest plugin: differential tests whose failure is a shortest trace and a report folder.

    @given(data=packed())
    def test_my_manager(slotcheck, data):
        slotcheck.check(data)

    def test_what_campaigns_found(slotcheck_finding):  # with --slotcheck-store
        slotcheck_finding.check()

Hypothesis shrinks the bytes; when the test has failed, the trace itself is made minimal, printed as a table, and its
report is written. Works under `-n auto`: the examples of a test depend on its Hypothesis settings, not on the worker.
This module is loaded in every pytest run: it imports nothing that is slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness.findings import Declared
    from harness.outcome import MakeTarget, Outcome
    from oracle.trace import Difference, Trace


#: where reports go unless --slotcheck-out says otherwise
OUT = "slotcheck-out"


class Divergence(AssertionError):  # noqa: N818 - what it says, as AssertionError does
    """A trace on which oracle and target disagree; carries what the report needs."""

    def __init__(self, trace: Trace, difference: Difference, checker: Checker, make_target: MakeTarget) -> None:
        super().__init__(f"{difference.fingerprint}: expected {difference.expected}, got {difference.observed}")
        self.trace = trace
        self.difference = difference
        self.checker = checker
        self.make_target = make_target

    def __reduce__(self) -> tuple[Any, ...]:
        return AssertionError, (str(self),)


class Checker:
    """What the `slotcheck` fixture gives: `check` runs one trace and fails on a difference that is not declared."""

    def __init__(self, out: Path, make_target: MakeTarget, declared: Declared, release: str | None) -> None:
        self.out = out
        self.make_target = make_target
        self.declared = declared
        self.release = release

    def check(self, data: bytes | Trace, make_target: MakeTarget | None = None, profile: str = "scheduler") -> Outcome:
        """Run packed bytes or a trace; raises Divergence. `make_target`: another target than the installed manager."""
        from harness.outcome import Options
        from harness.targets.compat import installed_release
        from harness.trace_run import new_replay, run_trace
        from oracle.trace import Trace

        chosen = make_target or self.make_target
        options = Options(declared=self.declared, release=installed_release())
        if isinstance(data, Trace):
            outcome = run_trace(data, chosen, options)
        else:
            setting, stream = options.open(data, profile)
            replay = new_replay(setting, chosen, options)
            while not replay.over:
                operation = stream.next(replay.ledger)
                if operation is None:
                    replay.finish()
                    break
                replay.step(operation)
            outcome = replay.result()
        if outcome.differences:
            raise Divergence(outcome.trace, outcome.differences[0], self, chosen)
        return outcome


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where reports of failing differential tests go."""
    group = parser.getgroup("slotcheck")
    group.addoption("--slotcheck-out", default=OUT, help="folder for reports of failing differential tests")
    group.addoption(
        "--slotcheck-store", help="store of campaigns (folder, redis://...): its differences, and Hypothesis's examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    """With a store, Hypothesis keeps its examples there, so that every machine tries what one has found."""
    address = config.getoption("--slotcheck-store", None)
    if address:
        from hypothesis import settings

        from harness.campaign.storage import open_store
        from oracle.errors import SlotcheckError

        try:
            database = open_store(address).examples()
        except SlotcheckError as error:
            raise pytest.UsageError(str(error)) from None
        settings.register_profile("slotcheck-store", settings(database=database))
        settings.load_profile("slotcheck-store")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `slotcheck_finding` runs once for each difference of the store."""
    if "slotcheck_finding" not in metafunc.fixturenames:
        return
    from harness.campaign.replayed import Finding
    from harness.campaign.storage import findings, open_store

    address = metafunc.config.getoption("--slotcheck-store", None)
    stored = findings(open_store(address)) if address else []
    metafunc.parametrize(
        "slotcheck_finding", [Finding(one) for one in stored], ids=[f"{one.name} {one.fingerprint}" for one in stored]
    )


@pytest.fixture(scope="session")
def slotcheck(request: pytest.FixtureRequest) -> Checker:
    """A checker on the installed vLLM's manager; vLLM is imported once a process. Skips where vLLM is missing."""
    from harness import findings
    from harness.targets.compat import TargetError, installed_release
    from harness.targets.loader import load_target

    try:
        make_target = load_target(None)
    except TargetError as error:
        pytest.skip(str(error))
    release = installed_release()
    out = Path(request.config.getoption("--slotcheck-out", OUT))
    return Checker(out, make_target, findings.Declared(findings.load(), release), release)


def _divergence(error: BaseException | None) -> Divergence | None:
    """The divergence behind an exception; Hypothesis raises several as a group."""
    if isinstance(error, Divergence):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := _divergence(inner)) is not None), None)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Replace the traceback of a divergence by its shortest trace, and leave the report folder."""
    report = yield
    found = _divergence(call.excinfo.value if call.excinfo is not None else None)
    if found is not None and report.failed:
        report.longrepr = describe(found, item.nodeid)
    return report


def describe(found: Divergence, name: str, write: Callable[..., Path] | None = None) -> str:
    """Shrink, write the report folder, and say it as text."""
    from harness.outcome import Options
    from harness.report.folder import write_report
    from harness.report.table import difference_text, text
    from harness.shrink import shrink
    from harness.targets.compat import installed_release
    from harness.trace_run import run_trace
    from oracle.errors import SlotcheckError

    checker = found.checker
    options = Options(declared=checker.declared, audit_every=1, keep_entries=True, release=installed_release())
    small = shrink(found.trace, found.difference, found.make_target, options)
    outcome = run_trace(small.trace, found.make_target, options)
    safe = re.sub(r"[^\w.]+", "-", name).strip("-")
    try:
        folder = (write or write_report)(checker.out / safe, small, checker.release, found.make_target)
        where = f"report: {folder}\nagain:  slotcheck replay {folder / 'trace.json'}"
    except SlotcheckError as error:
        where = f"no report: {error}"
    end = "" if small.minimal else f" ({small.end})"
    return "\n".join((f"{small.difference.fingerprint}{end}", text(outcome), difference_text(small.difference), where))
