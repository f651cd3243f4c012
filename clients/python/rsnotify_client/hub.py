"""One hub, spoken to from threads: a request, and its answer or an error.

Rules that hold here: a connection serves one thread at a time and is kept for the next request; a
forked process never uses those of its parent. Nothing here knows when to try again, but for a
kept connection that the hub has closed meanwhile.
"""

import os
import ssl
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from rsnotify.errors import Rejected
from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client.answer import HubUnreachable, NotAHub, content_of
from rsnotify_client.cause import cause_of, untrusted

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
ANSWER_BYTES = 1024 * 1024

JSON = "application/json"
UNTRUSTED = 495  # no answer of a hub: the changes are kept
PLACES = {"change": "changes", "framework": "framework"}


class Accepted(msgspec.Struct, frozen=True):
    """The hub has made the changes durable; they stand in `(from_, until]`."""

    accepted: int
    from_: str = msgspec.field(name="from")
    until: str


class HubClient:
    """A hub's address and the token to speak with."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the hub's url is {url!r}: give one such as http://127.0.0.1:8080")
        self._path = parts.path
        self._host, self._port = parts.hostname, parts.port
        self._is_secure = parts.scheme == "https"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._idle: list[HTTPConnection] = []
        self._process = os.getpid()

    def publish(
        self, channel: ChannelName, body: bytes, key: str, content_type: str = JSON
    ) -> Accepted:
        """Publish the changes of a body, once under this key however often it is asked."""
        path = f"{self._path}/api/sets/{quote(channel.set_name, safe='')}/{PLACES[channel.kind]}"
        headers = self._headers | {"Content-Type": content_type, "Idempotency-Key": key}
        try:
            return msgspec.convert(self._post(path, body, headers), Accepted)
        except msgspec.ValidationError:
            raise NotAHub(self.url, "does not say what it accepted", 200) from None
        except (OSError, HTTPException) as error:
            if (why := untrusted(error)) is not None:
                raise Rejected(f"{self.url} is not spoken to: {why}", status=UNTRUSTED) from None
            raise HubUnreachable(self.url, cause_of(error)) from None

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> Any:
        connection, is_kept = self._connection()
        try:
            answer = _answer(connection, path, body, headers)
        except ConnectionError:
            connection.close()
            if not is_kept:
                raise
            return self._post(path, body, headers)  # the hub closed it while it was idle
        except BaseException:
            connection.close()
            raise
        content = answer.read(ANSWER_BYTES)
        if answer.isclosed():
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
        connection = (
            HTTPSConnection(
                self._host, self._port, timeout=CONNECT_SECONDS, context=self._certificates
            )
            if self._is_secure
            else HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        )
        connection.connect()
        connection.sock.settimeout(ANSWER_SECONDS)
        connection.auto_open = 0
        return connection

    @cached_property
    def _certificates(self) -> ssl.SSLContext:
        return ssl.create_default_context()


def _answer(
    connection: HTTPConnection, path: str, body: bytes, headers: dict[str, str]
) -> HTTPResponse:
    connection.request("POST", path, body, headers)
    return connection.getresponse()
