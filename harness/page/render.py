"""Puts data on a page: one HTML file with its style and script inside, which asks the network for nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from harness import __version__

_HERE = Path(__file__).parent
_TEMPLATES = Environment(
    loader=FileSystemLoader(_HERE),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
    autoescape=select_autoescape(enabled_extensions=("j2",)),
)


def film_page(film: dict[str, Any]) -> str:
    """The page of a film."""
    return _page("film.html.j2", film=film, data=embedded(film), script=_text("film.js"))


def summary_page(summary: dict[str, Any]) -> str:
    """The page of a run."""
    return _page("summary.html.j2", **summary)


def _page(template: str, **context: object) -> str:
    return _TEMPLATES.get_template(template).render(version=__version__, style=_text("page.css"), **context)


def _text(name: str) -> Markup:
    return Markup((_HERE / name).read_text(encoding="utf-8"))  # a file of ours


def embedded(data: object) -> Markup:
    """JSON that nothing inside a script element can end."""
    text = json.dumps(data, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))  # no character of markup is left
