"""Follow a channel: every notification once and in order, across lost connections.

Rules that hold here: the `until` of the last notification is the cursor; a notification that does
not join it is not handed on, the channel is resumed from the cursor instead.
"""

import asyncio
import logging
import random
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.notification import BEGINS
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify_client.cause import cause_of, untrusted
from rsnotify_client.retry import delay_seconds

log = logging.getLogger(__name__)

NOTIFICATION_BYTES = 16 * 1024 * 1024
FINAL_CODES = frozenset({1008, 4400, 4404, 4410})  # another try would end the same

CHANNEL_URL = re.compile(
    r"ws(?P<secure>s?)://(?P<rest>.+)/channels/(?P<name>[^/]+)/(?P<kind>\w+)_notification_channel"
)


class Received(msgspec.Struct, frozen=True):
    """One notification, as it came and as it reads."""

    payload: bytes
    from_: Position
    until: Position
    changes: tuple[Change, ...]


class NotJoined(Exception):
    """A notification was lost on the way: the next one does not begin at the cursor."""


def channel_url(url: str, set_name: str, kind: Literal["change", "framework"] = "change") -> str:
    """The WebSocket address of a set's channel on the hub at `url`."""
    scheme, _, rest = url.rstrip("/").partition("://")
    scheme = {"http": "ws", "https": "wss"}.get(scheme, scheme)
    return f"{scheme}://{rest}/channels/{set_name}/{kind}_notification_channel"


def channel_named(url: str) -> str:
    """The channel in a reader's words, such as `dataset1/change at http://127.0.0.1:8080`."""
    parts = CHANNEL_URL.fullmatch(url)
    if parts is None:
        return url
    return f"{parts['name']}/{parts['kind']} at http{parts['secure']}://{parts['rest']}"


class Follower:
    """Iterate over it for the notifications of one channel; keep `cursor` to go on another day.

    Whoever stops before the end closes the iteration, `aclosing(aiter(follower))`, and with it the
    connection.
    """

    def __init__(
        self, url: str, *, cursor: Position | None = None, token: str | None = None
    ) -> None:
        self.cursor = cursor
        self._url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._begins: Position | None = None
        self._attempt = 0
        self._lost = False

    async def __aiter__(self) -> AsyncGenerator[Received, None]:
        while True:
            try:
                async with aclosing(self._one_connection()) as notifications:
                    async for received in notifications:
                        self.cursor, self._attempt = received.until, 0
                        yield received
                problem = "the hub closed the channel"
            except (ConnectionClosed, InvalidHandshake, OSError, NotJoined) as error:
                if (refused := _final(error)) is not None:
                    raise refused from None
                problem = _in_short(error)
            await self._pause(problem)

    async def _one_connection(self) -> AsyncGenerator[Received, None]:
        async with connect(
            self._resumed_url(),
            additional_headers=self._headers,
            max_size=NOTIFICATION_BYTES,
            open_timeout=10,
            ping_interval=None,  # the hub pings
        ) as connection:
            self._say_connected()
            self._begins = self._begins or _beginning_of(connection)
            async for payload in connection:
                received = read_notification(payload)
                if self.cursor is not None and received.from_ > self.cursor:
                    raise NotJoined(f"nothing came between {self.cursor} and {received.from_}")
                yield received

    def _resumed_url(self) -> str:
        """Before the first notification came, what counts is where the hub let us begin."""
        resume = self.cursor or self._begins
        return self._url if resume is None else f"{self._url}?from={resume}"

    def _say_connected(self) -> None:
        if not self._lost:
            log.info("following %s", channel_named(self._url))
        else:
            log.info("connected again, resuming after %s", self.cursor or self._begins)
        self._lost = False

    async def _pause(self, problem: str) -> None:
        wait = delay_seconds(self._attempt, random.random())  # noqa: S311
        self._attempt += 1
        self._lost = self._begins is not None
        log.warning("%s; trying again in %.1f s", problem, wait)
        await asyncio.sleep(wait)


def read_notification(payload: str | bytes) -> Received:
    """The changes and the interval of a notification's `<urlset>`."""
    data = payload.encode() if isinstance(payload, str) else payload
    document = parse_document(data)
    if document.md is None or document.md.from_ is None or document.md.until is None:
        raise Rejected("the notification has no interval (rs:md from and until)")
    return Received(
        data,
        Position.parse(document.md.from_),
        Position.parse(document.md.until),
        tuple(map(change_of, document.entries)),
    )


def _beginning_of(connection: ClientConnection) -> Position | None:
    """Where the hub says that we begin: a position of the channel, not a time of any clock."""
    begins = connection.response and connection.response.headers.get(BEGINS)
    return Position.parse(begins) if begins else None


def _final(error: Exception) -> Rejected | None:
    """What the hub said, where asking again would not help."""
    if isinstance(error, ConnectionClosed) and error.rcvd and error.rcvd.code in FINAL_CODES:
        return Rejected(error.rcvd.reason, close_code=error.rcvd.code)
    if isinstance(error, InvalidStatus) and 400 <= error.response.status_code < 429:
        return Rejected(
            _detail(error.response.body or b"") or str(error), status=error.response.status_code
        )
    if (why := untrusted(error)) is not None:
        return Rejected(f"the hub is not spoken to: {why}")
    return None


def _in_short(error: Exception) -> str:
    """What went wrong, in a line of the log; the channel will be tried again."""
    if isinstance(error, ConnectionClosed):
        return f"the connection was lost ({_last_words(error)})"
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        return f"the hub cannot serve the channel now ({status} {error.response.reason_phrase})"
    if isinstance(error, (OSError, InvalidHandshake)):
        return f"the hub cannot be reached ({cause_of(error)})"
    return str(error)


def _last_words(error: ConnectionClosed) -> str:
    closed = error.rcvd
    return f"{closed.code} {closed.reason}".strip() if closed else "the hub is gone"


def _detail(body: bytes | bytearray) -> str | None:
    try:
        return msgspec.json.decode(body, type=dict[str, object]).get("detail")  # type: ignore[return-value]
    except msgspec.DecodeError:
        return None
