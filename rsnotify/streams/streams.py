"""The streams of every set: catch-up reads, waiting for more, what a stream says of itself.

A chunk is what `live.reading` gives to any reader at its cursor: read and rendered once for all who
are there. A read shows every change that was acknowledged before it came, by any hub process.
"""

from collections.abc import Mapping
from functools import partial
from time import time
from typing import NamedTuple

from isal import isal_zlib
from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access.access import Access
from rsnotify.access.caching import has_tag
from rsnotify.access.cors import Cors
from rsnotify.access.query import check_not_future
from rsnotify.channels.admission import ChannelEntry
from rsnotify.channels.channels import Channels
from rsnotify.channels.requested_channels import ChannelCursor
from rsnotify.gunzip import GZIP
from rsnotify.journal.window import whole_from
from rsnotify.journal.windows import Windows
from rsnotify.live.feed import Feed
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.forms import JSON, accepts_gzip
from rsnotify.resourcesync.notification import ChannelName, Kind, Notification
from rsnotify.sets.options import SetRecord
from rsnotify.streams.cursors import next_cursor
from rsnotify.streams.long_polls import LongPolls, PollEntry, PollResponse
from rsnotify.streams.replies import Lines, messages_of, reply_with, variant_of
from rsnotify.streams.stream_events import StreamEvents, control
from rsnotify.streams.stream_headers import (
    EMPTY,
    NO_STORE,
    Chunk,
    cache_control,
    etag,
    headers_of,
    vary,
)
from rsnotify.streams.stream_query import (
    Offset,
    Sentinel,
    StreamQuestion,
    parse_stream_question,
)


class RequestedStream(NamedTuple):
    """A request for a stream that the peer may read."""

    request: Request
    channel: ChannelName
    record: SetRecord  # of its set, as it was when that was decided
    feed: Feed
    token: str  # the key of the token that was used, empty if none was needed


class Streams:
    """Each channel as a Durable Stream."""

    def __init__(
        self,
        journals: Journals,
        access: Access,
        windows: Windows,
        channels: Channels,
        polls: LongPolls,
        cors: Cors,
        *,
        is_compressed: bool = True,
    ) -> None:
        self._journals = journals
        self._access = access
        self._windows = windows
        self._channels = channels
        self._polls = polls
        self._cors = cors
        self._is_compressed = is_compressed  # event streams

    async def changes(self, request: Request) -> Response:
        """A set's changes as a Durable Stream, from an offset on."""
        return await self._read(request, "change")

    async def framework(self, request: Request) -> Response:
        """The changes of a set's documents as a Durable Stream, from an offset on."""
        return await self._read(request, "framework")

    async def _read(self, request: Request, kind: Kind) -> Response:
        asked = parse_stream_question(request.scope["query_string"], kind)
        requested = await self._admit(request, kind)
        wanted = await self._journals.known_filter(asked.filter, [requested.channel])
        asked = asked._replace(filter=wanted)
        if asked.live == "sse" and request.method != "HEAD":
            return await self._events(requested, asked)
        if request.method == "HEAD":
            return await self._tail(requested)
        if asked.live == "long-poll":
            return await self._long_poll(requested, asked)
        if asked.offset is Sentinel.NOW:
            return await self._tail(requested, EMPTY)
        return await self._catch_up(requested, asked)

    async def _admit(self, request: Request, kind: Kind) -> RequestedStream:
        channel = ChannelName(request.path_params["set"], kind)
        name = channel.set_name
        record = self._journals.sets.get(name)
        token = await self._access.require_reader(request, name, record)
        record, feed = self._journals.record(name), self._journals.feed(channel)
        return RequestedStream(request, channel, record, feed, token)

    async def _tail(self, requested: RequestedStream, body: bytes = b"") -> Response:
        """Where the stream ends now, which no cache may keep."""
        await self._journals.catch_up(requested.feed)
        self._journals.require_unchanged(requested.record)
        head = requested.feed.note_head_given()
        headers = headers_of(requested.channel, head, is_newest=True)
        return Response(
            body, headers=headers | {"cache-control": NO_STORE}, media_type=JSON.media_type
        )

    # --- waiting ---------------------------------------------------------------------------------

    async def _long_poll(self, requested: RequestedStream, asked: StreamQuestion) -> Response:
        """What follows the offset, or the promise of it."""
        feed = requested.feed
        begin = await self._waiting_begin(feed, asked.offset)
        found = await self._journals.reading.matching_after(feed, begin, asked.filter)
        if found is not None and not found.count and found.until >= feed.tail.head:
            begin, found = found.until, None  # nothing that follows is for it: it waits
        self._journals.require_unchanged(requested.record)
        is_private = requested.record.private
        lines = _encoded(self._cors.headers(requested.request, is_private=is_private))
        is_now = asked.offset is Sentinel.NOW
        variant = variant_of(lines, is_shared=asked.is_canonical and not is_now)
        if found is not None:
            reply = reply_with(feed, found, is_private=is_private)
            cursor = self._polls.cursor(requested.channel, asked.cursor, found.until)
            self._polls.count(len(reply.body), 1)
            answer = Response(reply.body, reply.status)
            answer.raw_headers = [*reply.headers_for(variant, cursor)]
            return answer
        address = self._access.client_address(requested.request)
        self._channels.limits.check(address, [requested.channel], asked.filter)
        entry = PollEntry(feed, is_private, begin, address, requested.token, asked.filter)
        enter = partial(self._polls.enter, entry=entry)
        return PollResponse(enter, self._channels.reader_input, asked.cursor, variant)

    async def _events(self, requested: RequestedStream, asked: StreamQuestion) -> Response:
        """An event stream from the offset on: a reader of the channel, in a form of its own."""
        request, feed, admission = requested.request, requested.feed, self._channels.admission
        admitted = await admission.admit(request, [ChannelCursor(requested.channel, None)])
        begin = await self._waiting_begin(feed, asked.offset)
        await self._journals.reading.after(feed, begin)  # 410 is said before the stream begins
        places = [(requested.channel, begin)]
        address = self._access.client_address(request)
        self._channels.limits.check(address, [requested.channel], asked.filter)
        entry = ChannelEntry(places, False, admitted, JSON, address, asked.filter)
        in_gzip = self._is_compressed and accepts_gzip(request.headers.get("accept-encoding"))
        is_newest = feed.is_newest(begin)
        is_known = is_newest or asked.cursor is not None
        opening = (
            control(begin, next_cursor(asked.cursor, begin, 0), is_newest=is_newest)
            if is_known
            else b""
        )
        return StreamEvents.opened(self._channels, entry, opening, in_gzip=in_gzip)

    async def _waiting_begin(self, feed: Feed, offset: Offset) -> Position:
        """Where somebody begins who goes on to wait: at the head, or before it."""
        if offset is Sentinel.NOW:
            await self._journals.catch_up(feed)
            return feed.note_head_given()
        begin = await self._begin(feed, offset)
        if begin > feed.tail.head:
            await self._journals.catch_up(feed)
        return min(begin, feed.tail.head)

    # --- catching up -----------------------------------------------------------------------------

    async def _catch_up(self, requested: RequestedStream, asked: StreamQuestion) -> Response:
        feed = requested.feed
        begin = await self._begin(feed, asked.offset)
        found = await self._next(feed, begin)
        self._journals.require_unchanged(requested.record)
        head = feed.tail.head
        until = min(begin, head) if found is None else found.until
        if until == head:
            feed.note_head_given()
        chunk = Chunk(min(begin, until), until, is_newest=feed.is_newest(until))
        if found is not None and asked.filter is not None:
            found = asked.filter.pick(found)
        return _answer(requested, asked, chunk, found)

    async def _begin(self, feed: Feed, offset: Offset) -> Position:
        """The position that an offset stands for."""
        if not isinstance(offset, Position):
            return await self._beginning(feed)
        name = feed.channel
        self._journals.require_of_this_set(feed, offset)
        if offset > feed.tail.head:  # another hub process may know newer changes
            head = await self._journals.head(name)
            check_not_future(offset, head, int(time() * MICROSECONDS), "offset")
        return max(offset, Position.parse(feed.created))

    async def _beginning(self, feed: Feed) -> Position:
        """Where what is kept begins, behind the newest gap."""
        standing = await self._journals.reading.standing(feed.channel)
        first = standing.first
        if feed.channel.kind == "change":
            first = whole_from(await self._windows.span(feed.channel.set_name))
        return max(first, standing.gap, Position.parse(feed.created))

    async def _next(self, feed: Feed, begin: Position) -> Notification | None:
        """What follows, as much as one answer has; None at the end. What reaches the end as far as
        this process knows is looked for again once it has read all."""
        reading = self._journals.reading
        found = await reading.batch_after(feed, begin)
        if found is None or found.until >= feed.tail.head:
            await self._journals.catch_up(feed)
            found = await reading.batch_after(feed, begin)
        return found


def _encoded(headers: Mapping[str, str]) -> Lines:
    return tuple((name.encode(), value.encode("latin-1")) for name, value in headers.items())


def _answer(
    requested: RequestedStream, asked: StreamQuestion, chunk: Chunk, found: Notification | None
) -> Response:
    in_gzip = found is not None and accepts_gzip(requested.request.headers.get("accept-encoding"))
    is_private = requested.record.private
    kept = cache_control(chunk, int(time() * MICROSECONDS), is_private=is_private)
    headers = {
        **headers_of(requested.channel, chunk.until, is_newest=chunk.is_newest),
        "etag": etag(requested.record.created, chunk, in_gzip=in_gzip),
        # A question that is not canonical would have a copy of its own in each cache.
        "cache-control": kept if asked.is_canonical or is_private else NO_STORE,
        **vary(is_private=is_private),
    }
    if has_tag(requested.request.headers.get("if-none-match"), headers["etag"]):
        return Response(status_code=304, headers=headers)
    if found is not None and in_gzip:
        headers["content-encoding"] = "gzip"
        body = found.derived("chunk in gzip", _gzipped)
    else:
        body = messages_of(found)
    return Response(body, headers=headers, media_type=JSON.media_type)


def _gzipped(found: Notification) -> bytes:
    return isal_zlib.compress(messages_of(found), wbits=GZIP)
