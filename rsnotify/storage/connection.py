"""The way to Redis: connections, their time limits, and what their failures mean to a peer.

Rules that hold here: a failing Redis is `TryAgain` to whoever asked, in less than three seconds;
no exception of the client library travels further inwards. Nothing here knows a key.
"""

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import TimeoutError as AnswerLate

from rsnotify.errors import InvalidSettings, TryAgain

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0
CONNECTIONS = 64
PIECE_BYTES = 64 * 1024

# What an answer of Redis begins with when it would say otherwise a little later.
_PASSING = ("MISCONF", "LOADING", "READONLY", "OOM", "BUSY", "CLUSTERDOWN", "NOREPLICAS")

UNKNOWN_TO_IT = "unauthenticated"  # in its answer to a long command: "Protocol error: …"

_NOT_ALLOWED = (AuthenticationError, AuthorizationError, NoPermissionError)

_IN_TROUBLE = (
    AnswerLate,
    BusyLoadingError,
    ConnectionLost,
    OutOfMemoryError,
    ReadOnlyError,
    OSError,
)

Client = Any  # redis-py's stubs give every command a type that is both sync and async


class RedisRefuses(TryAgain):
    """Redis does not let this hub in, or is not let in by it: waiting alone does not mend that."""


def connect(url: str) -> Client:
    """A pool of connections to the Redis at `url`; nothing is dialled before the first command.

    Whoever finds all of them taken waits for one, no longer than for an answer.
    """
    try:
        pool = redis.BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=ANSWER_SECONDS,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            # One repetition mends a connection that died idle; every append carries its key.
            retry=Retry(ConstantBackoff(0), 1),
            protocol=2,
        )
    except ValueError as error:
        raise InvalidSettings([f"--redis {without_password(url)!r}: {error}"]) from None
    client = redis.Redis.from_pool(pool)
    client.response_callbacks.pop("XRANGE", None)  # raw pairs: the journal reads them by itself
    return client


def without_password(url: str) -> str:
    """The address as it may be shown."""
    return re.sub(r"(?<=://)[^/@]*(?=@)|(?<=password=)[^&]*", "…", url)


async def write_in_pieces(client: Client, key: str, data: bytes, *, seconds: int) -> None:
    """Write what is large so that nobody waits for all of it to reach the disk; it expires.

    A piece that is written twice, by a repetition of the client library, changes nothing.
    """
    for start in range(0, len(data), PIECE_BYTES):
        pipeline = client.pipeline(transaction=False)
        pipeline.setrange(key, start, data[start : start + PIECE_BYTES])
        pipeline.expire(key, seconds)
        await pipeline.execute()


@contextmanager
def failures_translated() -> Iterator[None]:
    """Let nothing of the client library out."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise translated(error) from error


def translated(error: Exception) -> Exception:
    """What a failure means to a peer: a Redis in trouble is `TryAgain`, all else a bug of ours."""
    refusal = _refusal(error)
    if refusal is not None:
        return RedisRefuses(refusal)
    if isinstance(error, _IN_TROUBLE):
        return TryAgain(f"the journal cannot be reached: {error or type(error).__name__}")
    if isinstance(error, ResponseError) and str(error).startswith(_PASSING):
        return TryAgain(f"the journal cannot be written: {error}")
    return error


def _refusal(error: Exception) -> str | None:
    """Why waiting will not help, and what will; None for every other failure."""
    if isinstance(error, _NOT_ALLOWED) or UNKNOWN_TO_IT in str(error):
        return f"Redis refuses this hub ({error}); check user and password in its address"
    untrusted = _untrusted(error)
    if untrusted is not None:
        return (
            f"the certificate of Redis is not trusted ({untrusted}); add "
            "?ssl_ca_certs=FILE, with the certificate of its authority, to its address"
        )
    return None


def _untrusted(error: BaseException | None) -> str | None:
    """Why a certificate was not trusted, if that is at the root of this failure."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return None
