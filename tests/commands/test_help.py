"""What each command says of itself."""

from __future__ import annotations

import pytest

from harness import __version__
from harness.cli import cli

COMMANDS = [
    (),
    *[
        (name, *inner)
        for name, command in cli.commands.items()
        for inner in ((), *[(sub,) for sub in getattr(command, "commands", ())])
    ],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words) or "slotcheck")
def test_help(slot, snapshot, command):
    """Usage, purpose, options."""
    assert snapshot == slot(*command, "--help").out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words) or "slotcheck")
def test_help_is_no_error(slot, command):
    """-h is --help."""
    assert (0, slot(*command, "--help").out, "") == tuple(
        getattr(slot(*command, "-h"), name) for name in ("status", "out", "err")
    )


def test_version(slot):
    """The program's own."""
    assert f"slotcheck, version {__version__}\n" == slot("--version").out


@pytest.mark.parametrize(
    "command", [(), ("findings",), ("releases",)], ids=lambda words: " ".join(words) or "slotcheck"
)
def test_no_command_is_wrong_use(slot, command):
    """The help, and exit status 2."""
    result = slot(*command)

    assert (2, "", slot(*command, "--help").out.split("\n")[0]) == (
        result.status,
        result.out,
        result.err.split("\n")[0],
    )
