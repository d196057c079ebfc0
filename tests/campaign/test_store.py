"""The store: the same of a folder and of Redis."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis.database import ExampleDatabase

from harness import tracefile
from harness.campaign import storage
from harness.campaign.storage import CORPUS, FINDING, SHARD, Stored, StoreError, look_up, open_store
from oracle.errors import TraceError

ROOT = Path(__file__).parents[2]
EXAMPLE = tracefile.read(ROOT / "tests" / "unit" / "data" / "trace.json")
ONE = "manager/columns/full_attention/A19/less/first"
OTHER = "manager/free/full_attention/A9/more"
FORK = multiprocessing.get_context("fork")


def stored(found: str, **more: object) -> Stored:
    return Stored(found=found, trace=EXAMPLE, **{"fingerprint": found, "release": "0.33.0"} | more)


def keep(store, *several: Stored) -> None:
    for one in several:
        store.put(FINDING, one.name, one.text())


def test_what_is_put_is_got(store):
    """The last one stays."""
    store.put(SHARD, "a.1", "first")
    store.put(SHARD, "a.1", "zweite ✓")

    assert ("zweite ✓", None, ["a.1"], []) == (
        store.get(SHARD, "a.1"), store.get(SHARD, "a.2"), store.names(SHARD), store.names(CORPUS)
    )  # fmt: skip


def test_a_claim_is_won_once(store):
    """The first text stays; the same one claimed again is the same claim."""
    assert [True, False, True] == [store.claim(FINDING, "x", text) for text in ("mine", "yours", "mine")]
    assert "mine" == store.get(FINDING, "x")


def _claimer(address: str, mine: int, line) -> None:
    store = open_store(address)
    won = []
    for name in range(40):
        store.put(SHARD, f"s{name}", f"{mine} " * 500)
        if store.claim(FINDING, f"f{name}", str(mine)):
            won.append(name)
    line.send(won)


def test_many_processes_write_at_once(address):
    """Each claim has one winner, and what is read is whole."""
    workers = []
    for mine in range(6):
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=_claimer, args=(address, mine, theirs))
        process.start()
        workers.append((process, ours))
    won = sorted(name for _, line in workers for name in line.recv())
    for process, _ in workers:
        process.join()
    store = open_store(address)

    assert list(range(40)) == won
    assert {500} == {len(store.get(SHARD, name).split()) for name in store.names(SHARD)}
    assert all(len(set(store.get(SHARD, name).split())) == 1 for name in store.names(SHARD))


def test_a_killed_writer_leaves_nothing_half(tmp_path):
    """What was being written is no entry."""
    script = (
        "import sys, os\nfrom harness.campaign.in_folder import FolderStore\nfrom pathlib import Path\n"
        "Path.replace = lambda *a: os._exit(9)\nFolderStore(Path(sys.argv[1])).put('shard', 'a', 'x')"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=False).returncode

    assert (9, []) == (ended, open_store(str(tmp_path)).names(SHARD))


def test_examples_of_hypothesis(store, address):
    """What one process saves another one fetches."""
    store.examples().save(b"test", b"example")
    database = open_store(address).examples()

    assert isinstance(database, ExampleDatabase)
    assert [b"example"] == list(database.fetch(b"test"))


def test_a_difference_comes_back(store, address):
    """By its whole fingerprint, by what the store calls it, by a beginning that is the only one."""
    keep(store, stored(ONE, fingerprint=f"{ONE}/smaller", shrunk=True, minimal=True, tries=7), stored(OTHER))
    names = (ONE, f"{ONE}/smaller", storage.name_of(ONE), "manager/col", storage.name_of(ONE)[:5])

    assert [ONE] * 5 == [look_up(f"{address}#{name}").found for name in names]
    assert EXAMPLE == look_up(f"{address}#{ONE}").trace


@pytest.mark.parametrize(("wanted", "said"), [("manager/", "2 differences"), ("warmup/x", "no difference"), ("", "no")])
def test_an_unknown_fingerprint(store, address, wanted, said):
    """A sentence that lists what there is."""
    keep(store, stored(ONE), stored(OTHER))
    with pytest.raises(StoreError, match=said) as refused:
        look_up(f"{address}#{wanted}")

    assert ONE in str(refused.value)


def test_an_empty_store(address):
    """Is told as one."""
    with pytest.raises(StoreError, match="no differences in"):
        look_up(f"{address}#x")


def test_a_difference_that_is_cut_off(store, address):
    """A sentence, no traceback."""
    store.put(FINDING, "0" * 12, stored(ONE).text()[:-40])
    with pytest.raises((StoreError, TraceError), match="is not a difference"):
        look_up(f"{address}#{ONE}")


@pytest.mark.parametrize("bad", ["", "http://there/", "redis://127.0.0.1:1/0", "redis://127.0.0.1:port/0"])
def test_an_address_that_is_none(bad):
    """Refused when it is opened, with the address."""
    if bad.startswith("redis"):
        pytest.importorskip("redis")
    with pytest.raises(StoreError, match=r"redis://HOST:PORT/NUMBER|does not answer"):
        open_store(bad)


def test_a_file_in_place_of_a_folder(tmp_path):
    """Is no store."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file"):
        open_store(str(tmp_path / "file"))


def test_a_password_is_not_told():
    """An address that fails is printed without it."""
    pytest.importorskip("redis")
    with pytest.raises(StoreError) as refused:
        open_store("redis://:secret@127.0.0.1:1/0")

    assert "secret" not in str(refused.value)


def test_redis_is_restarted_in_the_middle(tmp_path):
    """A command sent meanwhile waits for it; what was told before is there."""
    from harness.campaign.servers import Redis

    if Redis.missing():
        pytest.skip(Redis.missing())
    server = Redis(tmp_path)
    server.start()
    try:
        store = open_store(server.address)
        store.put(SHARD, "a", "before")
        server.away(0.5)
        store.put(SHARD, "b", "meanwhile")

        assert ["a", "b"] == store.names(SHARD)
    finally:
        server.kill()
