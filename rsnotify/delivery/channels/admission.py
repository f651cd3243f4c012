"""Who may read a channel, from which position, and how all readers are disconnected at the end.

A reader without the right to read gets an HTTP error. A reader that asks for a position which
cannot be served gets a close code. Nothing here writes a notification.
"""

import asyncio
from datetime import UTC, datetime

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from rsnotify.access import Access
from rsnotify.delivery.channels.channel import ChannelReaders
from rsnotify.delivery.channels.keepalive import Keepalive
from rsnotify.delivery.channels.reader import Reader
from rsnotify.delivery.channels.revocations import Revocations
from rsnotify.errors import Rejected, TryAgain
from rsnotify.feed import Feed
from rsnotify.hub import Hub
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import FROM_HEADER, ChannelName

READER = (
    "rsnotify.reader"  # the ASGI extension through which the handshake hands over the connection
)
AHEAD_SECONDS = 5.0  # by how much the clocks of hub and Source may differ
DRAIN_STEPS = 100

Start = Position | Rejected | TryAgain  # the position where a reader starts, or why it cannot


class Channels:
    """All channels that have readers, and the WebSocket endpoint of every channel."""

    def __init__(
        self,
        hub: Hub,
        access: Access,
        keepalive: Keepalive,
        *,
        allowed_origins: tuple[str, ...] | None = None,
    ) -> None:
        self._hub = hub
        self._access = access
        self._keepalive = keepalive
        self._allowed_origins = allowed_origins
        self._channels: dict[Feed, ChannelReaders] = {}
        self._is_draining = False
        self.revocations = Revocations(access)

    async def websocket(self, websocket: WebSocket) -> None:
        """Refuse with an HTTP error, or accept the WebSocket and let it join its channel."""
        name, token = await self.admit(websocket)
        begin = await self._start_of(name, websocket.query_params.get("from"))
        await websocket.accept(
            headers=_start_header(begin)
        )  # the reader gets everything that is published from here on
        take_reader = websocket.scope["extensions"][READER]
        self.join(take_reader(), name, begin, token)

    async def admit(self, connection: HTTPConnection) -> tuple[ChannelName, str]:
        """The requested channel, if the peer may read it; and the key of the token that it used."""
        name = ChannelName.named(**connection.path_params)
        self._hub.feed(name)
        record = self._hub.record(name.set_name)
        self._check_origin(connection.headers.get("origin"), is_private=record.private)
        return name, await self._access.require_reader(connection, record)

    def _check_origin(self, origin: str | None, *, is_private: bool) -> None:
        """A page must not read with the rights of its visitor; browsers send its origin."""
        if origin is None:
            return
        allowed = self._allowed_origins
        if is_private if allowed is None else not {origin, "*"} & set(allowed):
            raise Rejected(
                "pages of this origin may not read this channel; see RSNOTIFY_ALLOWED_ORIGINS",
                status=403,
            )

    def join(self, reader: Reader, name: ChannelName, begin: Start, token: str = "") -> None:
        """Let the reader follow the channel, or close it with the reason."""
        try:
            if not isinstance(begin, Position):
                raise begin
            if self._is_draining:
                reader.close(1001, "the hub is shutting down; reconnect with your cursor")
            elif reader.is_open:
                self._channel_of(self._hub.feed(name)).join(reader, begin)
                self.revocations.add(reader, token)
        except (Rejected, TryAgain) as error:
            reader.close(error.close_code, error.detail)

    async def _start_of(self, name: ChannelName, after: str | None) -> Start:
        """The error is returned, not raised: it is sent as a close frame after the handshake."""
        try:
            return await self.cursor(name, after)
        except (Rejected, TryAgain) as error:
            return error

    async def cursor(self, name: ChannelName, after: str | None) -> Position:
        """The position where a reader starts: the head, or the one that it asks for."""
        feed = self._hub.feed(name)
        if after is None:
            return feed.tail.head
        cursor = parse_cursor(after)
        if cursor <= feed.tail.head:
            return cursor
        head = await self._hub.head(name)  # another hub process may know newer changes
        if cursor > max(head, _now() + AHEAD_SECONDS * 1_000_000):
            raise Rejected(f"`from` is in the future: {cursor}", close_code=4400)
        return min(cursor, head)

    async def servable_cursor(self, name: ChannelName, after: str | None) -> Position:
        """The same, but raises if the journal no longer has all changes after the position."""
        cursor = await self.cursor(name, after)
        await self._hub.after(self._hub.feed(name), cursor)
        return cursor

    def _channel_of(self, feed: Feed) -> ChannelReaders:
        channel = self._channels.get(feed)
        if channel is None:
            self._drop_channels_without_readers()
            channel = self._channels[feed] = ChannelReaders(self._hub, feed, self._keepalive)
        return channel

    def _drop_channels_without_readers(self) -> None:
        for feed in [feed for feed, channel in self._channels.items() if not channel.is_read]:
            del self._channels[feed]

    async def drain(self, seconds: float) -> None:
        """Disconnect all readers, spread over this time, so that they do not all return at once."""
        self._is_draining = True
        readers = [reader for channel in self._channels.values() for reader in channel.readers]
        step = -(-len(readers) // DRAIN_STEPS)
        for start in range(0, len(readers), step or 1):
            for reader in readers[start : start + step]:
                reader.close(1001, "the hub is shutting down; reconnect with your cursor")
            await asyncio.sleep(seconds / DRAIN_STEPS)


def _start_header(begin: Start) -> list[tuple[bytes, bytes]]:
    """Tells the reader where it starts, so that it can resume even if it gets no notification."""
    if not isinstance(begin, Position):
        return []
    return [(FROM_HEADER.lower().encode(), str(begin).encode())]


def parse_cursor(text: str) -> Position:
    try:
        return Position.parse(text)
    except ValueError as error:
        raise Rejected(f"malformed `from`: {error}", close_code=4400) from None


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1_000_000)
