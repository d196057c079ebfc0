"""replay of a store's difference, and what `campaign` refuses."""

from __future__ import annotations

import socket
import sys

import pytest

from harness import tracefile
from harness.campaign import storage
from harness.campaign.servers import free_port
from harness.campaign.storage import FINDING, Stored, open_store
from tests.commands.conftest import EXAMPLE, pure, slot, target  # noqa: F401  # fixtures
from tests.commands.test_traces import DRAFTED

FOUND = "manager/columns/full_attention+sliding_window/A19/less/first"


@pytest.fixture
def filled(store, address):
    """A store with a difference, and its address."""
    one = Stored(found=FOUND, trace=DRAFTED, fingerprint=FOUND, release="0.33.0", by="night", shrunk=True)
    store.put(FINDING, one.name, one.text())
    return address


def test_replay_of_a_stored_difference(pure, filled, tmp_path):  # noqa: F811
    """As of a file with its trace."""
    (tmp_path / "trace.json").write_text(tracefile.dumps(DRAFTED))
    of_file = pure("replay", tmp_path / "trace.json", "--target", target("NoLookahead"))
    of_store = pure("replay", f"{filled}#{FOUND}", "--target", target("NoLookahead"))

    assert (1, of_file.out) == (of_store.status, of_store.out)


def test_explain_of_a_stored_difference(pure, filled, tmp_path):  # noqa: F811
    """Every command that takes a trace takes it from a store."""
    (tmp_path / "trace.json").write_text(tracefile.dumps(DRAFTED))

    assert pure("explain", tmp_path / "trace.json").out == pure("explain", f"{filled}#{storage.name_of(FOUND)}").out


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("{}#nobody", "no difference 'nobody' in {}; there are 1: "),
        ("elsewhere#nobody", "no differences in elsewhere: is it the store of a campaign?"),
        ("http://x#nobody", "a store is a folder or redis://HOST:PORT/NUMBER, got 'http://x'"),
    ],
)
def test_replay_of_what_is_not_there(pure, filled, reference, said):  # noqa: F811
    """Exit status 2, a sentence."""
    result = pure("replay", reference.format(filled))

    assert (2, "") == (result.status, result.out)
    assert said.format(filled) in result.err
    assert 1 == result.err.count("\n")


def _nobody() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "a campaign ends by --budget (8h) or by --shards"),
        (("--shards", 1, "--name", "a.b"), 2, "--name is of letters, digits and hyphens, got 'a.b'"),
        (("--shards", 1, "--levels", "rules"), 2, "unknown level 'rules'"),
        (("--shards", 1, "--target", "a:b"), 2, "--target a:b is for --levels manager or --levels scheduler"),
        (("--shards", 1, "--store", EXAMPLE), 2, "is a file; a store is a folder"),
        (("--shards", 1, "--store", "ftp://x"), 2, "a store is a folder or redis://HOST:PORT/NUMBER, got 'ftp://x'"),
        (("--shards", 1, "--resume"), 2, "no campaign campaign to go on with in slotcheck-store"),
    ],
)
def test_what_a_campaign_refuses(pure, arguments, status, said):  # noqa: F811
    """Before anything is started."""
    result = pure("campaign", *arguments)

    assert (status, "") == (result.status, result.out)
    assert said in result.err


def test_redis_that_is_down(pure):  # noqa: F811
    """At the start it is an error, with the address."""
    pytest.importorskip("redis")
    where = f"redis://{_nobody()}/0"
    result = pure("campaign", "--shards", 1, "--store", where)

    assert (2, 1) == (result.status, result.err.count("\n"))
    assert f"the store {where} does not answer" in result.err


def test_a_cluster_that_is_not_there(pure):  # noqa: F811
    """Inconclusive, with the address; nothing is begun in the store."""
    pytest.importorskip("ray")
    where = _nobody()
    result = pure("campaign", "--shards", 1, "--ray", where)

    assert 3 == result.status
    assert f"Ray at {where} cannot be reached" in result.err
    assert [] == open_store("slotcheck-store").names("plan")


def test_a_cluster_whose_address_is_none(pure):  # noqa: F811
    """Wrong use."""
    pytest.importorskip("ray")

    assert 2 == pure("campaign", "--shards", 1, "--ray", "nowhere").status


def test_without_ray(pure, monkeypatch):  # noqa: F811
    """One sentence says what to install."""
    monkeypatch.setitem(sys.modules, "ray", None)
    result = pure("campaign", "--shards", 1)

    assert (2, "slotcheck: a campaign needs Ray; install it: pip install 'slotcheck[campaign]'\n") == (
        result.status,
        result.err,
    )


def test_without_redis(pure, monkeypatch):  # noqa: F811
    """The same for a store in Redis."""
    monkeypatch.setitem(sys.modules, "redis", None)
    result = pure("replay", "redis://127.0.0.1:1/0#x")

    assert 2 == result.status
    assert "needs the package redis; install it: pip install 'slotcheck[campaign]'" in result.err


def test_the_helper_finds_a_port():
    """Nobody listens there."""
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", free_port()), 1)
