"""Who may read a channel, from which position, and how all readers are disconnected at the end.

A reader without the right to read gets an HTTP error. A reader that asks for a position which
cannot be served gets a close code. Nothing here writes a notification.

`ReaderLimits` says how many readers a channel may have, and how many may come from one address;
behind a trusted proxy that is the address of the client.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import time
from typing import NamedTuple

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket, WebSocketDisconnect

from rsnotify.access.access import Access
from rsnotify.access.cors import origins_that_read
from rsnotify.access.query import (
    CHANNEL,
    LAST_EVENT_ID,
    SEVERAL_CHANNELS,
    check_not_future,
    form_of,
    parse_cursors,
    parse_moment,
    parse_query,
    parse_sets,
    parse_start,
    render_cursors,
)
from rsnotify.access.sent_token import SUBPROTOCOL
from rsnotify.channels.channel import ChannelReaders, Sent
from rsnotify.channels.plain_asgi import MessageReader, SendingTransport, texts_of
from rsnotify.channels.reader import Keepalive, Reader, ReaderInput
from rsnotify.channels.several import SeveralChannels
from rsnotify.errors import BecamePrivate, HistoryDeleted, NoSuchSet, Rejected, TooMany, TryAgain
from rsnotify.http.connection_limits import LimitedCounts
from rsnotify.journal.feed import Feed
from rsnotify.journal.journals import Journals
from rsnotify.journal.set_options import SetRecord
from rsnotify.loops import repeat
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.forms import JSON, XML, Form
from rsnotify.resourcesync.notification import FROM_HEADER, ChannelName, Kind, kind_named

RETRY_SECONDS = 10


class Audience(NamedTuple):
    """Readers that are counted together."""

    set_name: str
    kind: str
    form: str  # in which they are written to


class ReaderLimits:
    """Counts readers, of each channel and from each address, and refuses those above a limit."""

    def __init__(self, *, per_channel: int = 50_000, per_address: int = 20_000) -> None:
        self._channels = LimitedCounts[ChannelName](per_channel)
        self.addresses = LimitedCounts[str](per_address)
        self.audiences = LimitedCounts[Audience]()

    def check(self, address: str, channels: Iterable[ChannelName]) -> None:
        """Refuse a reader that would be one too many."""
        if self.addresses.is_full(address):
            detail = f"your address has {self.addresses.limit} channels open: close some"
            raise TooMany(detail, retry_after_seconds=RETRY_SECONDS)
        for channel in channels:
            if self._channels.is_full(channel):
                detail = f"{channel} has {self._channels.limit} readers; try again later"
                raise TryAgain(detail, retry_after_seconds=RETRY_SECONDS)

    def enter(self, reader: Reader, address: str, channels: Collection[ChannelName]) -> None:
        """Count a reader; others may have come since it was checked."""
        self.check(address, channels)
        reader.counted_for = sys.intern(address)  # one string for all readers of this address
        self.addresses.take(reader.counted_for)
        for channel in channels:
            self._channels.take(channel)
            self.audiences.take(Audience(*channel, reader.wire_format.name))

    def leave(self, reader: Reader, channels: Iterable[ChannelName]) -> None:
        """Count the reader no more; one that was not counted changes nothing."""
        address, reader.counted_for = reader.counted_for, None
        if address is None:
            return
        self.addresses.give_back(address)
        for channel in channels:
            self._channels.give_back(channel)
            self.audiences.give_back(Audience(*channel, reader.wire_format.name))


log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
REVOKED = "the token has been revoked or has expired"


class Revocations:
    """Knows which readers use which token, and closes those whose token has ended."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._readers: dict[str, set[Reader]] = {}

    def add(self, reader: Reader, token: str) -> None:
        """Note a reader; `token` is the key of its token, empty if it needed none."""
        if token:
            self._readers.setdefault(token, set()).add(reader)

    async def run(self) -> None:
        """Check for as long as the hub runs."""
        await repeat(self.check, CHECK_SECONDS)

    async def check(self) -> None:
        """Close the readers of revoked tokens; those of JWTs also while Redis is away."""
        self._forget_closed()
        self._close(self._access.ended_jwts(self._readers))
        self._close(await self._access.revoked(list(self._readers)))

    def _close(self, tokens: Iterable[str]) -> None:
        for token in tokens:
            for reader in self._readers.pop(token, ()):
                reader.close(1008, REVOKED)

    def _forget_closed(self) -> None:
        for token, readers in list(self._readers.items()):
            readers -= {reader for reader in readers if not reader.is_open}
            if not readers:
                del self._readers[token]


JSON_SUBPROTOCOL = "rsnotify.json"
XML_SUBPROTOCOL = "rsnotify.xml"


class ChannelCursor(NamedTuple):
    """A channel that a reader asks for, and the position from which on; None means now."""

    channel: ChannelName
    after: Position | None


class Admitted(NamedTuple):
    """The sets that a reader may read, as they were when that was decided."""

    sets: Sequence[SetRecord]
    token: str  # the key of the token that it used, empty if none was needed


class ChannelEntry(NamedTuple):
    """Where an admitted reader begins: in one channel, or in several over one connection."""

    places: Sequence[tuple[ChannelName, Position]]
    is_several: bool
    admitted: Admitted
    form: Form
    address: str  # of the peer, to which limits apply

    @property
    def cursor(self) -> str:
        """Its cursor, as the reader gets it and may send it back."""
        if not self.is_several:
            return str(self.places[0][1])
        return render_cursors((name.set_name, cursor) for name, cursor in self.places)


def requested_channels(connection: HTTPConnection, kind: Kind) -> list[ChannelCursor]:
    """The channel of the set in the path, or the channels of the sets in the query."""
    requested_form(connection)  # refused before anything else is done
    text, last = connection.scope["query_string"], connection.headers.get("last-event-id")
    set_name = connection.path_params.get("set")
    if set_name is not None:
        start = parse_start(parse_query(text, CHANNEL))
        after = parse_moment(last, LAST_EVENT_ID) if last else start
        return [ChannelCursor(ChannelName(set_name, kind), after)]
    cursors = parse_cursors(last) if last else {}
    return [
        ChannelCursor(ChannelName(name, kind), cursors.get(name, start))
        for name, start in parse_sets(parse_query(text, SEVERAL_CHANNELS))
    ]


def subprotocol_of(connection: HTTPConnection) -> str | None:
    """The one subprotocol of the hub that the peer offers; one that brings a token is no choice."""
    offered = connection.scope.get("subprotocols", ())
    for known in (JSON_SUBPROTOCOL, XML_SUBPROTOCOL):
        if known in offered:
            return known
    if any(each.startswith(SUBPROTOCOL) for each in offered):
        also = f"offer {JSON_SUBPROTOCOL} or {XML_SUBPROTOCOL} beside the token"
        raise Rejected(f"{also}: a browser wants one of its subprotocols chosen")
    return None


def requested_form(connection: HTTPConnection) -> Form:
    """XML, or JSON for those who ask for it; a web page can ask by a WebSocket's subprotocol."""
    if subprotocol_of(connection) == JSON_SUBPROTOCOL:
        return JSON
    return form_of(connection)


READER = (
    "rsnotify.reader"  # the ASGI extension through which the handshake hands over the connection
)
DRAIN_STEPS = 100
MADE_AGAIN = "this position is of a set that was removed; the one of this name begins at {}"
DRAINED = 1001, "the hub is shutting down; reconnect with your cursor"


class Channels:
    """All channels that have readers, and the WebSocket endpoint of every channel."""

    def __init__(
        self,
        journals: Journals,
        access: Access,
        keepalive: Keepalive,
        *,
        allowed_origins: tuple[str, ...] | None = None,
        limits: ReaderLimits | None = None,
        reader_input: ReaderInput | None = None,
    ) -> None:
        self._journals = journals
        self._access = access
        self._keepalive = keepalive
        self._allowed_origins = allowed_origins
        self._channels: dict[Feed, ChannelReaders] = {}
        self._several: set[SeveralChannels] = set()
        self.is_draining = False
        self.sent = Sent()
        self.limits = ReaderLimits() if limits is None else limits
        self.reader_input = ReaderInput() if reader_input is None else reader_input
        self.revocations = Revocations(access)

    async def websocket(self, websocket: WebSocket) -> None:
        """Refuse with an HTTP error, or accept the WebSocket and let it join its channels."""
        kind = kind_named(websocket.path_params["kind"])
        entry: ChannelEntry | Rejected | TryAgain
        try:
            wanted = requested_channels(websocket, kind)
        except Rejected as error:  # of the query: a web page sees a close code, but no status
            entry = error
        else:
            admitted = await self.admit(websocket, wanted)
            try:
                entry = await self.entry(websocket, wanted, admitted, self.cursor)
            except (Rejected, TryAgain) as error:  # sent as a close frame after the handshake
                entry = error
        await websocket.accept(
            subprotocol_of(websocket), headers=_start_header(entry)
        )  # the reader gets everything that is published from here on
        form = entry.form if isinstance(entry, ChannelEntry) else XML
        take_reader = websocket.scope["extensions"].get(READER)
        if take_reader is None:
            await self._send_by_server(websocket, form, entry)
            return
        reader = take_reader(form)
        if reader is not None:  # None if the peer has left meanwhile
            self.join(reader, entry)

    async def _send_by_server(
        self, websocket: WebSocket, form: Form, entry: ChannelEntry | Rejected | TryAgain
    ) -> None:
        """Serve a reader whose connection belongs to another ASGI server."""
        transport = SendingTransport()
        reader = MessageReader(transport, self.reader_input, form)
        reader.take_over()
        self.join(reader, entry)

        async def send(frames: bytes) -> None:
            for text in texts_of(frames):
                await websocket.send_text(text)

        with suppress(WebSocketDisconnect):
            await transport.run(websocket.receive, send)
            await websocket.close(transport.close_code, transport.close_reason)

    async def entry(
        self,
        connection: HTTPConnection,
        wanted: Sequence[ChannelCursor],
        admitted: Admitted,
        find_cursor: Callable[[ChannelName, Position | None], Awaitable[Position]],
    ) -> ChannelEntry:
        """Where a reader begins, and the address for which it counts."""
        return ChannelEntry(
            places=[(name, await find_cursor(name, after)) for name, after in wanted],
            is_several="set" not in connection.path_params,
            admitted=admitted,
            form=requested_form(connection),
            address=self._access.client_address(connection),
        )

    async def admit(self, connection: HTTPConnection, wanted: Sequence[ChannelCursor]) -> Admitted:
        """Refuse a peer that may not read all of these channels."""
        names = [each.channel.set_name for each in wanted]
        sets = self._journals.sets
        wanted_sets = {name: sets.get(name) for name in names}
        token = await self._access.require_readers(connection, wanted_sets)
        for each in wanted:
            self._journals.feed(each.channel)
        records = [self._journals.record(name) for name in names]
        is_private = any(record.private for record in records)
        self._check_origin(connection, is_private=is_private)
        address = self._access.client_address(connection)
        self.limits.check(address, [each.channel for each in wanted])
        return Admitted(records, token)

    def _check_origin(self, connection: HTTPConnection, *, is_private: bool) -> None:
        """A page must not read with the rights of its visitor; browsers say its origin."""
        origin = connection.headers.get("origin")
        if origin is None or origin == self._access.own_origin(connection):
            return
        allowed = origins_that_read(self._allowed_origins, is_private=is_private)
        if not {origin, "*"} & {*allowed}:
            raise Rejected(
                "pages of this origin may not read this channel; see RSNOTIFY_ALLOWED_ORIGINS",
                status=403,
            )

    def reads_by_cookie(self, origin: str) -> bool:
        """Whether pages of this other origin may send their visitor's cookie."""
        return origin in self._access.cookie_origins

    def join(self, reader: Reader, entry: ChannelEntry | Rejected | TryAgain) -> None:
        """Let the reader follow its channels, or close it with the reason."""
        try:
            if not isinstance(entry, ChannelEntry):
                raise entry
            if self.is_draining:
                reader.close(*DRAINED)
            elif reader.is_open:
                self._check_unchanged(entry.admitted.sets)
                self._enter(reader, entry)
                self.revocations.add(reader, entry.admitted.token)
        except (Rejected, TryAgain) as error:
            reader.close(error.close_code, error.detail)

    def _check_unchanged(self, admitted: Sequence[SetRecord]) -> None:
        """Refuse a reader that had not joined yet when the readers of its set were closed. A peer
        chooses how long it takes from its admission until it joins."""
        for before in admitted:
            record = self._journals.record(before.name)
            if record.created != before.created:
                raise NoSuchSet(before.name)
            if record.private > before.private:
                raise BecamePrivate(before.name)

    def _enter(self, reader: Reader, entry: ChannelEntry) -> None:
        places = [(self._journals.feed(name), cursor) for name, cursor in entry.places]
        names = [feed.channel for feed, _ in places]
        self.limits.enter(reader, entry.address, names)
        if entry.is_several:
            leave = self._leave_several
            several = SeveralChannels(self._journals, self._keepalive, reader, leave, self.sent)
            self._several.add(several)
            several.join(places)
        else:
            (feed, cursor) = places[0]
            self._channel_of(feed).join(reader, cursor)

    def _leave_several(self, several: SeveralChannels) -> None:
        self._several.discard(several)
        self.limits.leave(several.reader, [each.feed.channel for each in several.members()])

    async def cursor(self, name: ChannelName, after: Position | None) -> Position:
        """The position where a reader starts: the head, or the one that it asks for. A position
        before the set was made means that moment, unless another set had this name before."""
        feed = self._journals.feed(name)
        if after is None:
            return feed.give_head()
        if self._journals.known.is_former(name.set_name, after):
            raise HistoryDeleted(MADE_AGAIN.format(feed.created), Position.parse(feed.created))
        after = max(after, Position.parse(feed.created))
        if after <= feed.tail.head:
            return after
        head = await self._journals.head(name)  # another hub process may know newer changes
        check_not_future(after, head, int(time() * MICROSECONDS))
        return min(after, head)

    async def servable_cursor(self, name: ChannelName, after: Position | None) -> Position:
        """The cursor; raises if the journal no longer has all changes after the position."""
        cursor = await self.cursor(name, after)
        await self._journals.reading.after(self._journals.feed(name), cursor)
        return cursor

    def _channel_of(self, feed: Feed) -> ChannelReaders:
        channel = self._channels.get(feed)
        if channel is None:
            self._drop_channels_without_readers()
            leave = partial(self.limits.leave, channels=[feed.channel])
            channel = ChannelReaders(self._journals, feed, self._keepalive, self.sent, leave)
            self._channels[feed] = channel
        return channel

    def behind(self) -> dict[Feed, list[Position]]:
        """The cursors of readers that have not been sent everything, by channel."""
        found: dict[Feed, list[Position]] = {}
        for feed, channel in self._channels.items():
            if cursors := channel.behind():
                found[feed] = [*cursors]
        for several in self._several:
            for member in several.members():
                if member.cursor < member.feed.tail.head:
                    found.setdefault(member.feed, []).append(member.cursor)
        return found

    def _drop_channels_without_readers(self) -> None:
        for feed in [feed for feed, channel in self._channels.items() if not channel.is_read]:
            del self._channels[feed]

    async def drain(self, seconds: float) -> None:
        """Disconnect all readers, spread over this time, so that they do not all return at once."""
        self.is_draining = True
        readers = [reader for channel in self._channels.values() for reader in channel.readers]
        readers += [several.reader for several in self._several]
        step = -(-len(readers) // DRAIN_STEPS)
        for start in range(0, len(readers), step or 1):
            for reader in readers[start : start + step]:
                reader.close(*DRAINED)
            await asyncio.sleep(seconds / DRAIN_STEPS)


def _start_header(entry: ChannelEntry | Rejected | TryAgain) -> list[tuple[bytes, bytes]]:
    """The header with the reader's position, from which it can resume if nothing else came."""
    if not isinstance(entry, ChannelEntry):
        return []
    return [(FROM_HEADER.lower().encode(), entry.cursor.encode())]
