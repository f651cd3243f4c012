"""Who may read a channel, from which position, and how all readers are disconnected at the end.

A reader without the right to read gets an HTTP error. A reader that asks for a position which
cannot be served gets a close code. Nothing here writes a notification.
"""

import asyncio
from time import time

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from rsnotify.access import Access
from rsnotify.core.query import CHANNEL, check_not_future, parse_query, parse_start
from rsnotify.delivery.channels.channel import Channel
from rsnotify.delivery.channels.keepalive import Keepalive
from rsnotify.delivery.channels.reader import Reader
from rsnotify.delivery.channels.revocations import Revocations
from rsnotify.errors import Rejected, TryAgain
from rsnotify.feed import Feed
from rsnotify.hub import Hub
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import FROM_HEADER, KINDS, ChannelName

READER = (
    "rsnotify.reader"  # the ASGI extension through which the handshake hands over the connection
)
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
        self._channels: dict[Feed, Channel] = {}
        self._is_draining = False
        self.revocations = Revocations(access)

    async def websocket(self, websocket: WebSocket) -> None:
        """Refuse with an HTTP error, or accept the WebSocket and let it join its channel."""
        name, token = await self.admit(websocket)
        begin = await self._start_of(name, websocket)
        await websocket.accept(
            headers=_start_header(begin)
        )  # the reader gets everything that is published from here on
        take_reader = websocket.scope["extensions"][READER]
        self.join(take_reader(), name, begin, token)

    async def admit(self, connection: HTTPConnection) -> tuple[ChannelName, str]:
        """The requested channel, if the peer may read it; and the key of the token that it used."""
        name = channel_name(connection)
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

    async def _start_of(self, name: ChannelName, connection: HTTPConnection) -> Start:
        """The error is returned, not raised: it is sent as a close frame after the handshake."""
        try:
            return await self.cursor(name, requested_start(connection))
        except (Rejected, TryAgain) as error:
            return error

    async def cursor(self, name: ChannelName, after: Position | None) -> Position:
        """The position where a reader starts: the head, or the one that it asks for; what is before
        the set's first moment means that moment."""
        feed = self._hub.feed(name)
        if after is None:
            return feed.tail.head
        after = max(after, Position.parse(feed.created))
        if after <= feed.tail.head:
            return after
        head = await self._hub.head(name)  # another hub process may know newer changes
        check_not_future(after, head, int(time() * MICROSECONDS))
        return min(after, head)

    async def servable_cursor(self, name: ChannelName, after: Position | None) -> Position:
        """The same, but raises if the journal no longer has all changes after the position."""
        cursor = await self.cursor(name, after)
        await self._hub.after(self._hub.feed(name), cursor)
        return cursor

    def _channel_of(self, feed: Feed) -> Channel:
        channel = self._channels.get(feed)
        if channel is None:
            self._drop_channels_without_readers()
            channel = self._channels[feed] = Channel(self._hub, feed, self._keepalive)
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


def channel_name(connection: HTTPConnection) -> ChannelName:
    set_name, kind = connection.path_params["set"], connection.path_params["kind"]
    if kind not in KINDS:
        raise Rejected(f"there is no {kind} channel", status=404, close_code=4404)
    return ChannelName(set_name, kind)


def requested_start(connection: HTTPConnection) -> Position | None:
    return parse_start(parse_query(connection.scope["query_string"], CHANNEL))
