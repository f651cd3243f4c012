"""The one door to Redis: clients of a server, of what Sentinels watch, of a Cluster.

If Redis fails, the caller gets `TryAgain` in less than three seconds, or in four if a connection
had to be made for it. Everything that is sent through `connect()` fails with errors of this
project, also in a pipeline or a script. A command whose answer was lost may be repeated, so each
command must be repeatable.

Sentinels say which Redis is the primary. Each new connection to it asks all Sentinels at once and
believes the newest configuration among the answers, so one that was cut off from the others leads
nobody astray. As soon as the process has learnt of another primary, no idle connection to the old
one is used again, as that may go on for long and accept what it will lose. So the Sentinels are
asked once a second as well, by `look_for_newer`.
"""

import asyncio
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

from redis import asyncio as redis
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost

from rsnotify.errors import RedisRefuses, TryAgain
from rsnotify.redis_client.address import Address, Host
from rsnotify.redis_client.client import (
    RedisClient,
    Replicas,
    answer_raw,
    pool_options,
)
from rsnotify.redis_client.cluster import ClusterClient, ToAnyNode, ToAnyNodeWithTLS
from rsnotify.redis_client.failures import nobody_knows
from rsnotify.redis_client.pool import DirectConnection, Pool
from rsnotify.single_flight import SingleFlight

ASK_SECONDS = 0.5  # for a Sentinel to be connected with, and again to answer
LOOK_SECONDS = 0.05  # for all of them, where others wait meanwhile
UNKNOWN_NAME = "No such master"


class _Primary(NamedTuple):
    """What one Sentinel says; the greatest is the newest."""

    epoch: int
    is_settled: bool  # the one that leads a failover names the old primary until all have followed
    host: str
    port: int


class Sentinels:
    """The Sentinels, which know the primary; `latest` is what they said last."""

    def __init__(self, address: Address) -> None:
        self.latest: Host | None = None
        self._answered = 0  # of them, when they were asked last
        self._hosts = address.sentinels
        self._name = address.name
        self._options = address.sentinel_options | {
            "socket_connect_timeout": ASK_SECONDS,
            "socket_timeout": ASK_SECONDS,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        self._asking: SingleFlight[str, Host] = SingleFlight("question to the Sentinels")

    async def primary(self) -> Host:
        """The primary; asked once for all who want to know at the same time."""
        return await self._asking.result(self._name, self._ask_all)

    async def why_too_few(self) -> str:
        """That without most of them no replica can take over; nothing if so many answer."""
        with suppress(TryAgain):
            await self.primary()
        if 2 * self._answered > len(self._hosts):
            return ""
        said = f"{self._answered} of {len(self._hosts)} Sentinels answer"
        return f"{said}: without most of them no replica takes over if the primary fails"

    async def _ask_all(self) -> Host:
        asked = (self._ask(host) for host in self._hosts)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        known = [answer for answer in answers if isinstance(answer, _Primary)]
        self._answered = len(known)
        if not known:
            errors = [each for each in answers if isinstance(each, Exception)]
            if any(UNKNOWN_NAME in str(error) for error in errors):
                raise RedisRefuses(f"the Sentinels know no primary of the name {self._name!r}")
            raise nobody_knows("Sentinel", errors)
        newest = max(known)
        self.latest = newest.host, newest.port
        return self.latest

    async def _ask(self, host: Host) -> _Primary:
        options = self._options | {"host": host[0], "port": host[1]}
        async with redis.Redis.from_pool(redis.ConnectionPool(**options)) as client:
            said: Any = await client.sentinel_master(self._name)
        is_settled = "failover_in_progress" not in said["flags"]
        return _Primary(int(said["config-epoch"]), is_settled, said["ip"], int(said["port"]))


class ToPrimary(Connection):
    """A connection to the primary of the moment."""

    def __init__(self, *, sentinels: Sentinels, **options: Any) -> None:
        super().__init__(**options)
        self._sentinels = sentinels

    @property
    def is_outdated(self) -> bool:
        return self.is_connected and (self.host, self.port) != self._sentinels.latest

    async def _connect(self) -> None:
        self.host, self.port = await self._sentinels.primary()
        await super()._connect()  # type: ignore[no-untyped-call]

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        """A Sentinel may not know yet that it is a primary no more."""
        await super().on_connect_check_health(check_health)
        await self.send_command("ROLE", check_health=False)
        role, *_ = await self.read_response()
        if role != b"master" or self.is_outdated:
            raise ConnectionLost(f"{self.host}:{self.port} is not the primary")


class ToPrimaryWithTLS(ToPrimary, SSLConnection):
    """The same with TLS."""


class PrimaryPool(Pool):
    """A pool of connections to the primary."""

    async def look_for_newer(self) -> None:
        """Ask the Sentinels, but wait for none that is away: its answer counts the next time."""
        with suppress(TimeoutError, TryAgain):
            async with asyncio.timeout(LOOK_SECONDS):
                await self.connection_kwargs["sentinels"].primary()

    async def ensure_connection(self, connection: Any) -> None:
        if connection.is_outdated:
            await connection.disconnect()
        await super().ensure_connection(connection)

    def is_ready(self, connection: DirectConnection) -> bool:
        return super().is_ready(connection) and not connection.library_connection.is_outdated


@lru_cache(maxsize=8)
def sentinels_at(url: str) -> Sentinels:
    """One `Sentinels` for all pools of a process, so that what one pool learns all know."""
    return Sentinels(Address.parse(url))


Client = Any  # redis-py's stubs give every command a type that is both sync and async


def connect(url: str, *, replicas: Replicas | None = None) -> Client:
    """A pool of connections to the Redis at `url`; nothing is dialled before the first command.

    If all are in use, the caller waits for one, no longer than for an answer. What is sent by
    `once` or `durably` is answered when these replicas have it.
    """
    address = Address.parse(url)
    client: Client
    if address.nodes:
        client = ClusterClient.at(address, replicas or Replicas(0))
    else:
        client = RedisClient.from_pool(_pool_at(url))
        client.replicas = replicas or Replicas(0)
        answer_raw(client)
    client.listening_pool = partial(_pool_at, url)
    return client


def _pool_at(url: str) -> Pool:
    """Connections to the Redis at `url`, or to any node if it is a Cluster."""
    options = pool_options() | _dialled(url)
    kind = PrimaryPool if "sentinels" in options else Pool
    return kind(**options)


def _dialled(url: str) -> dict[str, Any]:
    """The options that the client library gets for an address."""
    address = Address.parse(url)
    if address.nodes:
        to_any = ToAnyNodeWithTLS if address.has_tls else ToAnyNode
        return address.options | {"connection_class": to_any, "nodes": address.nodes}
    if not address.sentinels:
        return address.options
    kind = ToPrimaryWithTLS if address.has_tls else ToPrimary
    return address.options | {"connection_class": kind, "sentinels": sentinels_at(url)}
