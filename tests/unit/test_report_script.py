"""repro.py, run on stand-ins for vLLM: it exits 1 on a manager that has the defect and 0 on one that has not."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from harness.report.folder import outcome_of, render_repro
from oracle.allocator import Allocator
from oracle.call import REFUSED, Observation
from oracle.groups import FullAttention
from oracle.trace import Extend, Release, Settle
from tests.unit import fake_vllm
from tests.unit.report_samples import KILLED, SAMPLES, VERSIONS, Sample, sample


def script(case: Sample) -> str:
    outcome, _ = outcome_of(case.shrunk(), case.make)
    return render_repro(outcome, case.difference(), VERSIONS)


def run(text, make, setting, tmp_path, monkeypatch) -> tuple[int, list[fake_vllm.Manager]]:
    """Exit status and the managers that were built."""
    built: list[fake_vllm.Manager] = []
    for name, module in fake_vllm.modules(make, setting, built).items():
        monkeypatch.setitem(sys.modules, name, module)
    path = tmp_path / "repro.py"
    path.write_text(text, encoding="utf-8")
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as ended:
        return int(ended.code or 0), built
    return 0, built


@pytest.mark.parametrize("rule", SAMPLES)
def test_exits_1_on_the_defect(rule, tmp_path, monkeypatch):
    case = SAMPLES[rule]

    assert 1 == run(script(case), case.make, case.trace.setting, tmp_path, monkeypatch)[0]


@pytest.mark.parametrize("rule", ["A13", "A14", "A15", "A19", "A2", "A20", "A5", "A60", "build"])
def test_exits_0_on_the_oracle(rule, tmp_path, monkeypatch):
    case = SAMPLES[rule]

    assert 0 == run(script(case), Allocator, case.trace.setting, tmp_path, monkeypatch)[0]


@pytest.mark.parametrize("rule", ["M12", "W1"])
def test_exits_0_where_the_load_took_all_its_columns(rule, tmp_path, monkeypatch):
    """The oracle adopts as vLLM does; a manager that took blocks for all loaded columns would keep the law."""

    class TakesAll(Allocator):
        def __init__(self, setting):
            super().__init__(evolve(setting, num_blocks=16))
            for group_rule in self.rules:
                group_rule.dead_columns = lambda position: 0
                group_rule.keeps_all = True
                group_rule.adopt = lambda work, row, pool: []

    case = SAMPLES[rule]

    assert 0 == run(script(case), TakesAll, case.trace.setting, tmp_path, monkeypatch)[0]


def test_exits_0_where_the_gate_refuses_what_cannot_run(tmp_path, monkeypatch):
    class Gate(Allocator):
        def extend(self, call, gate=True, test=True):
            return super().extend(call, gate, test) if not call.full_sequence_must_fit else self.refuse()

        def refuse(self):
            return Observation(REFUSED, self.nothing, self.nothing, self.pool.free)

    case = SAMPLES["W5"]

    assert 0 == run(script(case), Gate, case.trace.setting, tmp_path, monkeypatch)[0]


def test_a_difference_that_an_audit_finds_after_an_operation_that_asks_nobody(tmp_path, monkeypatch):
    """A free order that is wrong from the start shows at the audit after a void operation."""

    class Backwards(Allocator):
        def audit(self):
            return evolve(super().audit(), free_order=super().audit().free_order[::-1])

    case = sample(Backwards, FullAttention(block_size=4), Settle())
    text = script(case)

    assert 1 == run(text, Backwards, case.trace.setting, tmp_path, monkeypatch)[0]
    assert 0 == run(text, Allocator, case.trace.setting, tmp_path, monkeypatch)[0]


def test_says_what_was_expected_and_what_it_got(tmp_path, monkeypatch, capsys):
    case = SAMPLES["A13"]
    run(script(case), case.make, case.trace.setting, tmp_path, monkeypatch)

    assert capsys.readouterr().out.splitlines() == [
        "request 0: granted, rows [[0, 0, 1]], 0 free",
        "expected: refused",
        "got:      granted",
        "the defect is there",
    ]


def test_only_what_is_not_the_default_is_passed(tmp_path, monkeypatch):
    """A13's setting has an in-flight limit, no watermark, no DCP."""
    case = SAMPLES["A13"]
    _, built = run(script(case), case.make, case.trace.setting, tmp_path, monkeypatch)
    arguments = {name: value for name, value in built[0].arguments.items() if name != "kv_cache_config"}

    assert {
        "max_model_len": 5,
        "scheduler_block_size": 1,
        "hash_block_size": 1,
        "max_in_flight_tokens": 1,
        "enable_caching": False,
    } == arguments


def test_uniform_groups_are_unwrapped(tmp_path, monkeypatch):
    case = SAMPLES["A19"]
    _, built = run(script(case), case.make, case.trace.setting, tmp_path, monkeypatch)
    groups = built[0].arguments["kv_cache_config"].arguments["kv_cache_groups"]

    assert ["FullAttentionSpec", "CircularBufferSpec"] == [g.arguments["kv_cache_spec"].name for g in groups]


def test_a_preempted_request_comes_back_as_the_same_one():
    """Its known tokens (3 and an output) are set again, and its status is PREEMPTED."""
    case = SAMPLES["A19"]
    trace = evolve(
        case.trace,
        operations=(
            Extend(request=0, new=3, prompt=3),
            Settle(),
            Release(request=0, preempt=True),
            Extend(request=0, new=4),
        ),
    )
    difference = evolve(case.difference(), step=3)
    outcome, _ = outcome_of(evolve(case.shrunk(), trace=trace, difference=difference), Allocator)
    text = render_repro(outcome, difference, VERSIONS)

    assert 1 == text.count("request_0 = Request(")
    assert "request_0.num_tokens = 4\nrequest_0.status = RequestStatus.PREEMPTED\nallocate_slots(" in text


DYING = """
import enum, os, signal
class Any:
    def __init__(self, **arguments): self.block_pool = self
KVCacheManager = KVCacheConfig = KVCacheGroupSpec = FullAttentionSpec = CircularBufferSpec = Any
UniformTypeKVCacheSpecs = Any
RequestStatus = enum.Enum("RequestStatus", ["WAITING", "RUNNING", "PREEMPTED"])
float16 = None
def generate_scheduler_kv_cache_config(kv_cache_configs): return kv_cache_configs[0]
"""
ANSWERS = {
    "dies": "os.kill(os.getpid(), signal.SIGKILL)",
    "answers": "return None",
    "answers at random": "print(os.urandom(8)); return None",
}


def in_a_process(text: str, answer: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a repro.py beside a package that answers each call like this."""
    call = f"\ndef allocate_slots(self, **arguments):\n    {ANSWERS[answer]}\nAny.allocate_slots = allocate_slots\n"
    call += "Any.get_block_ids = lambda self, request_id: ()\nAny.get_num_free_blocks = lambda self: 0\n"
    for name in (
        "torch.py",
        "vllm/__init__.py",
        "vllm/v1/__init__.py",
        "vllm/v1/core/__init__.py",
        "vllm/v1/core/kv_cache_manager.py",
        "vllm/v1/core/kv_cache_utils.py",
        "vllm/v1/kv_cache_interface.py",
        "vllm/v1/request.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(DYING + call, encoding="utf-8")
    (tmp_path / "repro.py").write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(tmp_path / "repro.py")], capture_output=True, text=True, check=False, timeout=60
    )


def killed_script() -> str:
    outcome, _ = outcome_of(KILLED, None)
    return render_repro(outcome, KILLED.difference, VERSIONS)


def test_a_call_that_kills_its_process_is_told_from_outside(tmp_path):
    ended = in_a_process(killed_script(), "dies", tmp_path)

    assert (1, "") == (ended.returncode, ended.stderr)
    assert "got:      killed by signal 9\nthe defect is there\n" in ended.stdout


def test_a_call_that_no_longer_kills_its_process_is_gone(tmp_path):
    ended = in_a_process(killed_script(), "answers", tmp_path)

    assert (0, "") == (ended.returncode, ended.stderr)


@pytest.mark.parametrize(("answer", "status"), [("answers", 0), ("answers at random", 1)])
def test_two_runs_that_differ(answer, status, tmp_path):
    difference = evolve(KILLED.difference, rule="W6", aspect="law", sign="two runs differ")
    outcome, _ = outcome_of(evolve(KILLED, difference=difference), Allocator)
    ended = in_a_process(render_repro(outcome, difference, VERSIONS), answer, tmp_path)

    assert (status, "") == (ended.returncode, ended.stderr)


def test_a_construction_that_kills_its_process_is_run_as_well():
    trace = evolve(KILLED.trace, operations=())
    shrunk = evolve(KILLED, trace=trace, difference=evolve(KILLED.difference, step=-1))
    outcome, _ = outcome_of(shrunk, None)
    text = render_repro(outcome, shrunk.difference, VERSIONS)

    compile(text, "repro.py", "exec")
    assert text.rstrip().endswith(")")
    assert "manager = KVCacheManager(" in text
