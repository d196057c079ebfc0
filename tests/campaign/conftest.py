"""Both stores, the real servers, and a campaign without a cluster."""

from __future__ import annotations

import pytest

from harness.campaign.servers import Redis
from harness.campaign.storage import open_store


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """A Redis server for this process's tests."""
    if Redis.missing():
        pytest.skip(Redis.missing())
    server = Redis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def redis_address(redis_server):
    """An empty Redis."""
    import redis

    redis.Redis.from_url(redis_server.address).flushall()
    return redis_server.address


@pytest.fixture(params=["folder", "redis"])
def address(request, tmp_path):
    """The address of an empty store of each kind."""
    return str(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("redis_address")


@pytest.fixture
def store(address):
    """An empty store of each kind."""
    return open_store(address)
