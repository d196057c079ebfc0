"""The operators of the score, on small texts."""

from __future__ import annotations

import ast

import pytest

from harness.mutants import mutants_of


def changes(body: str) -> set[tuple[str, str]]:
    """What the operators make of one line of a function."""
    return {(one.operator, one.after) for one in mutants_of(f"def f(a, b):\n    {body}\n", "f.py")}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = a < b", {("comparison", "a <= b"), ("negation", "not a < b")}),
        ("x = a == b", {("comparison", "a != b")}),
        ("x = a is not b", {("comparison", "a is b")}),
        ("x = a and b", {("logic", "a or b"), ("operand", "a"), ("operand", "b")}),
        ("x = not a", {("negation", "a")}),
        ("x = a + b", {("arithmetic", "a - b"), ("operand", "a")}),
        ("x = a // b", {("arithmetic", "a * b"), ("operand", "a")}),
        ("x = 3", {("constant", "4"), ("constant", "2")}),
        ("x = 0", {("constant", "1")}),
        ("x = True", {("constant", "False")}),
        ("x = min(a, b)", {("minmax", "max(a, b)"), ("operand", "a"), ("operand", "b")}),
        ("x = cdiv(a, b)", {("rounding", "a // b")}),
        ("x = reversed(a)", {("order", "list(a)")}),
        ("x = a(b=b)", {("argument", "a(...)")}),
        ("x = a if b else 'c'", {("branch", "a"), ("branch", "'c'")}),
        ("a.x = b", {("deletion", "pass")}),
        ("a += b", {("deletion", "pass")}),
        ("a.append(b)", {("deletion", "pass")}),
        ("return a", {("return", "return None")}),
        ("return None", set()),
        ("assert a < b", set()),
        ("raise ValueError(1)", set()),
        ("logger.debug(1)", set()),
        ("x: Literal[1] = a", set()),
        ("x = f'{1}'", set()),
        ("x = a", set()),
        ("'''A docstring.'''", set()),
    ],
)
def test_operators(body, expected):
    assert expected == changes(body)


SOURCE = '''"""A module."""

LIMIT = 1 < 2


class Pool:
    size: int = 3

    @cache(maxsize=4)
    def take(self, n: int = 5) -> int:
        """Take n blocks."""
        if (
            n > self.free  # é, before the change
            or not n
        ):
            return min(
                n,
                self.free,
            )
        for block in self.blocks:

            def inner():
                return block + 1

            inner()
        return n
'''


def test_module_class_decorators_and_defaults_stay():
    assert not {3, 7, 9, 10} & {one.line for one in mutants_of(SOURCE, "pool.py")}


def test_nested_functions_belong_to_the_outermost():
    assert {"Pool.take"} == {one.function for one in mutants_of(SOURCE, "pool.py")}


def test_every_mutant_is_python_with_the_same_lines_and_one_place_changed():
    for mutant in mutants_of(SOURCE, "pool.py"):
        text = mutant.applied(SOURCE)

        assert text != SOURCE
        assert SOURCE.count("\n") == text.count("\n")
        assert ast.unparse(ast.parse(text)) != ast.unparse(ast.parse(SOURCE))
        assert SOURCE.splitlines()[: mutant.line - 1] == text.splitlines()[: mutant.line - 1]
        assert SOURCE.splitlines()[mutant.end_line :] == text.splitlines()[mutant.end_line :]


def test_names_are_unique():
    names = [one.name for one in mutants_of(SOURCE, "pool.py")]

    assert len(names) == len(set(names))


def test_the_statement_of_a_condition_is_its_head():
    """A body that runs says nothing of the condition, and the other way round."""
    compared = next(one for one in mutants_of(SOURCE, "pool.py") if one.operator == "comparison")

    assert (12, 15) == (compared.first, compared.last)


def test_bytes_before_the_change_are_counted_as_bytes():
    source = "def f(a):\n    x = 'é', a < 1\n"
    compared = next(one for one in mutants_of(source, "f.py") if one.operator == "comparison")

    assert "def f(a):\n    x = 'é', (a <= 1)\n" == compared.applied(source)
