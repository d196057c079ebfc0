"""Compiles the oracle and what drives it with mypyc, if asked to and where there is a C compiler; else it stays Python.

Asked by HATCH_BUILD_HOOK_ENABLE_CUSTOM=1, as tox does for the main job and the bench. What is compiled says
pyproject.toml. The checkout is not touched: a copy is compiled, and only the wheel has the result beside the sources.

mypyc does not know `attrs.define`: such a class would stay as slow as in Python. In the copy it is written out as a
plain one, with the same fields, defaults, equality, repr and copies (`written_out`), whose attributes are native.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SETUP = """
import sys
from mypyc.build import mypycify
from setuptools import setup
extensions = mypycify(sys.argv[2:], opt_level=sys.argv[1], debug_level="0")
setup(name="compiled", packages=[], ext_modules=extensions, script_args=["-q", "build_ext", "--inplace"])
"""
#: mypy looks into our own packages and attrs alone, whatever else is installed; evolve() of a class written out is none
#: of its business ("misc")
CONFIG = """
[mypy]
ignore_missing_imports = True
follow_imports = skip
disable_error_code = misc
[mypy-oracle.*,strategies.*,harness.*,attr.*,attrs.*,mypy_extensions]
follow_imports = normal
"""
FUTURE = "from __future__ import annotations\n"
#: what a class that is written out needs
IMPORTS = """
from functools import partial
from typing import Any, ClassVar
import attrs
from mypy_extensions import mypyc_attr
"""


# ------------------------------------------------------------------------------------------- classes of attrs


class Field(NamedTuple):
    """A field of a class that is written out, each part as source. made: the default is called for each object.

    lent: by the class before, whose module knows its type.
    """

    name: str
    kind: str
    default: str = ""
    made: bool = False
    compared: bool = True
    keyword: bool = False
    lent: bool = False


def written_out(sources: dict[str, str]) -> dict[str, str]:
    """Modules by name, with their `@define` classes as plain ones; one whose fields do more stays as it is.

    The base of a class is told by its name, wherever it is.
    """
    found = [
        (module, node)
        for module, source in sources.items()
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and _is_defined(node)
    ]
    known: dict[str, list[Field]] = {}
    edits: dict[str, list[tuple[int, int, list[str]]]] = {}
    for module, node in sorted(found, key=lambda one: len(one[1].bases)):
        options = _options(node)
        own, bases = _own(node, bool(options.get("kw_only"))), [known.get(ast.unparse(base)) for base in node.bases]
        if own is not None and None not in bases and options.keys() <= {"eq", "slots", "kw_only"}:
            lent = [one._replace(lent=True) for base in bases for one in base or ()]
            known[node.name] = [*lent, *own]
            lines = [*_written(node, own, known[node.name], bool(options.get("eq", True)), sources[module])]
            edits.setdefault(module, []).append((node.decorator_list[0].lineno - 1, node.end_lineno or 0, lines))
    return {name: _edited(source, edits.get(name, [])) for name, source in sources.items()}


def _edited(source: str, edits: list[tuple[int, int, list[str]]]) -> str:
    if not edits:
        return source
    lines = source.splitlines()
    for first, last, new in sorted(edits, reverse=True):
        lines[first:last] = new
    return "\n".join([*lines, ""]).replace(FUTURE, FUTURE + IMPORTS, 1)


def _is_defined(node: ast.ClassDef) -> bool:
    """Whether the class has the decorator `define`, no other, and a body of fields, methods and docstrings alone."""
    return [ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list] == ["define"] and all(
        isinstance(part, (ast.AnnAssign, ast.FunctionDef, ast.Expr)) for part in node.body
    )


def _options(node: ast.ClassDef) -> dict[str, object]:
    """What `define` is given."""
    [decorator] = node.decorator_list
    given = decorator.keywords if isinstance(decorator, ast.Call) else []
    return {one.arg or "": ast.literal_eval(one.value) for one in given}


def _own(node: ast.ClassDef, keyword: bool) -> list[Field] | None:
    """The fields that a class adds, in order; None where one is more than a default, a factory or not compared."""
    fields = []
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        value = statement.value
        given = {} if value is None else {"default": value}
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
            given = {option.arg or "": option.value for option in value.keywords} or {"?": value}
        if not given.keys() <= {"default", "factory", "eq"}:
            return None
        default = given.get("factory") or given.get("default")
        one = Field(
            name=statement.target.id,
            kind=ast.unparse(statement.annotation),
            default="" if default is None else ast.unparse(default),
            made="factory" in given,
            compared="eq" not in given or bool(ast.literal_eval(given["eq"])),
            keyword=keyword,
        )
        fields.append(one)
    return fields


def _written(node: ast.ClassDef, own: list[Field], fields: list[Field], compared: bool, source: str) -> Iterator[str]:
    """The lines of the class."""
    name, bases = node.name, ", ".join(map(ast.unparse, node.bases))
    yield "@mypyc_attr(acyclic=True)"
    yield f"class {name}({bases}):" if bases else f"class {name}:"
    yield from (f"    {one.name}: {one.kind}" for one in own)
    yield f"    __attrs_attrs__: ClassVar[Any] = attrs.fields(attrs.make_class({name!r}, {[f.name for f in fields]}))"
    yield f"    def __init__({', '.join(_parameters(fields))}) -> None:"
    for one in fields:
        made = f"{one.default}() if {one.name} is None else {one.name}"
        yield f"        self.{one.name} = {made if one.made else one.name}"
    yield "    def __repr__(self) -> str:"
    yield f"        return f'{name}({', '.join(f'{one.name}={{self.{one.name}!r}}' for one in fields)})'"
    if compared:
        alike = [_alike(one) for one in fields if one.compared]
        yield "    def __eq__(self, other: object) -> bool:"
        yield f"        return isinstance(other, {name}) and type(self) is type(other) and {' and '.join(alike)}"
    yield "    def __reduce__(self) -> Any:"
    yield f"        return partial({name}, {', '.join(f'{one.name}=self.{one.name}' for one in fields)}), ()"
    lines = source.splitlines()
    for rest in node.body:
        if isinstance(rest, ast.FunctionDef):
            first = min([rest.lineno, *(decorator.lineno for decorator in rest.decorator_list)])
            yield from lines[first - 1 : rest.end_lineno]


def _alike(one: Field) -> str:
    """Equal, as in a tuple: what is the same object is equal."""
    equal = f"self.{one.name} == other.{one.name}"
    return equal if one.kind in {"int", "bool", "str"} else f"(self.{one.name} is other.{one.name} or {equal})"


def _parameters(fields: list[Field]) -> Iterator[str]:
    yield "self"
    for number, one in enumerate(fields):
        if one.keyword and not fields[number - 1].keyword:
            yield "*"
        kind, default = "Any" if one.lent else one.kind, "None" if one.made else one.default
        yield f"{one.name}: {kind}{' | None' * one.made}" + (f" = {default}" if default else "")


# ------------------------------------------------------------------------------------------------- compiling


def compile_in(folder: Path, root: Path, modules: Iterable[str], level: int = 2) -> list[Path]:
    """Compile `modules` (paths from `root`) in `folder`; the extension modules, where their sources lie or beside them.

    level: of the C compiler's optimisation. CalledProcessError, with its output, where that is impossible.
    """
    chosen = [*modules]
    for package in {Path(one).parts[0] for one in chosen}:
        shutil.copytree(root / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (folder / "mypy.ini").write_text(CONFIG)
    for name, source in written_out({one: (root / one).read_text(encoding="utf-8") for one in chosen}).items():
        (folder / name).write_text(source, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-c", SETUP, str(level), *chosen],
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
