"""Classes of attrs as `hatch_build.py` writes them out for mypyc: they do what attrs makes them do."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

pytestmark = pytest.mark.skipif(find_spec("hatchling") is None, reason="no hatchling")

ROOT = Path(__file__).parents[2]
SOURCE = '''"""Some classes."""

from __future__ import annotations

from attrs import define, field, frozen


@define(slots=True)
class Row:
    """A row."""

    name: str
    blocks: tuple[int, ...] = ()
    """Ids."""
    seen: list[int] = field(factory=list)
    note: str = field(default="none", eq=False)

    @property
    def held(self) -> int:
        """How many."""
        return len(self.blocks)


@define(eq=False, kw_only=True)
class Longer(Row):
    more: int
    last: bool = False


@define
class Checked:
    size: int = field(validator=lambda *_: None)


@define(order=True)
class Ordered:
    size: int


@frozen
class Fixed:
    size: int


@define
class Odd:
    known = 3
    size: int
'''


def _hook() -> ModuleType:
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hook = module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


def _module(name: str, source: str) -> Any:
    """The classes of a source, in a module that pickle finds."""
    module = sys.modules[name] = ModuleType(name)
    exec(source, module.__dict__)  # the source is above
    return module


@pytest.fixture(scope="module", name="source")
def fixture_source() -> str:
    written: dict[str, str] = _hook().written_out({"a.py": SOURCE})
    return written["a.py"]


@pytest.fixture(scope="module", params=["attrs", "written out"])
def classes(request: pytest.FixtureRequest, source: str) -> Any:
    if request.param == "attrs":
        return _module("as_attrs", SOURCE)
    return _module("as_written", source)


def test_which_classes_are_written_out(source: str) -> None:
    """Those whose fields have defaults, factories and eq alone; others are left to attrs."""
    made = re.findall(r"^@(\w+).*\nclass (\w+)", source, re.MULTILINE)

    assert made == [
        ("mypyc_attr", "Row"),
        ("mypyc_attr", "Longer"),
        ("define", "Checked"),
        ("define", "Ordered"),
        ("frozen", "Fixed"),
        ("define", "Odd"),
    ]


def test_arguments_and_defaults(classes: Any) -> None:
    """By place and by name; each object has a list of its own."""
    one, other = classes.Row("a", (1, 2)), classes.Row(name="b")
    one.seen.append(4)

    assert ("a", (1, 2), [4], "none", 2) == (one.name, one.blocks, one.seen, one.note, one.held)
    assert ("b", (), []) == (other.name, other.blocks, other.seen)


def test_a_class_with_keywords_takes_the_fields_of_its_base_by_place(classes: Any) -> None:
    one = classes.Longer("a", (1,), more=3)

    assert ("a", (1,), 3, False, 1) == (one.name, one.blocks, one.more, one.last, one.held)
    with pytest.raises(TypeError):
        classes.Longer("a", (1,), [], "", 3)


def test_equality(classes: Any) -> None:
    """By the fields that are compared, of one class; without eq as its base."""
    one = classes.Row("a", (1,))

    assert one == classes.Row("a", (1,), note="another")
    assert one != classes.Row("a", (2,))
    assert one != "a"
    assert one != classes.Longer("a", (1,), more=1)
    assert classes.Longer("a", more=1) == classes.Longer("a", more=2)


def test_repr_and_fields(classes: Any) -> None:
    """As attrs shows them, in its order."""
    one = classes.Longer("a", more=1)

    assert "Longer(name='a', blocks=(), seen=[], note='none', more=1, last=False)" == repr(one)
    assert ["name", "blocks", "seen", "note", "more", "last"] == [field.name for field in attrs.fields(type(one))]


@pytest.mark.parametrize("again", [copy.copy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"])
def test_a_copy_is_the_same(classes: Any, again: Any) -> None:
    """Also of a class with keywords."""
    one = classes.Longer("a", (1,), [3], "x", more=1, last=True)

    assert repr(one) == repr(again(one))


def test_evolve(classes: Any) -> None:
    """One field is changed, the others stay."""
    one = classes.Row("a", (1,), [3], "x")

    assert "Row(name='a', blocks=(2,), seen=[3], note='x')" == repr(attrs.evolve(one, blocks=(2,)))


def test_a_base_of_another_module(source: str) -> None:
    """Its fields come first; their types need no name here."""
    other = "from __future__ import annotations\n\nfrom attrs import define\n\nfrom as_written import Row\n\n\n"
    other += "@define\nclass Wide(Row):\n    size: int = 1\n"
    _module("as_written", source)
    written = _hook().written_out({"b.py": other, "a.py": SOURCE})

    wide = _module("as_wide", written["b.py"]).Wide("a", size=2)
    assert "Wide(name='a', blocks=(), seen=[], note='none', size=2)" == repr(wide)
