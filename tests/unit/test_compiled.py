"""What `hatch_build.py` compiles answers as its sources do. Other tests run the sources: they plant defects there."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: of every level that needs no vLLM: all that the oracle answered, and what the judges made of it
SCRIPT = """
import hashlib, sys
from harness import passes
from harness.outcome import Options
from harness.workload_outcome import WorkloadOptions
from harness.workloads import run_workload
from oracle import compiled
from oracle.scheduler_party import OracleScheduler
from strategies import traces, workloads

digest, steps = hashlib.sha256(), 0
for profile in ("scheduler", "caching", "hostile"):
    drawn = []
    traces.draw(0, 0, 40, drawn.append)
    for data in drawn:
        made = passes.predict(data, profile, Options())
        steps += made.outcome.steps
        digest.update(repr((made.setting, made.outcome, made.asked, sorted(made.reach.counts.items()))).encode())
drawn = []
workloads.draw(0, 0, 20, drawn.append)
for data in drawn:
    made = run_workload(workloads.decode(data), OracleScheduler, WorkloadOptions())
    steps += made.steps
    digest.update(repr((made.steps, made.differences, made.declared, sorted(made.reach.items()))).encode())
print(compiled(), steps, digest.hexdigest())
"""


def _lacking() -> str:
    """What there is not, of what it takes to compile; "" when all is there."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler {compiler}"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "no headers of Python"
    return "".join(f"no {name}" for name in ("hatchling", "mypyc", "setuptools") if find_spec(name) is None)


def _answers(*path: Path) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, cwd=path[0], check=True, text=True, stdout=subprocess.PIPE
    ).stdout.split()


@pytest.mark.slow
@pytest.mark.skipif(bool(_lacking()), reason=_lacking() or "all is there")
def test_compiled_modules_answer_as_their_sources(tmp_path: Path) -> None:
    """The same traces, of the same seed: first compiled, at the lowest level of optimisation, then as they are."""
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hook = module_from_spec(spec)
    spec.loader.exec_module(hook)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    modules = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]

    hook.compile_in(tmp_path, ROOT, modules, level=0)

    compiled, pure = _answers(tmp_path, ROOT), _answers(ROOT)
    assert ["True", "False"] == [compiled[0], pure[0]]
    assert int(pure[1]) > 5000
    assert pure[1:] == compiled[1:]
