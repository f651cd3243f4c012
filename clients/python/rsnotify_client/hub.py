"""One hub, spoken to from threads: a request, and its answer or an error.

Rules that hold here: a connection serves one thread at a time and is kept for the next request; a
forked process never uses those of its parent. Nothing here knows when to try again, but for a
kept connection that the hub has closed meanwhile.
"""

import os
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from rsnotify.errors import Rejected
from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client.address import wrong_address, wrong_token
from rsnotify_client.answer import NOTHING_THERE, HubUnreachable, NotAHub, WrongToken, content_of
from rsnotify_client.cause import cause_of, untrusted

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
ANSWER_BYTES = 1024 * 1024

JSON = "application/json"
UNAUTHORIZED, FORBIDDEN = 401, 403
UNTRUSTED = 495  # no answer of a hub: the changes are kept
PLACES = {"change": "changes", "framework": "framework"}


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
        self._certificates: ssl.SSLContext | None = None
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._idle: list[HTTPConnection] = []
        self._process = os.getpid()

    def publish(
        self, channel: ChannelName, body: bytes, key: str, content_type: str = JSON
    ) -> Accepted:
        """Publish the changes of a body, once under this key however often it is asked."""
        headers = self._headers | {"Content-Type": content_type, "Idempotency-Key": key}
        try:
            return msgspec.convert(self._ask("POST", self._place(channel), headers, body), Accepted)
        except msgspec.ValidationError:
            raise NotAHub(self.url, "does not say what it accepted", 200) from None

    def _place(self, channel: ChannelName) -> str:
        return f"{self._path}/api/sets/{quote(channel.set_name, safe='')}/{PLACES[channel.kind]}"

    def check(self) -> None:
        """Ask whether this is a hub that knows the token; what else it may do is not asked."""
        if not self._headers:
            needed = Rejected(
                "a token is needed to publish, and none is given", status=UNAUTHORIZED
            )
            raise WrongToken(self.url, needed)
        try:
            self._ask("GET", f"{self._path}/api/sets", self._headers)
        except Rejected as error:
            if error.status != FORBIDDEN:  # only the admin may see all sets
                raise

    def check_right(self, channel: ChannelName) -> None:
        """Ask whether the token may publish to the channel, with a body that holds no change."""
        try:
            self._ask("POST", self._place(channel), self._headers | {"Content-Type": JSON}, b"[]")
        except WrongToken:
            raise
        except Rejected:
            pass  # there is no change, or no set yet

    def close(self) -> None:
        """Keep none of these connections, nor one that is being used now; later ones are kept."""
        idle, self._idle = self._idle, []
        while idle:
            idle.pop().close()

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> Any:
        try:
            return self._answered(method, path, headers, body)
        except NotAHub:
            raise
        except Rejected as refused:
            raise self._explained(refused, path) from None
        except (OSError, HTTPException) as error:
            if (why := untrusted(error)) is not None:
                raise Rejected(f"{self.url} is not spoken to: {why}", status=UNTRUSTED) from None
            raise HubUnreachable(self.url, cause_of(error)) from None

    def _explained(self, refused: Rejected, path: str) -> Rejected:
        """The refusal with the way to mend it.

        The hub cannot say it: it does not know the address that we were given.
        """
        if refused.status in (UNAUTHORIZED, FORBIDDEN):
            return WrongToken(self.url, refused)
        if self._path and refused.detail.startswith(NOTHING_THERE):
            mend = f"give the hub's address without {self._path}"
            return NotAHub(self.url, f"has nothing at {path}", refused.status, mend)
        return refused

    def _answered(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Any:
        idle = self._idle_here()
        connection, is_kept = self._connection(idle)
        is_whole = False
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read(ANSWER_BYTES)
            if answer.length and len(content) < ANSWER_BYTES:
                raise IncompleteRead(content, answer.length)
            is_whole = answer.isclosed() and not answer.will_close
        except ConnectionError:
            if not is_kept:
                raise
            # the hub closed it while it was idle
            return self._answered(method, path, headers, body)
        finally:
            if is_whole and idle is self._idle:
                idle.append(connection)
            else:
                connection.close()
        return content_of(self.url, answer.status, answer.headers.get("Retry-After"), content)

    def _idle_here(self) -> list[HTTPConnection]:
        if self._process != os.getpid():
            self._idle, self._process = [], os.getpid()
        return self._idle

    def _connection(self, idle: list[HTTPConnection]) -> tuple[HTTPConnection, bool]:
        """A connection, and whether it is one that was kept."""
        try:
            return idle.pop(), True
        except IndexError:
            return self._connect(), False

    def _connect(self) -> HTTPConnection:
        connect, answer = self._seconds
        connection = (
            HTTPSConnection(self._host, self._port, timeout=connect, context=self._trusted())
            if self._is_secure
            else HTTPConnection(self._host, self._port, timeout=connect)
        )
        connection.connect()
        connection.sock.settimeout(answer)
        connection.auto_open = 0
        return connection

    def _trusted(self) -> ssl.SSLContext:
        """Made once, without a lock that a fork could leave locked: two threads may make two."""
        if self._certificates is None:
            self._certificates = ssl.create_default_context()
        return self._certificates
