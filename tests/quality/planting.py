"""The table of planted defects, and what plants them.

Two sorts. `@planted` ones sit in the real manager: a function patches methods or numbers of one manager, of its pool or
of the manager of one group, never of a class, so that tests in one process do not disturb each other. `@edited` ones
are the oracle with one rule changed; they need no vLLM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import frozen

from oracle.allocator import Allocator
from oracle.groups import Group
from oracle.setting import Setting
from oracle.trace import Target

MakeTarget = Callable[[Setting], Target]


#: what a tight pool makes of a count that is too small (the target goes on) or too large (it gives up)
TIGHT = {
    "": (),
    "granted": tuple(f"outcome/{rule}/{sign}" for rule in ("A13", "A15") for sign in ("granted", "error:ValueError")),
    "refused": ("outcome/A16/refused",),
}


@frozen
class Defect:
    """One planted defect. `shows`: the differences that it may make, as "aspect/rule/sign", the usual one first."""

    name: str
    make: MakeTarget
    shows: tuple[str, ...]
    real: bool

    def __str__(self) -> str:
        return self.name


DEFECTS: dict[str, Defect] = {}


def planted(*shows: str, tight: str = "") -> Callable[[Callable[[Any, Setting], None]], Callable[[Any, Setting], None]]:
    """Add a defect of the real manager: the function changes a manager that was just built."""

    def add(change: Callable[[Any, Setting], None]) -> Callable[[Any, Setting], None]:
        def make(setting: Setting) -> Target:
            from harness.targets.manager import Manager

            target = Manager(setting)
            change(target, setting)
            return target

        DEFECTS[change.__name__] = Defect(change.__name__, make, shows + TIGHT[tight], real=True)
        return change

    return add


def edited(*shows: str, tight: str = "") -> Callable[[type[Any]], type[Any]]:
    """Add an edit of the oracle: a subclass of its allocator, or of the rules of a family of kinds."""

    def add(edit: type[Any]) -> type[Any]:
        family = edit.__bases__[0]

        def make(setting: Setting) -> Target:
            if issubclass(edit, Allocator):
                return edit(setting)
            target = Allocator(setting)
            target.rules = [edit(rule.group, setting) if type(rule) is family else rule for rule in target.rules]
            return target

        DEFECTS[edit.__name__] = Defect(edit.__name__, make, shows + TIGHT[tight], real=False)
        return edit

    return add


def replace(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace a method of one object; the replacement gets the original as its first argument."""

    def install(replacement: Callable[..., Any]) -> None:
        setattr(owner, name, partial(replacement, getattr(owner, name)))

    return install


def ask(target: Any, change: Callable[[Any, int, dict[str, Any]], None]) -> None:
    """Change the arguments of each `allocate_slots` before the manager sees them."""

    @replace(target.manager, "allocate_slots")
    def allocate_slots(original: Callable[..., Any], request: Any, new: int, **arguments: Any) -> Any:
        change(request, new, arguments)
        return original(request, new, **arguments)


def singles(target: Any, setting: Setting, kind: type[Group], **fields: Any) -> Iterator[Any]:
    """The real managers of the groups of a kind (with these field values), in configuration order."""
    for single, group in zip(target.manager.coordinator.single_type_managers, setting.groups, strict=True):
        if isinstance(group, kind) and all(getattr(group, name) == value for name, value in fields.items()):
            yield single


def has_row(target: Any, request: Any) -> bool:
    """Whether the real manager has a row for a request."""
    return any(table.get(request.request_id) for table in target.tables)
