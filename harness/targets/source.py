"""Where a function or method stands in the installed release, read from its source text, without importing vLLM."""

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
def _definitions(file: str) -> dict[str, ast.ClassDef | ast.FunctionDef]:
    """Classes and functions of one file of the installed vLLM; none when there is no vLLM or no such file."""
    try:
        found = find_spec("vllm")  # finds the package, runs nothing of it
        base = Path(found.origin).parents[1] if found is not None and found.origin else None
        tree = ast.parse((base / file).read_text(encoding="utf-8")) if base is not None else None
    except (ImportError, OSError, SyntaxError, ValueError):
        return {}
    body = [] if tree is None else tree.body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def locate(file: str, name: str) -> Location:
    """The location of a function or of "Class.method"; without a line where the file has none of that name.

    A method is looked for in the base classes of the same file too.
    """
    definitions = _definitions(file)
    cls, _, method = name.partition(".")
    if not method:
        found = definitions.get(name)
        return Location(file, name, None if found is None else found.lineno)
    pending = [cls]
    while pending:
        owner = pending.pop(0)
        node = definitions.get(owner)
        if not isinstance(node, ast.ClassDef):
            continue
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == method:
                return Location(file, f"{owner}.{method}", item.lineno)
        pending += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return Location(file, name)
