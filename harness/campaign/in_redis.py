"""A store in Redis: a hash for each kind, and Hypothesis's own Redis database for its examples.

A command that fails because the server is away is sent again for a while, so that a server that is restarted costs
seconds. What the server itself forgot then (without `appendonly yes`: the last seconds) a campaign writes again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.campaign.storage import StoreError

if TYPE_CHECKING:
    from hypothesis.database import ExampleDatabase

PREFIX = "slotcheck:"
#: tries after the first, 0.1 s to 3 s apart: together half a minute
TRIES, LONGEST = 14, 3.0
#: seconds until a server that does not answer counts as away
PATIENCE = 5.0


class RedisStore:
    """See `storage.Store`."""

    def __init__(self, address: str) -> None:
        try:
            import redis
            from redis.backoff import ExponentialBackoff
            from redis.retry import Retry
        except ImportError:
            raise StoreError(
                f"the store {address} needs the package redis; install it: pip install 'slotcheck[campaign]'"
            ) from None
        self.address = re.sub(r"//[^@/]*@", "//...@", address)  # passwords are nobody's to read
        self._errors = redis.RedisError
        patient = Retry(ExponentialBackoff(cap=LONGEST, base=0.1), TRIES)
        away: list[type[Exception]] = [redis.ConnectionError, redis.TimeoutError]
        try:
            limits: dict[str, Any] = {"socket_connect_timeout": PATIENCE, "socket_timeout": PATIENCE}
            once: Any = redis.Redis.from_url(address, retry=None, **limits)
            self.server: Any = redis.Redis.from_url(address, retry=patient, retry_on_error=away, **limits)
        except ValueError as error:
            raise StoreError(f"a store in Redis is redis://HOST:PORT/NUMBER, got {address!r}: {error}") from None
        with self._told():
            once.ping()
            once.close()

    def get(self, kind: str, name: str) -> str | None:
        with self._told():
            text = self.server.hget(PREFIX + kind, name)
        return None if text is None else text.decode()

    def put(self, kind: str, name: str, text: str) -> None:
        with self._told():
            self.server.hset(PREFIX + kind, name, text)

    def claim(self, kind: str, name: str, text: str) -> bool:
        with self._told():
            if self.server.hsetnx(PREFIX + kind, name, text):
                return True
        return self.get(kind, name) == text  # ours too where the answer to the first try was lost

    def names(self, kind: str) -> list[str]:
        with self._told():
            return sorted(name.decode() for name in self.server.hkeys(PREFIX + kind))

    def examples(self) -> ExampleDatabase:
        from hypothesis.extra.redis import RedisExampleDatabase

        return RedisExampleDatabase(self.server, key_prefix=f"{PREFIX}hypothesis:".encode())

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StoreError(f"the store {self.address} does not answer: {why}; is the server up?") from None
