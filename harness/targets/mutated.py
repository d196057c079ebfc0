"""Puts a mutant into the imported vLLM of this process, and sees which lines of vLLM a piece of work executes.

Nothing is reloaded: the code objects of the changed function are put into the functions that are there, so every
reference to them, wherever it was imported or decorated, runs the mutant. Do it in a forked process. Kernels that
Triton's interpreter runs are read from their source text at their first call; they get the changed text.
"""

from __future__ import annotations

import gc
import importlib
import linecache
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from harness.mutants import Mutant
from harness.targets import compat

Key = tuple[str, str, int]


def module_of(file: str) -> str:
    """The module of a file below the package's folder."""
    return "vllm." + file.removesuffix(".py").replace("/", ".")


def choose_cpu() -> None:
    """Be vLLM's CPU platform: a build for CUDA finds no platform where there is no device, and many tests want one.

    Before anything else imports vLLM.
    """
    os.environ.update(compat.QUIET, CUDA_VISIBLE_DEVICES="")
    platforms: Any = importlib.import_module("vllm.platforms")
    platforms._current_platform = importlib.import_module("vllm.platforms.cpu").CpuPlatform()


@cache
def path_of(file: str) -> str:
    """Where the imported release has a file."""
    compat.import_vllm()
    where: Any = importlib.import_module(module_of(file)).__file__
    return str(where)


@cache
def source_of(file: str) -> str:
    """The text of a file of the imported release."""
    return Path(path_of(file)).read_text(encoding="utf-8")


class Functions:
    """The functions of some files, as they are in memory: also those that an earlier `gc.freeze()` has hidden.

    From now on torch works in one thread: a fork has none of its parent's others, and would wait for them.
    """

    def __init__(self, files: Iterable[str]) -> None:
        importlib.import_module("torch").set_num_threads(1)
        gc.unfreeze()
        paths = {path_of(file) for file in files}
        self.of: dict[Key, list[FunctionType]] = defaultdict(list)
        for thing in gc.get_objects():
            if type(thing) is FunctionType and thing.__code__.co_filename in paths:
                self.of[_key(thing.__code__)].append(thing)

    def changed(self, mutant: Mutant) -> list[tuple[FunctionType, CodeType]]:
        """The functions that a mutant changes, each with its new code; none where only the text differs.

        None too where the code cannot take the old one's place (it closes over other variables).
        """
        path = path_of(mutant.file)
        try:
            codes = list(_codes(compile(mutant.applied(source_of(mutant.file)), path, "exec")))
        except SyntaxError:
            return []
        return [
            (function, code)
            for code in codes
            if code.co_qualname == mutant.function
            for function in self.of.get(_key(code), ())
            if code != function.__code__ and code.co_freevars == function.__code__.co_freevars
        ]

    def plant(self, mutant: Mutant) -> None:
        """Run the mutant from now on in this process."""
        for function, code in self.changed(mutant):
            function.__code__ = code
        path = path_of(mutant.file)
        text = mutant.applied(source_of(mutant.file))
        stat = Path(path).stat()
        linecache.cache[path] = (stat.st_size, stat.st_mtime, text.splitlines(keepends=True), path)


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects of a module's functions and methods."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def executed(work: Callable[[], object], files: Iterable[str]) -> dict[str, set[int]]:
    """The lines of some files that `work()` executes. Several times slower than the work alone."""
    names = {path_of(file): file for file in files}
    lines: dict[str, set[int]] = {file: set() for file in names.values()}

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        file = names.get(frame.f_code.co_filename)
        if file is None:
            return None
        seen = lines[file]
        seen.add(frame.f_lineno)

        def step(frame: FrameType, event: str, argument: object) -> Any:
            seen.add(frame.f_lineno)
            return step

        return step

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return lines
