"""Mutants of a Python file: one expression or statement of a function changed, the rest byte for byte as it was.

The operators are those of the literature on mutation testing (relational, arithmetic and logical replacement, constants
one off, conditions negated, statements deleted, values returned as None) and a few of this field: min and max, ceiling
division, an argument left out. A mutant keeps every line number, so that reports still point at the release's lines.

Never mutated: what cannot decide on blocks by itself (logging, assertions, raised errors, annotations, strings,
decorators, defaults), and statements outside of functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, TypeVar

from attrs import frozen

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
}  # fmt: skip
#: calls that record, check or say something and return nothing that counts
SILENT = ("logger", "warnings", "log_stats", "metrics_collector")
#: rounding helpers of vLLM
ROUNDING = ("cdiv", "round_up", "round_down")
#: operators that change a statement; the others change an expression
STATEMENTS = ("deletion", "return")
#: characters of a mutant's name on either side of the arrow
SHOWN = 90
Located = ast.stmt | ast.excepthandler | ast.expr
Node = TypeVar("Node", bound=ast.AST)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@frozen(kw_only=True)
class Mutant:
    """One change. file: below the package's folder. function: the outermost function that holds it, "Class.method".

    before, after: for people, on one line. text: what takes the place of line .. end_column, as ast counts (columns in
    bytes). first, last: lines of the statement, without the body of a compound one.
    """

    file: str
    function: str
    operator: str
    before: str
    after: str
    text: str
    line: int
    column: int
    end_line: int
    end_column: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """What a person calls it, and what survivors.toml names it by."""
        return f"{self.file}:{self.line}:{self.column} {self.operator}: {self.before} -> {self.after}"

    def applied(self, source: str) -> str:
        """The file's text with the change; as many lines as before."""
        lines = source.encode().splitlines(keepends=True)
        start = sum(map(len, lines[: self.line - 1])) + self.column
        end = sum(map(len, lines[: self.end_line - 1])) + self.end_column
        whole = source.encode()
        gap = "\n" * whole[start:end].count(b"\n")
        new = f"{self.text}{gap}" if self.operator in STATEMENTS else f"({self.text}{gap})"
        return (whole[:start] + new.encode() + whole[end:]).decode()


def mutants_of(source: str, file: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines."""
    return list(_Walk(source, file).definitions(ast.parse(source).body, ""))


class _Walk:
    """Goes through one file."""

    def __init__(self, source: str, file: str) -> None:
        self.lines = [line.encode() for line in source.splitlines(keepends=True)]
        self.file = file
        self.function = ""
        self.first = self.last = 0

    def definitions(self, body: list[ast.stmt], outer: str) -> Iterator[Mutant]:
        """The functions and methods of a module or class."""
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from self.definitions(node.body, f"{outer}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                self.function = outer + node.name
                yield from self._body(node.body)

    def _body(self, body: list[Any]) -> Iterator[Mutant]:
        for statement in body:
            yield from self._statement(statement)

    def _statement(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Assert | ast.Raise | ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
            return
        if isinstance(node, ast.Expr) and (isinstance(node.value, ast.Constant) or _silent(node.value)):
            return
        inner = [getattr(node, name) for name in _BLOCKS if getattr(node, name, None)]
        if isinstance(node, ast.stmt | ast.excepthandler):
            begins = [one.lineno for block in inner[:1] for one in block[:1] if hasattr(one, "lineno")]
            self.first = node.lineno
            self.last = max(node.lineno, begins[0] - 1) if begins else node.end_lineno or node.lineno
            first, last = self.first, self.last
            for operator, after in _of_statement(node):
                yield self._mutant(node, operator, after)
            for child in _own_expressions(node):
                self.first, self.last = first, last
                yield from self._expression(child)
        for block in inner:
            yield from self._body(block)

    def _expression(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and _silent(node)):
            return
        if isinstance(node, ast.expr):
            for operator, changed in _of_expression(node):
                yield self._mutant(node, operator, ast.unparse(changed), _argument(node, changed))
        for child in ast.iter_child_nodes(node):
            yield from self._expression(child)

    def _mutant(self, node: Located, operator: str, text: str, shown: tuple[str, str] | None = None) -> Mutant:
        before, after = shown or (self._text(node), text)
        return Mutant(
            file=self.file,
            function=self.function,
            operator=operator,
            before=_short(before),
            after=_short(after),
            text=text,
            line=node.lineno,
            column=node.col_offset,
            end_line=node.end_lineno or node.lineno,
            end_column=node.end_col_offset or 0,
            first=self.first,
            last=self.last,
        )

    def _text(self, node: Located) -> str:
        lines = self.lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"".join(lines).decode()


def _short(text: str) -> str:
    """One line of it, the middle left out where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 30]} ... {line[-25:]}"


def _argument(node: ast.AST, changed: ast.AST) -> tuple[str, str] | None:
    """A call that lost an argument is shown by that argument alone."""
    if not (isinstance(node, ast.Call) and isinstance(changed, ast.Call)) or len(node.keywords) == len(
        changed.keywords
    ):
        return None
    kept = {keyword.arg for keyword in changed.keywords}
    lost = next(keyword for keyword in node.keywords if keyword.arg not in kept)
    called = ast.unparse(node.func)
    return f"{called}(..., {lost.arg}={ast.unparse(lost.value)})", f"{called}(...)"


def _own_expressions(node: Located) -> Iterator[ast.AST]:
    """What belongs to a statement itself: no nested statements, annotations, decorators or defaults."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return
    for name, value in ast.iter_fields(node):
        if name in _BLOCKS or name == "annotation":
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                yield one


def _silent(node: ast.AST) -> bool:
    """Whether it is a call of something that only records or says."""
    return isinstance(node, ast.Call) and any(word in ast.unparse(node.func) for word in SILENT)


def _of_statement(node: Located) -> Iterator[tuple[str, str]]:
    if (
        isinstance(node, ast.AugAssign | ast.Delete | ast.Continue | ast.Break)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        or (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript))
    ):
        yield "deletion", "pass"
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield "return", "return None"


def _with(node: Node, **changes: Any) -> Node:
    changed = deepcopy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield "comparison", _with(node, ops=[COMPARISONS[type(node.ops[0])]()])
        if isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            yield "negation", ast.UnaryOp(ast.Not(), node)
    elif isinstance(node, ast.BoolOp):
        yield "logic", _with(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
        for index in range(len(node.values)):
            rest = node.values[:index] + node.values[index + 1 :]
            yield "operand", rest[0] if len(rest) == 1 else _with(node, values=rest)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "negation", node.operand
    elif isinstance(node, ast.IfExp):
        yield "branch", node.body
        yield "branch", node.orelse
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _text(node):
        yield "arithmetic", _with(node, op=ARITHMETIC[type(node.op)]())
        yield "operand", node.left
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node.value)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)


def _text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.List | ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def _of_constant(value: object) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", ast.Constant(value + 1)
        if value:
            yield "constant", ast.Constant(value - 1)


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    called = node.func.id if isinstance(node.func, ast.Name) else ""
    plain = len(node.args) > 1 and not node.keywords and not any(isinstance(arg, ast.Starred) for arg in node.args)
    if called in ("min", "max") and plain:
        yield "minmax", _with(node, func=ast.Name("max" if called == "min" else "min"))
        for arg in node.args:
            yield "operand", arg
    elif called == "cdiv" and plain:
        yield "rounding", ast.BinOp(node.args[0], ast.FloorDiv(), node.args[1])
    elif called in ROUNDING and plain:
        yield "rounding", node.args[0]
    elif called == "reversed" and len(node.args) == 1:
        yield "order", ast.Call(ast.Name("list"), [node.args[0]], [])
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield "argument", _with(node, keywords=node.keywords[:index] + node.keywords[index + 1 :])
