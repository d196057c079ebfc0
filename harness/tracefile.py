"""Trace files: JSON through cattrs, with a format number. Old formats stay readable.

What cannot be read is refused in one sentence that says where, what was found and what to do. Values that equal their
default are left out, so that a shrunk trace fits on a screen.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import cattrs
from cattrs.strategies import configure_tagged_union

from oracle.budget import RuleTrace
from oracle.errors import SettingError, SlotcheckError, TraceError
from oracle.groups import KINDS, MOST, Group
from oracle.trace import OPERATIONS, Operation, Settle, Trace, check_operation
from oracle.warmup import WARMUP_OPERATIONS, TraceOperation, WarmupTrace
from oracle.workload import SCHEDULER_OPERATIONS, SchedulerOperation, SchedulerTrace
from oracle.workload_checks import check_workload

FORMAT = 1
LEVELS = ("manager", "warmup", "rules", "scheduler")
AnyTrace = Trace | WarmupTrace | RuleTrace | SchedulerTrace
_OPERATIONS = {"manager": OPERATIONS, "warmup": WARMUP_OPERATIONS, "scheduler": SCHEDULER_OPERATIONS}


def _operation_tag(cls: type) -> str:
    """NewStep -> new_step."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


def _kind_tag(cls: type) -> str:
    return str(cls.kind)  # type: ignore[attr-defined]


def _exact(kind: type) -> Callable[[object, object], object]:
    """No coercion: a token count "3" or 3.5 in a file is a mistake to be told."""

    def structure(value: object, _: object) -> object:
        if type(value) is not kind:
            raise TypeError(f"must be of type {kind.__name__}, got {value!r}")
        return value

    return structure


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, omit_if_default=True)
    for kind in (int, bool, str):
        converter.register_structure_hook(kind, _exact(kind))
    converter.register_structure_hook(float, lambda value, _: _exact(int if type(value) is int else float)(value, _))
    groups = reduce(or_, KINDS)
    configure_tagged_union(groups, converter, tag_name="kind", tag_generator=_kind_tag)
    converter.register_structure_hook(Group, lambda value, _: converter.structure(value, groups))
    converter.register_unstructure_hook(Group, lambda group: converter.unstructure(group, unstructure_as=groups))
    for operations in _OPERATIONS.values():
        configure_tagged_union(reduce(or_, operations), converter, tag_name="op", tag_generator=_operation_tag)
    return converter


CONVERTER = _converter()
_TAGS = ("op", "kind")
_TAG_FIELDS = {"op": "operations", "kind": "setting.groups"}


def _known(tag: str, level: str) -> str:
    """What a tag may be, at the level of a trace."""
    if tag == "kind":
        return ", ".join(_kind_tag(cls) for cls in KINDS)
    return ", ".join(_operation_tag(cls) for cls in _OPERATIONS.get(level, OPERATIONS))


def dumps(trace: AnyTrace) -> str:
    """The trace as JSON text, one group and one operation a line."""
    if isinstance(trace, RuleTrace):
        [(name, question)] = CONVERTER.unstructure(trace).items()
        return f'{{\n "format": {FORMAT},\n "level": "rules",\n {json.dumps(name)}: {json.dumps(question)}\n}}\n'
    setting = CONVERTER.unstructure(trace.setting)
    groups = _lines(setting.pop("groups"), 3)
    unions: dict[str, Any] = {"warmup": TraceOperation, "scheduler": SchedulerOperation}
    union = unions.get(trace.level, Operation)
    operations = _lines([CONVERTER.unstructure(one, unstructure_as=union) for one in trace.operations], 2)
    rest = "".join(f",\n  {json.dumps(name)}: {json.dumps(value)}" for name, value in setting.items())
    head = f' "format": {FORMAT},\n "level": {json.dumps(trace.level)}'
    return f'{{\n{head},\n "setting": {{\n  "groups": {groups}{rest}\n }},\n "operations": {operations}\n}}\n'


def _lines(items: list[Any] | tuple[Any, ...], indent: int) -> str:
    if not items:
        return "[]"
    pad = " " * indent
    tagged = [{tag: item[tag] for tag in _TAGS if tag in item} | item for item in items]
    return "[\n" + ",\n".join(pad + json.dumps(item) for item in tagged) + "\n" + pad[:-1] + "]"


def loads(text: str, where: str = "the trace") -> AnyTrace:
    """Read JSON text; TraceError says in a sentence what is wrong."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"{where} is not JSON (line {error.lineno}: {error.msg}); is the file cut off?") from None
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{where} is not a trace: {error}") from None
    if not isinstance(data, dict):
        raise TraceError(f"{where} must be one JSON object, got {type(data).__name__}")
    number = data.pop("format", None)
    if type(number) is not int or number != FORMAT:
        raise TraceError(f"{where} has format {number!r}; this version reads format {FORMAT}")
    if data.get("level", "manager") not in LEVELS:
        raise TraceError(f"{where} has level {data['level']!r}; this version has: {', '.join(LEVELS)}")
    problem = _shape(data)
    if problem:
        raise TraceError(f"{where}: {problem}")
    try:
        if data.get("level") == "rules":
            return CONVERTER.structure(data, RuleTrace)
        if data.get("level") == "warmup":
            return CONVERTER.structure(data, WarmupTrace)
        if data.get("level") == "scheduler":
            workload = CONVERTER.structure(data, SchedulerTrace)
            for index, said in enumerate(workload.operations):
                _check_said(workload, index, said)
            return workload
        trace = CONVERTER.structure(data, Trace)
        for index, operation in enumerate(trace.operations):
            _check(index, operation)
    except (cattrs.BaseValidationError, SettingError, TypeError, ValueError) as error:
        raise TraceError(f"{where}: {_first_problem(error, data.get('level', 'manager'))}") from None
    return trace


def _shape(data: dict[str, Any]) -> str:
    """What must be an object or a list and is not; the converter would take it for an empty one, or say it badly."""
    for name in ("setting", "case", "draft_counts"):
        if not isinstance(data.get(name, {}), dict):
            return f"{name}: must be a JSON object"
    setting = data.get("setting", {})
    for tag, place, items in (
        ("kind", "setting.groups", setting.get("groups", [])),
        ("op", "operations", data.get("operations", [])),
    ):
        if not isinstance(items, list):
            return f"{place}: must be a list"
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                return f"{place}[{index}]: must be a JSON object"
            if not isinstance(item.get(tag, ""), str):
                return f"{place}[{index}]: {tag} must be of type str, got {item[tag]!r}"
    return ""


def _check_said(trace: SchedulerTrace, index: int, operation: SchedulerOperation) -> None:
    try:
        check_workload(trace.setting, operation)
    except SettingError as error:
        raise SettingError(f"operations[{index}]: {error}") from None


def _check(index: int, operation: Operation) -> None:
    try:
        check_operation(operation)
        _check_accepted(operation)
    except SettingError as error:
        raise SettingError(f"operations[{index}]: {error}") from None


def _check_accepted(operation: Operation) -> None:
    for pair in operation.accepted if isinstance(operation, Settle) else ():
        if min(pair) < 0:
            raise SettingError(f"accepted must be requests and drafts of at least 0, got {list(pair)}")
        if max(pair) > MOST:
            raise SettingError(f"accepted must be requests and drafts of at most {MOST}, got {list(pair)}")


def _first_problem(error: BaseException, level: str) -> str:
    """The innermost error with its place, as a sentence."""
    places: list[str] = []
    while isinstance(error, BaseExceptionGroup):
        unknown = [inner for inner in error.exceptions if isinstance(inner, cattrs.ForbiddenExtraKeysError)]
        inner = (unknown or error.exceptions)[0]  # a field that is misspelt is also missing
        for note in getattr(inner, "__notes__", ()):
            found = re.search(r"attribute (\w+)|@ index (\d+)", str(note))
            if found:
                places.append(found.group(1) or f"[{found.group(2)}]")
        error = inner
    place = "".join(part if part.startswith("[") else f".{part}" for part in places).lstrip(".")
    return f"{place + ': ' if place else ''}{_say(error, place, level)}"


def _say(error: BaseException, place: str, level: str) -> str:
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        names = ", ".join(repr(name) for name in sorted(error.extra_fields))
        return f"unknown field {names} of {error.cl.__name__}"
    if isinstance(error, KeyError):
        name = str(error.args[0])
        tag = next((tag for tag, field in _TAG_FIELDS.items() if place.startswith(field)), "")
        if tag and place.endswith("]"):
            problem = f"{tag!r} is missing" if name == tag else f"unknown {tag} {name!r}"
            return f"{problem}; known: {_known(tag, level)}"
        return f"{name!r} is missing"
    if isinstance(error, TypeError) and "not iterable" in str(error):
        return "must be a list"
    return str(error)


def read(path: Path) -> Trace:
    """Read a trace file of the manager level."""
    trace = read_any(path)
    if not isinstance(trace, Trace):
        raise TraceError(f"{path} is a trace of the {trace.level} level, which this command does not take; use replay")
    return trace


def read_any(path: Path) -> AnyTrace:
    """Read a trace file of any level."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TraceError(f"no trace file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"trace file {path} cannot be read: {error}") from None
    return loads(text, str(path))


def json_text(data: object) -> str:
    """JSON for machines: sorted by us, one object, a newline at the end."""
    return json.dumps(data, indent=2) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all; SlotcheckError when the folder does not allow it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(text, encoding="utf-8")
            aside.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise
    except FileExistsError:
        raise SlotcheckError(f"cannot write {path}: {path.parent} is not a folder; choose another one") from None
    except OSError as error:
        raise SlotcheckError(f"cannot write {path}: {error.strerror}; choose another folder") from None
