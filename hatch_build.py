"""Compiles the oracle with mypyc, if asked to and where there is a C compiler; else it stays Python.

Asked by HATCH_BUILD_HOOK_ENABLE_CUSTOM=1, as tox does for the main job and the bench. What is compiled says
pyproject.toml. The checkout is not touched: a copy is compiled, and only the wheel has the result beside the sources.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SETUP = """
import sys
from mypyc.build import mypycify
from setuptools import setup
extensions = mypycify(sys.argv[2:], opt_level=sys.argv[1], debug_level="0")
setup(name="compiled", packages=[], ext_modules=extensions, script_args=["-q", "build_ext", "--inplace"])
"""


def compile_in(folder: Path, root: Path, modules: Iterable[str], level: int = 1) -> list[Path]:
    """Compile `modules` (paths from `root`) in `folder`; the extension modules, where their sources lie or beside them.

    level: of the C compiler's optimisation. CalledProcessError, with its output, where that is impossible.
    """
    chosen = [*modules]
    for package in {Path(one).parts[0] for one in chosen}:
        shutil.copytree(root / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    subprocess.run(
        [sys.executable, "-c", SETUP, str(level), "--ignore-missing-imports", *chosen],
        cwd=folder,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return sorted(path for path in folder.rglob("*.so") if "build" not in path.relative_to(folder).parts)


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts what was compiled into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """No compiler, or none that does it: one sentence, and the wheel is the same in pure Python."""
        if version == "editable":
            return
        self.folder = Path(mkdtemp())
        try:
            built = compile_in(self.folder, Path(self.root), self.config["modules"])
        except (OSError, subprocess.CalledProcessError) as error:
            said = (getattr(error, "output", "") or str(error)).strip().splitlines()[-1]
            self.app.display_warning(f"the oracle is not compiled, it stays Python: {said}")
            return
        build_data.update(pure_python=False, infer_tag=True)
        build_data["force_include"].update({str(path): str(path.relative_to(self.folder)) for path in built})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The copy has served."""
        if version != "editable":
            shutil.rmtree(self.folder, ignore_errors=True)
