"""Where a method stands in the installed release, read from its source text: vLLM is not imported for it."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from attrs import frozen


@frozen
class Location:
    """`name` ("Class.method", the class that defines it) in `file` ("vllm/..."); `line` None when it is not known."""

    file: str
    name: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.name}"


@cache
def _classes(file: str) -> dict[str, ast.ClassDef]:
    """The classes of one file of the installed vLLM; none when there is no vLLM or no such file."""
    try:
        found = find_spec("vllm")  # finds the package, runs nothing of it
        base = Path(found.origin).parents[1] if found is not None and found.origin else None
        tree = ast.parse((base / file).read_text(encoding="utf-8")) if base is not None else None
    except (ImportError, OSError, SyntaxError, ValueError):
        return {}
    return {} if tree is None else {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def locate(file: str, name: str) -> Location:
    """The location of "Class.method": the base class of the same file that defines it, without a line if none does."""
    classes = _classes(file)
    cls, _, method = name.partition(".")
    pending = [cls]
    while pending:
        owner = pending.pop(0)
        node = classes.get(owner)
        if node is None:
            continue
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == method:
                return Location(file, f"{owner}.{method}", item.lineno)
        pending += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return Location(file, name)
