"""What commands of the command line take alike: words, durations, the target, the release, a trace."""

from __future__ import annotations

import os
from pathlib import Path

import click

from oracle.trace import ASPECTS


class Words(click.ParamType[frozenset[str]]):
    """A comma list out of known words."""

    name = "words"

    def __init__(self, what: str, known: tuple[str, ...]) -> None:
        self.what, self.known = what, known

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        words = [word.strip() for word in str(value).split(",") if word.strip()]
        for word in words:
            if word not in self.known:
                self.fail(f"unknown {self.what} {word!r}; known: {', '.join(self.known)}", param, ctx)
        if not words:
            self.fail(f"no {self.what} given; known: {', '.join(self.known)}", param, ctx)
        return frozenset(words)


class Duration(click.ParamType[float]):
    """Seconds: 90, 60s, 5m, 8h."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        factor = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
        try:
            seconds = float(text[:-1]) * factor if factor else float(text)
        except ValueError:
            self.fail(f"{value!r} is not a duration; write 90, 60s, 5m or 8h", param, ctx)
        if not 0 < seconds < float("inf"):
            self.fail(f"a duration must be above 0, got {value!r}", param, ctx)
        return seconds


ASPECT_WORDS = Words("aspect", ASPECTS)
target_option = click.option("--target", metavar="MODULE:CLASS", help="A Target, or a replacement of KVCacheManager.")
aspects_option = click.option(
    "--aspects",
    type=ASPECT_WORDS,
    metavar="WORD,...",
    default=frozenset(ASPECTS),
    help=f"What is compared, of {', '.join(ASPECTS)}; default all.",
)


def _choose(context: click.Context, parameter: click.Parameter, wanted: str | None) -> None:
    """Before anything imports vLLM."""
    from harness import store

    if wanted is not None:
        store.choose(wanted)


release_option = click.option(
    "--release",
    metavar="RELEASE|FOLDER",
    callback=_choose,
    expose_value=False,
    is_eager=True,
    help="Run this vLLM: one that `releases list` shows, or a folder with a vllm package in it.",
)


class TraceFile(click.Path):
    """A file, or STORE#FINGERPRINT: a difference that a campaign kept."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        from harness.campaign import storage

        reference = storage.is_reference(os.fspath(value))
        return super().convert(storage.fetched(os.fspath(value)) if reference else value, param, ctx)


trace_argument = click.argument("trace", type=TraceFile(), metavar="TRACE|STORE#FINGERPRINT")
