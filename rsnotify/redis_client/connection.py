"""The one door to Redis: clients of a server, of what Sentinels watch, of a Cluster.

If Redis fails, the caller gets `TryAgain` in less than three seconds, or in four if a connection
had to be made for it. Everything that is sent through `connect()` fails with errors of this
project, also in a pipeline or a script. A command whose answer was lost may be repeated, so each
command must be repeatable.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from rsnotify.errors import PartAway, TryAgain
from rsnotify.redis_client.address import Address
from rsnotify.redis_client.client import RedisClient, answer_raw, pool_options
from rsnotify.redis_client.cluster.nodes import ToAnyNode, ToAnyNodeWithTLS
from rsnotify.redis_client.cluster.router import ClusterClient
from rsnotify.redis_client.pool import Pool
from rsnotify.redis_client.replicas import Replicas
from rsnotify.redis_client.sentinel import PrimaryPool, ToPrimary, ToPrimaryWithTLS, sentinels_at

Client = Any  # redis-py's stubs give every command a type that is both sync and async
Parsed = TypeVar("Parsed")


def connect(url: str, *, replicas: int = 0) -> Client:
    """A pool of connections to the Redis at `url`; nothing is dialled before the first command.

    If all are in use, the caller waits for one, no longer than for an answer. What is sent by
    `once` or `durably` is answered when so many replicas have it.
    """
    address = Address.parse(url)
    client: Client
    if address.nodes:
        client = ClusterClient.at(address, Replicas(replicas))
    else:
        client = RedisClient.from_pool(_pool_at(url))
        client.replicas = Replicas(replicas)
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


def each(answers: Iterable[Any], parse: Callable[[Any], Parsed]) -> list[Parsed | Exception]:
    """The answers, parsed; an error of one is returned in its place.

    If Redis itself fails, that is raised; not if it is one node of a Cluster.
    """
    return [_parsed(answer, parse) for answer in answers]


def _parsed(answer: Any, parse: Callable[[Any], Parsed]) -> Parsed | Exception:
    if isinstance(answer, TryAgain) and not isinstance(answer, PartAway):
        raise answer
    if isinstance(answer, Exception):
        return answer
    try:
        return parse(answer)
    except Exception as error:  # data that the hub has not written
        return error
