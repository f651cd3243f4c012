"""One hub, spoken to from threads: a request, and its answer or an error.

Rules that hold here: a connection serves one thread at a time and is kept for the next request; a
forked process never uses those of its parent. A request is a generator, which stops between sending
and reading: so one thread can send several before it reads the first answer. Nothing here knows
when to try again, but for a kept connection that the hub has closed meanwhile.
"""

import os
import ssl
from collections.abc import Generator, Iterable
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client.address import wrong_address, wrong_token
from rsnotify_client.answer import HubUnreachable, NotAHub, content_of
from rsnotify_client.batch import Batch
from rsnotify_client.cause import cause_of, untrusted

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
LEAST_SECONDS = 0.1  # for an answer that may have come while others were waited for
ANSWER_BYTES = 1024 * 1024

JSON = "application/json"
FORBIDDEN = 403
UNTRUSTED = 495  # no answer of a hub: the changes are kept
PLACES = {"change": "changes", "framework": "framework"}

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A request: the first step sends it, the last one returns what was answered."""


class Accepted(msgspec.Struct, frozen=True):
    """The hub has made the changes durable; they stand in `(from_, until]`."""

    accepted: int
    from_: str = msgspec.field(name="from")
    until: str


class HubClient:
    """A hub's address and the token to speak with."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.url = url.rstrip("/")
        if (wrong := wrong_address(self.url)) is not None:
            raise ValueError(f"the hub's url is {url!r}: {wrong}")
        if token and (wrong := wrong_token(token)) is not None:
            raise ValueError(f"the token cannot be sent: {wrong}")
        parts = urlsplit(self.url)
        self._path = parts.path
        self._host, self._port = parts.hostname or "", parts.port
        self._seconds = (connect_seconds, answer_seconds)
        self._is_secure = parts.scheme == "https"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._idle: list[HTTPConnection] = []
        self._process = os.getpid()

    def publish(
        self, channel: ChannelName, body: bytes, key: str, content_type: str = JSON
    ) -> Accepted:
        """Publish the changes of a body, once under this key however often it is asked."""
        return _at_once(self._publish(channel, body, key, content_type, self._until()))

    def publish_together(
        self, batches: Iterable[Batch]
    ) -> list[tuple[Batch, Accepted | Rejected | TryAgain]]:
        """Publish each batch in a request of its own, all before the first answer is read.

        If the hub cannot be reached, the batches that were not sent yet are left out.
        """
        until = self._until()
        sent: list[tuple[Batch, Steps[Accepted], Rejected | TryAgain | None]] = []
        for batch in batches:
            request = self._publish(batch.channel, batch.body, batch.key, JSON, until)
            error = _send(request)
            sent.append((batch, request, error))
            if isinstance(error, HubUnreachable):
                break
        return [
            (batch, _outcome(request) if error is None else error) for batch, request, error in sent
        ]

    def check(self) -> None:
        """Ask whether this is a hub that knows the token; what else it may do is not asked."""
        try:
            path = f"{self._path}/api/sets"
            _at_once(self._ask("GET", path, self._headers, None, self._until()))
        except Rejected as error:
            if error.status != FORBIDDEN:  # only the admin may see all sets
                raise

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _until(self) -> float:
        """When an answer to what is asked now comes too late."""
        return monotonic() + self._seconds[1]

    def _publish(
        self, channel: ChannelName, body: bytes, key: str, content_type: str, until: float
    ) -> Steps[Accepted]:
        path = f"{self._path}/api/sets/{quote(channel.set_name, safe='')}/{PLACES[channel.kind]}"
        headers = self._headers | {"Content-Type": content_type, "Idempotency-Key": key}
        content = yield from self._ask("POST", path, headers, body, until)
        try:
            return msgspec.convert(content, Accepted)
        except msgspec.ValidationError:
            raise NotAHub(self.url, "does not say what it accepted", 200) from None

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, until: float
    ) -> Steps[Any]:
        try:
            return (yield from self._exchange(method, path, headers, body, until))
        except (OSError, HTTPException) as error:
            if (why := untrusted(error)) is not None:
                raise Rejected(f"{self.url} is not spoken to: {why}", status=UNTRUSTED) from None
            raise HubUnreachable(self.url, cause_of(error)) from None

    def _exchange(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, until: float
    ) -> Steps[Any]:
        connection, is_kept = self._connection()
        is_whole = False
        try:
            _wait_at_most(connection, until)
            connection.request(method, path, body, headers)
            yield
            _wait_at_most(connection, until)
            answer = connection.getresponse()
            content = answer.read(ANSWER_BYTES)
            is_whole = answer.isclosed()
        except ConnectionError:
            if not is_kept:
                raise
            # the hub closed it while it was idle
            return (yield from self._exchange(method, path, headers, body, until))
        finally:
            if is_whole:
                self._idle.append(connection)
            else:
                connection.close()
        return content_of(self.url, answer.status, answer.headers.get("Retry-After"), content)

    def _connection(self) -> tuple[HTTPConnection, bool]:
        """A connection, and whether it is one that was kept."""
        if self._process != os.getpid():
            self._idle, self._process = [], os.getpid()
        try:
            return self._idle.pop(), True
        except IndexError:
            return self._connect(), False

    def _connect(self) -> HTTPConnection:
        seconds = self._seconds[0]
        connection = (
            HTTPSConnection(self._host, self._port, timeout=seconds, context=self._certificates)
            if self._is_secure
            else HTTPConnection(self._host, self._port, timeout=seconds)
        )
        connection.connect()
        connection.auto_open = 0
        return connection

    @cached_property
    def _certificates(self) -> ssl.SSLContext:
        return ssl.create_default_context()


def _at_once(request: Steps[T]) -> T:
    """Take all steps that are left."""
    while True:
        try:
            next(request)
        except StopIteration as end:
            found: T = end.value
            return found


def _send(request: Steps[Any]) -> Rejected | TryAgain | None:
    """Take the first step; what went wrong."""
    try:
        next(request)
    except (Rejected, TryAgain) as error:
        return error
    return None


def _outcome(request: Steps[T]) -> T | Rejected | TryAgain:
    try:
        return _at_once(request)
    except (Rejected, TryAgain) as error:
        return error


def _wait_at_most(connection: HTTPConnection, until: float) -> None:
    connection.sock.settimeout(max(until - monotonic(), LEAST_SECONDS))
